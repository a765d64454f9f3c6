"""Attention: averages of values, weighted by how well their keys match a query."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from ..graph import Array, Variable, composite
from ..graph.arguments import Scalar, Share, as_int, coerced
from ..graph.leaf import as_variables
from ..graph.signatures import explained_by_name
from . import activation, array, comparison, contractions, indexing, linear, loops, movement, reduction, stochastic
from .query_blocks import by_blocks, heads_apart
from .shaping import swapaxes


@composite
def attention(
    query: Array, key: Array, value: Array, mask: Array | None = None, /, causal: bool = False,
    scale: Scalar | None = None, dropout: Share = 0.0,
) -> Variable:
    """`softmax(scale Q K' + mask) V` for each head, in memory linear in the sequence length rather than quadratic.

    As PyTorch's `scaled_dot_product_attention`. The weights of long sequences are computed for up to 128 queries at a
    time, and recomputed by tangents and by gradients of every order. 16-bit arrays are processed in float32.

    Args:
        query: (batch, heads, targets, size); floating.
        key: (batch, shared, sources, size), where `shared` divides `heads`: successive heads share a key.
        value: (batch, shared, sources, any size).
        mask: Broadcasts to (batch, heads, targets, sources). A bool mask is True where a target sees a source; a
            floating one is added before the softmax; -inf hides a source. None hides nothing. A target without visible
            sources gets 0.
        causal: Whether to hide source j from target i where j > i, in addition to `mask`.
        scale: The factor of the products of queries and keys; 1 / sqrt(size) by default.
        dropout: The probability of dropping each weight: 0 <= dropout < 1.

    Returns:
        (batch, heads, targets, size of `value`).

    Raises:
        TypeError: `query`, `key` or `value` is not floating, or `mask` is neither floating nor bool.
        ValueError: A shape does not fit, or `dropout` is out of range.
    """
    _check(query, key, value)
    (batch, heads, targets, size), (_, shared, sources, _) = query.shape, key.shape
    dtype = jnp.promote_types(jnp.promote_types(query.dtype, key.dtype), value.dtype)
    wide = jnp.promote_types(dtype, np.float32)
    mask = None if mask is None else _with_four_axes(mask, (batch, heads, targets, sources))
    if not sources:
        return array.constant(0, shape=(batch, heads, targets, value.shape[3]), dtype=dtype)
    groups = heads // shared
    if shared > 1 and heads_apart(batch * heads, targets, sources):
        apart = [query, key, value, *([] if mask is None or mask.shape[1] == 1 else [mask])]
        y = loops.each(
            lambda of: attention.body(of[0], of[1], of[2], of[3] if of[3:] else mask, causal, scale, dropout),
            [_parted(x, shared) for x in apart],
        )
        return movement.reshape(movement.transpose(y, axes=(1, 0, 2, 3, 4)), shape=(batch, heads, *y.shape[3:]))
    # XLA joins the batch axes of a product, and drops those of 1. Those are dropped here, for weights to have one shape
    # throughout: XLA would write them once for each. Two longer ones may be spread over devices, and stay.
    lead = tuple([n for n in (batch, shared) if n != 1])
    # With sources last, a gradient that sums over queries has them last: XLA takes half as long for such a product.
    k, v = (
        swapaxes(movement.reshape(array.in_dtype(x, wide), shape=(*lead, *x.shape[2:])), -1, -2) for x in (key, value)
    )
    factor = size**-0.5 if scale is None else scale
    arrays = {"query": array.in_dtype(query, wide)}
    if mask is not None and mask.shape[2] != 1:
        arrays["mask"] = mask
    if causal:
        arrays["number"] = movement.reshape(array.arange(0, targets, dtype=np.int32), shape=(1, 1, targets, 1))

    def average(of: Mapping[str, Variable]) -> Variable:
        many = of["query"].shape[2]
        together = (*lead, groups * many)
        products = contractions.einsum(
            movement.reshape(of["query"] * factor, shape=(*together, size)), k, equation="...td,...ds->...ts"
        )
        added, blind = _added(of.get("mask", mask), of.get("number"), sources, wide)
        if added is not None and groups > 1:
            products = movement.reshape(products, shape=(batch, heads, many, sources))
        elif added is not None and len(lead) < 2:
            joined = (added.shape[0] * added.shape[1],) if lead else ()
            added = movement.reshape(added, shape=(*joined, *added.shape[2:]))
        weights = movement.reshape(_weights(products, added, None, dropout), shape=(*together, sources))
        y = contractions.einsum(weights, v, equation="...ts,...ds->...td")
        y = movement.reshape(y, shape=(batch, heads, many, value.shape[3]))
        return y if blind is None else indexing.where(blind, 0, y)

    return array.in_dtype(by_blocks(average, arrays, sources), dtype)


def _parted(x: Variable, shared: int) -> Variable:
    """An array (batch, heads, ...) in `shared` groups of heads, along a new first axis."""
    x = movement.reshape(x, shape=(x.shape[0], shared, x.shape[1] // shared, *x.shape[2:]))
    return movement.transpose(x, axes=(1, 0, 2, 3, 4))


def _check(query: Variable, key: Variable, value: Variable) -> None:
    """Raise an error unless dtypes and shapes fit."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not x.spec.differentiable:
            raise TypeError(f"{name} must have a floating dtype, got {x.spec}")
        if x.ndim != 4:
            raise ValueError(f"{name} must be of shape (batch, heads, length, size), got {x.shape}")
    if key.shape[0] != query.shape[0] or key.shape[3] != query.shape[3] or value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"query {query.shape}, key {key.shape} and value {value.shape} do not match: all must have the same batch "
            "size, query and key the same last axis, and key and value the same heads and length"
        )
    if not query.shape[3]:
        raise ValueError(f"query must not be empty along its last axis, got shape {query.shape}")
    if not key.shape[1] or query.shape[1] % key.shape[1]:
        raise ValueError(f"the number of heads of key {key.shape} must divide that of query {query.shape}")


def _with_four_axes(mask: Variable, shape: tuple[int, ...]) -> Variable:
    """A mask that broadcasts to `shape`, with leading axes of size 1 added."""
    if mask.dtype != np.bool_ and not mask.spec.differentiable:
        raise TypeError(f"mask must have dtype bool or a floating dtype, got {mask.spec}")
    whole = (1,) * (4 - mask.ndim) + mask.shape
    if len(whole) != 4 or any([n not in (1, size) for n, size in zip(whole, shape, strict=True)]):
        raise ValueError(f"mask must broadcast to {shape}, got {mask.shape}")
    return movement.reshape(mask, shape=whole)


def _added(
    mask: Variable | None, numbers: Variable | None, sources: int, dtype: np.dtype
) -> tuple[Variable | None, Variable | None]:
    """The additive mask, and which targets see nothing; these are left unmasked to keep all finite. A bool mask is True
    where a source is seen. A target with a number sees no sources beyond it."""
    if mask is None and numbers is None:
        return None, None
    added = array.constant(0, dtype=dtype)
    if mask is not None:
        added = array.in_dtype(mask, dtype) if mask.spec.differentiable else indexing.where(mask, added, float("-inf"))
    if numbers is not None:
        later = comparison.less(numbers, array.arange(0, sources, dtype=np.int32))
        added = indexing.where(later, float("-inf"), added)
    if mask is None:
        return added, None
    blind = comparison.equal_scalar(reduction.amax(added, axis=3, keepdims=True), float("-inf"))
    return indexing.where(blind, 0, added), blind


def _weights(products: Variable, added: Variable | None, hidden: Variable | None, dropout: float) -> Variable:
    """The attention weights from the products of queries and keys, (batch, heads, targets, sources)."""
    if added is not None:
        products = products + added
    if hidden is not None:
        products = indexing.where(hidden, float("-inf"), products)
    weights = activation.softmax(products)
    return stochastic.dropout(weights, p=dropout) if dropout else weights


@composite
def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, additive_mask: Array | None = None, key_padding_mask: Array | None = None,
    /, num_heads: int = 1, dropout: float = 0.0,
) -> tuple[Variable, Variable]:
    """`softmax(Q K' / sqrt(d) + mask) V` for each head, with time steps first (Vaswani et al., 2017).

    Heads are blocks of equal size, d and d_v, of the last axis of `query`, `key` and `value`.

    Args:
        query: (targets, batch, heads * d); floating.
        key: (sources, batch, heads * d).
        value: (sources, batch, heads * d_v).
        additive_mask: (targets, sources), or (batch * heads, targets, sources): added to products before the softmax;
            -inf hides a source. None for 0.
        key_padding_mask: (batch, sources), of any dtype: a source is hidden where it is not 0. None to hide none. A
            target with all sources hidden gets NaN.
        num_heads: Number of heads.
        dropout: The probability of dropping each weight.

    Returns:
        The weighted averages, (targets, batch, heads * d_v), and the weights, (batch * heads, targets, sources).

    Raises:
        ValueError: A shape does not fit, `num_heads` does not divide the last axes, or `dropout` is out of range.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 3:
            raise ValueError(f"{name} must be of shape (steps, batch, heads * size), got {x.shape}")
        if num_heads < 1 or not x.shape[2] or x.shape[2] % num_heads:
            raise ValueError(f"num_heads must divide the last axis of {name} {x.shape}, got {num_heads}")
    targets, batch, size = query.shape
    sources = key.shape[0]
    if key.shape[1:] != (batch, size) or value.shape[:2] != (sources, batch):
        raise ValueError(
            f"query {query.shape}, key {key.shape} and value {value.shape} do not match: all must have the same batch "
            "size, query and key the same last axis, and key and value the same number of steps"
        )
    shapes = (targets, sources), (batch * num_heads, targets, sources)
    if additive_mask is not None and additive_mask.shape not in shapes:
        raise ValueError(f"additive_mask must be of shape {shapes[0]} or {shapes[1]}, got {additive_mask.shape}")
    if key_padding_mask is not None and key_padding_mask.shape != (batch, sources):
        raise ValueError(f"key_padding_mask must be of shape {(batch, sources)}, got {key_padding_mask.shape}")
    sizes = (batch, num_heads)
    q, k, v = (
        movement.reshape(x, shape=(x.shape[0], *sizes, x.shape[2] // num_heads))
        for x in (query * (size // num_heads) ** -0.5, key, value)
    )
    if additive_mask is not None and additive_mask.ndim == 3:
        additive_mask = movement.reshape(additive_mask, shape=(*sizes, targets, sources))
    hidden = None if key_padding_mask is None else movement.reshape(key_padding_mask, shape=(batch, 1, 1, sources))
    weights = _weights(contractions.einsum(q, k, equation="tbhd,sbhd->bhts"), additive_mask, hidden, dropout)
    # XLA is slower at products whose batch axes do not come first, so they are moved afterwards.
    y = contractions.einsum(weights, v, equation="bhts,sbhd->bhtd")
    y = movement.reshape(movement.transpose(y, axes=(2, 0, 1, 3)), shape=(targets, batch, value.shape[2]))
    return y, movement.reshape(weights, shape=shapes[1])


@explained_by_name
def multi_head_attention(
    query: Array, key: Array, value: Array, num_heads: int, q_weight: Array, k_weight: Array, v_weight: Array,
    out_weight: Array, q_bias: Array | None = None, k_bias: Array | None = None, v_bias: Array | None = None,
    out_bias: Array | None = None, attn_bias_k: Array | None = None, attn_bias_v: Array | None = None,
    dropout: float = 0.0, additive_mask: Array | None = None, key_padding_mask: Array | None = None,
) -> tuple[Variable, Variable]:
    """`scaled_dot_product_attention` between linear projections of its inputs and of its output.

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
        attn_bias_k: E elements: the key of one additional source, which no mask hides. None for no such source.
        attn_bias_v: E_v elements: the value of that source.
        dropout: The probability of dropping each attention weight.
        additive_mask: As in `scaled_dot_product_attention`, without the additional source.
        key_padding_mask: As in `scaled_dot_product_attention`, without the additional source.

    Returns:
        (targets, batch, E_out), and the weights of the average, (batch * heads, targets, sources), or sources + 1.

    Raises:
        TypeError: `num_heads` is not an int.
        ValueError: A shape does not fit, `num_heads` does not divide E and E_v, `dropout` is out of range, or only one
            of `attn_bias_k` and `attn_bias_v` is given.
    """
    name = "multi_head_attention"
    num_heads = coerced(as_int, num_heads, f"{name}: num_heads")
    required = {"query": query, "key": key, "value": value, "q_weight": q_weight, "k_weight": k_weight,
                "v_weight": v_weight, "out_weight": out_weight}  # fmt: skip
    optional = {"q_bias": q_bias, "k_bias": k_bias, "v_bias": v_bias, "out_bias": out_bias,
                "attn_bias_k": attn_bias_k, "attn_bias_v": attn_bias_v, "additive_mask": additive_mask,
                "key_padding_mask": key_padding_mask}  # fmt: skip
    arrays = required | optional
    inputs = dict(zip(arrays, as_variables([*arrays.values()], [*arrays], name, len(required)), strict=True))
    q, k, v = (_projected(inputs, x, f"{x[0]}_weight", f"{x[0]}_bias") for x in ("query", "key", "value"))
    additive, padding = inputs["additive_mask"], inputs["key_padding_mask"]
    more_key, more_value = inputs["attn_bias_k"], inputs["attn_bias_v"]
    if (more_key is None) != (more_value is None):
        raise ValueError(f"{name}: attn_bias_k and attn_bias_v must be given together")
    if more_key is not None:
        k = _with_one_more(k, more_key, "attn_bias_k")
        v = _with_one_more(v, more_value, "attn_bias_v")
        additive, padding = _with_column(additive), _with_column(padding)
    y, weights = scaled_dot_product_attention.body(q, k, v, additive, padding, num_heads, dropout)
    inputs["y"] = y
    return _projected(inputs, "y", "out_weight", "out_bias"), weights


def _projected(inputs: dict[str, Variable], x: str, weight: str, bias: str) -> Variable:
    """The input `x` times a weight, plus a bias if there is one."""
    value, w, b = inputs[x], inputs[weight], inputs[bias]
    if value.ndim != 3:
        raise ValueError(f"{x} must be of shape (steps, batch, size), got {value.shape}")
    if w.ndim != 2 or w.shape[0] != value.shape[2]:
        raise ValueError(f"{weight} must be of shape ({value.shape[2]}, n), got {w.shape}")
    if b is not None and b.shape != w.shape[1:]:
        raise ValueError(f"{bias} must be of shape {w.shape[1:]}, got {b.shape}")
    return linear.affine.body(value, w, b, 2)


def _with_one_more(x: Variable, row: Variable, argument: str) -> Variable:
    """`x` with one more step, equal to `row` for the whole batch."""
    if row.shape not in ((x.shape[2],), (1, 1, x.shape[2])):
        raise ValueError(f"{argument} must be of shape {(x.shape[2],)}, got {row.shape}")
    last = movement.broadcast(movement.reshape(row, shape=(1, 1, x.shape[2])), shape=(1, *x.shape[1:]))
    return movement.concatenate(x, last, axis=0)


def _with_column(mask: Variable | None) -> Variable | None:
    """A mask extended by one source, which it does not hide."""
    return None if mask is None else movement.pad(mask, pad_width=(0, 1))
