"""Attention: values averaged by how well their keys meet a query."""

from __future__ import annotations

from ..graph import Array, Variable, composite
from ..graph.arguments import as_int
from ..graph.leaf import as_variables
from ..graph.refusals import explained_by_name
from . import activation, contractions, indexing, linear, movement, stochastic


@composite
def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, additive_mask: Array | None = None, key_padding_mask: Array | None = None,
    /, num_heads: int = 1, dropout: float = 0.0,
) -> tuple[Variable, Variable]:
    """`softmax(Q K' / sqrt(d) + mask) V` for each head by itself, steps first (Vaswani et al., 2017).

    Heads are blocks of equal size, d and d_v, of the last axis of `query`, `key` and `value`.

    Args:
        query: (targets, batch, heads * d); floating.
        key: (sources, batch, heads * d).
        value: (sources, batch, heads * d_v).
        additive_mask: (targets, sources), or (batch * heads, targets, sources): added to products before the softmax;
            -inf hides a source. None for 0.
        key_padding_mask: (batch, sources), of any dtype: a source is hidden where it is not 0. None to hide none. A
            target to which all are hidden gets NaN.
        num_heads: Number of heads.
        dropout: With what probability each weight is dropped.

    Returns:
        What is averaged, (targets, batch, heads * d_v), and the weights that it was averaged with,
        (batch * heads, targets, sources).

    Raises:
        ValueError: A shape does not fit, `num_heads` does not divide the last axes, or `dropout` is out of range.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 3:
            raise ValueError(f"{name} must be of shape (steps, batch, heads * size), got {x.shape}")
        if num_heads < 1 or not x.shape[2] or x.shape[2] % num_heads:
            raise ValueError(f"num_heads {num_heads} does not divide the last axis of {name} {x.shape}")
    targets, batch, size = query.shape
    sources = key.shape[0]
    if key.shape[1:] != (batch, size) or value.shape[:2] != (sources, batch):
        raise ValueError(
            f"query {query.shape}, key {key.shape} and value {value.shape} do not fit: they must share the batch, "
            "query and key their last axis, key and value their steps"
        )
    shapes = (targets, sources), (batch * num_heads, targets, sources)
    if additive_mask is not None and additive_mask.shape not in shapes:
        raise ValueError(f"additive_mask must be of shape {shapes[0]} or {shapes[1]}, got {additive_mask.shape}")
    if key_padding_mask is not None and key_padding_mask.shape != (batch, sources):
        raise ValueError(f"key_padding_mask must be of shape {(batch, sources)}, got {key_padding_mask.shape}")
    scaled = query * (size // num_heads) ** -0.5
    q, k, v = (
        movement.reshape(x, shape=(x.shape[0], batch, num_heads, x.shape[2] // num_heads)) for x in (scaled, key, value)
    )
    weights = contractions.einsum(q, k, equation="tbhd,sbhd->bhts")
    if additive_mask is not None:
        if additive_mask.ndim == 3:
            additive_mask = movement.reshape(additive_mask, shape=weights.shape)
        weights = weights + additive_mask
    if key_padding_mask is not None:
        hidden = movement.reshape(key_padding_mask, shape=(batch, 1, 1, sources))
        weights = indexing.where(hidden, float("-inf"), weights)
    weights = activation.softmax(weights, axis=3)
    if dropout:
        weights = stochastic.dropout(weights, p=dropout)
    # XLA takes longer over a product whose batch axes are not the first, so they are moved afterwards.
    y = movement.transpose(contractions.einsum(weights, v, equation="bhts,sbhd->bhtd"), axes=(2, 0, 1, 3))
    y = movement.reshape(y, shape=(targets, batch, value.shape[2]))
    return y, movement.reshape(weights, shape=shapes[1])


@explained_by_name
def multi_head_attention(
    query: Array, key: Array, value: Array, num_heads: int, q_weight: Array, k_weight: Array, v_weight: Array,
    out_weight: Array, q_bias: Array | None = None, k_bias: Array | None = None, v_bias: Array | None = None,
    out_bias: Array | None = None, attn_bias_k: Array | None = None, attn_bias_v: Array | None = None,
    dropout: float = 0.0, additive_mask: Array | None = None, key_padding_mask: Array | None = None,
) -> tuple[Variable, Variable]:
    """`scaled_dot_product_attention` of inputs that are multiplied by weights, and so is what comes out.

    Args:
        query: (targets, batch, D_q); floating.
        key: (sources, batch, D_k).
        value: (sources, batch, D_v).
        num_heads: Number of heads; it divides E and E_v.
        q_weight: (D_q, E).
        k_weight: (D_k, E).
        v_weight: (D_v, E_v).
        out_weight: (E_v, E_out).
        q_bias: (E,); None for 0.
        k_bias: (E,); None for 0.
        v_bias: (E_v,); None for 0.
        out_bias: (E_out,); None for 0.
        attn_bias_k: E elements: the key of one more source, which no mask hides. None for no such source.
        attn_bias_v: E_v elements: the value of that source.
        dropout: With what probability each weight of the average is dropped.
        additive_mask: As for `scaled_dot_product_attention`, without the one source more.
        key_padding_mask: As for `scaled_dot_product_attention`, without the one source more.

    Returns:
        (targets, batch, E_out), and the weights of the average, (batch * heads, targets, sources), or sources + 1.

    Raises:
        TypeError: `num_heads` is no int.
        ValueError: A shape does not fit, `num_heads` does not divide E and E_v, `dropout` is out of range, or one of
            `attn_bias_k` and `attn_bias_v` is given and the other is not.
    """
    name = "multi_head_attention"
    try:
        num_heads = as_int(num_heads)
    except TypeError as error:
        raise TypeError(f"{name}: num_heads must be {error}, got {num_heads!r}") from None
    required = {"query": query, "key": key, "value": value, "q_weight": q_weight, "k_weight": k_weight,
                "v_weight": v_weight, "out_weight": out_weight}  # fmt: skip
    optional = {"q_bias": q_bias, "k_bias": k_bias, "v_bias": v_bias, "out_bias": out_bias,
                "attn_bias_k": attn_bias_k, "attn_bias_v": attn_bias_v, "additive_mask": additive_mask,
                "key_padding_mask": key_padding_mask}  # fmt: skip
    inputs = dict(zip(
        [*required, *optional],
        as_variables([*required.values(), *optional.values()], [*required, *optional], name, len(required)),
        strict=True,
    ))  # fmt: skip
    q, k, v = (_projected(inputs, x, f"{x[0]}_weight", f"{x[0]}_bias") for x in ("query", "key", "value"))
    additive, padding = inputs["additive_mask"], inputs["key_padding_mask"]
    more_key, more_value = inputs["attn_bias_k"], inputs["attn_bias_v"]
    if (more_key is None) != (more_value is None):
        raise ValueError(f"{name}: give both attn_bias_k and attn_bias_v, or neither")
    if more_key is not None:
        k = _with_one_more(k, more_key, "attn_bias_k")
        v = _with_one_more(v, more_value, "attn_bias_v")
        additive, padding = _with_column(additive), _with_column(padding)
    y, weights = scaled_dot_product_attention.body(q, k, v, additive, padding, num_heads, dropout)
    inputs["y"] = y
    return _projected(inputs, "y", "out_weight", "out_bias"), weights


def _projected(inputs: dict[str, Variable], x: str, weight: str, bias: str) -> Variable:
    """The input `x` times a weight, plus a bias if there is one."""
    given, w, b = inputs[x], inputs[weight], inputs[bias]
    if given.ndim != 3:
        raise ValueError(f"{x} must be of shape (steps, batch, size), got {given.shape}")
    if w.ndim != 2 or w.shape[0] != given.shape[2]:
        raise ValueError(f"{weight} must have two axes and {given.shape[2]} rows, got shape {w.shape}")
    if b is not None and b.shape != w.shape[1:]:
        raise ValueError(f"{bias} must be of shape {w.shape[1:]}, got {b.shape}")
    return linear.affine.body(given, w, b, 2)


def _with_one_more(x: Variable, row: Variable, argument: str) -> Variable:
    """`x` with one step more, which is `row` for the whole batch."""
    if row.shape not in ((x.shape[2],), (1, 1, x.shape[2])):
        raise ValueError(f"{argument} must be of shape {(x.shape[2],)}, got {row.shape}")
    last = movement.broadcast(movement.reshape(row, shape=(1, 1, x.shape[2])), shape=(1, *x.shape[1:]))
    return movement.concatenate(x, last, axis=0)


def _with_column(mask: Variable | None) -> Variable | None:
    """A mask for one source more, which it does not hide."""
    return None if mask is None else movement.pad(mask, pad_width=(0, 1))
