"""Recurrences that were unrolled: a pass at lowering makes loops of them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad.execution import rolling
from nngrad.execution.fingerprint import structure_of
from nngrad.execution.lower import in_one, linearize, lower
from nngrad.execution.program import Program
from nngrad.execution.rolling import rolled
from nngrad.execution.tiers import cheap_options
from nngrad.graph import Variable
from nngrad.graph.leaf import arrays_of

V = Variable.from_numpy_array
WIDTH, BATCH = 3, 2


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short recurrences become loops too."""
    monkeypatch.setattr(rolling, "LEAST_CALLS", 1)
    monkeypatch.setattr(rolling, "_LEAST_SAVED", 4)


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape) / 2 for shape in shapes]


def outputs_of(y: Variable, wanted: list[Variable], penalised: Variable | None = None) -> list[Variable]:
    """A loss and its gradients; with the penalty on the gradient in one Variable, those of second order."""
    if penalised is not None:
        (g,) = nn.grad(y, penalised)
        y = y + F.sum(g**2)
    return [y, *nn.grad(y, wanted)]


def results(function: Callable[[Program], Any], outputs: list[Variable], eager: bool = False) -> list[np.ndarray]:
    """The values of outputs, by what makes a function of their program."""
    linear = linearize(outputs)
    with jax.enable_x64(True):
        arrays = [jnp.asarray(a) for a in arrays_of(linear.leaves)]
        run = function(linear.program)
        compiled = run if eager else jax.jit(run).lower(*arrays).compile(compiler_options=cheap_options())
        return [np.asarray(a) for a in compiled(*arrays)]


def check(outputs: list[Variable]) -> tuple[tuple[int, int], ...]:
    """With loops and without, the same; returns what the loops are."""
    program = linearize(outputs).program
    again = rolled(program)
    for a, b in zip(results(lambda p: in_one(rolled(p).program), outputs), results(in_one, outputs, eager=True),
                    strict=True):  # fmt: skip
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 * (1 + np.abs(b).max(initial=0)))
    return again.loops


# ---------------------------------------------------------------- an LSTM


class InGraphs:
    product, sigmoid, tanh, sum = F.batch_matmul, F.sigmoid, F.tanh, F.sum
    join = staticmethod(lambda parts: F.concatenate(*parts, axis=1))


class InJax:
    product, tanh, sum = jnp.matmul, jnp.tanh, jnp.sum
    sigmoid = staticmethod(jax.nn.sigmoid)
    join = staticmethod(lambda parts: jnp.concatenate(parts, axis=1))


def cell(h: Any, c: Any, x: Any, w: Any, of: Any) -> tuple[Any, Any]:
    """A step of an LSTM, written for nngrad.functions or jax.numpy."""
    z = of.product(of.join([x, h]), w)
    i, f, o, g = (z[:, k * WIDTH : (k + 1) * WIDTH] for k in range(4))
    c = of.sigmoid(f) * c + of.sigmoid(i) * of.tanh(g)
    return of.sigmoid(o) * of.tanh(c), c


def lstm(steps: int, order: int) -> tuple[list[Variable], list[np.ndarray]]:
    """Outputs, and the arrays of sequence and weight."""
    arrays = drawn((steps, BATCH, WIDTH), (2 * WIDTH, 4 * WIDTH))
    x, w = (V(a, need_grad=True) for a in arrays)
    h = c = V(np.zeros((BATCH, WIDTH)))
    for t in range(steps):
        h, c = cell(h, c, x[t], w, InGraphs)
    return outputs_of(F.sum(h * h), [w, x], x if order == 2 else None), arrays


def lstm_in_jax(order: int, x: Any, w: Any) -> Any:
    """The loss, by a scan."""
    zeros = jnp.zeros((BATCH, WIDTH), x.dtype)

    def score(x: Any) -> Any:
        return jnp.sum(lax.scan(lambda s, x: (cell(*s, x, w, InJax), None), (zeros, zeros), x)[0][0] ** 2)

    return score(x) + (jnp.sum(jax.grad(score)(x) ** 2) if order == 2 else 0)


@pytest.mark.parametrize(("order", "loops"), [(1, 2), (2, 5)])
def test_an_lstm_is_as_many_loops_as_it_has_recurrences(order: int, loops: int) -> None:
    outputs, arrays = lstm(24, order)
    linear = linearize(outputs)
    leaves = arrays_of(linear.leaves)
    with jax.enable_x64(True):
        compiled = jax.jit(lower(linear.program)).lower(*leaves).compile(compiler_options=cheap_options())
        expected = jax.value_and_grad(lstm_in_jax, argnums=(2, 1))(order, *arrays)
        found = compiled(*leaves)
    assert compiled.as_text().count(" while(") == loops
    for a, b in zip(found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    for y, b in zip(outputs, jax.tree.leaves(expected), strict=True):  # as they are read
        np.testing.assert_allclose(y.d, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("order", [1, 2])
def test_what_is_compiled_does_not_depend_on_the_length(order: int) -> None:
    sizes = [rolled(linearize(lstm(steps, order)[0]).program).size for steps in (20, 40)]
    assert sizes[0] == sizes[1] < 500


def test_memory_is_no_more() -> None:
    program = linearize(lstm(24, 1)[0]).program
    given = [s.abstract() for s in program.leaves]
    with jax.enable_x64(True):
        sizes = [
            jax.jit(function).lower(*given).compile(compiler_options=cheap_options()).memory_analysis()
            for function in (lower(program), in_one(program))
        ]
    assert sizes[0].temp_size_in_bytes <= sizes[1].temp_size_in_bytes


def test_it_can_be_switched_off() -> None:
    with nn.unrolled():
        program = linearize(lstm(12, 1)[0]).program
    other = linearize(lstm(12, 1)[0]).program
    assert rolled(program).program is program
    assert rolled(other).loops
    assert program != other
    assert structure_of(program) != structure_of(other)
    with nn.unrolled():
        read = [y.d for y in lstm(12, 1)[0]]
    for a, y in zip(read, lstm(12, 1)[0], strict=True):
        np.testing.assert_allclose(y.d, a, rtol=1e-10)


# ---------------------------------------------------------------- all kinds of recurrences


@st.composite
def recurrences(draw: Any) -> list[Variable]:
    """A recurrence of several values, of slices, weights and earlier values, read here and there; and its gradients."""
    order = draw(st.integers(0, 3))
    steps = draw(st.integers(5, 11 - 2 * order))
    axis, backwards, delay = draw(st.sampled_from([0, 1])), draw(st.booleans()), draw(st.integers(0, 2))
    cells = draw(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=2), min_size=1, max_size=2))
    read = draw(st.sets(st.integers(0, steps - 1), max_size=3))
    stacked = draw(st.sampled_from([None, "stack", "concatenate"]))
    long = (steps + 2, WIDTH) if axis == 0 else (WIDTH, steps + 2)
    x, w, b, *starts = (V(a, need_grad=True) for a in drawn(long, (WIDTH, WIDTH), (WIDTH,), (WIDTH,), (WIDTH,)))

    def part(t: Any) -> Variable:
        return x[t] if axis == 0 else x[:, t]

    def product(h: Variable) -> Variable:
        return F.reshape(F.reshape(h, (1, WIDTH)) @ w, (WIDTH,))

    def applied(kind: int, t: int, hs: list[Variable], i: int) -> Variable:
        h = hs[i]
        return [
            lambda: F.tanh(product(h) + part(steps - 1 - t if backwards else t)),
            lambda: h * F.sigmoid(b) + 0.5 * part(t + 1),
            lambda: F.sin(h) + 0.25 * hs[i - 1],
            lambda: F.sum(part(slice(t, t + 2)), axis=axis) * b + h * 0.5,
            lambda: F.concatenate(h[1:], h[:1], axis=0) * b,
            lambda: F.tanh(h + 0.5 * history[-1 - delay][i]) if len(history) > delay else h,
            lambda: F.where(h > 0, h, 0.25 * h) - 0.125 * F.exp(-h * h),
            lambda: F.stack(h, b, axis=1)[:, 0] + F.split(F.stack(h, b, h, b, axis=0), axis=0)[2],
        ][kind]()

    history = [starts[: len(cells)]]
    parts, losses = [], []
    for t in range(steps):
        hs = list(history[-1])
        for i, kinds in enumerate(cells):
            for kind in kinds:
                hs[i] = applied(kind, t, hs, i)
        history.append(hs)
        parts.append(hs[-1])
        losses += [F.sum(hs[0] ** 2)] * (t in read)
    y = F.sum(hs[0] ** 2) + F.sum(hs[-1] * b)
    if losses:
        y = y + F.add_n(*losses)
    if stacked is not None:
        y = y + F.sum(F.sin(getattr(F, stacked)(*parts, axis=0)))
    outputs = [y]
    for _ in range(order):
        found = nn.grad(y, draw(st.sampled_from([[x, w, b], [w], [starts[0]]])), bind_grad_output=False)
        outputs += found
        y = F.add_n(*[F.sum(g * g) for g in found], y)
    return outputs


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_with_loops_or_without_it_is_the_same(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rolling, "LEAST_CALLS", 1)
        patch.setattr(rolling, "_LEAST_SAVED", 4)
        check(data.draw(recurrences()))
