"""nn.vmap: values and derivatives against the same function of JAX, one row after another; what is built; what is
refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from tests.exact import exactly
from tests.functions.test_loops import OURS, SCANS, THEIRS, flat
from tests.leaves import leaf
from tests.oracle import check
from tests.slow import slow_but_every

RNG = np.random.default_rng(0)
K, T, N = 2, 4, 3
X, C, W = RNG.standard_normal((T, 2, N)), RNG.standard_normal((2, N)), RNG.standard_normal((N, N)) * 0.5


def by_rows(function: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
    """A function of JAX, applied to one row after another, and its results stacked."""
    def each(*xs: Any) -> Any:
        count = next(x.shape[a] for x, a in zip(xs, axes, strict=True) if a is not None)
        rows = [
            function(*[x if a is None else jnp.take(x, i, axis=a) for x, a in zip(xs, axes, strict=True)])
            for i in range(count)
        ]
        return tuple([jnp.stack(ys) for ys in zip(*map(jax.tree.leaves, rows), strict=True)])
    return each


def with_rows(a: np.ndarray[Any, Any], axis: int | None) -> np.ndarray[Any, Any]:
    """`K` arrays like `a` along an axis."""
    return a if axis is None else np.stack([a * (1 + 0.1 * k) for k in range(K)], axis=axis)


def check_rows(ours: Any, theirs: Any, arrays: Sequence[Any], axes: tuple[int | None, ...], orders: int) -> None:
    """Compare `nn.vmap` of a function with `jax.vmap` of the same for JAX, and so their gradients."""
    inputs = [with_rows(np.asarray(a), axis) for a, axis in zip(arrays, axes, strict=True)]
    reference = jax.vmap(theirs, in_axes=axes)
    check(nn.vmap(ours, in_axes=axes), lambda *xs: tuple(jax.tree.leaves(reference(*xs))), inputs, orders,
          numeric=False)


# ---------------------------------------------------------------- loops

CHOICES: list[tuple[int | None, ...]] = [(0, None, None), (None, 1, None), (None, None, 0), (1, 0, -1), (None, 0, 2)]
"""Which of the slices, the carry and what is captured have rows, and where."""


@pytest.mark.parametrize("number", slow_but_every(2, range(len(SCANS))), ids=[f.__name__ for f in SCANS])
def test_scan_to_order_2(number: int) -> None:
    function, axes = SCANS[number], CHOICES[number % len(CHOICES)]
    check_rows(flat(function, OURS), flat(function, THEIRS), [X, C, W], axes, 2)


# ---------------------------------------------------------------- branches


@pytest.mark.parametrize("index", [[0, 1, 2, 1], [-3, 7, 0, 2], [1, 1, 1, 1]])
def test_each_row_by_its_own_index(index: list[int]) -> None:
    given = np.asarray(index, np.int32)

    def ours(i: Any, c: Any) -> Any:
        return F.switch(i, [F.sin, lambda c: c * c, lambda c: F.exp(c) @ leaf(W)], c)

    def theirs(i: Any, c: Any) -> Any:
        return lax.switch(i, [jnp.sin, lambda c: c * c, lambda c: jnp.exp(c) @ W], c)

    rows = np.stack([C * k for k in (1.0, -1.0, 0.5, 2.0)])
    check(nn.vmap(ours), by_rows(theirs, (0, 0)), [given, rows], 2, numeric=False)


@pytest.mark.parametrize("kind", ["loop", "product", "mixed"])
def test_infinite_derivatives_of_a_branch_that_a_row_does_not_take(kind: str) -> None:
    """Selections cannot be moved outside of a loop or a product with a matrix, and no NaN comes out of them."""
    def branch(m: Any, c: Any, w: Any) -> Any:
        if kind == "loop":
            return m.sum(m.scan(lambda h, x: (m.sqrt(h * h) + m.log(x), None), c, c[None] * 1.0)[0])
        if kind == "product":
            return m.sum(m.sqrt(c) @ w)
        return m.sum((m.log(c) * m.sin(c)) @ w) * m.sum(w)

    class Mine:
        sum, sqrt, log, sin, scan = F.sum, F.sqrt, F.log, F.sin, F.scan

    class Jax:
        sum, sqrt, log, sin, scan = jnp.sum, jnp.sqrt, jnp.log, jnp.sin, lax.scan

    def ours(c: Any, w: Any) -> Any:
        return F.cond(F.sum(c) > 1, lambda: branch(Mine, c, w), lambda: F.sum(c * c))

    def theirs(c: Any, w: Any) -> Any:
        return lax.cond(jnp.sum(c) > 1, lambda: branch(Jax, c, w), lambda: jnp.sum(c * c))

    rows = np.stack([np.zeros((2, N)), np.abs(C) + 1, -np.abs(C)])
    check(nn.vmap(ours, in_axes=(0, None)), by_rows(theirs, (0, None)), [rows, W], 2, numeric=False)
    check(nn.vmap(ours, in_axes=(0, None)), by_rows(theirs, (0, None)), [rows[:1], W], 1, numeric=False)


# ---------------------------------------------------------------- loops without a count


def test_rows_stop_at_different_steps() -> None:
    def ours(a: Any) -> Any:
        def step(s: Any) -> Any:
            return (s[0] + a / s[0]) / 2, s[1] + 1
        return F.while_loop(lambda s: F.abs(s[0] * s[0] - a) > 1e-9 * a, step, (a, 0))

    a = np.array([2.0, 4.0, 1e6, 0.25])
    y, steps = nn.vmap(ours)(leaf(a))
    np.testing.assert_allclose(y.d, np.sqrt(a), rtol=1e-9)
    alone = [int(ours(leaf(row))[1].d) for row in a]
    assert steps.d.tolist() == alone and len(set(alone)) > 2
    x = leaf(a)
    y, _ = nn.vmap(ours)(x)
    (t,) = nn.jvp(y, x, np.ones(4))
    (tt,) = nn.jvp(t, x, np.ones(4))
    np.testing.assert_allclose(t.d, 0.5 * a**-0.5, rtol=1e-7)
    np.testing.assert_allclose(tt.d, -0.25 * a**-1.5, rtol=1e-5)
    with pytest.raises(ValueError, match="bound"):
        nn.grad(y, x)


def test_rows_stop_together_and_those_that_are_done_do_not_keep_a_loop_within_from_ending() -> None:
    w = leaf(W)
    y = nn.vmap(lambda c: F.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, F.tanh(s[1] @ w)), (0, c))[1])(leaf(X))
    expected = X
    for _ in range(3):
        expected = np.tanh(expected @ W)
    np.testing.assert_allclose(y.d, expected, rtol=1e-12)
    def ours(a: Any) -> Any:
        def halved(a: Any) -> Any:
            return F.while_loop(lambda b: F.abs(b) < 1, lambda b: b * 2, a) * 0 + a - 1
        return F.while_loop(lambda b: b > 0, halved, a)

    np.testing.assert_array_equal(nn.vmap(ours)(leaf([1.0, 3.0, 2.0])).d, [0, 0, 0])


def test_a_branch_with_a_loop_that_would_not_end_for_rows_that_do_not_take_it() -> None:
    def ours(a: Any) -> Any:
        return F.cond(a > 0, lambda: F.while_loop(lambda b: b < 8, lambda b: b * 2, a), lambda: a)

    np.testing.assert_array_equal(nn.vmap(ours)(leaf([1.0, 0.0, 3.0])).d, [8, 0, 12])
    np.testing.assert_array_equal(nn.vmap(ours)(leaf([0.0, -1.0])).d, [0, -1])


# ---------------------------------------------------------------- gradients of each sample


def loss(m: Any, x: Any, t: Any, w: Any) -> Any:
    """A loss of one sample."""
    return m.sum((m.tanh(x @ w) - t) ** 2)


def test_gradients_of_each_sample_reach_what_is_read_from_outside() -> None:
    w, x, t = leaf(W), leaf(X[0]), leaf(X[1])
    each = nn.vmap(lambda x, t: nn.grad(loss(F, x, t, w), [w])[0])(x, t)
    norms = F.sum(F.sum(each**2, axis=(1, 2)) ** 0.5)
    (gw,) = nn.grad(norms, [w])

    def total(w: Any) -> Any:
        rows = [jax.grad(lambda w, i=i: loss(jnp, X[0][i], X[1][i], w))(w) for i in range(2)]
        return sum(jnp.sqrt(jnp.sum(g**2)) for g in rows)

    np.testing.assert_allclose(gw.d, exactly(jax.grad(total), W), rtol=1e-10)


# ---------------------------------------------------------------- how it is called


def test_no_rows() -> None:
    w = leaf(W)
    y = nn.vmap(lambda x: F.scan(lambda h, _: (F.tanh(h @ w), None), x, length=2)[0])(leaf(np.zeros((0, N))))
    assert y.d.shape == (0, N)
    assert not np.any(nn.grad(F.sum(y), w)[0].d)


def test_random_functions_draw_for_each_row() -> None:
    nn.seed(3)
    x = leaf(np.ones((50, 40)))
    y = nn.vmap(lambda x: F.dropout(x, p=0.5))(x)
    (gx,) = nn.grad(F.sum(y * y), x)
    nn.forward_all([gx, y])
    assert len({tuple(row) for row in y.d}) == 50
    np.testing.assert_array_equal(gx.d != 0, y.d != 0)
    first = y.d.copy()
    nn.forward_all([gx, y])
    assert (first != y.d).any()
    noise = F.randn(shape=(3,))
    assert len(np.unique(nn.vmap(lambda x: F.sum(x) * 0 + noise)(x).d)) == 3
    both = nn.vmap(lambda x: F.scan(lambda _, x: (None, x + F.randn(shape=())), None, x)[1])(leaf(np.zeros((5, 6))))
    assert len(np.unique(both.d)) == 30


def test_gradients_stop_where_they_did_and_switches_are_in_force() -> None:
    def fun(x: Any) -> Any:
        inner = F.sin(x)
        inner.need_grad = False
        return F.sum(inner * x)

    x = leaf(C)
    (g,) = nn.grad(F.sum(nn.vmap(fun)(x)), x)
    np.testing.assert_allclose(g.d, np.sin(C))
    x = leaf(C)
    with nn.auto_forward():
        assert nn.vmap(lambda x: F.sum(F.sin(x)))(x).is_computed
    with nn.no_grad():
        y = nn.vmap(lambda x: F.sum(F.sin(x)))(x)
    assert not np.any(nn.grad(F.sum(y) + F.sum(x), x)[0].d - 1)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nn.vmap(3), TypeError, "fun: expected a function"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_updates_of_leaves_are_refused() -> None:
    nn.clear_parameters()
    with pytest.raises(ValueError, match=r"vmap: update in the body .*test_vmap.py.* updates a Variable"):
        nn.vmap(lambda x: PF.batch_normalization(x, axes=(1,)))(leaf(X, np.float32))


def test_a_row_of_what_was_computed_outside_does_not_depend_on_a_row() -> None:
    x = leaf(np.arange(1.0, 4.0))
    (g,) = nn.grad(F.sum(x**2), x)
    for function, given in (
        (lambda gi, xi: nn.grad(gi, xi)[0], (g, x)), (lambda xi: nn.grad(F.sum(2 * g), xi)[0], (x,)),
    ):
        with pytest.raises(ValueError, match="in the function of vmap: its output was computed outside"):
            nn.vmap(function)(*given)
    with pytest.raises(ValueError, match="in the function of scan: its output was computed outside"):
        F.scan(lambda c, each: (c, nn.grad(each[0], each[1])[0]), 0.0, (g, x))
    # Zero by its nature: values that are not related outside, and a function that does not read an argument.
    other = leaf(np.ones(3))
    np.testing.assert_array_equal(nn.vmap(lambda a, b: nn.grad(a, b)[0])(other, x).d, 0)
    np.testing.assert_array_equal(nn.vmap(lambda velocity, q: nn.grad(velocity**2, q)[0])(g, x).d, 0)
