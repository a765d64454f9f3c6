"""Gradients along recurrences: sums that the compiled program computes once, where it would in every loop."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.lower import linearize, lower
from nngrad.graph import Variable, functions_of

STEPS, WIDTH, BATCH = 20, 4, 3


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(STEPS, BATCH, WIDTH)), rng.normal(size=(2 * WIDTH, 4 * WIDTH)) / WIDTH


def lstm(x: Any, w: Any, of: Any) -> Any:
    """The sum of what an LSTM comes to, written for nngrad.functions or jax.numpy."""
    h = c = of.zeros((BATCH, WIDTH))
    for t in range(STEPS):
        z = of.product(of.join([x[t], h]), w)
        i, f, o, g = (z[:, k * WIDTH : (k + 1) * WIDTH] for k in range(4))
        c = of.sigmoid(f) * c + of.sigmoid(i) * of.tanh(g)
        h = of.sigmoid(o) * of.tanh(c)
    return of.sum(h * h)


class InGraphs:
    zeros = staticmethod(lambda shape: Variable.from_numpy_array(np.zeros(shape)))
    product, sigmoid, tanh, sum = F.batch_matmul, F.sigmoid, F.tanh, F.sum
    join = staticmethod(lambda parts: F.concatenate(*parts, axis=1))


class InJax:
    zeros, product, tanh, sum = jnp.zeros, jnp.matmul, jnp.tanh, jnp.sum
    sigmoid = staticmethod(jax.nn.sigmoid)
    join = staticmethod(lambda parts: jnp.concatenate(parts, axis=1))


def gradient(arrays: tuple[np.ndarray, np.ndarray]) -> tuple[Variable, Variable, Variable]:
    x, w = (Variable.from_numpy_array(a, need_grad=True) for a in arrays)
    (g,) = nn.grad(lstm(x, w, InGraphs), [w])
    return x, w, g


@pytest.fixture
def compiled(arrays: tuple[np.ndarray, np.ndarray]) -> Any:
    """The executable of the gradient."""
    program = linearize([gradient(arrays)[2]]).program
    with jax.enable_x64(True):
        return jax.jit(lower(program)).lower(*[s.abstract() for s in program.leaves]).compile()


def test_no_loop_reads_what_came_of_all_later_steps(compiled: Any) -> None:
    loops = re.findall(r" fusion\(([^)]*)\), kind=kLoop", compiled.as_text())
    assert max([operands.count("%") for operands in loops]) < 2 * STEPS


def test_the_parts_of_a_weights_gradient_do_not_wait_for_the_last(
    arrays: tuple[np.ndarray, np.ndarray], compiled: Any
) -> None:
    _, w, g = gradient(arrays)
    sums = [f for f in functions_of([g]) if f.op is F.add_n and f.specs[0].shape == w.shape]
    assert len(sums) > 1 and max([len(f.inputs) for f in sums]) < STEPS
    line = nn.memory_report([g], compile=False).timeline
    parts = [span for span in line.values.values() if span.nbytes == w.spec.nbytes]
    assert max([sum([p.made <= t <= p.last for p in parts]) for t in range(len(line.steps))]) <= STEPS // 2
    assert compiled.memory_analysis().temp_size_in_bytes < 1.3 * max(line.live)


def test_gradients_of_both_orders_are_those_of_jax(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    x, _, g = gradient(arrays)
    (second,) = nn.grad(F.sum(g * g), [x])
    nn.forward_all([g, second])
    with jax.enable_x64(True):
        slope = jax.grad(lambda x, w: lstm(x, w, InJax), argnums=1)
        expected = slope(*arrays)
        np.testing.assert_allclose(g.d, expected, rtol=1e-11, atol=1e-13)
        expected = jax.grad(lambda x, w: jnp.sum(slope(x, w) ** 2))(*arrays)
        np.testing.assert_allclose(second.d, expected, rtol=1e-10, atol=1e-13)


def test_short_recurrences_and_networks_are_left_alone() -> None:
    x, w = (Variable((WIDTH, WIDTH), need_grad=True) for _ in range(2))
    h = x
    for _ in range(6):
        h = h + F.batch_matmul(F.tanh(h), w)
    assert F.optimization_barrier not in {f.op for f in functions_of(nn.grad(F.sum(h), [w]))}
