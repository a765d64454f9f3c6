"""Values and derivatives where they go wrong most easily: at kinks, ties and zeros, and far from 0."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath as mp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from nngrad.graph import Variable
from tests.together import Check, together, values

INF, NAN, PI = math.inf, math.nan, math.pi


def derivatives(f: Callable[..., Variable], x: Any, orders: int, dtype: Any = np.float64) -> list[Variable]:
    """`[f(x), f'(x), ...]` for an elementwise `f`."""
    v = Variable.from_numpy_array(np.array(x, dtype), need_grad=True)
    levels = [f(v)]
    for _ in range(orders):
        levels += nn.grad(levels[-1], v)
    return levels


def partials(f: Callable[..., Variable], x0: Any, x1: Any, *ways: str) -> Check:
    """Partial derivatives of `f(x0, x1)`: "0" by x0, "01" by x0 and then x1, and so on."""
    xs = [Variable.from_numpy_array(np.array(x, np.float64), need_grad=True) for x in (x0, x1)]
    results = []
    for way in ways:
        y = f(*xs)
        for i in way:
            (y,) = nn.grad(y, xs[int(i)])
        results.append(y)
    return (yield from values(*results))


# ---------------------------------------------------------------- functions of one Variable

# Name, arguments, x, and the value and first three derivatives at each x.
ONE: list[tuple[str, dict[str, Any], Sequence[float], Sequence[Sequence[float]]]] = [
    ("pow_scalar", {"val": 0.0}, [0.0, -2.0], [[1, 1], [0, 0], [0, 0], [0, 0]]),
    ("pow_scalar", {"val": 1.0}, [0.0, -2.0], [[0, -2], [1, 1], [0, 0], [0, 0]]),
    ("pow_scalar", {"val": 2.0}, [0.0, -2.0], [[0, 4], [0, -4], [2, 2], [0, 0]]),
    ("pow_scalar", {"val": 3.0}, [0.0, -2.0], [[0, -8], [0, 12], [0, -12], [6, 6]]),
    ("pow_scalar", {"val": 2.5}, [0.0, 4.0], [[0, 32], [0, 20], [0, 7.5], [INF, 0.9375]]),
    ("pow_scalar", {"val": -1.5}, [0.0, 4.0], [[INF, 1 / 8], [-INF, -3 / 64], [INF, 15 / 512], [-INF, -105 / 4096]]),
    ("pow_scalar", {"val": 65.0}, [0.0, -1.0], [[0, -1], [0, 65], [0, -65 * 64], [0, 65 * 64 * 63]]),
    ("pow_scalar", {"val": -1.0}, [0.0, 2.0], [[INF, 0.5], [-INF, -0.25], [INF, 0.25], [-INF, -0.375]]),
    ("r_div_scalar", {"val": 3.0}, [2.0, -1.0], [[1.5, -3], [-0.75, -3], [0.75, -6], [-1.125, -18]]),
    ("r_pow_scalar", {"val": 1.0}, [0.0, 5.0], [[1, 1], [0, 0], [0, 0], [0, 0]]),
    ("r_pow_scalar", {"val": 0.0}, [0.0, 2.0], [[1, 0], [0, 0], [0, 0], [0, 0]]),
    ("r_pow_scalar", {"val": math.e}, [0.0, 1.0], [[1, math.e]] * 4),
    ("maximum_scalar", {"val": 1.0}, [0.0, 1.0, 2.0], [[1, 1, 2], [0, 0.5, 1], [0, 0, 0], [0, 0, 0]]),
    ("minimum_scalar", {"val": 1.0}, [0.0, 1.0, 2.0], [[0, 1, 1], [1, 0.5, 0], [0, 0, 0], [0, 0, 0]]),
    ("square", {}, [0.0, -3.0], [[0, 9], [0, -6], [2, 2], [0, 0]]),
    ("abs", {}, [0.0, -0.0, -3.0], [[0, 0, 3], [1, 1, -1], [0, 0, 0], [0, 0, 0]]),
    ("sqrt", {}, [0.0, 4.0], [[0, 2], [INF, 0.25], [-INF, -1 / 32], [INF, 3 / 256]]),
    ("reciprocal", {}, [-2.0], [[-0.5], [-0.25], [-0.25], [-0.375]]),
    ("exp", {}, [-1000.0, 0.0], [[0, 1]] * 4),
    ("log", {}, [1.0, 1e200], [[0, 200 * math.log(10)], [1, 1e-200], [-1, 0], [2, 0]]),
    ("erf", {}, [0.0, 1e200, -1e200], [[0, 1, -1], [2 / PI**0.5, 0, 0], [0, 0, 0], [-4 / PI**0.5, 0, 0]]),
    ("sinc", {}, [0.0, 2 * PI], [[1, 0], [0, 1 / (2 * PI)], [-1 / 3, -2 / (2 * PI) ** 2],
                                 [0, 6 / (2 * PI) ** 3 - 1 / (2 * PI)]]),
    ("asin", {}, [0.0], [[0], [1], [0], [1]]),
    ("acos", {}, [0.0], [[PI / 2], [-1], [0], [-1]]),
    ("atan", {}, [0.0, 1e200, -INF], [[0, PI / 2, -PI / 2], [1, 0, 0], [0, 0, 0], [-2, 0, 0]]),
    ("atanh", {}, [0.0], [[0], [1], [0], [2]]),
    ("asinh", {}, [0.0], [[0], [1], [0], [-1]]),
    ("tan", {}, [0.0], [[0], [1], [0], [2]]),
    ("relu", {}, [-1.0, 0.0, 2.0], [[0, 0, 2], [0, 0, 1], [0, 0, 0], [0, 0, 0]]),
    ("leaky_relu", {"alpha": 0.3}, [-1.0, 0.0, 2.0], [[-0.3, 0, 2], [0.3, 0.3, 1], [0, 0, 0], [0, 0, 0]]),
    ("relu6", {}, [-1.0, 0.0, 3.0, 6.0, 7.0], [[0, 0, 3, 6, 6], [0, 0, 1, 0, 0], [0] * 5, [0] * 5]),
    ("hard_sigmoid", {}, [-3.0, -2.5, 0.0, 2.5, 9.0], [[0, 0, 0.5, 1, 1], [0, 0, 0.2, 0, 0], [0] * 5, [0] * 5]),
    ("hard_tanh", {}, [-2.0, -1.0, 0.5, 1.0, 2.0], [[-1, -1, 0.5, 1, 1], [0, 1, 1, 1, 0], [0] * 5, [0] * 5]),
    ("elu", {"alpha": 0.5}, [-1e5, 0.0, 1e5], [[-0.5, 0, 1e5], [0, 1, 1], [0, 0, 0], [0, 0, 0]]),
    ("selu", {"scale": 2.0, "alpha": 3.0}, [-1e5, 0.0, 1e5], [[-6, 0, 2e5], [0, 6, 2], [0, 6, 0], [0, 6, 0]]),
    ("sigmoid", {}, [-1e5, 0.0, 1e5], [[0, 0.5, 1], [0, 0.25, 0], [0, 0, 0], [0, -0.125, 0]]),
    ("log_sigmoid", {}, [-1e5, 0.0, 1e5], [[-1e5, -math.log(2), 0], [1, 0.5, 0], [0, -0.25, 0], [0, 0, 0]]),
    ("softplus", {}, [-1e5, 0.0, 1e5], [[0, math.log(2), 1e5], [0, 0.5, 1], [0, 0.25, 0], [0, 0, 0]]),
    ("softplus", {"beta": 2.0}, [-1e5, 0.0, 1e5], [[0, math.log(2) / 2, 1e5], [0, 0.5, 1], [0, 0.5, 0], [0, 0, 0]]),
    ("tanh", {}, [-1e5, 0.0, 1e5], [[-1, 0, 1], [0, 1, 0], [0, 0, 0], [0, -2, 0]]),
    ("tanh_shrink", {}, [-1e5, 0.0, 1e5], [[1 - 1e5, 0, 1e5 - 1], [1, 0, 1], [0, 0, 0], [0, 2, 0]]),
    ("softsign", {}, [-1.0, 0.0, 1e200], [[-0.5, 0, 1], [0.25, 1, 0], [0.25, -2, 0], [0.375, 6, 0]]),
    ("swish", {}, [-1e5, 0.0, 1e5], [[0, 0, 1e5], [0, 0.5, 1], [0, 0.5, 0], [0, 0, 0]]),
    ("gelu", {}, [-1e200, 0.0, 1e200], [[0, 0, 1e200], [0, 0.5, 1], [0, 2 * (2 / PI) ** 0.5 / 2, 0], [0, 0, 0]]),
    ("mish", {}, [-1e5, 1e5], [[0, 1e5], [0, 1], [0, 0], [0, 0]]),
]


@pytest.mark.parametrize("simplified", [True, False], ids=["simplified", "plain"])
@pytest.mark.parametrize(("name", "arguments", "x", "expected"), ONE, ids=lambda v: v if isinstance(v, str) else "")
@together
def test_one(name: str, arguments: dict[str, Any], x: Any, expected: Any, simplified: bool) -> Check:
    with nn.simplify(simplified):
        graphs = derivatives(lambda v: getattr(F, name)(v, **arguments), x, 3)
    got = yield from values(*graphs)
    for order, (a, b) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_allclose(a, np.array(b, np.float64), rtol=1e-12, atol=1e-14, err_msg=f"order {order}")


@together
def test_infinite_gradient_stops_where_the_activation_is_flat() -> Check:
    x = [-1.0, 7.0, 4.0]
    flat = (F.relu, F.relu6, lambda v: F.maximum_scalar(v, val=0.0))
    graphs = [derivatives(lambda v, f=f: F.sqrt(f(v)), x, 1)[1] for f in flat]
    *found, last = yield from values(*graphs, derivatives(lambda v: F.sqrt(F.hard_tanh(v) + 1), [-2.0], 1)[1])
    for g in found:
        np.testing.assert_array_equal(g[[0, 2]], [0.0, 0.25])
    assert last == 0


@together
def test_sinc_keeps_its_precision_at_sixth_order() -> Check:
    got = yield from values(*derivatives(F.sinc, [0.0, 1e-4, 1e-2], 6))
    np.testing.assert_allclose([g[0] for g in got], [1, 0, -1 / 3, 0, 1 / 5, 0, -1 / 7], atol=1e-15)
    np.testing.assert_allclose([g[1] for g in got], [1, 0, -1 / 3, 0, 1 / 5, 0, -1 / 7], atol=1e-4)


# ---------------------------------------------------------------- functions of several Variables


BASES, SOME = [0.5, 2.0, 3.0], [1.0, 3.0, 2.0]
PARTIALS: dict[str, tuple[Any, list[float], list[float], dict[str, list[float]]]] = {
    "the larger of two": (F.maximum2, [1.0, 2.0, 3.0], SOME,
                          {"0": [0.5, 0, 1], "1": [0.5, 1, 0], "00": [0, 0, 0], "01": [0, 0, 0]}),
    "the smaller of two": (F.minimum2, [1.0, 2.0, 3.0], SOME,
                           {"0": [0.5, 1, 0], "1": [0.5, 0, 1], "00": [0, 0, 0], "01": [0, 0, 0]}),
    "a power of 0": (F.pow2, [0.0] * 4, [0.0, 1.0, 2.0, 3.0],
                     {"0": [0, 1, 0, 0], "00": [0, 0, 2, 0], "000": [0, 0, 0, 6], "1": [0, 0, 0, 0]}),
    "a power of 0, mixed": (F.pow2, [0.0] * 2, [2.0, 3.0], {way: [0, 0] for way in ("01", "10", "11", "111", "011")}),
    "a power to 0": (F.pow2, BASES, [0.0] * 3, {"0": [0, 0, 0], "1": [math.log(x) for x in BASES], "00": [0, 0, 0],
                                                "01": [1 / x for x in BASES], "10": [1 / x for x in BASES]}),
    "a power of a negative number": (F.pow2, [-2.0] * 3, [0.0, 1.0, 3.0], {"0": [0, 1, 12], "00": [0, 0, -12]}),
    "a slope of 0 or at 0": (lambda x, a: F.prelu(x, a, base_axis=0), [0.0, -2.0, 2.0], [0.25] * 3,
                             {"0": [1, 0.25, 1], "1": [0, -2, 0], "01": [0, 1, 0]}),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTIALS)
@together
def test_partials(name: str) -> Check:
    """At a tie, extrema share the gradient; the exponent has no derivative at base 0."""
    f, x0, x1, expected = PARTIALS[name]
    for way, got in zip(expected, (yield from partials(f, x0, x1, *expected)), strict=True):
        np.testing.assert_allclose(got, expected[way], rtol=1e-15, err_msg=way)


@pytest.mark.parametrize("zeros", list(itertools.product([0, 1], repeat=3)))
@together
def test_product_with_zeros(zeros: tuple[int, ...]) -> Check:
    a, b, c = np.array([2.0, 3.0, 5.0]) * (1 - np.array(zeros))
    xs = [Variable.from_numpy_array(v, need_grad=True) for v in (a, b, c)]
    gs = nn.grad(F.mul_n(*xs), xs)
    (gbc,) = nn.grad(gs[0], xs[1])
    assert (yield from values(*gs, gbc, *nn.grad(gbc, xs[2]))) == [b * c, a * c, a * b, c, 1]


@together
def test_comparisons_with_nan() -> Check:
    x, other = np.array([NAN, 1.0]), np.array([0.0, NAN])
    same = yield from values(F.equal(x, x), F.not_equal(x, x), F.logical_not(x))
    assert np.array_equal(same, [[0, 1], [1, 0], [0, 0]])
    assert np.isnan((yield from values(F.maximum2(x, other), F.minimum2(x, other)))).all()
    passing = F.relu, F.relu6, F.hard_tanh, F.hard_sigmoid, F.leaky_relu, F.elu, F.selu, F.sign, F.abs
    for f, y in zip(passing, (yield from values(*[f(x) for f in passing])), strict=True):
        assert np.isnan(y[0]), f.name


# ---------------------------------------------------------------- dtypes


def test_numbers_that_the_dtype_does_not_hold() -> None:
    x = np.array([0, 200], np.uint8)
    assert np.array_equal(F.greater_scalar(x, val=-1.0).d, [1, 1])
    assert np.array_equal(F.add_scalar(x, val=-1.0).d, [-1, 199])
    assert np.array_equal(F.mul_scalar(x, val=0.5).d, [0, 100])
    assert np.array_equal(F.sign(x, alpha=-1.0).d, [-1, 1])
    assert np.array_equal(F.less_scalar(np.array([1, 2], np.int32), val=1e12).d, [1, 1])
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
        assert np.array_equal(F.minimum_scalar(np.array([1, 2], dtype), val=1e60).d, [1, 2])


@pytest.mark.parametrize("name", ["sigmoid", "softplus", "log_sigmoid", "swish", "gelu", "mish", "tanh", "tanh_shrink",
                                  "softsign", "elu", "selu", "erf", "atan", "asinh"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32], ids=lambda d: d.__name__)
@together
def test_finite_at_the_ends_of_the_dtype(name: str, dtype: Any) -> Check:
    """No NaN or infinity at orders 0 to 3, up to half of the largest number that the dtype holds."""
    largest = float(jnp.finfo(dtype).max) / 2
    x = [-largest, -largest / 8, -300.0, -50.0, -10.0, 0.0, 10.0, 50.0, 300.0, largest / 8, largest]
    for order, level in enumerate((yield from values(*derivatives(getattr(F, name), x, 3, dtype)))):
        assert np.isfinite(level.astype(np.float64)).all(), f"order {order}: {level}"


# ---------------------------------------------------------------- errors


@together
def test_kinks_are_those_of_jax() -> Check:
    """These choices are JAX's; leaky_relu, prelu, elu and selu nnabla's side."""
    pairs = [
        (F.relu, jax.nn.relu, 0.0), (F.relu6, jax.nn.relu6, 0.0), (F.relu6, jax.nn.relu6, 6.0),
        (F.hard_tanh, jax.nn.hard_tanh, -1.0), (F.hard_tanh, jax.nn.hard_tanh, 1.0),
        (F.softsign, jax.nn.soft_sign, 0.0),
        (lambda v: F.maximum_scalar(v, val=2.0), lambda v: jnp.maximum(v, 2.0), 2.0),
        (lambda v: F.minimum_scalar(v, val=2.0), lambda v: jnp.minimum(v, 2.0), 2.0),
    ]
    found = yield from values(*[derivatives(ours, x, 1, np.float32)[1] for ours, _, x in pairs])
    assert found == [jax.grad(theirs)(x) for _, theirs, x in pairs]


@pytest.mark.parametrize("dtype, value", [("bfloat16", 100.0), ("float32", 1e4), ("float32", 1e30)])
def test_gradient_of_logsumexp_at_large_inputs(dtype, value):
    x = F.constant(value, (2,), dtype)
    (g,) = nn.grad([F.logsumexp(x)], [x])
    assert np.asarray(g.d, np.float32).tolist() == [0.5, 0.5]


def test_functions_of_jax_that_sort_their_arguments_have_second_derivatives_at_ties() -> None:
    def both(v: Any) -> Any:
        return jnp.hypot(v[0], v[1]) + jax.scipy.special.betaln(v[0], v[1]) + jax.scipy.special.betaln(v[1], 2.0)

    def trigamma(x: float) -> float:
        return float(mp.psi(1, x))

    expected = np.array([[1, -1], [-1, 1]]) / 2**2.5 - trigamma(4) + np.diag([trigamma(2)] * 2)
    expected[1, 1] += trigamma(2) - trigamma(4)
    with jax.enable_x64(True):
        np.testing.assert_allclose(nj.hessian(both)(jnp.array([2.0, 2.0])), expected, rtol=1e-12)
        length, slope = nj.value_and_grad(lambda v: jnp.hypot(v[0], v[1]))(jnp.array([1e200, -1e200]))
        np.testing.assert_allclose([float(length), *slope], [2**0.5 * 1e200, 0.5**0.5, -(0.5**0.5)])
