"""Multi-head attention and transformer layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import functions as F
from ..extend import Array, Variable, as_variable
from ..initializer import Rng
from .affine import affine
from .layer_arguments import as_whole_number, fraction, size
from .layer_parameters import ZEROS, Init, glorot, inits, own_parameters, parameter
from .normalization import layer_normalization

Activation = Callable[[Variable], Variable] | None


@own_parameters("multi_head_attention")
def multi_head_attention(
    query: Array, key: Array, value: Array, num_heads: int = 12, dropout: float = 0.0, k_embed_dim: int | None = None,
    v_embed_dim: int | None = None, out_dim: int | None = None, rng: Rng | None = None, with_bias: bool = True,
    add_attn_bias: bool = False, additive_mask: Array | None = None, key_padding_mask: Array | None = None,
    fix_parameters: bool = False, param_init: Mapping[str, Init] | None = None, name: str | None = None,
) -> tuple[Variable, Variable]:
    """Multi-head attention, between linear projections of its inputs and of its output (Vaswani et al., 2017).

    Parameters: q_weight (D_q, E), k_weight (D_k, E), v_weight (D_v, E_v), out_weight (E_v, E_out), uniform within
    Glorot's limits; q_bias and k_bias (E,), v_bias (E_v,), out_bias (E_out,), zeros; with `add_attn_bias` attn_bias_k
    (1, 1, E) and attn_bias_v (1, 1, E_v), uniform within Glorot's limits.

    Args:
        k_embed_dim: E; by default D_q.
        v_embed_dim: E_v; by default D_v.
        out_dim: E_out; by default E_v.
        rng: Generator for the default initial values.
        with_bias: Whether there are biases.
        add_attn_bias: Whether there is an additional source, whose key and value are parameters.
        additive_mask: (targets, sources): added before the softmax; -inf hides a source.
        key_padding_mask: (batch, sources): a source is hidden where it is not 0.
        fix_parameters: Whether the parameters are constants.
        ...: As in `F.multi_head_attention`.

    Returns:
        (targets, batch, E_out), and the attention weights, (batch * num_heads, targets, sources), or sources + 1.

    Raises:
        ValueError: An argument is out of range, a shape does not fit, `param_init` names no parameter, or an existing
            parameter has another shape.
    """
    key, value = as_variable(key, "key"), as_variable(value, "value")
    for argument, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 3:
            raise ValueError(f"{argument} must be of shape (steps, batch, size), got {x.shape}")
    embed = query.shape[2] if k_embed_dim is None else size(k_embed_dim, "k_embed_dim")
    v_embed = value.shape[2] if v_embed_dim is None else size(v_embed_dim, "v_embed_dim")
    out = v_embed if out_dim is None else size(out_dim, "out_dim")
    fraction(dropout, "dropout")
    weights = {"q_weight": (query.shape[2], embed), "k_weight": (key.shape[2], embed),
               "v_weight": (value.shape[2], v_embed), "out_weight": (v_embed, out)}  # fmt: skip
    biases = {"q_bias": embed, "k_bias": embed, "v_bias": v_embed, "out_bias": out}
    more = {"attn_bias_k": embed, "attn_bias_v": v_embed}
    init = inits(param_init, (*weights, *biases, *more))
    parameters: dict[str, Variable] = {}
    for p, shape in weights.items():
        parameters[p] = parameter(p, shape, init[p], glorot(*shape, (), rng), fix_parameters)
    for p, length in biases.items() if with_bias else ():
        parameters[p] = parameter(p, (length,), init[p], ZEROS, fix_parameters)
    for p, length in more.items() if add_attn_bias else ():
        parameters[p] = parameter(p, (1, 1, length), init[p], glorot(length, 1, (), rng), fix_parameters)
    return F.multi_head_attention(
        query, key, value, num_heads, **parameters, dropout=dropout, additive_mask=additive_mask,
        key_padding_mask=key_padding_mask,
    )


@own_parameters("transformer")
def transformer(
    src: Array, tgt: Array, embed_dim: int = 512, num_heads: int = 8, num_encoder_layers: int = 6,
    num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = None,
    src_additive_mask: Array | None = None, tgt_additive_mask: Array | None = None,
    memory_additive_mask: Array | None = None, src_key_padding_mask: Array | None = None,
    tgt_key_padding_mask: Array | None = None, memory_key_padding_mask: Array | None = None, rng: Rng | None = None,
    add_attn_bias: bool = False, fix_parameters: bool = False, name: str | None = None,
) -> Variable:
    """A stack of `transformer_encode`, and one of `transformer_decode` that attends to it (Vaswani et al., 2017).

    Parameters: those of the layers, in the scopes encoder00, encoder01, ..., decoder00, decoder01, ...

    Args:
        src: (sources, batch, embed_dim).
        tgt: (targets, batch, embed_dim).
        embed_dim: Size of the last axis.
        num_heads: Number of heads; it divides `embed_dim`.
        num_encoder_layers: Number of layers for `src`.
        num_decoder_layers: Number of layers for `tgt`.
        dim_feedforward: Number of units between the two products of each layer.
        dropout: The probability of dropping elements; use 0 after training.
        activation: The function between these products; `F.relu` by default.
        src_additive_mask: (sources, sources): added in the self-attention of `src`; -inf hides a source.
        tgt_additive_mask: (targets, targets): the same for `tgt`.
        memory_additive_mask: (targets, sources): the same for the attention of `tgt` to the encoded `src`.
        src_key_padding_mask: (batch, sources): not 0 where the self-attention of `src` ignores a source.
        tgt_key_padding_mask: (batch, targets): the same for `tgt`.
        memory_key_padding_mask: (batch, sources): the same for the attention of `tgt` to the encoded `src`.
        rng: Generator for the initial values.
        ...: As in `multi_head_attention`.

    Returns:
        (targets, batch, embed_dim).
    """
    output = tgt = as_variable(tgt, "tgt", "transformer")
    if src.ndim != 3 or tgt.ndim != 3 or src.shape[1:] != tgt.shape[1:]:
        raise ValueError(
            "src and tgt must be of shape (steps, batch, embed_dim) with the same batch and embed_dim, got "
            f"{src.shape} and {tgt.shape}"
        )
    layers = {}
    for argument, count in (("num_encoder_layers", num_encoder_layers), ("num_decoder_layers", num_decoder_layers)):
        layers[argument] = as_whole_number(count, argument)
        if count < 0:
            raise ValueError(f"{argument} must not be negative, got {count}")
    memory = src
    for i in range(layers["num_encoder_layers"]):
        memory = transformer_encode(
            memory, embed_dim, num_heads, dim_feedforward, dropout, activation, src_additive_mask, src_key_padding_mask,
            rng, add_attn_bias, fix_parameters, name=f"encoder{i:02d}",
        )
    for i in range(layers["num_decoder_layers"]):
        output = transformer_decode(
            output, memory, embed_dim, num_heads, dim_feedforward, dropout, activation, tgt_additive_mask,
            memory_additive_mask, tgt_key_padding_mask, memory_key_padding_mask, rng, add_attn_bias, fix_parameters,
            name=f"decoder{i:02d}",
        )
    return output


@own_parameters("transformer_encode")
def transformer_encode(
    src: Array, embed_dim: int, num_heads: int, dim_feedforward: int = 2048, dropout: float = 0.1,
    activation: Activation = None, src_additive_mask: Array | None = None, src_key_padding_mask: Array | None = None,
    rng: Rng | None = None, add_attn_bias: bool = False, fix_parameters: bool = False, name: str | None = None,
) -> Variable:
    """A transformer encoder layer: self-attention of `src`, then a feed-forward network; each added, then normalised.

    Parameters: those of `multi_head_attention`, `affine` and `layer_normalization` in the scopes src_self_attn,
    enc_layer_norm1, enc_affine1, enc_affine2 and enc_layer_norm2.

    Args:
        dim_feedforward: Number of units between the two products.
        activation: The function between the two products; `F.relu` by default.
        src_additive_mask: (sources, sources): added in the attention; -inf hides a source.
        src_key_padding_mask: (batch, sources): not 0 where a source is ignored.
        ...: As in `transformer`.

    Returns:
        The shape of `src`.
    """
    layer = _Layer("enc", embed_dim, num_heads, dim_feedforward, dropout, activation, rng,
                   add_attn_bias, fix_parameters)  # fmt: skip
    src = layer.attended("src_self_attn", "enc_layer_norm1", src, src, src_additive_mask, src_key_padding_mask)
    return layer.fed_forward("enc_layer_norm2", src)


@own_parameters("transformer_decode")
def transformer_decode(
    tgt: Array, memory: Array, embed_dim: int, num_heads: int, dim_feedforward: int = 2048, dropout: float = 0.1,
    activation: Activation = None, tgt_additive_mask: Array | None = None, memory_additive_mask: Array | None = None,
    tgt_key_padding_mask: Array | None = None, memory_key_padding_mask: Array | None = None, rng: Rng | None = None,
    add_attn_bias: bool = False, fix_parameters: bool = False, name: str | None = None,
) -> Variable:
    """A transformer decoder layer: `transformer_encode` with additional attention to `memory`.

    Parameters: those of `multi_head_attention`, `affine` and `layer_normalization` in the scopes tgt_self_attn,
    dec_layer_norm1, tgt_memory_attn, dec_layer_norm2, dec_affine1, dec_affine2 and dec_layer_norm3.

    Args:
        tgt: (targets, batch, embed_dim).
        memory: (sources, batch, size): the output of the encoder.
        embed_dim: Size of the last axis of `tgt`.
        tgt_additive_mask: (targets, targets): added in the self-attention of `tgt`; -inf hides a target.
        memory_additive_mask: (targets, sources): the same for the attention to `memory`.
        tgt_key_padding_mask: (batch, targets): not 0 where the self-attention of `tgt` ignores a target.
        memory_key_padding_mask: (batch, sources): the same for the attention to `memory`.
        ...: As in `transformer_encode`.

    Returns:
        The shape of `tgt`.
    """
    layer = _Layer("dec", embed_dim, num_heads, dim_feedforward, dropout, activation, rng,
                   add_attn_bias, fix_parameters)  # fmt: skip
    tgt = layer.attended("tgt_self_attn", "dec_layer_norm1", tgt, tgt, tgt_additive_mask, tgt_key_padding_mask)
    tgt = layer.attended(
        "tgt_memory_attn", "dec_layer_norm2", tgt, memory, memory_additive_mask, memory_key_padding_mask
    )
    return layer.fed_forward("dec_layer_norm3", tgt)


class _Layer:
    """The parts of encoder and decoder layers."""

    def __init__(
        self, prefix: str, embed_dim: int, num_heads: int, dim_feedforward: int, dropout: float,
        activation: Activation, rng: Rng | None, add_attn_bias: bool, fixed: bool,
    ) -> None:  # fmt: skip
        self.prefix = prefix
        self.rng, self.add_attn_bias, self.fixed = rng, add_attn_bias, fixed
        self.embed_dim = size(embed_dim, "embed_dim")
        self.num_heads = size(num_heads, "num_heads")
        self.units = size(dim_feedforward, "dim_feedforward")
        self.dropout = fraction(dropout, "dropout")
        if activation is not None and not callable(activation):
            raise TypeError(f"activation must be a function of a Variable, got {activation!r}")
        self.activation = activation

    def attended(
        self, scope: str, norm: str, x: Variable, memory: Array, additive: Array | None, padding: Array | None
    ) -> Variable:
        """Attention of `x` to `memory`, added to `x`."""
        if x.ndim != 3 or x.shape[2] != self.embed_dim:
            raise ValueError(
                f"the input must be of shape (steps, batch, embed_dim), with embed_dim "
                f"{self.embed_dim}, got {x.shape}"
            )
        y, _ = multi_head_attention(
            x, memory, memory, self.num_heads, v_embed_dim=self.embed_dim, rng=self.rng,
            add_attn_bias=self.add_attn_bias, additive_mask=additive, key_padding_mask=padding,
            fix_parameters=self.fixed, name=scope,
        )
        return self._added(norm, x, y)

    def fed_forward(self, norm: str, x: Variable) -> Variable:
        """A feed-forward network, two products with an activation between them, added to `x`."""
        y = self._affine(x, self.units, 1)
        y = F.relu(y) if self.activation is None else self.activation(y)
        return self._added(norm, x, self._affine(self._with_dropout(y), self.embed_dim, 2))

    def _affine(self, x: Variable, outmaps: int, number: int) -> Variable:
        return affine(
            x, outmaps, base_axis=2, fix_parameters=self.fixed, rng=self.rng, name=f"{self.prefix}_affine{number}"
        )

    def _added(self, norm: str, x: Variable, y: Variable) -> Variable:
        added: Variable = layer_normalization(
            x + self._with_dropout(y), batch_axis=(0, 1), fix_parameters=self.fixed, name=norm
        )
        return added

    def _with_dropout(self, x: Variable) -> Variable:
        return F.dropout(x, p=self.dropout) if self.dropout else x
