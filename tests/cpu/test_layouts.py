"""Channels last around convolutions on CPUs: a pass at lowering, which changes no result and leaves few transposes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
from nngrad.cpu.layouts import with_channels_last
from nngrad.execution.program import in_one
from nngrad.extend import Program, Variable, arrays_of, linearize
from tests.leaves import leaf
from tests.oracle import compiled_cheaply

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Variable:
    return leaf(RNG.standard_normal(shape))


def transposes(program: Program) -> Counter[str]:
    return Counter(op.name for op, _, _ in program.block.steps if op.name.startswith("channels_"))


def same(*graphs: list[Variable]) -> list[Program]:
    """The programs of graphs with the channels last, after their results have been compared, by one executable."""
    linears = [linearize(outputs) for outputs in graphs]
    others = [linear.program._replace(block=with_channels_last(linear.program.block)) for linear in linears]

    @compiled_cheaply
    def both(given: Any) -> Any:
        return [(in_one(linear.program)(*arrays), in_one(other)(*arrays))
                for linear, other, arrays in zip(linears, others, given, strict=True)]  # fmt: skip

    with jax.enable_x64(True):
        results = both([arrays_of(linear.leaves) for linear in linears])
    for i, (plain, turned) in enumerate(results):
        for a, b in zip(plain, turned, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9, err_msg=f"graph {i}")
    return others


def block(x: Variable, w: Variable, scale: Variable, offset: Variable) -> Variable:
    """What lies between two convolutions in most networks."""
    h = F.batch_normalization(F.convolution(x, w, pad=(1, 1)), offset, scale)
    h = F.relu(h + x)
    h = F.max_pooling(h, (3, 3), (1, 1), pad=(1, 1))[:, :, 1:, :-1]
    return F.concatenate(h, 2 * h, axis=1)


def block_parameters(channels: int) -> list[Variable]:
    return [normal(channels, channels, 3, 3), normal(1, channels, 1, 1), normal(1, channels, 1, 1)]


def test_between_convolutions_nothing_is_transposed_at_orders_0_to_2() -> None:
    x, first, second = normal(2, 2, 4, 4), block_parameters(2), block_parameters(4)
    levels = [[F.sum(F.sin(block(block(x, *first), *second)))]]
    for _ in range(2):
        levels.append([F.sum(g * g) for g in nn.grad(levels[-1], [x, *first, *second])])
    for program in same(*levels):
        calls, specs = program.block.calls, program.block.spec_by_number
        makers = {i: call.op.name for call in calls for i in call.outs}
        turned = [i for call in calls if call.op.name.startswith("channels_") for i in call.ins]
        assert len(turned) == len(set(turned))  # images and parameters, each once
        # Of those with one long axis XLA makes reshapes.
        inside = [i for i in turned if i < 0 and sum([n > 1 for n in specs[i].shape]) > 1]
        assert {makers[i] for i in inside} <= {"constant", "broadcast"}


def test_as_few_arrays_as_can_be_are_transposed() -> None:
    """Weights are updated as they are, a mask comes to the array that convolutions have, and what says when something
    is computed again is read as it is there."""
    x, v, w = normal(2, 3, 5, 5), normal(3, 3, 2, 2), normal(4, 3, 2, 2)
    (g,) = nn.grad(F.sum(F.sin(F.convolution(x, w))), [w])
    mean = 0.9 * normal(4, 3, 2, 2) + 0.1 * g
    masked = F.convolution(F.convolution(x, v) * normal(2, 3, 4, 4), w)
    h = F.tanh(F.convolution(x, v))
    again = F.convolution(F.optimization_barrier(h, normal(2, 3, 7), F.sum(h)), w)
    assert [*map(transposes, same([w - mean, mean], [masked], [again]))] == [
        {"channels_last": 2, "channels_first": 1},  # x, w, and back: y under the sum, and the gradient of w
        {"channels_last": 4, "channels_first": 1},
        {"channels_last": 3, "channels_first": 1},
    ]


def test_what_convolutions_read_is_computed_as_they_read_it() -> None:
    """What is computed of an array that is there in both layouts, through several functions."""
    x, w = normal(2, 3, 6, 6), normal(4, 3, 2, 2)
    (program,) = same([F.convolution(x, w), F.convolution(F.tanh(F.sin(x)), w)])
    assert transposes(program) == {"channels_last": 2, "channels_first": 2}, "of x and w, and of both results"


def test_what_reads_a_convolution_gets_its_channels_where_it_has_them() -> None:
    graphs = []
    for what in (
        lambda y: F.reshape(y, (2, -1)),
        lambda y: F.transpose(y, (0, 2, 3, 1)),
        lambda y: F.sum(y, axis=1),
        lambda y: F.sum(y, axis=0),
        lambda y: F.mean(y, axis=(2, 3)),
        lambda y: F.max(y, axis=(1, 2), keepdims=True) - y,
        lambda y: F.softmax(y, axis=1),
        lambda y: y + leaf(np.arange(5.0)),
        lambda y: y * leaf(np.arange(20.0).reshape(4, 5)),
        lambda y: y[0],
        lambda y: F.where(y > 0, y, F.constant(2, y.shape, "float64")),
        lambda y: F.stack(y, y),
        lambda y: F.identity(y),
        lambda y: F.straight_through(F.mean(y, axis=1, keepdims=True), normal(2, 3, 4, 5)),
        lambda y: F.clip_grad_by_value(y, normal(3, 1, 1), leaf(np.ones(5))),
    ):
        y = what(F.convolution(normal(2, 2, 5, 6), normal(3, 2, 2, 2)))
        graphs.append([y, F.exp(y)])
    same(*graphs)
