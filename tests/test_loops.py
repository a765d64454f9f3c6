"""Loops: values and derivatives against `jax.lax`, how many loops there are, and what is refused."""

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
from nngrad.graph import Variable, functions_of
from tests.oracle import check

RNG = np.random.default_rng(0)
T, N = 4, 3
X, C, W = RNG.standard_normal((T, 2, N)), RNG.standard_normal((2, N)), RNG.standard_normal((N, N)) * 0.5


def leaf(values: Any, dtype: Any = np.float64, need_grad: bool = True) -> Variable:
    """A leaf with these values."""
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad)


def loops_in(outputs: Any) -> list[Any]:
    """The loops that a graph has."""
    return [f for f in functions_of(outputs) if f.name == "scan_of_body"]


# ---------------------------------------------------------------- values and derivatives, to order 3


class Both(NamedTuple):
    """One way to write a function for nngrad and for JAX: F or jnp, and F.scan or lax.scan."""

    tanh: Any
    sin: Any
    exp: Any
    sum: Any
    scan: Any
    where: Any
    less: Any
    stop: Any


OURS = Both(F.tanh, F.sin, F.exp, F.sum, F.scan, F.where, F.less, F.unlink)
THEIRS = Both(jnp.tanh, jnp.sin, jnp.exp, jnp.sum, lax.scan, jnp.where, jnp.less, lax.stop_gradient)


def recurrent(m: Both, x: Any, c: Any, w: Any) -> Any:
    """One carry, what is scanned, and what is captured."""
    return m.scan(lambda h, x: (lambda y: (y, y * y))(m.tanh(h @ w + x)), c, x)


def backwards(m: Both, x: Any, c: Any, w: Any) -> Any:
    """From the last slice to the first."""
    return m.scan(lambda h, x: (m.sin(h @ w) * x, h), c, x, reverse=True)


def unrolled(m: Both, x: Any, c: Any, w: Any) -> Any:
    """Several steps as one."""
    return m.scan(lambda h, x: (m.sin(h) @ w + x, None), c, x, unroll=2)[0]


def several_carries(m: Both, x: Any, c: Any, w: Any) -> Any:
    """A pytree of carries, one of which turns into another."""
    def step(carry: Any, x: Any) -> Any:
        return {"a": carry["b"] * m.sin(carry["a"]), "b": carry["a"] + x @ w}, (carry["b"], {"z": x * carry["a"]})
    last, (b, z) = m.scan(step, {"a": c, "b": c * 0.5}, x)
    return last["a"], last["b"], b, z["z"]


def integer_carry(m: Both, x: Any, c: Any, w: Any) -> Any:
    """A counter among the carries, on which something depends."""
    def step(carry: Any, x: Any) -> Any:
        i, h = carry
        return (i + 1, m.where(m.less(i, 2), m.sin(h) @ w, h * x)), h
    return m.scan(step, (np.int32(0), c), x)[1]


def without_slices(m: Both, x: Any, c: Any, w: Any) -> Any:
    """Nothing is scanned."""
    return m.scan(lambda h, _: (m.tanh(h @ w) + x[0], h), c, None, length=3)


def without_carry(m: Both, x: Any, c: Any, w: Any) -> Any:
    """Nothing is carried."""
    return m.scan(lambda _, x: (None, m.exp(x * 0.3) @ w), None, x)[1]


def passed_on(m: Both, x: Any, c: Any, w: Any) -> Any:
    """What goes in comes out: a carry, a slice, and what is captured."""
    return m.scan(lambda h, x: ((h[1], h[0], x), (h[0], x, w, h[0])), (c, c * c, c), x)


def captured_in_the_middle(m: Both, x: Any, c: Any, w: Any) -> Any:
    """What is captured is computed before, and is used after."""
    v = m.sin(w)
    return m.sum(m.scan(lambda h, x: (m.tanh(h @ v) * x, None), c, x)[0]) * m.sum(v)


def constant_within(m: Both, x: Any, c: Any, w: Any) -> Any:
    """What depends on nothing that changes from step to step."""
    return m.scan(lambda h, x: (h @ m.exp(w) * 0.1 + x, m.sum(w * w)), c, x)


def nested(m: Both, x: Any, c: Any, w: Any) -> Any:
    """A loop in a loop, over the same rows."""
    def inner(h: Any, row: Any) -> Any:
        return m.tanh(h + row) * row, h
    def step(h: Any, x: Any) -> Any:
        last, stack = m.scan(inner, h[0], x @ w)
        return h * 0.5 + m.sin(last), stack
    return m.scan(step, c, x)


def stopped(m: Both, x: Any, c: Any, w: Any) -> Any:
    """A part through which no gradient goes."""
    return m.scan(lambda h, x: (m.tanh(h @ w) * m.stop(m.sin(h)) + x, h), c, x)


def stacked_only(m: Both, x: Any, c: Any, w: Any) -> Any:
    """The last carry is not read."""
    return m.scan(lambda h, x: (h * 0.9 + x, m.sin(h) @ w), c, x)[1]


SCANS = [recurrent, backwards, unrolled, several_carries, integer_carry, without_slices, without_carry, passed_on,
         captured_in_the_middle, constant_within, nested, stopped, stacked_only]  # fmt: skip


def flat(function: Callable[..., Any], m: Both) -> Callable[..., tuple[Any, ...]]:
    """The results as a tuple."""
    return lambda *xs: tuple(jax.tree.leaves(function(m, *xs)))


@pytest.mark.parametrize("function", SCANS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("length", [0, 1, T])
def test_scan_to_order_3(function: Callable[..., Any], length: int) -> None:
    if function is without_slices and length == 0:
        return  # it reads the first slice
    numeric = function not in (stopped,)
    check(flat(function, OURS), flat(function, THEIRS), [X[:length], C, W], 3, numeric=numeric)
