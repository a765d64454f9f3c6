"""Sums along recurrences: a pass at lowering has XLA compute them once, where it would in every loop."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.passes import lowered
from nngrad.execution.program import in_one
from nngrad.extend import Program, Variable, arrays_of, functions_of, linearize, lower, prepared
from tests.exact import exactly
from tests.lstm import lstm_in_graphs, lstm_in_jax

STEPS, WIDTH, BATCH = 20, 8, 4


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(STEPS, BATCH, WIDTH)), rng.normal(size=(2 * WIDTH, 4 * WIDTH)) / WIDTH


def gradient(arrays: tuple[np.ndarray, np.ndarray]) -> tuple[Variable, Variable, Variable]:
    x, w = (Variable.from_numpy_array(a, need_grad=True) for a in arrays)
    (g,) = nn.grad(lstm_in_graphs(x, w), [w])
    return x, w, g


@pytest.fixture
def program(arrays: tuple[np.ndarray, np.ndarray]) -> Program:
    """The program of the gradient, of which no loop is made."""
    with nn.passes(without=["roll"]):
        return linearize([gradient(arrays)[2]]).program


def compiled(program: Program, function: Any) -> Any:
    """The executable of a program, by what makes a function of it."""
    with jax.enable_x64(True):
        return jax.jit(function(program)).lower(*[s.abstract() for s in program.block.inputs]).compile()


def most_read(executable: Any) -> int:
    """How many arrays a loop reads at most."""
    loops = re.findall(r" fusion\(([^)]*)\), kind=kLoop", executable.as_text())
    return max([operands.count("%") for operands in loops])


def test_no_loop_reads_what_came_of_all_later_steps(program: Program) -> None:
    assert most_read(compiled(program, lower)) < 2 * STEPS < most_read(compiled(program, in_one))


def test_the_graph_that_is_emitted_knows_nothing_of_it(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    assert not [f for f in functions_of([gradient(arrays)[2]]) if f.op.reads is not None]


def test_results_are_the_same(arrays: tuple[np.ndarray, np.ndarray], program: Program) -> None:
    again = prepared(program)
    assert again.block != program.block and again.block.inputs == program.block.inputs
    leaves = arrays_of(linearize([gradient(arrays)[2]]).leaves)
    with jax.enable_x64(True), jax.disable_jit():
        (one,), (other,) = in_one(program)(*leaves), in_one(again)(*leaves)
    np.testing.assert_array_equal(one, other)


def test_other_platforms_have_other_passes(program: Program) -> None:
    assert lowered(program, "tpu").program is program


def test_gradients_of_both_orders_are_those_of_jax(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    x, _, g = gradient(arrays)
    (second,) = nn.grad(F.sum(g * g), [x])
    nn.forward_all([g, second])
    slope = jax.grad(lstm_in_jax, argnums=1)
    once, twice = exactly(lambda *xs: (slope(*xs), jax.grad(lambda x, w: jnp.sum(slope(x, w) ** 2))(*xs)), *arrays)
    np.testing.assert_allclose(g.d, once, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(second.d, twice, rtol=1e-10, atol=1e-13)


def test_short_recurrences_and_networks_are_left_alone() -> None:
    x, w = (Variable((WIDTH, WIDTH), need_grad=True) for _ in range(2))
    h = x
    for _ in range(6):
        h = h + F.batch_matmul(F.tanh(h), w)
    program = linearize(nn.grad(F.sum(h), [w])).program
    assert prepared(program) is program
