"""Recurrences that were unrolled: a pass at lowering makes loops of them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad import cpu
from nngrad.cpu import rolling
from nngrad.cpu.rolling import with_recurrences_rolled
from nngrad.execution.program import in_one
from nngrad.extend import RolledLoop, Variable, arrays_of, linearize, lower, prepared
from tests.exact import exactly
from tests.lstm import lstm_in_graphs, lstm_in_jax
from tests.oracle import compiled_cheaply

V = Variable.from_numpy_array
WIDTH, BATCH = 3, 2


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short recurrences become loops too."""
    monkeypatch.setattr(cpu, "LEAST_CALLS", 1)
    monkeypatch.setattr(rolling, "LEAST_SAVED", 4)
    monkeypatch.setattr(rolling, "LEAST_STEPS", 4)


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape) / 2 for shape in shapes]


def outputs_of(y: Variable, wanted: list[Variable], penalised: Variable | None = None) -> list[Variable]:
    """A loss and its gradients; with the penalty on the gradient in one Variable, those of second order."""
    if penalised is not None:
        (g,) = nn.grad(y, penalised)
        y = y + F.sum(g**2)
    return [y, *nn.grad(y, wanted)]


def check(*graphs: list[Variable]) -> list[tuple[RolledLoop, ...]]:
    """With loops and without, each graph is the same, by one executable; returns what the loops of each are."""
    linears = [linearize(outputs) for outputs in graphs]
    again = [with_recurrences_rolled(linear.program.block) for linear in linears]
    functions = [in_one(program) for each, linear in zip(again, linears, strict=True)
                 for program in (linear.program._replace(block=each), linear.program)]  # fmt: skip

    @compiled_cheaply
    def run(leaves: Any) -> Any:
        return [f(*leaves[i // 2]) for i, f in enumerate(functions)]

    with jax.enable_x64(True):
        results = run([arrays_of(linear.leaves) for linear in linears])
    for found, expected in zip(results[::2], results[1::2], strict=True):
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 * (1 + np.abs(b).max(initial=0)))
    return [each.rolled_loops for each in again]


# ---------------------------------------------------------------- an LSTM


def lstm(steps: int, order: int) -> tuple[list[Variable], list[np.ndarray]]:
    """Outputs, and the arrays of sequence and weight."""
    arrays = drawn((steps, BATCH, WIDTH), (2 * WIDTH, 4 * WIDTH))
    x, w = (V(a, need_grad=True) for a in arrays)
    return outputs_of(lstm_in_graphs(x, w), [w, x], x if order == 2 else None), arrays


def with_penalty(order: int, x: Any, w: Any) -> Any:
    """The loss in JAX."""
    return lstm_in_jax(x, w) + (jnp.sum(jax.grad(lstm_in_jax)(x, w) ** 2) if order == 2 else 0)


@pytest.mark.parametrize(("order", "loops"), [(1, 2), (2, 4)])
def test_an_lstm_is_as_many_loops_as_it_has_recurrences(order: int, loops: int) -> None:
    outputs, arrays = lstm(24, order)
    linear = linearize(outputs)
    leaves = arrays_of(linear.leaves)
    with jax.enable_x64(True):
        compiled = compiled_cheaply(lower(linear.program)).lower(*leaves).compile()
        found = compiled(*leaves)
    expected = exactly(jax.value_and_grad(partial(with_penalty, order), argnums=(1, 0)), *arrays)
    assert compiled.as_text().count(" while(") == loops
    nn.forward_all(outputs)
    for y, a, b in zip(outputs, found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(y.d, b, rtol=1e-9, atol=1e-11)  # as it is read


@pytest.mark.parametrize("order", [1, 2])
def test_what_is_compiled_does_not_depend_on_the_length(order: int) -> None:
    blocks = [linearize(lstm(steps, order)[0]).program.block for steps in (20, 40)]
    sizes = [with_recurrences_rolled(block).functions_to_compile for block in blocks]
    assert sizes[0] == sizes[1] < 500


def test_memory_is_no_more() -> None:
    program = linearize(lstm(24, 1)[0]).program
    given = [s.abstract() for s in program.block.inputs]
    with jax.enable_x64(True):
        sizes = [compiled_cheaply(function).lower(*given).compile().memory_analysis()
                 for function in (lower(program), in_one(program))]  # fmt: skip
    assert sizes[0].temp_size_in_bytes <= sizes[1].temp_size_in_bytes


def test_a_program_that_recomputes_stays_as_it_is() -> None:
    x, w = (V(a, need_grad=True) for a in drawn((40, BATCH, WIDTH), (2 * WIDTH, 4 * WIDTH)))
    loss = lstm_in_graphs(x, w)
    for recompute, rolled in (("sqrt", False), (None, True)):
        program = linearize([loss, *nn.grad(loss, [w], recompute=recompute)]).program
        assert (F.recomputed in program.block.ops) is not rolled
        assert bool(prepared(program).block.rolled_loops) is rolled


def test_it_can_be_switched_off() -> None:
    with nn.passes(without=["roll"]):
        program = linearize(lstm(12, 1)[0]).program
    other = linearize(lstm(12, 1)[0]).program
    assert prepared(other).block.rolled_loops and not prepared(program).block.rolled_loops
    assert program != other
    outputs, others = lstm(12, 1)[0], lstm(12, 1)[0]
    nn.forward_all(outputs)
    with nn.passes(without=["roll"]):
        nn.forward_all(others)
    for y, other in zip(outputs, others, strict=True):
        np.testing.assert_allclose(y.d, other.d, rtol=1e-10)


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


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(outputs=recurrences())
def test_with_loops_or_without_it_is_the_same(outputs: list[Variable]) -> None:
    check(outputs)


# ---------------------------------------------------------------- one by one


def recurrence(steps: int, x: Any, w: Variable, h: Variable) -> list[Variable]:
    """The values of a network of one recurrent layer."""
    hs = [h]
    for t in range(steps):
        hs.append(F.tanh(x(t) + hs[-1] @ w))
    return hs[1:]


def leaves(steps: int) -> tuple[Variable, Variable, Variable]:
    """A sequence, a weight and a first value."""
    x, w, h = (V(a, need_grad=True) for a in drawn((steps + 3, BATCH, WIDTH), (WIDTH, WIDTH), (BATCH, WIDTH)))
    return x, w, h


WAYS: dict[str, Callable[[Variable, Variable, Variable], Variable]] = {
    "slices backwards": lambda x, w, h: F.sum(recurrence(6, lambda t: x[5 - t], w, h)[-1] ** 2),
    "every other slice": lambda x, w, h: F.sum(recurrence(6, lambda t: x[2 * t], w, h)[-1] ** 2),
    "windows of a stride": lambda x, w, h: F.sum(recurrence(5, lambda t: F.sum(x[t + 5 : t : -2], axis=0), w, h)[-1]),
    "all values joined": lambda x, w, h: F.sum(F.sin(F.concatenate(*recurrence(6, lambda t: x[t], w, h), axis=1))),
    "all values stacked": lambda x, w, h: F.sum(F.sin(F.stack(*recurrence(6, lambda t: x[t], w, h), axis=-1)[..., 2:])),
    "some values": lambda x, w, h: F.add_n(*[F.sum(recurrence(6, lambda t: x[t], w, h)[k] ** 2) for k in (1, 3, 4)]),
    "two at a time": lambda x, w, h: F.sum(
        recurrence(6, lambda t: x[t], w, recurrence(6, lambda t: x[5 - t], w, h)[-1])[-1] ** 2
    ),
    "added up at two places": lambda x, w, h: (lambda hs: F.sum(
        F.add_n(*[F.pad(F.reshape(v, (1, BATCH, WIDTH)), (t, 6 - t, 0, 0, 0, 0)) for t, v in enumerate(hs)])
        * F.concatenate(F.stack(*hs[1:], axis=0), x[:2], axis=0)
    ))(recurrence(6, lambda t: x[t], w, h)),
    "slices split": lambda x, w, h: F.sum(recurrence(6, lambda t: F.split(x, axis=0)[t], w, h)[-1] ** 2),
    "one value in all": lambda x, w, h: F.sum(recurrence(6, lambda t: x[3], w, h)[-1] ** 2),
}


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("small")
def test_what_is_read_and_what_is_given(order: int) -> None:
    given = {way: leaves(9) for way in WAYS}
    found = check(*[outputs_of(WAYS[way](*g), [*g], g[0] if order == 2 else None) for way, g in given.items()])
    assert not [way for way, loops in zip(WAYS, found, strict=True) if not loops]


@pytest.mark.usefixtures("small")
def test_layers_with_weights_of_their_own_stay() -> None:
    x = leaves(9)[0]
    weights = [V(a, need_grad=True) for a in drawn(*[(WIDTH, WIDTH)] * 12)]
    h = x[0]
    for each in weights:
        h = F.tanh(h @ each)
    program = linearize(outputs_of(F.sum(h * h), weights)).program
    assert with_recurrences_rolled(program.block) is program.block


@pytest.mark.usefixtures("small")
def test_effects_are_applied_once_for_each_step() -> None:
    def statistics() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, w, _ = leaves(9)
        shape = (1, WIDTH)
        beta, gamma, mean = V(np.zeros(shape)), V(np.ones(shape), need_grad=True), V(np.zeros(shape))
        variance, h = V(np.ones(shape)), x[0]
        for t in range(9):
            h = F.tanh(F.batch_normalization(x[t] + h @ w, beta, gamma, mean, variance, batch_stat=True))
        (g,) = nn.grad(F.sum(h**2), gamma)
        program = linearize([g]).program
        assert program.without or with_recurrences_rolled(program.block).rolled_loops
        g.forward()
        return g.d, mean.d, variance.d

    with nn.passes(without=["roll"]):
        expected = statistics()
    for a, b in zip(statistics(), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_a_chain_that_is_too_long_for_the_compiler_is_one_executable() -> None:
    y = x = V(np.linspace(0.1, 1, 3), need_grad=True)
    for _ in range(1500):
        y = y + 0.125 * F.sin(y)
    (g,) = nn.grad(F.sum(y), x)

    def step(y: Any, _: None) -> Any:
        return y + 0.125 * jnp.sin(y), None

    expected = exactly(jax.grad(lambda x: jnp.sum(lax.scan(step, x, None, length=1500)[0])), x.d)
    np.testing.assert_allclose(g.d, expected, rtol=1e-9, atol=1e-12)
    program = linearize([g]).program
    with jax.enable_x64(True):
        text = compiled_cheaply(lower(program)).lower(x.d).compile().as_text()
    assert text.count(" while(") == len(with_recurrences_rolled(program.block).rolled_loops) == 2
    with nn.passes(without=["roll"]):  # in pieces
        (again,) = nn.grad(F.sum(y), x)
        np.testing.assert_allclose(again.d, expected, rtol=1e-9, atol=1e-12)
