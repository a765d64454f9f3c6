"""Loops whose stacks have small rows, where XLA is to get them in segments: values, derivatives, and what XLA gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import jaxpr
from tests.exact import exactly

BYTES = 40
"""Rows of so many bytes are large enough: those of one float64 are written five at once."""


@pytest.fixture(autouse=True)
def in_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows of less than 40 bytes are stacked in segments, as on a version of XLA that is slow with them."""
    monkeypatch.setattr(jaxpr, "SLOW_BELOW", BYTES)
    nn.executables.clear()
    yield
    nn.executables.clear()


def in_jax(x: Any, w: Any, reverse: bool) -> Any:
    def step(h: Any, a: Any) -> Any:
        h = jnp.tanh(w * h) + a
        return h, jnp.sin(h) * a

    return lax.scan(step, w, x, reverse=reverse)


def in_nngrad(x: nn.Variable, w: nn.Variable, reverse: bool) -> Any:
    def step(h: nn.Variable, a: nn.Variable) -> Any:
        h = F.tanh(w * h) + a
        return h, F.sin(h) * a

    return F.scan(step, w, x, reverse=reverse)


@pytest.mark.parametrize(("length", "reverse"), [
    (1, False), (5, True), (13, False), *[pytest.param(*each, marks=pytest.mark.slow)
                                                      for each in ((1, True), (5, False), (13, True))],
])  # fmt: skip
def test_values_and_three_gradients_are_those_of_one_stretch(length: int, reverse: bool) -> None:
    x, w = np.random.RandomState(length).uniform(0.5, 1, (2, length))

    def loss(x: Any, w: Any) -> Any:
        h, y = in_jax(x, w, reverse)
        return jnp.sum(y**3) + h**2

    def everything(x: Any, w: Any) -> list[Any]:
        results, f = [*in_jax(x, w, reverse)], loss
        for _ in range(3):
            results += jax.grad(f, (0, 1))(x, w)
            f = lambda x, w, f=f: sum([jnp.sum(jnp.sin(g)) for g in jax.grad(f, (0, 1))(x, w)])  # noqa: E731
        return results

    vx, vw = nn.Variable.from_numpy_array(x), nn.Variable.from_numpy_array(w[0])
    h, y = in_nngrad(vx, vw, reverse)
    found, scalar = [h, y], F.sum(y**3) + h**2
    for _ in range(3):
        gradients = nn.grad([scalar], [vx, vw])
        found += gradients
        scalar = F.sum(F.sin(gradients[0])) + F.sin(gradients[1])
    nn.forward_all(found)
    for i, (g, expected) in enumerate(zip(found, exactly(everything, x, w[0]), strict=True)):
        np.testing.assert_allclose(g.d, expected, rtol=1e-12 if i < 2 else 1e-10)


def scans_of(length: int, width: int) -> list[list[int]]:
    """The lengths of a loop's scans as XLA gets them, each with those that run within it."""
    def step(carry: Any, slices: Any) -> Any:
        return carry * 0.5 + slices[0], (carry, jnp.float64(1))

    with jax.enable_x64(True):
        traced = jax.make_jaxpr(lambda h, x: jaxpr.scan_in_segments(step, h, (x,), length))(
            np.ones(width), np.ones((length, width))
        )
    return [
        [e.params["length"], *[i.params["length"] for i in e.params["jaxpr"].jaxpr.eqns if i.primitive.name == "scan"]]
        for e in traced.jaxpr.eqns if e.primitive.name == "scan"
    ]  # fmt: skip


def test_no_step_writes_a_small_row_into_a_long_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scans_of(13, 9) == [[2, 5], [3]]
    assert scans_of(10, 9) == [[2, 5]]
    assert scans_of(5, 9) == [[5]]
    monkeypatch.setattr(jaxpr, "SLOW_BELOW", 8)
    assert scans_of(13, 9) == [[13]]


def test_recurrences_that_are_written_out_are_stacked_in_segments_too() -> None:
    x = np.random.RandomState(0).uniform(0.5, 1, 70)
    v = nn.Variable.from_numpy_array(x)
    h, kept = v[0], []
    for t in range(1, 70):
        h = F.sin(h) * v[t] + F.tanh(h)
        kept.append(h)
    (g,) = nn.grad([F.sum(F.stack(*kept) ** 2)], [v])

    def loss(x: Any) -> Any:
        def step(h: Any, a: Any) -> Any:
            h = jnp.sin(h) * a + jnp.tanh(h)
            return h, h

        return jnp.sum(lax.scan(step, x[0], x[1:])[1] ** 2)

    np.testing.assert_allclose(g.d, exactly(jax.grad(loss), x), rtol=1e-10)
    assert "compiled as a loop" in str(nn.explain(g))
