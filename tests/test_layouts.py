"""Channels last around convolutions on CPUs: a pass at lowering, which changes no result and leaves few transposes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.layouts import with_channels_last
from nngrad.execution.lower import linearize
from nngrad.execution.program import Program, calls_of, in_one
from nngrad.graph import Variable

RNG = np.random.default_rng(0)


def leaf(*shape: int) -> Variable:
    return Variable.from_numpy_array(RNG.standard_normal(shape), need_grad=True)


def program_of(*outputs: Variable) -> tuple[Program, list[Any]]:
    program, leaves, *_ = linearize(outputs)
    return program, [x.d for x in leaves]


def transposes(program: Program) -> Counter[str]:
    return Counter(op.name for op, _, _ in program.steps if op.name.startswith("channels_"))


def same(program: Program, arrays: list[Any]) -> Program:
    """The program with the channels last, after its results have been compared."""
    other = with_channels_last(program)
    with jax.enable_x64(True):
        for a, b in zip(in_one(program)(*arrays), in_one(other)(*arrays), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)
    return other


def block(x: Variable, w: Variable, scale: Variable, offset: Variable) -> Variable:
    """What lies between two convolutions in most networks."""
    h = F.batch_normalization(F.convolution(x, w, pad=(1, 1)), offset, scale)
    h = F.relu(h + x)
    h = F.max_pooling(h, (3, 3), (1, 1), pad=(1, 1))[:, :, 1:, :-1]
    return F.concatenate(h, 2 * h, axis=1)


def block_parameters(channels: int) -> list[Variable]:
    return [leaf(channels, channels, 3, 3), leaf(1, channels, 1, 1), leaf(1, channels, 1, 1)]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_between_convolutions_nothing_is_transposed(order: int) -> None:
    x, first, second = leaf(2, 2, 5, 6), block_parameters(2), block_parameters(4)
    y = block(block(x, *first), *second)
    outputs = [F.sum(F.sin(y))]
    for _ in range(order):
        outputs = [F.sum(g * g) for g in nn.grad(outputs, [x, *first, *second])]
    program, arrays = program_of(*outputs)
    calls, specs = calls_of(same(program, arrays))
    makers = {i: call.op.name for call in calls for i in call.outs}
    turned = [i for call in calls if call.op.name.startswith("channels_") for i in call.ins]
    assert len(turned) == len(set(turned))  # images and parameters, each once
    # Of those with one long axis XLA makes reshapes.
    inside = [i for i in turned if i < 0 and sum([n > 1 for n in specs[i].shape]) > 1]
    assert {makers[i] for i in inside} <= {"constant", "broadcast"}


def test_weights_are_updated_as_they_are() -> None:
    x, w, moment = leaf(2, 3, 5, 5), leaf(4, 3, 2, 2), leaf(4, 3, 2, 2)
    (g,) = nn.grad(F.sum(F.sin(F.convolution(x, w))), [w])
    mean = 0.9 * moment + 0.1 * g
    program, arrays = program_of(w - mean, mean)
    # x, w, and back: y under the sum, and the gradient of w.
    assert transposes(same(program, arrays)) == {"channels_last": 2, "channels_first": 1}


def test_a_mask_comes_to_the_array_that_convolutions_have() -> None:
    x, v, w, mask = leaf(2, 3, 5, 5), leaf(4, 3, 2, 2), leaf(4, 4, 2, 2), leaf(2, 4, 4, 4)
    program, arrays = program_of(F.convolution(F.convolution(x, v) * mask, w))
    assert transposes(same(program, arrays)) == {"channels_last": 4, "channels_first": 1}


@pytest.mark.parametrize("channel_last", [False, True])
@pytest.mark.parametrize("sizes", [(6,), (5, 6), (3, 4, 3)])
def test_any_number_of_spatial_axes(sizes: tuple[int, ...], channel_last: bool) -> None:
    count = len(sizes)
    kernel = (2,) * count
    x, w = (leaf(2, *sizes, 3), leaf(4, *kernel, 3)) if channel_last else (leaf(2, 3, *sizes), leaf(4, 3, *kernel))
    y = F.tanh(F.convolution(x, w, channel_last=channel_last))
    gx, gw = nn.grad(F.sum(y * y), [x, w])
    program, arrays = program_of(y, gx, gw)
    other = same(program, arrays)
    assert (other is program) is channel_last


@pytest.mark.parametrize("what", [
    lambda y: F.reshape(y, (2, -1)),
    lambda y: F.transpose(y, (0, 2, 3, 1)),
    lambda y: F.sum(y, axis=1),
    lambda y: F.sum(y, axis=0),
    lambda y: F.mean(y, axis=(2, 3)),
    lambda y: F.max(y, axis=(1, 2), keepdims=True) - y,
    lambda y: F.softmax(y, axis=1),
    lambda y: y + Variable.from_numpy_array(np.arange(5.0)),
    lambda y: y * Variable.from_numpy_array(np.arange(20.0).reshape(4, 5)),
    lambda y: y[0],
    lambda y: F.where(y > 0, y, F.constant(2, y.shape, "float64")),
    lambda y: F.stack(y, y),
    lambda y: F.identity(y),
])
def test_what_reads_a_convolution_gets_its_channels_where_it_has_them(what: Any) -> None:
    y = what(F.convolution(leaf(2, 2, 5, 6), leaf(3, 2, 2, 2)))
    same(*program_of(y, F.exp(y)))


def test_a_program_without_convolutions_is_left_alone() -> None:
    x = leaf(2, 3, 4, 4)
    program, _ = program_of(F.max_pooling(F.sum(x * x, axis=1, keepdims=True), (2, 2)))
    assert with_channels_last(program) is program


def test_what_is_computed_again_still_waits() -> None:
    """The inputs that say when are read as they are there."""
    x, v, w = leaf(2, 3, 5, 5), leaf(3, 3, 2, 2), leaf(3, 3, 2, 2)
    h = F.tanh(F.convolution(x, v))
    again = F.optimization_barrier(h, leaf(2, 3, 7), F.sum(h))
    program, arrays = program_of(F.convolution(again, w))
    assert transposes(same(program, arrays)) == {"channels_last": 3, "channels_first": 1}
