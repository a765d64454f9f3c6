"""Values that are given: what is taken, what is converted, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import NdArray, Variable
from nngrad.graph.spec import spec_of
from tests.refusals import refused

from_ = Variable.from_numpy_array


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8"])
def test_big_endian_arrays_are_converted(dtype: str) -> None:
    foreign = np.array([1, 2, 3], f">{dtype}")
    native = np.dtype(dtype)
    x = from_(foreign)
    assert x.dtype == native and x.dtype.isnative and x.spec is spec_of((3,), native)
    assert (x + x).d.tolist() == [2, 4, 6]
    assert F.add2(foreign, foreign).d.tolist() == [2, 4, 6]
    y = Variable((3,), dtype=f">{dtype}")
    y.d = foreign
    assert y.spec is x.spec and y.d.tolist() == [1, 2, 3]
    assert F.cast(x, dtype=f">{dtype}").dtype is x.dtype


UNSUPPORTED = {
    "longdouble": np.ones(2, np.longdouble),
    "complex": np.ones(2, np.complex64),
    "complex of JAX": jnp.ones(2, jnp.complex64),
    "object": np.array([1, None]),
    "str": np.array(["1", "2"]),
    "bytes": np.array([b"1", b"2"]),
    "datetime": np.array(["2020-01-01"], "M8[D]"),
    "timedelta": np.array([1], "m8[s]"),
    "record": np.zeros(2, [("a", "f4")]),
    "list of objects": [1.0, None],
}


@pytest.mark.parametrize("value", UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
@pytest.mark.parametrize(("give", "name"), [
    (lambda value: setattr(Variable((2,)), "d", value), "value"),
    (lambda value: F.add2(1.0, value), "add2: x1"),
], ids=["d", "function"])
def test_arrays_that_no_cell_holds_are_refused(give: Callable[[Any], Any], name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"{name}(?s:.)*dtype \S+.* is not supported; pass .*np\.float32"):
        give(value)


@pytest.mark.parametrize("dtype", [np.longdouble, complex, object, str, "M8[s]", None, jax.dtypes.prng_key])
def test_dtypes_that_are_none_of_ours_are_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match="dtype"):
        Variable((2,), dtype=dtype)
    with pytest.raises(TypeError, match=r"cast: argument 'dtype' must be .*'float32'"):
        F.cast(np.ones(2), dtype=dtype)


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    with pytest.raises(TypeError, match=r"(?s)exp: x .*masked.*filled"):
        F.exp(masked)
    assert from_(np.ma.array([1.0, 2.0])).d.tolist() == [1, 2]


# ---------------------------------------------------------------- what a cell's dtype holds


@pytest.mark.parametrize(("value", "dtype", "stray"), [
    (300, "uint8", "300"),
    (-1, "uint8", "-1"),
    (-1, "uint64", "-1"),
    (2**40, "int32", str(2**40)),
    (-(2**31) - 1, "int32", str(-(2**31) - 1)),
    (2**63, "int64", str(2**63)),
    (1.5, "int32", "1.5"),
    (-0.5, "uint8", "-0.5"),
    (float("nan"), "int32", "nan"),
    (float("inf"), "int64", "inf"),
    (2.0**63, "int64", str(2.0**63)),
    (2.0**64, "uint64", str(2.0**64)),
    ([1, 2, 1000], "int8", "1000"),
    (np.array([1.0, 2.5]), "int16", "2.5"),
    (np.array([1, 2], np.float16) / 4, "int32", "0.25"),
    (jnp.array([1.0, 2.5], jnp.bfloat16), "int32", "2.5"),
    (jnp.array([1, 300]), "uint8", "300"),
    (np.array([2**32], np.uint64), "int32", str(2**32)),
])
def test_integers_that_do_not_fit_are_refused(value: Any, dtype: str, stray: str) -> None:
    """They were wrapped around or cut off without a word."""
    size = np.shape(value)
    message = rf"value: {dtype} holds integers between .*, got {re.escape(stray)}; cast"
    cell = NdArray(size, dtype)
    for give in (cell.set, lambda v: setattr(Variable(size, dtype=dtype), "d", v), lambda v: from_(v, dtype=dtype)):
        with pytest.raises(ValueError, match=message):
            give(value)
    assert cell.is_zero


@pytest.mark.parametrize(("value", "dtype", "held"), [
    (255, "uint8", 255),
    (2147483647.0, "int32", 2**31 - 1),
    (-2147483648.0, "int32", -(2**31)),
    (2**63 - 1, "int64", 2**63 - 1),
    (2**64 - 1, "uint64", 2**64 - 1),
    (-(2.0**63), "int64", -(2**63)),
    (3.0, "int32", 3),
    (-0.0, "uint8", 0),
    (True, "int32", 1),
    (0.5, "bool", True),
    (2, "bool", True),
    (0.1, "float64", 0.1),
    (2**53 + 1, "float32", 2.0**53),
    (np.float32(np.inf), "float16", np.inf),
])
def test_values_that_fit(value: Any, dtype: str, held: Any) -> None:
    cell = NdArray((2,), dtype)
    cell.set(value)
    assert cell.data.tolist() == [held, held]
    assert from_(value, dtype=dtype).d.tolist() == held
    assert from_([value], dtype=dtype).d.tolist() == [held]
    cell.set(np.zeros((2,), dtype))
    cell.set([value, value])
    assert cell.data.tolist() == [held, held]


# ---------------------------------------------------------------- -0.0 and NaN among the numbers of a graph


def scaled_by(zero: float) -> dict[str, tuple[Callable[[Variable], Variable], Callable[[Any], Any]]]:
    """Functions of a Variable and of an array that differ in their value or its sign as the zero's sign is."""
    z = np.float64(zero)
    return {
        "x * z": (lambda x: x * zero, lambda a: a * z),
        "z * x": (lambda x: zero * x, lambda a: z * a),
        "z - x": (lambda x: zero - x, lambda a: z - a),
        "x / z": (lambda x: x / zero, lambda a: a / z),
        "z / x": (lambda x: zero / x, lambda a: z / a),
        "x ** z": (lambda x: x**zero, lambda a: a**z),
        "z ** x": (lambda x: zero**x, lambda a: z**a),
        "1 / (x * z)": (lambda x: 1 / (x * zero), lambda a: 1 / (a * z)),
        "constant": (lambda x: F.constant(zero, x.shape, "float64"), lambda a: np.full_like(a, z)),
        "leaky_relu": (lambda x: F.leaky_relu(x, alpha=zero), lambda a: np.where(a > 0, a, a * z)),
        "elu": (lambda x: F.elu(x, alpha=zero), lambda a: np.where(a >= 0, a, np.expm1(a) * z)),
        "sign": (lambda x: F.sign(x * 0, alpha=zero), lambda a: np.full_like(a, z)),
        "pad": (lambda x: F.pad(x, (1, 0), constant_value=zero), lambda a: np.concatenate([[z], a])),
        "linear_combination": (
            lambda x: F.linear_combination(x, coefficients=(zero,)), lambda a: a * z,
        ),
        "1 / constant": (lambda x: 1 / F.constant(zero), lambda a: np.float64(1) / z),
        "jax_function": (
            lambda x: F.jax_function(times_first, static_argnums=1)(x, (zero,)), lambda a: a * z,
        ),
        "CustomFunction": (lambda x: Scale(zero)(x), lambda a: a * z),
    }


def times_first(a: Any, k: tuple[float]) -> Any:
    return a * k[0]


class Scale(nn.CustomFunction):
    """The product with a number that is an attribute."""

    def __init__(self, by: float) -> None:
        self.by = by

    def forward(self, x: Any) -> Any:
        return x * self.by


@pytest.mark.parametrize("name", scaled_by(0.0))
def test_the_sign_of_a_zero_is_kept(name: str) -> None:
    """Graphs that differ in it shared the executable of the one that ran first."""
    nn.executables.clear()
    values = np.array([2.0, -3.0, -0.0, 0.0])
    for zero in (0.0, -0.0, 0.0):
        build, reference = scaled_by(zero)[name]
        with np.errstate(all="ignore"):
            expected = reference(values)
        got = build(from_(values)).d
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
        with nn.auto_forward():
            np.testing.assert_array_equal(np.signbit(build(from_(values)).d), np.signbit(expected))


test_a_negative_zero_is_zero_where_zero_is_refused = refused([
    (lambda: F.arange(0.0, 1.0, step=-0.0), "step"),
    (lambda: F.softplus(1.0, beta=-0.0), "beta"),
    (lambda: F.huber_loss(1.0, 2.0, delta=-0.0), "delta"),
], pattern="{} must")


def test_gradients_through_a_negative_zero() -> None:
    """Rules that look for a zero among the arguments find it."""
    x = from_(np.array([0.0, 2.0, -1.0]))
    for build in (lambda x: x**-0.0, lambda x: F.r_pow_scalar(x * x, val=-0.0), lambda x: x * -0.0 + x,
                  lambda x: F.linear_combination(x, coefficients=(-0.0,), constant=-0.0)):
        y = build(x)
        (first,) = nn.grad([y], [x])
        (second,) = nn.grad([F.sum(first)], [x])
        assert np.isfinite(first.d).all() and np.isfinite(second.d).all(), y.parent
    assert y.parent is not None and y.parent.args["constant"] == 0


@pytest.mark.parametrize("build", [
    lambda x, nan: x * nan,
    lambda x, nan: F.linear_combination(x, coefficients=(nan,)),
    lambda x, nan: F.pad(x, (1, 1), constant_value=nan),
    lambda x, nan: F.jax_function(jnp.multiply, static_argnums=1)(x, nan),
    lambda x, nan: Scale(nan)(x),
])
def test_every_nan_is_one_key(build: Callable[[Variable, float], Variable]) -> None:
    x = from_(np.ones(2))
    assert np.isnan(build(x, float("nan")).d).any()
    misses = nn.executables.info().misses
    for nan in (float("nan"), float("inf") - float("inf"), -float("nan")):
        build(x, nan).forward()
        build(x, nan).d  # noqa: B018
    assert nn.executables.info().misses == misses
