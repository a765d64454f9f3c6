"""Equations of opened functions whose inputs are known: what NumPy gives in place of XLA is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nngrad.jax.evaluating import _ON_HOST, evaluated_now
from nngrad.jax.values import known

FLOATS = np.asarray([[0.1, -0.0, np.inf], [-3.5, np.nan, 1e-3]], np.float32)
WHOLE = np.asarray([[2**31 - 1, -5, 0], [7, 3, -(2**31)]], np.int32)
TRUTHS = WHOLE > 0
PAIRS = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le,
         "gt": lax.gt, "ge": lax.ge, "min": lax.min, "max": lax.max}  # fmt: skip
CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *[(f, (x, x[::-1].copy())) for f in PAIRS.values() for x in (FLOATS, WHOLE)],
    *[(f, (np.float32(0.3), np.float32(0.7))) for f in PAIRS.values()],
    *[(f, (x, x[::-1].copy())) for f in (lax.bitwise_and, lax.bitwise_or) for x in (WHOLE, TRUTHS)],
    (lax.neg, (FLOATS,)), (lax.neg, (WHOLE,)),
    *[(f, (FLOATS[:, ::2], FLOATS[::-1, ::2].copy())) for f in (lax.min, lax.max, lax.div, lax.nextafter)],
    *[(lax.nextafter, (FLOATS, np.full_like(FLOATS, x))) for x in (np.inf, 0.0)],
    *[(lax.div, (x, np.full_like(x, 3))) for x in (FLOATS, WHOLE)],
    *[(f, (np.abs(np.linspace(-7, 9, 99, dtype="f")),)) for f in (lax.sqrt, lax.ceil)],
    *[(f, (FLOATS,)) for f in (lax.sqrt, lax.ceil, lax.is_finite, jnp.copy)],
    *[(lax.select_n, (TRUTHS, x, x[::-1].copy())) for x in (FLOATS, WHOLE)],
    *[(lax.select_n, (which, WHOLE, -WHOLE)) for which in (TRUTHS[0, 0], TRUTHS.astype(np.int32))],
    (jax.jit(lambda x: jnp.where(x > 0, x / 3, -x)), (FLOATS,)), (jax.jit(lambda x: (jnp.sin(x) + 1)[0]), (FLOATS,)),
    (jax.nn.relu, (WHOLE,)), (jax.jit(jax.nn.relu), (FLOATS,)),
    (lambda x: lax.convert_element_type(x, jnp.int32), (np.asarray([-2.5, 1e20, np.nan], np.float32),)),
    (lambda x: lax.convert_element_type(x, jnp.float32), (WHOLE,)),
    (lambda x: lax.convert_element_type(x, jnp.float16), (np.asarray([1e9, 0.1], np.float32),)),
    (lambda x: lax.convert_element_type(x, jnp.int8), (WHOLE,)),
    (lambda x: lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)), (FLOATS,)),
    (lambda x: lax.broadcast_in_dim(x, (2, 5), (0,)), (WHOLE[:, 0].copy(),)),
    (lambda: lax.broadcasted_iota(jnp.int32, (2, 3), 1), ()),
    (lambda: lax.broadcasted_iota(jnp.float32, (2, 3), 0), ()),
    (lambda x: lax.reshape(x, (3, 2)), (WHOLE,)),
    (lambda x: lax.squeeze(x[None], (0,)), (FLOATS,)),
    (lambda x: lax.transpose(x, (1, 0)), (FLOATS,)),
]


@pytest.mark.parametrize("i", range(len(CASES)))
def test_numpy_gives_what_xla_does(i: int) -> None:
    function, inputs = CASES[i]
    closed = jax.make_jaxpr(function)(*inputs)
    values = {v: known(np.asarray(x)) for v, x in zip(closed.jaxpr.invars, inputs, strict=True)}
    for equation in closed.eqns:
        given = [values[v] for v in equation.invars]
        (result,) = evaluated_now(equation, given)
        values[equation.outvars[0]] = result
    expected = np.asarray(jax.jit(function)(*inputs))
    (output,) = closed.jaxpr.outvars
    found = np.asarray(values[output].array)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_all_that_numpy_computes_is_tried() -> None:
    tried = {e.primitive.name for function, inputs in CASES for e in jax.make_jaxpr(function)(*inputs).eqns}
    assert set(_ON_HOST) <= tried
