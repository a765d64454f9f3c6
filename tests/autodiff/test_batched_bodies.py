"""Random functions with loops and branches in them, for many rows: mapped, and their Jacobians and Hessians row by row,
against `jax.vmap`; and how loops are built for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.autodiff.test_properties import SETTINGS
from tests.exact import exactly
from tests.leaves import leaf

RNG = np.random.default_rng(0)
B, N = 3, 2
X, W = RNG.standard_normal((B, N)), RNG.standard_normal((N, N)) * 0.6


class Both(NamedTuple):
    """One way to write a function for nngrad and for JAX."""

    tanh: Any
    sin: Any
    total: Any
    """The sum over the last axis."""
    stack: Any
    scan: Any
    cond: Any
    bounded: Any
    gradient: Any


def jax_bounded(goes_on: Any, step: Any, x: Any, bound: int) -> Any:
    """A loop of `lax` with a bound."""
    def at_each(x: Any, _: Any) -> Any:
        return lax.cond(goes_on(x), step, lambda x: x, x), None
    return lax.scan(at_each, x, None, length=bound)[0]


OURS = Both(
    F.tanh, F.sin, lambda x: F.sum(x, axis=-1), F.stack, F.scan, F.cond,
    lambda goes_on, step, x, bound: F.while_loop(goes_on, step, x, bound=bound),
    lambda f, x: nn.grad(F.sum(f(x)), x)[0],
)  # fmt: skip
THEIRS = Both(
    jnp.tanh, jnp.sin, lambda x: jnp.sum(x, axis=-1), lambda *xs: jnp.stack(xs), lax.scan, lax.cond, jax_bounded,
    lambda f, x: jax.grad(lambda x: jnp.sum(f(x)))(x),
)  # fmt: skip


def recurrent(m: Both, a: Any, b: Any, w: Any, reverse: bool = False) -> Any:
    """A loop over slices made of one value, with another as the first carry."""
    last, ys = m.scan(lambda h, s: (m.tanh(h @ w + s), h * s), a, m.stack(b, b * 0.5, a), reverse=reverse)
    return last + ys[0] * ys[2]


def of_slices(m: Both, a: Any, b: Any, w: Any) -> Any:
    """A loop that carries nothing but a count, by which a branch is taken."""
    def step(i: Any, s: Any) -> Any:
        return i + 1, m.cond(i > 0, lambda: m.sin(s) @ w, lambda: s * a)
    return m.scan(step, np.int32(0), m.stack(a, b))[1][1]


def in_a_loop(m: Both, a: Any, b: Any, w: Any) -> Any:
    """A loop in a loop, the inner one over what is the same for all."""
    def step(h: Any, _: Any) -> Any:
        inner, _ = m.scan(lambda g, r: (m.sin(g * r) + b * 0.3, None), h, w)
        return inner, None
    return m.scan(step, a, None, length=2)[0]


def together(m: Both, a: Any, b: Any, w: Any) -> Any:
    """A branch that all rows take."""
    return m.cond(w[0, 0] > 0, lambda: m.tanh(a @ w) * b, lambda: m.sin(a) - b)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "tanh": lambda m, a, b, w: m.tanh(a),
    "product": lambda m, a, b, w: a * b,
    "sum": lambda m, a, b, w: a + b * 0.5,
    "affine": lambda m, a, b, w: a @ w,
    "recurrent": recurrent,
    "backwards": lambda m, a, b, w: recurrent(m, a, b, w, reverse=True),
    "of slices": of_slices,
    "in a loop": in_a_loop,
    "together": together,
    "gradient": lambda m, a, b, w: m.gradient(lambda x: m.tanh(x @ w) * x * 0.5, a) + b,
}
"""What can be done with a value of shape (..., N) whose rows are independent."""

OF_ONE_ROW: dict[str, Callable[..., Any]] = {
    "apart": lambda m, a, b, w: m.cond(m.total(a) > 0, lambda: m.sin(a @ w) * b, lambda: a * a),
    "while": lambda m, a, b, w: m.bounded(lambda x: m.total(x * x) > 0.3, lambda x: m.sin(x) * 0.6 + b * 0.1, a, 3),
    "loop in a branch": lambda m, a, b, w: m.cond(
        m.total(b) > 0, lambda: m.scan(lambda h, r: (m.tanh(h * r + a), None), b, w)[0], lambda: a + b
    ),
}
"""What can be done with one row alone."""

Recipe = Sequence[tuple[str, int, int]]
"""Operations on earlier values: the name, and which values."""


def recipes(operations: Sequence[str]) -> Any:
    """Up to three operations, of which the results are used further."""
    step = st.tuples(st.sampled_from(sorted(operations)), st.integers(0, 9), st.integers(0, 9))
    return st.lists(step, min_size=1, max_size=3)


def follow(recipe: Recipe, m: Both, x: Any, w: Any) -> Any:
    """What a recipe makes of a row, or of rows that it is not to mix."""
    values = [x]
    for name, i, j in recipe:
        operation = OPERATIONS.get(name) or OF_ONE_ROW[name]
        values.append(operation(m, values[-1 - i % len(values)], values[j % len(values)], w))
    return values[-1] + values[len(values) // 2] * 0.1


def close(ours: Any, expected: Any, name: str = "") -> None:
    """Compare arrays, relative to the largest."""
    expected = np.asarray(expected)
    scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
    np.testing.assert_allclose(ours.d, expected, rtol=1e-9, atol=1e-9 * scale, err_msg=name)


def derivatives_of_rows(y: Variable, x: Variable, batched: bool) -> list[Variable]:
    """Those by a row, of all rows or of one."""
    return [
        nn.jacobian(y, x, batched), nn.hessian(F.sum(y, axis=-1), x, batched), nn.laplacian(y, x, batched)
    ]  # fmt: skip


def check_row_by_row(recipe: Recipe, x: Variable, w: Variable, y: Variable, of_rows: list[Variable]) -> None:
    """Values, first and second derivatives, and Jacobians and Hessians of rows, all of one graph."""
    def of_row(x: Any, w: Any) -> Any:
        return follow(recipe, THEIRS, x, w)

    def by_rows(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(f, in_axes=(0, None))

    def total(x: Any, w: Any) -> Any:
        return jnp.sum(jnp.sin(by_rows(of_row)(x, w)))

    def penalty(x: Any, w: Any) -> Any:
        return sum(jnp.sum(g**2) for g in jax.grad(total, argnums=(0, 1))(x, w))

    first = nn.grad(F.sum(F.sin(y)), [x, w])
    second = nn.grad(F.add_n(*[F.sum(g**2) for g in first]), [x, w])
    ours = [y, *first, *second, *of_rows]
    nn.forward_all(ours)

    def everything(x: Any, w: Any) -> Any:
        hessians = by_rows(jax.hessian(of_row))(x, w)
        return [
            by_rows(of_row)(x, w), *jax.grad(total, argnums=(0, 1))(x, w), *jax.grad(penalty, argnums=(0, 1))(x, w),
            by_rows(jax.jacfwd(of_row))(x, w), jnp.sum(hessians, axis=1), jnp.trace(hessians, axis1=2, axis2=3),
        ]  # fmt: skip

    for a, b in zip(ours, exactly(everything, x.d, w.d), strict=True):
        close(a, b)


@pytest.mark.slow
@settings(SETTINGS, max_examples=5)
@given(recipes([*OPERATIONS, *OF_ONE_ROW]))
def test_mapped(recipe: Recipe) -> None:
    x, w = leaf(X), leaf(W)

    def of_row(x: Variable) -> list[Variable]:
        y = follow(recipe, OURS, x, w)
        return [y, *derivatives_of_rows(y, x, batched=False)]

    y, *of_rows = nn.vmap(of_row)(x)
    check_row_by_row(recipe, x, w, y, of_rows)


@settings(SETTINGS, max_examples=4)
@given(recipes(list(OPERATIONS)))
def test_rows_that_are_seen_to_be_independent(recipe: Recipe) -> None:
    x, w = leaf(X), leaf(W)
    y = follow(recipe, OURS, x, w)
    check_row_by_row(recipe, x, w, y, derivatives_of_rows(y, x, batched=True))


def test_each_by_itself() -> None:
    """Every operation at least once, whatever hypothesis comes to try: values and Jacobians."""
    x, w, names = leaf(X), leaf(W), [*OPERATIONS, *OF_ONE_ROW]

    def both(name: str) -> list[Variable]:
        def of_row(x: Variable) -> Variable:
            return follow([(name, 0, 0)], OURS, x, w)
        return [nn.vmap(of_row)(x), nn.vmap(lambda x: nn.jacobian(of_row(x), x, batched=False))(x)]

    def both_in_jax(name: str, x: Any) -> list[Any]:
        def of_row(x: Any) -> Any:
            return follow([(name, 0, 0)], THEIRS, x, jnp.asarray(W))
        return [jnp.stack([f(row) for row in x]) for f in (of_row, jax.jacfwd(of_row))]

    found = [y for name in names for y in both(name)]
    nn.forward_all(found)
    expected = exactly(lambda x: [y for name in names for y in both_in_jax(name, x)], X)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        close(a, b, names[i // 2])


@pytest.mark.parametrize("mixed", ["branch", "condition", "carry", "slices", "rows"])
def test_rows_that_are_mixed(mixed: str) -> None:
    w, x = leaf(W), leaf(X)
    functions: dict[str, Callable[[], Variable]] = {
        "branch": lambda: F.cond(F.sum(x) > 0, lambda: x @ w, lambda: x),
        "condition": lambda: F.while_loop(lambda y: F.sum(y) > 0, lambda y: y - 1, x),
        "carry": lambda: F.scan(lambda h, row: (h + row, h * row), F.constant(0, (N,), "float64"), x)[1],
        "slices": lambda: F.scan(lambda h, row: (h * row, None), x, x)[0],
        "rows": lambda: F.scan(lambda h, _: (h - F.mean(h, axis=0, keepdims=True), None), x, length=2)[0],
    }
    with pytest.raises(ValueError, match="cannot be shown"):
        nn.jacobian(functions[mixed](), x)
