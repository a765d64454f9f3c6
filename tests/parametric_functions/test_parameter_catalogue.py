"""The parameters of every function of PF: names, shapes, whether they are trained, and what they start from.

The facts are those of nnabla 1.39, so that files of parameters mean the same in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import nngrad as nn
import nngrad.parametric_functions as PF
from nngrad.extend import Variable


class Fact(NamedTuple):
    """Of one parameter."""

    shape: tuple[int, ...]
    starts: float | tuple[float] | None = 0.0
    """A number that it is; a number that it is spread evenly up to, on both sides, in a tuple; None for whatever else.
    """
    trained: bool = True


Facts = dict[str, Fact]


def leaf(*shape: int) -> Variable:
    return Variable.from_numpy_array(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def glorot(inputs: int, outputs: int, kernel: int = 1) -> tuple[float]:
    """The limit of what is spread evenly with Glorot's variance."""
    return (math.sqrt(6 / (kernel * (inputs + outputs))),)


def kept(*shape: int, starts: Any = 0.0) -> Fact:
    """Of a parameter that is not trained."""
    return Fact(shape, starts, False)


def in_scope(scope: str, facts: Facts) -> Facts:
    return {f"{scope}/{name}": fact for name, fact in facts.items()}


VECTORS, IMAGES, W = leaf(2, 3, 4), leaf(2, 4, 6, 6), leaf(5, 4, 3)
STEPS, STATES = leaf(3, 2, 4), leaf(2, 1, 2, 5)
AFFINE = {"W": Fact((12, 5), glorot(12, 5)), "b": Fact((5,))}
CONVOLUTION = {"W": Fact((6, 4, 3, 2), glorot(4, 6, 6)), "b": Fact((6,))}
QUANTISED = {"affine": AFFINE, "convolution": CONVOLUTION}
CHANNELS = (1, 4, 1, 1)
STATISTICS = {"beta": Fact(CHANNELS), "gamma": Fact(CHANNELS, 1.0), "mean": kept(*CHANNELS),
              "var": kept(*CHANNELS, starts=1.0)}  # fmt: skip
NORMALISED = {"beta": Fact(CHANNELS), "gamma": Fact(CHANNELS, 1.0)}


def affine_of(scope: str, **more: Fact) -> Facts:
    return in_scope(scope, AFFINE | more)


def convolution_of(scope: str, **more: Fact) -> Facts:
    return in_scope(scope, CONVOLUTION | more)


def rounded(of: Callable[..., Facts], scope: str) -> Facts:
    """Those of a layer whose rounded weights are kept beside them."""
    w, b = [fact for name, fact in of("").items()]
    return of(scope, W_q=w._replace(trained=False), b_q=b._replace(trained=False))


def ranges(scope: str, shape: tuple[int, ...], limit: float) -> Facts:
    facts = {"qr_min": Fact(shape, -limit), "qr_max": Fact(shape, limit), "ql_min": kept(*shape),
             "ql_max": kept(*shape, starts=255.0)}  # fmt: skip
    return in_scope(f"{scope}min_max_quantize", facts)


def with_ranges(of: Callable[..., Facts], scope: str) -> Facts:
    axes = len(of("")["/W"].shape)
    return (rounded(of, scope) | ranges(f"{scope}/min_max_quantize_w/", (1,) * axes, 2.0)
            | ranges(f"{scope}/min_max_quantize_b/", (1,), 6.0))


def recurrent(scope: str, gates: tuple[int, ...], biases: tuple[int, ...]) -> Facts:
    return in_scope(scope, {
        "weight_l0": Fact((1, *gates, 5, 9), None), "weight": Fact((1, 1, *gates, 5, 10), None),
        "bias": Fact((2, 1, *biases, 5)),
    })  # fmt: skip


TABLE: dict[str, tuple[Callable[..., Any], Facts]] = {
    "affine": (lambda f: f(VECTORS, 5), affine_of("affine")),
    "svd_affine": (lambda f: f(VECTORS, 5, 2), in_scope("svd_affine", {
        "U": Fact((12, 2), None), "V": Fact((2, 5), None), "b": Fact((5,))})),
    "convolution": (lambda f: f(IMAGES, 6, (3, 2)), convolution_of("conv")),
    "svd_convolution": (lambda f: f(IMAGES, 6, (3, 2), 2), in_scope("svd_conv", {
        "U": Fact((8, 3, 2), None), "V": Fact((6, 8, 1, 1), None), "b": Fact((6,))})),
    "cpd3_convolution": (lambda f: f(IMAGES, 6, (3, 2), 3), in_scope("cpd3_conv", {
        "I": Fact((3, 4, 1, 1), None), "K": Fact((3, 3, 2), None), "O": Fact((6, 3, 1, 1), None), "b": Fact((6,))})),
    "deformable_convolution": (lambda f: f(IMAGES, 6, (3, 2), leaf(2, 12, 4, 5)), convolution_of("deformable_conv")),
    "depthwise_convolution": (lambda f: f(IMAGES, (3, 2), multiplier=2), in_scope("depthwise_conv", {
        "W": Fact((8, 3, 2), glorot(8, 4, 6)), "b": Fact((8,))})),
    "deconvolution": (lambda f: f(IMAGES, 6, (3, 2)), in_scope("deconv", {
        "W": Fact((4, 6, 3, 2), glorot(6, 4, 6)), "b": Fact((6,))})),
    "depthwise_deconvolution": (lambda f: f(IMAGES, (3, 2), divisor=2), in_scope("depthwise_deconv", {
        "W": Fact((4, 3, 2), glorot(4, 4, 6)), "b": Fact((2,))})),
    "rnn": (lambda f: f(STEPS, STATES), recurrent("rnn", (), ())),
    "lstm": (lambda f: f(STEPS, STATES, STATES), recurrent("lstm", (4,), (4,))),
    "gru": (lambda f: f(STEPS, STATES), recurrent("gru", (3,), (4,))),
    "lstm_cell": (lambda f: f(leaf(2, 4), leaf(2, 5), leaf(2, 5), 5), in_scope("lstm/affine", {
        "W": Fact((9, 4, 5), glorot(9, 20)), "b": Fact((4, 5))})),
    "fused_batch_normalization": (lambda f: f(IMAGES), in_scope("bn", STATISTICS)),
    "batch_normalization": (lambda f: f(IMAGES), in_scope("bn", STATISTICS)),
    "sync_batch_normalization": (lambda f: f(IMAGES, None), in_scope("bn", STATISTICS)),
    "mean_subtraction": (lambda f: f(IMAGES), in_scope("mean_subtraction", {"mean": kept(4, 6, 6), "t": kept(1)})),
    "layer_normalization": (lambda f: f(IMAGES), in_scope("layer_normalization", {
        "beta": Fact((1, 4, 6, 6)), "gamma": Fact((1, 4, 6, 6), 1.0)})),
    "instance_normalization": (lambda f: f(IMAGES), in_scope("instance_normalization", NORMALISED)),
    "group_normalization": (lambda f: f(IMAGES, 2), in_scope("group_normalization", NORMALISED)),
    "embed": (lambda f: f(np.array([1]), 7, 3), {"embed/W": Fact((7, 3), (math.sqrt(3),))}),
    "prelu": (lambda f: f(IMAGES), {"prelu/slope": Fact((), 0.25)}),
    "fixed_point_quantized_affine": (lambda f: f(VECTORS, 5), rounded(affine_of, "fp_quantized_affine")),
    "fixed_point_quantized_convolution": (lambda f: f(IMAGES, 6, (3, 2)), rounded(convolution_of, "fp_quantized_conv")),
    "pow2_quantized_affine": (lambda f: f(VECTORS, 5), rounded(affine_of, "pow2_quantized_affine")),
    "pow2_quantized_convolution": (lambda f: f(IMAGES, 6, (3, 2)), rounded(convolution_of, "pow2_quantized_conv")),
    "pruned_affine": (lambda f: f(VECTORS, 5), rounded(affine_of, "pruned_affine")),
    "pruned_convolution": (lambda f: f(IMAGES, 6, (3, 2)), rounded(convolution_of, "pruned_conv")),
    "min_max_quantize": (lambda f: f(VECTORS), ranges("", (1, 1, 1), 6.0)),
    "min_max_quantized_affine": (lambda f: f(VECTORS, 5), with_ranges(affine_of, "min_max_quantized_affine")),
    "min_max_quantized_convolution": (lambda f: f(IMAGES, 6, (3, 2)),
                                      with_ranges(convolution_of, "min_max_quantized_conv")),
    "spectral_norm": (lambda f: f(W), {"spectral-norm/u": kept(5, starts=None)}),
    "weight_normalization": (lambda f: f(W), {"wn/g": Fact((5,), None)}),
    "multi_head_attention": (lambda f: f(leaf(3, 2, 12), leaf(4, 2, 12), leaf(4, 2, 12)), in_scope(
        "multi_head_attention",
        {f"{name}_weight": Fact((12, 12), glorot(12, 12)) for name in ("q", "k", "v", "out")}
        | {f"{name}_bias": Fact((12,)) for name in ("q", "k", "v", "out")})),
}
"""A call of each function with as few arguments as there can be, and the facts of its parameters by their names."""

MADE_OF_OTHERS = {"transformer", "transformer_encode", "transformer_decode"}
"""Functions whose parameters are those of others of them."""

THERE = sorted(TABLE.keys() & vars(PF).keys())


def test_every_function_is_in_the_table() -> None:
    layers = {name for name, f in vars(PF).items() if hasattr(f, "__wrapped__")}
    assert layers <= TABLE.keys() | MADE_OF_OTHERS


@pytest.mark.parametrize("name", THERE)
def test_parameters_are_those_of_the_catalogue(name: str) -> None:
    nn.clear_parameters()
    nn.seed(0)
    call, facts = TABLE[name]
    call(getattr(PF, name))
    found = nn.get_parameters(grad_only=False)
    assert found.keys() == facts.keys()
    for key, p in found.items():
        fact = facts[key]
        assert p.shape == fact.shape, key
        assert p.need_grad == fact.trained, key
        if isinstance(fact.starts, float):
            assert (p.d == fact.starts).all(), key
        elif fact.starts is None:
            assert p.d.any(), key
        else:
            (limit,) = fact.starts
            assert np.abs(p.d).max() <= limit, key
            assert p.d.min() < -0.7 * limit < 0.7 * limit < p.d.max(), key
    nn.clear_parameters()
