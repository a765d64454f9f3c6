"""Leaves that the body of a loop or of a branch updates: as if the steps were taken one after another."""

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
from nngrad.functions.control import with_updates
from nngrad.graph import Variable
from tests.leaves import leaf
from tests.oracle import check

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5, 2))
DECAY = 0.8


class Statistics:
    """Running statistics as nngrad keeps them, and as NumPy computes them."""

    def __init__(self) -> None:
        self.leaves = [Variable.from_numpy_array(v) for v in (np.zeros((1, 2)), np.ones((1, 2)))]
        self.expected = [np.zeros((1, 2)), np.ones((1, 2))]

    def normalized(self, x: Any) -> Variable:
        """x, normalised; the leaves follow."""
        return F.batch_normalization(x, None, None, *self.leaves, axes=(1,), decay_rate=DECAY)

    def follow(self, x: Any) -> Any:
        """x, normalised; what is expected follows."""
        new = x.mean(0, keepdims=True), x.var(0, ddof=1, keepdims=True)
        self.expected = [DECAY * old + (1 - DECAY) * each for old, each in zip(self.expected, new, strict=True)]
        return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)

    def agree(self) -> None:
        """Compare the two."""
        for ours, expected in zip(self.leaves, self.expected, strict=True):
            np.testing.assert_allclose(ours.d, expected, rtol=1e-12, atol=1e-14)


def test_each_step_updates_once_and_so_does_each_forward() -> None:
    stats, x = Statistics(), leaf(X)
    ys = F.map(stats.normalized, x)
    for _ in range(2):
        ys.forward()
        np.testing.assert_allclose(ys.d, [stats.follow(each) for each in X], rtol=1e-12)
        stats.agree()
    ys.d  # noqa: B018 - to read is no forward
    stats.agree()


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_loops_branches_and_what_comes_after(choices: list[int], reverse: bool, twice: bool) -> None:
    """Steps each of which normalises 0, 1 or 2 times, by branch, or in a loop of its own."""
    stats, x = Statistics(), leaf(X[: len(choices)])

    def ours(x: Variable, i: Variable) -> Variable:
        return F.switch(i, [
            lambda: x * 2,
            lambda: stats.normalized(x),
            lambda: stats.normalized(stats.normalized(x) * 3 + x),
            lambda: F.fori_loop(0, 2, lambda _, h: stats.normalized(h * h), x),
        ])  # fmt: skip

    def theirs(x: Any, i: int) -> Any:
        if i == 0:
            return x * 2
        if i == 1:
            return stats.follow(x)
        if i == 2:
            return stats.follow(stats.follow(x) * 3 + x)
        for _ in range(2):
            x = stats.follow(x * x)
        return x

    _, ys = F.scan(lambda _, slices: (None, ours(*slices)), None, (x, np.int32(choices)), reverse=reverse)
    if twice:
        ys = F.map(stats.normalized, ys)
    ys.forward()
    order = list(range(len(choices)))
    results = dict.fromkeys(order)
    for t in reversed(order) if reverse else order:
        results[t] = theirs(X[t], choices[t])
    if twice:
        results = {t: stats.follow(results[t]) for t in order}
    np.testing.assert_allclose(ys.d, [results[t] for t in order], rtol=1e-9, atol=1e-9)
    stats.agree()


@pytest.mark.parametrize("bound", [None, 7])
def test_a_loop_as_long_as_a_condition_holds(bound: int | None) -> None:
    count, k = Variable.from_numpy_array(0.0), Variable.from_numpy_array(10.0)
    steps, y = F.while_loop(
        lambda s: s[0] + 0 * count < 3,
        lambda s: (s[0] + 1, with_updates(s[1] + count, {count: count + k})),
        (Variable.from_numpy_array(0.0), Variable.from_numpy_array(0.0)), bound=bound,
    )  # fmt: skip
    y.forward()
    assert (steps.d, y.d, count.d) == (3, 0 + 10 + 20, 30)


def test_a_condition_sees_what_the_steps_have_updated_and_no_steps_update_nothing() -> None:
    count = Variable.from_numpy_array(0.0)
    last = F.while_loop(lambda s: count < 3, lambda s: with_updates(s + 1, {count: count + 1}), leaf(0.0))
    last.forward()
    assert (last.d, count.d) == (3, 3)
    stats = Statistics()
    F.map(stats.normalized, Variable((0, 5, 2))).forward()
    stats.agree()


def test_only_the_branch_that_is_taken_updates() -> None:
    stats, condition = Statistics(), Variable.from_numpy_array(0.0)
    y = F.cond(condition, lambda x: stats.normalized(x), lambda x: x, X[0])
    y.forward()
    stats.agree()
    condition.d = 1
    y.forward()
    stats.follow(X[0])
    stats.agree()


def test_what_does_not_depend_on_the_step_updates_at_each_all_the_same() -> None:
    stats, count = Statistics(), Variable.from_numpy_array(0.0)
    x = leaf(X[0])
    last = F.fori_loop(0, 3, lambda i, h: h + with_updates(stats.normalized(x), {count: np.float64(4) + 0 * count}), x)
    last.forward()
    for _ in range(3):
        stats.follow(X[0])
    stats.agree()
    assert count.d == 4


def test_gradients_see_nothing_of_it() -> None:
    stats = Statistics()

    def ours(x: Any) -> Any:
        return F.scan(lambda h, x: (F.tanh(h + stats.normalized(x * x)), h), x[0], x)

    def theirs(x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            y = x * x
            return jnp.tanh(h + (y - y.mean(0)) / jnp.sqrt(y.var(0) + 1e-5)), h
        return jax.lax.scan(step, x[0], x)

    check(ours, theirs, [X[:2]], 3, numeric=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda n, v: F.while_loop(lambda s: F.sum(n(s)) < 1, lambda s: s, v), "updates a Variable, which is not"),
        (lambda n, v: F.while_loop(lambda s: F.sum(n(s)) < 1, lambda s: s, v, bound=2), "a Variable, which is not"),
        (lambda n, v: F.scan(lambda h, _: (with_updates(h, {h: h}), None), v, length=2), "an argument of the body"),
        (lambda n, v: F.cond(1, lambda x: with_updates(x, {x: x}), lambda x: x, v), "an argument of the body"),
        (lambda n, v: F.map(lambda x: nn.grad(F.sum(n(v * x)), x)[0], np.ones(2)), "the body cannot differentiate it"),
        (lambda n, v: F.map(lambda x: nn.jvp(n(v * x), x, x), np.ones(2)), "the body cannot differentiate it"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(call: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Statistics().normalized, leaf(X[0]))


def test_a_gradient_that_has_been_taken_outside_is_not_taken_in_a_body() -> None:
    """A structure that came before has its gradient made from what was recorded: it is refused all the same."""
    stats, x = Statistics(), leaf(X[0])
    for _ in range(4):
        nn.grad(F.sum(stats.normalized(x) ** 2), x)
    with pytest.raises(ValueError, match="the body cannot differentiate it"):
        F.scan(lambda h, _: (nn.grad(F.sum(stats.normalized(h) ** 2), h)[0], None), x, length=2)
