"""Attention against NumPy: masks, one source more, dropout, the layers of a transformer, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.parameter import clear_parameters, get_parameter, get_parameters
from tests.refusals import refused
from tests.together import Test, at_once

Parameters = dict[str, Any]


@pytest.fixture(autouse=True)
def _empty() -> None:
    clear_parameters()
    nn.seed(3)


def drawn(*shape: int, seed: int = 0) -> Any:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def leaf(x: Any) -> nn.Variable:
    """A leaf of float64."""
    return nn.Variable.from_numpy_array(np.asarray(x, np.float64))


def softmax(x: Any) -> Any:
    """Along the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attended(
    query: Any, key: Any, value: Any, heads: int, p: Parameters, additive: Any = 0.0, padding: Any = None
) -> Any:
    """Multi-head attention, one row of the batch and one head at a time; and the weights."""
    targets, batch, _ = query.shape
    projected = [x @ p[f"{n}_weight"] + p.get(f"{n}_bias", 0) for n, x in (("q", query), ("k", key), ("v", value))]
    outputs, weights = [], []
    for b in range(batch):
        parts = []
        for q, k, v in zip(*[np.split(x[:, b], heads, axis=1) for x in projected], strict=True):
            scores = q @ k.T / np.sqrt(q.shape[1]) + additive
            if padding is not None:
                scores = np.where(padding[b] != 0, -np.inf, scores)
            weights.append(softmax(scores))
            parts.append(weights[-1] @ v)
        outputs.append(np.concatenate(parts, 1))
    y = np.stack(outputs, 1)
    assert y.shape[:2] == (targets, batch)
    return y @ p["out_weight"] + p.get("out_bias", 0), np.stack(weights)


Q, K, V = drawn(3, 2, 5), drawn(4, 2, 3, seed=1), drawn(4, 2, 7, seed=2)
WEIGHTS = {"q_weight": drawn(5, 6, seed=3), "k_weight": drawn(3, 6, seed=4), "v_weight": drawn(7, 4, seed=5),
           "out_weight": drawn(4, 8, seed=6)}  # fmt: skip
BIASES = {"q_bias": drawn(6, seed=7), "k_bias": drawn(6, seed=8), "v_bias": drawn(4, seed=9),
          "out_bias": drawn(8, seed=10)}  # fmt: skip
ADDITIVE = np.where(np.tril(np.ones((3, 4)), 1) > 0, drawn(3, 4, seed=11), -np.inf)
PADDING = np.array([[0, 0, 1, 1], [0, 0, 0, 0]])


@at_once
@pytest.mark.parametrize("biases", [{}, BIASES])
@pytest.mark.parametrize("additive", [None, ADDITIVE])
@pytest.mark.parametrize("padding", [None, PADDING, PADDING > 0, PADDING.astype(np.float64)])
def test_multi_head_attention(biases: Parameters, additive: Any, padding: Any) -> Test:
    arguments = {n: leaf(x) for n, x in {**WEIGHTS, **biases}.items()}
    expected = attended(Q, K, V, 2, WEIGHTS | biases, 0.0 if additive is None else additive, padding)
    found = yield F.multi_head_attention(
        leaf(Q), leaf(K), leaf(V), 2, **arguments, additive_mask=additive, key_padding_mask=padding
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


@at_once
def test_inputs_in_nnabla_s_order() -> Test:
    inputs = [leaf(x) for x in (*WEIGHTS.values(), *BIASES.values())]
    y, _ = yield F.multi_head_attention(leaf(Q), leaf(K), leaf(V), 2, *inputs, None, None, 0.0, ADDITIVE, PADDING)
    np.testing.assert_allclose(y, attended(Q, K, V, 2, WEIGHTS | BIASES, ADDITIVE, PADDING)[0], rtol=1e-10)


@at_once
def test_one_source_more_that_no_mask_hides() -> Test:
    more_key, more_value = drawn(6, seed=12), drawn(1, 1, 4, seed=13)
    # What is multiplied by these weights gives the source itself.
    key = np.concatenate([K @ WEIGHTS["k_weight"], np.broadcast_to(more_key, (1, 2, 6))])
    value = np.concatenate([V @ WEIGHTS["v_weight"], np.broadcast_to(more_value, (1, 2, 4))])
    parameters = WEIGHTS | {"k_weight": np.eye(6), "v_weight": np.eye(4)}
    additive, padding = np.pad(ADDITIVE, ((0, 0), (0, 1))), np.pad(np.ones_like(PADDING), ((0, 0), (0, 1)))
    expected = attended(Q, key, value, 2, parameters, additive, padding)
    y, weights = yield F.multi_head_attention(
        leaf(Q), leaf(K), leaf(V), 2, **{n: leaf(x) for n, x in WEIGHTS.items()}, attn_bias_k=leaf(more_key),
        attn_bias_v=leaf(more_value), additive_mask=ADDITIVE, key_padding_mask=np.ones_like(PADDING),
    )
    np.testing.assert_allclose(y, expected[0], rtol=1e-10)
    np.testing.assert_allclose(weights, expected[1], rtol=1e-10)
    assert (weights[..., -1] == 1).all()


@at_once
def test_gradients_are_finite_where_sources_are_hidden() -> Test:
    leaves = [leaf(x) for x in (Q, K, V)]
    y, _ = F.multi_head_attention(
        *leaves, 2, **{n: leaf(x) for n, x in WEIGHTS.items()}, additive_mask=ADDITIVE, key_padding_mask=PADDING
    )
    first = nn.grad(F.sum(y * y), leaves)
    found = yield *first, *nn.grad(sum(F.sum(g * g) for g in first), leaves)
    hidden = np.zeros((4, 2), bool)
    hidden[2:, 0] = True
    assert all([np.isfinite(g).all() for g in found])
    for g in (*found[1:3], *found[4:]):
        assert not g[hidden].any() and g[~hidden].all()


def test_dropout_drops_weights() -> None:
    q, k = leaf(np.zeros((40, 2, 6))), leaf(np.zeros((50, 2, 6)))
    y, weights = F.scaled_dot_product_attention(q, k, k + 1, num_heads=3, dropout=0.25)
    nn.forward_all([y, weights])
    dropped = weights.d == 0
    assert 0.2 < dropped.mean() < 0.3
    np.testing.assert_allclose(weights.d[~dropped], 1 / 50 / 0.75)
    np.testing.assert_allclose(y.d[:, :, 0], weights.d.sum(2).reshape(2, 3, 40)[:, 0].T)


def test_the_parameters_of_multi_head_attention() -> None:
    query, key, value = (nn.Variable.from_numpy_array(x, dtype="float32") for x in (Q, K, V))
    y, weights = PF.multi_head_attention(
        query, key, value, 2, k_embed_dim=6, v_embed_dim=4, out_dim=8, add_attn_bias=True,
        param_init={"q_bias": 0.5, "out_bias": np.arange(8.0)},
    )
    p = {name.rpartition("/")[2]: x.d.astype(np.float64) for name, x in get_parameters().items()}
    assert [(name, x.shape) for name, x in p.items()] == [
        ("q_weight", (5, 6)), ("k_weight", (3, 6)), ("v_weight", (7, 4)), ("out_weight", (4, 8)), ("q_bias", (6,)),
        ("k_bias", (6,)), ("v_bias", (4,)), ("out_bias", (8,)), ("attn_bias_k", (1, 1, 6)), ("attn_bias_v", (1, 1, 4)),
    ]  # fmt: skip
    assert get_parameter("multi_head_attention/q_weight") is not None
    assert (y.shape, weights.shape) == ((3, 2, 8), (4, 3, 5))
    for name, limit in (("q_weight", 6 / 11), ("out_weight", 6 / 12), ("attn_bias_k", 6 / 7)):
        assert 0.5 * limit**0.5 < np.abs(p[name]).max() <= limit**0.5
    key_and_more = np.concatenate([K @ p["k_weight"], np.broadcast_to(p["attn_bias_k"], (1, 2, 6))])
    value_and_more = np.concatenate([V @ p["v_weight"], np.broadcast_to(p["attn_bias_v"], (1, 2, 4))])
    given = p | {"k_weight": np.eye(6), "v_weight": np.eye(4)}
    np.testing.assert_allclose(y.d, attended(Q, key_and_more, value_and_more, 2, given)[0], rtol=1e-4, atol=1e-5)
    clear_parameters()
    fixed, _ = PF.multi_head_attention(query, query, query, 5, with_bias=False, fix_parameters=True)
    assert not any(x.need_grad for x in fixed.parent.inputs)
    assert {n.rpartition("/")[2]: x.shape for n, x in get_parameters().items()} == dict.fromkeys(WEIGHTS, (5, 5))


# ---------------------------------------------------------------- transformers


def normalised(x: Any, p: Parameters, scope: str) -> Any:
    """Layer normalisation of the last axis."""
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return y * p[f"{scope}/layer_normalization/gamma"] + p[f"{scope}/layer_normalization/beta"]


def below(p: Parameters, scope: str) -> Parameters:
    """The parameters below a scope."""
    return {name.removeprefix(f"{scope}/"): x for name, x in p.items() if name.startswith(f"{scope}/")}


def fed(x: Any, p: Parameters, prefix: str) -> Any:
    """Two products with a rectifier between them."""
    h = np.maximum(x @ p[f"{prefix}_affine1/affine/W"] + p[f"{prefix}_affine1/affine/b"], 0)
    return h @ p[f"{prefix}_affine2/affine/W"] + p[f"{prefix}_affine2/affine/b"]


def encoded(x: Any, p: Parameters, heads: int, padding: Any) -> Any:
    """A layer of an encoder."""
    y, _ = attended(x, x, x, heads, below(p, "src_self_attn/multi_head_attention"), padding=padding)
    x = normalised(x + y, p, "enc_layer_norm1")
    return normalised(x + fed(x, p, "enc"), p, "enc_layer_norm2")


def decoded(x: Any, memory: Any, p: Parameters, heads: int, additive: Any, padding: Any) -> Any:
    """A layer of a decoder."""
    y, _ = attended(x, x, x, heads, below(p, "tgt_self_attn/multi_head_attention"), additive)
    x = normalised(x + y, p, "dec_layer_norm1")
    y, _ = attended(x, memory, memory, heads, below(p, "tgt_memory_attn/multi_head_attention"), padding=padding)
    x = normalised(x + y, p, "dec_layer_norm2")
    return normalised(x + fed(x, p, "dec"), p, "dec_layer_norm3")


def test_transformer() -> None:
    src, tgt = drawn(4, 2, 6), drawn(3, 2, 6, seed=1)
    causal = np.where(np.tril(np.ones((3, 3))) > 0, 0.0, -np.inf)
    y = PF.transformer(
        nn.Variable.from_numpy_array(src, dtype="float32"), nn.Variable.from_numpy_array(tgt, dtype="float32"),
        embed_dim=6, num_heads=2, num_encoder_layers=2, num_decoder_layers=1, dim_feedforward=5, dropout=0.0,
        tgt_additive_mask=causal, src_key_padding_mask=PADDING, memory_key_padding_mask=PADDING,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    for parameter in get_parameters().values():
        if not parameter.d.any():  # a bias: anything but zero
            parameter.d = drawn(*parameter.shape, seed=7)
    p = below({name: x.d.astype(np.float64) for name, x in get_parameters().items()}, "transformer")
    assert len(p) == 2 * 16 + 26
    memory = src
    for i in range(2):
        memory = encoded(memory, below(p, f"encoder{i:02d}/transformer_encode"), 2, PADDING)
    expected = decoded(tgt, memory, below(p, "decoder00/transformer_decode"), 2, causal, PADDING)
    y.forward()
    np.testing.assert_allclose(y.d, expected, rtol=1e-3, atol=1e-4)
    first = get_parameter("transformer/encoder00/transformer_encode/src_self_attn/multi_head_attention/q_weight").d
    clear_parameters()
    PF.transformer_encode(src.astype(np.float32), 6, 2, 5, dropout=0.5, activation=F.tanh, rng=np.random.default_rng(0))
    again = get_parameter("transformer_encode/src_self_attn/multi_head_attention/q_weight").d
    np.testing.assert_array_equal(first, again)


X = leaf(drawn(3, 2, 4))
W = leaf(np.eye(4))


test_what_is_refused = refused([
    (ValueError, "^scaled_dot_product_attention: num_heads must divide the last axis of query .*, got 3",
     lambda: F.scaled_dot_product_attention(X, X, X, num_heads=3)),
    (TypeError, "^multi_head_attention: num_heads must be an int, not a Variable",
     lambda: F.multi_head_attention(X, X, X, W, W, W, W, W)),
    (ValueError, "^transformer: src .* must be of shape", lambda: PF.transformer(X, X[:, :1], 4, 2)),
    (ValueError, "^transformer_encode: the input must be of shape .* with embed_dim 8",
     lambda: PF.transformer_encode(X, 8, 2)),
    (TypeError, "^transformer_decode: activation must be a function",
     lambda: PF.transformer_decode(X, X, 4, 2, activation="relu")),
], after=lambda: not get_parameters(grad_only=False))  # fmt: skip
