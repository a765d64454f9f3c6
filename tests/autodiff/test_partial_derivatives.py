"""Nested gradients by several inputs, and by columns of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.autodiff.test_properties import SETTINGS
from tests.oracle import arrays_of, by_jax

ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tanh": (F.tanh, jnp.tanh),
    "sin": (F.sin, jnp.sin),
    "sigmoid": (F.sigmoid, jax.nn.sigmoid),
    "softplus": (F.softplus, jax.nn.softplus),
}

Partial = tuple[int, ...]
"""The coordinates to differentiate by, in turn."""


def weights(d: int, hidden: int, seed: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) * 0.7 for shape in [(d, hidden), (hidden, hidden), (hidden, 1)]]


def network(act: Callable[[Any], Any], w: list[Any], x: Any) -> Any:
    """Two hidden layers, and an output that is not linear."""
    u = act(act(x @ w[0]) @ w[1]) @ w[2]
    return u * u + u


Form = Callable[[Callable[[Variable], Variable], Variable, list[Partial]], list[Variable]]


def nested(
    known: dict[Partial, Variable], wanted: list[Partial], step: Callable[[Variable], list[Variable]]
) -> list[Variable]:
    """Derivatives of those before them; `step` gives those of a Variable by all coordinates."""
    for partial in wanted:
        for k in range(len(partial)):
            if partial[: k + 1] not in known:
                known |= {(*partial[:k], i): g for i, g in enumerate(step(known[partial[:k]]))}
    return [known[partial] for partial in wanted]


def by_columns(u: Callable[[Variable], Variable], x: Variable, wanted: list[Partial]) -> list[Variable]:
    """The gradient by a Variable of several columns, of which one is taken."""

    def step(v: Variable) -> list[Variable]:
        (g,) = nn.grad(v, x)
        return [g[:, i : i + 1] for i in range(x.shape[1])]

    return nested({(): u(x)}, wanted, step)


def by_sums_of_columns(u: Callable[[Variable], Variable], x: Variable, wanted: list[Partial]) -> list[Variable]:
    """The same as it is written after PyTorch: of sums, and columns without an axis."""

    def step(v: Variable) -> list[Variable]:
        (g,) = nn.grad(F.sum(v), x)
        return [g[:, i] for i in range(x.shape[1])]

    return [F.reshape(v, shape=(-1, 1)) for v in nested({(): u(x)}, wanted, step)]


def by_several(u: Callable[[Variable], Variable], x: Variable, wanted: list[Partial]) -> list[Variable]:
    """The gradients by several Variables, all at once."""
    columns = [x[:, i : i + 1] for i in range(x.shape[1])]
    return nested({(): u(F.concatenate(*columns, axis=1))}, wanted, lambda v: nn.grad(v, columns))


FORMS: dict[str, Form] = {"several": by_several, "columns": by_columns, "sums of columns": by_sums_of_columns}


def of_jax(u: Callable[[Any], Any], partial: Partial) -> Callable[[Any], Any]:
    """A derivative at each point, by nested `jax.grad`."""
    f = lambda x: u(x)[0]  # noqa: E731

    def along(f: Callable[[Any], Any], i: int) -> Callable[[Any], Any]:
        return lambda x: jax.grad(f)(x)[i]

    for i in partial:
        f = along(f, i)
    return jax.vmap(f)


@pytest.mark.slow
@settings(SETTINGS, max_examples=5)
@given(
    st.sampled_from(sorted(ACTIVATIONS)),
    st.sampled_from(sorted(FORMS)),
    st.integers(2, 3).flatmap(
        lambda d: st.tuples(
            st.just(d),
            st.lists(st.lists(st.integers(0, d - 1), min_size=1, max_size=4).map(tuple), min_size=1, max_size=3),
        )
    ),
)
def test_derivatives_are_those_of_jax(act: str, form: str, wanted: tuple[int, list[Partial]]) -> None:
    """Any partial derivatives to order four, and the gradient of a loss of them with respect to the weights."""
    d, partials = wanted
    ours, theirs = ACTIVATIONS[act]
    points, arrays = np.random.default_rng(d).uniform(-1, 1, (3, d)), weights(d, 3)
    x, w = Variable.from_numpy_array(points), [Variable.from_numpy_array(a, need_grad=True) for a in arrays]
    found = FORMS[form](lambda x: network(ours, w, x), x, partials)
    loss = F.add_n(*[F.sum(v * v) for v in found])
    results = arrays_of(*found, *nn.grad(loss, w[1]))

    def parts(w1: Any) -> list[Any]:
        w = [arrays[0], w1, arrays[2]]
        return [of_jax(lambda x: network(theirs, w, x), partial)(points) for partial in partials]

    expected = by_jax(
        lambda w1: [*parts(w1), jax.grad(lambda w1: sum([jnp.sum(v * v) for v in parts(w1)]))(w1)], arrays[1]
    )
    for got, want in zip(results, expected, strict=True):
        size = max(1, np.abs(want).max())
        np.testing.assert_allclose(np.reshape(got, want.shape), want, rtol=1e-9, atol=1e-9 * size)
