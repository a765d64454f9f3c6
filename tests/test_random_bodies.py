"""Random branches, and loops that end by a condition, against `jax.lax`; random bad arguments of what has bodies."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.oracle import check, compiled_cheaply
from tests.test_loops import BINARY, OURS, THEIRS, UNARY, Both, applied

N = 2


class Ways(NamedTuple):
    """F and jnp, with the branches and loops of either."""

    m: Both
    cond: Any
    switch: Any
    fori_loop: Any


WAYS = Ways(OURS, F.cond, F.switch, F.fori_loop), Ways(THEIRS, lax.cond, lax.switch, lax.fori_loop)

Steps = list[tuple[str, int, int]]
STEPS = st.lists(
    st.tuples(st.sampled_from(UNARY + BINARY), st.integers(0, 30), st.integers(0, 30)), min_size=0, max_size=3
)


def run(m: Both, steps: Steps, *given: Any) -> Any:
    """What the last of some random steps gives; the first of what is given, if there are none."""
    values = list(given)
    for name, a, b in steps:
        values.append(applied(m, name, values[a % len(values)], values[b % len(values)]))
    return values[-1] if steps else values[0]


@st.composite
def random_branches(draw: st.DrawFn) -> Callable[..., Any]:
    """A function of two matrices with branches, perhaps in a loop, perhaps with branches or a loop in them."""
    branches = draw(st.lists(STEPS, min_size=1, max_size=3))
    index, looping = draw(st.integers(-1, 3)), draw(st.booleans())
    inner, within = draw(STEPS), draw(st.sampled_from(["", "cond", "loop"]))

    def function(ways: Ways, x: Any, w: Any) -> Any:
        m = ways.m
        outside = m.sin(w)

        def branch(steps: Steps) -> Callable[[Any], Any]:
            def taken(h: Any) -> Any:
                y = run(m, steps, h, w, outside)
                if within == "cond":
                    return ways.cond(m.less(m.sum(y), 0.5), lambda y: run(m, inner, y, outside), lambda y: y * y, y)
                if within == "loop":
                    return ways.fori_loop(0, 2, lambda i, y: m.tanh(run(m, inner, y, h)), y)
                return y
            return taken

        taken = [branch(steps) for steps in branches]
        if not looping:
            return ways.switch(np.int32(index), taken, x)
        numbers = np.array([0, index, 1], np.int32)
        return m.scan(lambda h, i: (m.tanh(ways.switch(i, taken, h) + 0.5 * h), h), x, numbers)

    return function


def flat(function: Callable[..., Any], ways: Ways) -> Callable[..., tuple[Any, ...]]:
    """The results as a tuple."""
    return lambda *xs: tuple(jax.tree.leaves(function(ways, *xs)))


@settings(max_examples=6, deadline=None)
@given(function=random_branches(), seed=st.integers(0, 1000))
def test_random_branches_to_order_2(function: Callable[..., Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((N, N)) * 0.5 for _ in range(2)]
    check(flat(function, WAYS[0]), flat(function, WAYS[1]), arrays, 2, numeric=False, rtol=1e-8)


@settings(max_examples=6, deadline=None)
@given(steps=STEPS, ends=st.integers(0, 3), more=st.integers(-1, 2), seed=st.integers(0, 1000))
def test_random_loops_with_a_bound_to_order_2(steps: Steps, ends: int, more: int, seed: int) -> None:
    """A counter, a carry, and what is captured; the bound may come before the condition ends the loop."""
    bound = max(0, ends + more)

    def ours(x: Any, w: Any) -> Any:
        return F.while_loop(
            lambda c: c[0] < ends, lambda c: (c[0] + 1, F.tanh(run(OURS, steps, c[1], w))), (np.int32(0), x), bound
        )[1]

    def theirs(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, min(ends, bound), lambda i, h: jnp.tanh(run(THEIRS, steps, h, w)), x)

    rng = np.random.default_rng(seed)
    check(ours, theirs, [rng.standard_normal((N, N)) * 0.5 for _ in range(2)], 2, numeric=False, rtol=1e-8)


@settings(max_examples=6, deadline=None)
@given(steps=STEPS, limit=st.floats(0.0, 3.0), seed=st.integers(0, 1000))
def test_random_loops_without_a_bound_forward_to_order_2(steps: Steps, limit: float, seed: int) -> None:
    """The condition depends on what is carried; a counter ends it in any case."""
    def loop(m: Both, while_loop: Any) -> Callable[..., Any]:
        def goes_on(c: Any) -> Any:
            return m.less(m.sum(c[1] * c[1]) + c[0] * 0.7, limit)
        return lambda x, w: while_loop(
            goes_on, lambda c: (c[0] + 1, m.tanh(run(m, steps, c[1], w)) + 0.1 * x), (np.int32(0), x)
        )[1]

    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((N, N)) * 0.5 for _ in range(2)]
    leaves = [Variable.from_numpy_array(a) for a in arrays]
    y, h = loop(OURS, F.while_loop)(*leaves), loop(THEIRS, lax.while_loop)
    with jax.enable_x64(True):
        given = tuple(map(jnp.asarray, arrays))
        for order in range(3):
            np.testing.assert_allclose(y.d, compiled_cheaply(h)(*given), rtol=1e-8, atol=1e-8, err_msg=f"order {order}")
            (y,) = nn.jvp(y, leaves, arrays)
            h = along(h, given)


def along(h: Callable[..., Any], vs: Any) -> Callable[..., Any]:
    """The derivative of a function for JAX along a direction."""
    return lambda *xs: jax.jvp(h, xs, vs)[1]


# ---------------------------------------------------------------- bad arguments


V, XS = Variable((2, 3)), Variable((4, 3))

POOR = st.sampled_from([
    None, -1, 2.5, "word", [], {}, (1, 2), object(), np.array(["a"]), Ellipsis, b"bytes", 1 + 2j, set(), [V, "word"],
    {"a": object()}, Variable((7, 7)), int, print,
])  # fmt: skip
"""What is hardly ever right, and often not even a pytree of numbers."""

PLACES: dict[str, Callable[[Any], Any]] = {
    "scan body": lambda bad: F.scan(bad, V, XS),
    "scan init": lambda bad: F.scan(lambda h, x: (h, x), bad, XS),
    "scan xs": lambda bad: F.scan(lambda h, x: (h, x), V, bad),
    "scan length": lambda bad: F.scan(lambda h, x: (h, x), V, XS, bad),
    "scan reverse": lambda bad: F.scan(lambda h, x: (h, x), V, XS, reverse=bad),
    "scan unroll": lambda bad: F.scan(lambda h, x: (h, x), V, XS, unroll=bad),
    "scan: what is returned": lambda bad: F.scan(lambda h, x: bad, V, XS),
    "scan: carry": lambda bad: F.scan(lambda h, x: (bad, x), V, XS),
    "scan: y": lambda bad: F.scan(lambda h, x: (h, bad), V, XS),
    "fori_loop lower": lambda bad: F.fori_loop(bad, 3, lambda i, h: h, V),
    "fori_loop upper": lambda bad: F.fori_loop(0, bad, lambda i, h: h, V),
    "fori_loop body": lambda bad: F.fori_loop(0, 3, bad, V),
    "fori_loop init": lambda bad: F.fori_loop(0, 3, lambda i, h: h, bad),
    "fori_loop: carry": lambda bad: F.fori_loop(0, 3, lambda i, h: bad, V),
    "map function": lambda bad: F.map(bad, XS),
    "map xs": lambda bad: F.map(lambda x: x, bad),
    "map: what is returned": lambda bad: F.map(lambda x: bad, XS),
    "while_loop cond_fun": lambda bad: F.while_loop(bad, lambda y: y, V),
    "while_loop body_fun": lambda bad: F.while_loop(lambda y: 0, bad, V),
    "while_loop init": lambda bad: F.while_loop(lambda y: 0, lambda y: y, bad),
    "while_loop bound": lambda bad: F.while_loop(lambda y: 0, lambda y: y, V, bad),
    "while_loop: condition": lambda bad: F.while_loop(lambda y: bad, lambda y: y, V),
    "while_loop: carry": lambda bad: F.while_loop(lambda y: 0, lambda y: bad, V),
    "cond pred": lambda bad: F.cond(bad, lambda y: y, lambda y: y, V),
    "cond true_fun": lambda bad: F.cond(1, bad, lambda y: y, V),
    "cond operand": lambda bad: F.cond(1, lambda y: y, lambda y: y, bad),
    "cond: what is returned": lambda bad: F.cond(1, lambda y: bad, lambda y: y, V),
    "switch index": lambda bad: F.switch(bad, [lambda y: y], V),
    "switch branches": lambda bad: F.switch(0, bad, V),
    "switch branch": lambda bad: F.switch(0, [lambda y: y, bad], V),
}


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=25, deadline=None)
@given(bad=POOR)
def test_bad_arguments_are_refused_by_name(place: str, bad: Any) -> None:
    """Each is accepted, or refused with the name of the function and what is wrong with it; nothing else is raised."""
    owner = place.partition(" ")[0].rstrip(":")
    try:
        PLACES[place](bad)
    except (TypeError, ValueError) as error:
        if not any("in the body" in note for note in getattr(error, "__notes__", [])):
            assert str(error).startswith((f"{owner}:", f"{owner}(")), str(error)


def own_line(function: Callable[..., Any]) -> str:
    """Where a function of this file is written."""
    return f"{__file__}:{function.__code__.co_firstlineno}"


def kept(h: Any, x: Any) -> Any:
    """A body that is right."""
    return h, x


def cut(h: Any, x: Any = None) -> Any:
    """A body that changes the shape of what it carries."""
    return h[0], None


def twice(i: Any, h: Any) -> Any:
    """A body that returns too much."""
    return h, h


@pytest.mark.parametrize(
    ("call", "written", "message"),
    [
        (lambda: F.scan(kept, V, XS, length=3), kept, "scan: xs has 4 entries along its first axis, and length is 3"),
        (lambda: F.scan(cut, V, XS), cut, "scan: carry is .* when a step begins, and .* when it ends"),
        (lambda: F.fori_loop(0, 3, twice, V), twice, "fori_loop: the body gets a carry of the structure"),
        (lambda: F.while_loop(lambda h: 1, cut, V), cut, "while_loop: the body gets a carry of the structure"),
        (lambda: F.while_loop(lambda h: 1, cut, V, bound=3), cut, "while_loop: the body gets a carry of the structure"),
        (lambda: F.map(lambda x: "word", XS), None, "map: what the body returns as y must be"),
        (lambda: F.cond(1, cut, lambda h: h, V), cut, "cond: false_fun returns .*, and true_fun returns"),
        (lambda: F.switch(0, [lambda h: h, cut], V), cut, r"switch: branches\[0\] returns .*, and branches\[1\]"),
    ],
)
def test_errors_name_the_line_of_the_body(call: Callable[[], Any], written: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    notes = "\n".join(caught.value.__notes__)
    assert (__file__ if written is None else own_line(written)) in notes
