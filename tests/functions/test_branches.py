"""Branches: values and derivatives against `jax.lax`, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from nngrad.graph import Variable, functions_of
from tests.together import Check, compared, together

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((2, 3)), RNG.standard_normal((3, 3)) * 0.5


class Both(NamedTuple):
    """F or jnp, and the branches and loops of either."""

    sin: Any
    tanh: Any
    sum: Any
    log: Any
    less: Any
    cond: Any
    switch: Any
    scan: Any


OURS = Both(F.sin, F.tanh, F.sum, F.log, F.less, F.cond, F.switch, F.scan)
THEIRS = Both(jnp.sin, jnp.tanh, jnp.sum, jnp.log, jnp.less, lax.cond, lax.switch, lax.scan)


def two(m: Both, x: Any, w: Any) -> Any:
    """A product in one branch, and in the other an output that depends on nothing."""
    return m.cond(m.less(m.sum(x), 100.0), lambda x: (m.tanh(x @ w), m.sum(x)), lambda x: (x * 0.0, m.sum(w)), x)


def other(m: Both, x: Any, w: Any) -> Any:
    """The branch that does not read what the first one reads."""
    return m.cond(m.less(m.sum(x), -100.0), lambda x: m.tanh(x @ w), lambda x: x**3, x)


def several(m: Both, x: Any, w: Any) -> Any:
    """Three branches, taken in turn in a loop, with what is outside read in one of them."""
    v = m.sin(w)
    branches = [lambda h: m.sin(h), lambda h: h @ v, lambda h: h * h]
    return m.scan(lambda h, i: (m.switch(i, branches, h) + 0.1 * h, h), x, np.array([0, 1, 2, 1], np.int32))


def looping(m: Both, x: Any, w: Any) -> Any:
    """A loop in a branch in a loop."""
    def step(h: Any, _: Any) -> Any:
        def loop(h: Any) -> Any:
            return m.scan(lambda g, _: (m.tanh(g @ w), None), h, None, length=2)[0]
        return m.cond(m.less(m.sum(h), 0.5), loop, lambda h: h * 0.5, h), m.sum(h)
    return m.scan(step, x, None, length=3)


def passed_on(m: Both, x: Any, w: Any) -> Any:
    """What goes in comes out."""
    return m.cond(m.less(m.sum(x), 100.0), lambda x, y: (x, y, x), lambda x, y: (y, x, y), x, x * x)


BRANCHES = [two, other, several, looping, passed_on]


def flat(function: Callable[..., Any], m: Both) -> Callable[..., tuple[Any, ...]]:
    """The results as a tuple."""
    return lambda *xs: tuple(jax.tree.leaves(function(m, *xs)))


@pytest.mark.parametrize("function", BRANCHES, ids=lambda f: f.__name__)
@together
def test_branches_to_order_3(function: Callable[..., Any]) -> Check:
    yield from compared(flat(function, OURS), flat(function, THEIRS), [X, W], 3)


def test_only_the_branch_that_is_taken_counts() -> None:
    x = Variable.from_numpy_array(np.array([-1.0, 0.0]))
    y = F.cond(F.sum(x) > 0, lambda: F.sum(F.log(x)), lambda: F.sum(x * x))
    assert not {f.name for f in functions_of([y])} & {"log", "mul2"}, "what a branch computes is in it"
    (gx,) = nn.grad(y, x)
    np.testing.assert_array_equal(gx.d, [-2.0, 0.0])


def test_gradients_compute_no_product_of_a_branch_again() -> None:
    def value(m: Both, x: Any, w: Any) -> Any:
        last = lambda x: m.sum(m.sin(m.sin(x @ w) @ w))  # noqa: E731
        return m.cond(m.less(m.sum(x), 100.0), lambda x: last(m.tanh(x @ w)), last, x)

    arrays = X.astype(np.float32), W.astype(np.float32)
    x, w = map(Variable.from_numpy_array, arrays)
    y = value(OURS, x, w)
    theirs = functools.partial(value, THEIRS)
    functions = [jax.value_and_grad(theirs, 1), nj.value_and_grad(theirs, 1), nn.to_jax([y, *nn.grad(y, [w])], [x, w])]
    counts = [jax.jit(function).lower(*arrays).as_text().count("dot_general") for function in functions]
    assert max(counts) == counts[0]


def test_second_derivatives_compute_no_step_of_a_loop_in_a_body_again() -> None:
    def last(x: Any) -> Any:
        return jnp.sum(jnp.sin(looping(THEIRS, x, W)[0]))

    programs = [jax.jit(by.hessian(last)).lower(X).as_text() for by in (nj, jax)]
    assert [text.count("dot_general") for text in programs] == [4, 4]


def test_the_condition_may_be_a_number_and_the_index_beyond_the_ends() -> None:
    x = Variable.from_numpy_array(X)
    for pred in (True, 2.5, Variable.from_numpy_array(np.array(-1))):
        np.testing.assert_array_equal(F.cond(pred, lambda x: x, lambda x: -x, x).d, X)
    np.testing.assert_array_equal(F.cond(0.0, lambda x: x, lambda x: -x, x).d, -X)
    for index, sign in ((-3, 1), (0, 1), (1, -1), (9, -1)):
        np.testing.assert_array_equal(F.switch(index, [lambda x: x, lambda x: -x], x).d, sign * X)


V = Variable((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.cond(V, lambda: V, lambda: V), ValueError, r"pred must be a scalar, got shape \(2, 3\)\. For"),
        (lambda: F.switch(1.5, [lambda: V]), TypeError, "index must be an integer, got .*F.cond"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
