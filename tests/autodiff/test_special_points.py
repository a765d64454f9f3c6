"""Random programs at special points (zeros, ties, equal rows, tails, infinities, empty axes), orders 0 to 3.

Each row of the input is a point of its own. The oracle is mpmath: the program's derivatives in 200 digits, close to the
point, on four sides. Where they have one limit, that must come out, or what JAX gives too: conventions at kinks, and
NaN where an infinity meets 0. Where they differ, the point is a kink, and only what nngrad alone lacks is wrong.
At infinities, the derivatives far out show the limit, on two paths. It must come out, or NaN; where there is none, a
finite derivative of a value that is not NaN is wrong. Empty axes must give JAX's shapes and values, or be refused where
JAX refuses them.
`python -m tests.autodiff.test_special_points 0 1000` tries these seeds, and prints what is wrong;
a third argument takes the programs from jax.numpy.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import mpmath as mp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable, functions_of
from tests.slow import slow_but

ORDERS = 3
WIDTH = 4
ALONG = np.array([0.7, -1.3, 0.4, 1.1])
"""The direction of derivatives."""
ASIDE = np.array([0.35, 0.55, -1.45, 0.8])
"""Another direction, in which a point has two more sides."""
WEIGHTS = np.array([1.0, 0.6180339887, -0.4142135623, 0.7320508075])
"""What the elements of the result are multiplied by."""
DIGITS = 200
LARGEST = mp.mpf(10) ** 100
"""Where mpmath's functions begin to take long."""
NEAR = ("1e-12", "1e-17")
"""How far from the point its two sides are looked at."""
FAR = (103.7, 1013.3, 10067.9)
"""What stands for an infinity in turn."""
PATHS = np.ones(WIDTH), np.array([0.6, 1.0, 0.37, 0.83])
"""What these are multiplied by, since a limit must not depend on how fast each element gets there."""


class Step(NamedTuple):
    """One function in three libraries."""

    name: str
    ours: Callable[..., Any]
    jax: Callable[..., Any]
    exact: Callable[..., Any]


def _each(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` of each element; NaN where it is not a real number, or mpmath would take long."""

    def of_one(*x: Any) -> Any:
        if any([abs(v) > LARGEST for v in x]):
            return mp.nan
        try:
            y = f(*x)
        except (ValueError, ZeroDivisionError, OverflowError, mp.libmp.NoConvergence):
            return mp.nan
        return mp.nan if isinstance(y, mp.mpc) and y.imag != 0 else mp.mpf(y.real if isinstance(y, mp.mpc) else y)

    return np.frompyfunc(of_one, len(f.__code__.co_varnames[: f.__code__.co_argcount]), 1)


def _one(name: str, jax_function: Callable[..., Any], exact: Callable[..., Any], ours: Any = None) -> Step:
    return Step(name, ours or getattr(F, name), jax_function, _each(exact))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def _power(x: Any, p: float) -> Any:
    return x ** mp.mpf(p)


def _same(name: str, f: Callable[..., Any], exact: Callable[..., Any] | None = None) -> Step:
    """A function whose text is the same in both libraries."""
    return Step(name, f, f, exact or f)


ELEMENTWISE = [
    _one("sin", jnp.sin, lambda x: mp.sin(x)),
    _one("cos", jnp.cos, lambda x: mp.cos(x)),
    _one("tan", jnp.tan, lambda x: mp.tan(x)),
    _one("tanh", jnp.tanh, lambda x: mp.tanh(x)),
    _one("sinh", jnp.sinh, lambda x: mp.sinh(x)),
    _one("cosh", jnp.cosh, lambda x: mp.cosh(x)),
    _one("exp", jnp.exp, lambda x: mp.exp(x)),
    _one("expm1", jnp.expm1, lambda x: mp.expm1(x)),
    _one("log", jnp.log, lambda x: mp.log(x)),
    _one("log1p", jnp.log1p, lambda x: mp.log1p(x)),
    _one("sqrt", jnp.sqrt, lambda x: mp.sqrt(x)),
    _one("rsqrt", jax.lax.rsqrt, lambda x: 1 / mp.sqrt(x)),
    _one("cbrt", jnp.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x))),
    _one("square", jnp.square, lambda x: x * x),
    _one("reciprocal", jnp.reciprocal, lambda x: 1 / x),
    _one("abs", jnp.abs, lambda x: abs(x)),
    _one("asin", jnp.arcsin, lambda x: mp.asin(x)),
    _one("acos", jnp.arccos, lambda x: mp.acos(x)),
    _one("atan", jnp.arctan, lambda x: mp.atan(x)),
    _one("asinh", jnp.arcsinh, lambda x: mp.asinh(x)),
    _one("acosh", jnp.arccosh, lambda x: mp.acosh(x)),
    _one("atanh", jnp.arctanh, lambda x: mp.atanh(x)),
    _one("sigmoid", jax.nn.sigmoid, _sigmoid),
    _one("softplus", jax.nn.softplus, _softplus),
    _one("log_sigmoid", jax.nn.log_sigmoid, lambda x: -_softplus(-x)),
    _one("swish", jax.nn.swish, lambda x: x * _sigmoid(x)),
    _one("softsign", jax.nn.soft_sign, lambda x: x / (1 + abs(x))),
    _one("mish", jax.nn.mish, lambda x: x * mp.tanh(_softplus(x))),
    _one("relu", jax.nn.relu, lambda x: max(x, mp.mpf(0))),
    _one("relu6", jax.nn.relu6, lambda x: min(max(x, mp.mpf(0)), mp.mpf(6))),
    _one("elu", jax.nn.elu, lambda x: x if x >= 0 else mp.expm1(x)),
    _one("erf", jsp.erf, lambda x: mp.erf(x)),
    _one("erfc", jsp.erfc, lambda x: mp.erfc(x)),
    _one("lgamma", jsp.gammaln, lambda x: mp.log(abs(mp.gamma(x)))),
    _one("digamma", lambda x: jnp.where(x == 0, -1 / x, jsp.digamma(x)), lambda x: mp.digamma(x)),
    _one("sinc", lambda x: jnp.sinc(x / jnp.pi), lambda x: mp.sin(x) / x if x else mp.mpf(1)),
    _one("i0e", jsp.i0e, lambda x: mp.besseli(0, x) * mp.exp(-abs(x))),
    _one("log_ndtr", jsp.log_ndtr, lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)),
    _one("x**0", lambda x: x**0, lambda x: mp.mpf(1), lambda x: x**0),
    _one("x**3", lambda x: x**3, lambda x: x**3, lambda x: x**3),
    _one("x**-2", lambda x: x**-2, lambda x: 1 / x**2, lambda x: x**-2),
    _one("x**1.5", lambda x: x**1.5, lambda x: _power(x, 1.5), lambda x: x**1.5),
    _one("x**2.5", lambda x: x**2.5, lambda x: _power(x, 2.5), lambda x: x**2.5),
    _one("2**x", lambda x: 2.0**x, lambda x: mp.mpf(2) ** x, lambda x: 2.0**x),
    _one("max1", lambda x: jnp.maximum(x, 1.0), lambda x: max(x, mp.mpf(1)), lambda x: F.maximum_scalar(x, val=1.0)),
    _one(
        "clip",
        lambda x: jnp.clip(x, -1, 1),
        lambda x: min(max(x, mp.mpf(-1)), mp.mpf(1)),
        lambda x: F.minimum_scalar(F.maximum_scalar(x, val=-1), val=1),
    ),
    _one("x-1", lambda x: x - 1, lambda x: x - 1, lambda x: x - 1),
    _one("-x", lambda x: -x, lambda x: -x, lambda x: -x),
    _one("2x", lambda x: 2 * x, lambda x: 2 * x, lambda x: 2 * x),
    _one(
        "where0",
        lambda x: jnp.where(x > 0, x, 0.0),
        lambda x: x if x > 0 else mp.mpf(0),
        lambda x: F.where(x > 0, x, 0.0),
    ),
    _one("xlogx", lambda x: jsp.xlogy(x, x), lambda x: x * mp.log(x) if x else mp.mpf(0), lambda x: F.xlogy(x, x)),
]
PAIRS = [
    _one("mul", jnp.multiply, lambda x, y: x * y, lambda x, y: x * y),
    _one("add", jnp.add, lambda x, y: x + y, lambda x, y: x + y),
    _one("sub", jnp.subtract, lambda x, y: x - y, lambda x, y: x - y),
    _one("div", jnp.divide, lambda x, y: x / y, lambda x, y: x / y),
    _one("maximum", jnp.maximum, lambda x, y: max(x, y), F.maximum2),
    _one("minimum", jnp.minimum, lambda x, y: min(x, y), F.minimum2),
    _one("pow2", jnp.power, lambda x, y: x**y),
    _one("atan2", jnp.arctan2, lambda x, y: mp.atan2(x, y)),
    _one("logaddexp", jnp.logaddexp, lambda x, y: mp.log(mp.exp(x) + mp.exp(y))),
    _one(
        "hypot",
        lambda x, y: jnp.sqrt(x * x + y * y),
        lambda x, y: mp.sqrt(x * x + y * y),
        lambda x, y: F.sqrt(x * x + y * y),
    ),
    _one("xlogy", jsp.xlogy, lambda x, y: x * mp.log(y) if x else mp.mpf(0)),
    _one("xlog1py", jsp.xlog1py, lambda x, y: x * mp.log1p(y) if x else mp.mpf(0)),
    _one(
        "where",
        lambda x, y: jnp.where(x > y, x, 2 * y),
        lambda x, y: x if x > y else 2 * y,
        lambda x, y: F.where(x > y, x, 2 * y),
    ),
    _one(
        "betaln",
        lambda x, y: jsp.gammaln(x) + jsp.gammaln(y) - jsp.gammaln(x + y),
        lambda x, y: mp.log(abs(mp.gamma(x) * mp.gamma(y) / mp.gamma(x + y))),
    ),
]

_exp, _log, _sqrt = _each(lambda x: mp.exp(x)), _each(lambda x: mp.log(x)), _each(lambda x: mp.sqrt(x))
_abs, _divided = _each(lambda x: abs(x)), _each(lambda x, y: x / y)


def _total(x: Any) -> Any:
    return np.sum(x, -1, keepdims=True)


def _has_nan(x: Any) -> Any:
    return np.any(x != x, -1, keepdims=True)


def _centred(x: Any) -> Any:
    return x - _total(x) / x.shape[-1]


ROWS = [
    Step("sum", lambda x: F.sum(x, axis=-1, keepdims=True), lambda x: jnp.sum(x, -1, keepdims=True), _total),
    Step(
        "mean",
        lambda x: F.mean(x, axis=-1, keepdims=True),
        lambda x: jnp.mean(x, -1, keepdims=True),
        lambda x: _total(x) / x.shape[-1],
    ),
    Step(
        "prod",
        lambda x: F.prod(x, axis=-1, keepdims=True),
        lambda x: jnp.prod(x, -1, keepdims=True),
        lambda x: np.prod(x, -1, keepdims=True),
    ),
    Step(
        "max",
        lambda x: F.max(x, axis=-1, keepdims=True),
        lambda x: jnp.max(x, -1, keepdims=True),
        lambda x: np.where(_has_nan(x), mp.nan, np.max(x, -1, keepdims=True)),
    ),
    Step(
        "min",
        lambda x: F.min(x, axis=-1, keepdims=True),
        lambda x: jnp.min(x, -1, keepdims=True),
        lambda x: np.where(_has_nan(x), mp.nan, np.min(x, -1, keepdims=True)),
    ),
    Step(
        "norm",
        lambda x: F.norm(x, axis=-1, keepdims=True),
        lambda x: jnp.linalg.norm(x, axis=-1, keepdims=True),
        lambda x: _sqrt(_total(x * x)),
    ),
    Step(
        "norm1",
        lambda x: F.norm(x, p=1, axis=-1, keepdims=True),
        lambda x: jnp.sum(jnp.abs(x), -1, keepdims=True),
        lambda x: _total(_abs(x)),
    ),
    Step(
        "norm3",
        lambda x: F.norm(x, p=3, axis=-1, keepdims=True),
        lambda x: jnp.sum(jnp.abs(x) ** 3, -1, keepdims=True) ** (1 / 3),
        lambda x: _each(lambda x: mp.cbrt(x))(_total(_abs(x) ** 3)),
    ),
    Step(
        "root",
        lambda x: F.sqrt(F.sum(x * x, axis=-1, keepdims=True)),
        lambda x: jnp.sqrt(jnp.sum(x * x, -1, keepdims=True)),
        lambda x: _sqrt(_total(x * x)),
    ),
    Step(
        "std",
        lambda x: F.std(x, axis=-1, keepdims=True),
        lambda x: jnp.std(x, -1, keepdims=True),
        lambda x: _sqrt(_total(_centred(x) ** 2) / x.shape[-1]),
    ),
    Step(
        "var",
        lambda x: F.var(x, axis=-1, keepdims=True),
        lambda x: jnp.var(x, -1, keepdims=True),
        lambda x: _total(_centred(x) ** 2) / x.shape[-1],
    ),
    Step(
        "logsumexp",
        lambda x: F.logsumexp(x, axis=-1, keepdims=True),
        lambda x: jax.nn.logsumexp(x, -1, keepdims=True),
        lambda x: _log(_total(_exp(x))),
    ),
    Step(
        "softmax",
        lambda x: F.softmax(x, axis=-1),
        lambda x: jax.nn.softmax(x, -1),
        lambda x: _divided(_exp(x), _total(_exp(x))),
    ),
    Step(
        "log_softmax",
        lambda x: F.log_softmax(x, axis=-1),
        lambda x: jax.nn.log_softmax(x, -1),
        lambda x: x - _log(_total(_exp(x))),
    ),
    Step("cumsum", lambda x: F.cumsum(x, axis=-1), lambda x: jnp.cumsum(x, -1), lambda x: np.cumsum(x, -1)),
    Step("cumprod", lambda x: F.cumprod(x, axis=-1), lambda x: jnp.cumprod(x, -1), lambda x: np.cumprod(x, -1)),
    Step("sort", lambda x: F.sort(x, axis=-1), lambda x: jnp.sort(x, -1), lambda x: np.sort(x, -1)),
    _same("flip", lambda x: x[..., ::-1]),
    _same("first", lambda x: x[..., :1]),
    Step(
        "outer",
        lambda x: F.matmul(x[..., None], x[..., None, :])[..., 0],
        lambda x: jnp.matmul(x[..., None], x[..., None, :])[..., 0],
        lambda x: x * x[..., :1],
    ),
    Step(
        "unit",
        lambda x: x / F.norm(x, axis=-1, keepdims=True),
        lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True),
        lambda x: _divided(x, _sqrt(_total(x * x))),
    ),
    Step(
        "take",
        lambda x: F.gather(x, np.array([0, 0, 1, 1]), axis=-1) if x.shape[-1] > 1 else x,
        lambda x: x[..., jnp.array([0, 0, 1, 1])] if x.shape[-1] > 1 else x,
        lambda x: x[..., [0, 0, 1, 1]] if x.shape[-1] > 1 else x,
    ),
]


def _points(x: Any) -> Any:
    """Each row as two points in the plane."""
    return x.reshape((*x.shape[:-1], 2, 2)) if x.shape[-1] == WIDTH else x[..., None]


def _differences(x: Any) -> Any:
    return _points(x)[..., :, None, :] - _points(x)[..., None, :, :]


def _as_row(x: Any) -> Any:
    return x.reshape((*x.shape[: x.ndim - 2], x.shape[-2] * x.shape[-1]))


ROWS += [
    Step(
        "distances",
        lambda x: _as_row(F.norm(_differences(x), axis=-1)),
        lambda x: _as_row(jnp.linalg.norm(_differences(x), axis=-1)),
        lambda x: _as_row(_sqrt(np.sum(_differences(x) ** 2, -1))),
    ),
    Step(
        "gram",
        lambda x: _as_row(F.matmul(_points(x), F.swapaxes(_points(x), -1, -2))),
        lambda x: _as_row(jnp.matmul(_points(x), jnp.swapaxes(_points(x), -1, -2))),
        lambda x: _as_row(np.sum(_points(x)[..., :, None, :] * _points(x)[..., None, :, :], -1)),
    ),
    Step(
        "highest",
        lambda x: F.max(_points(x), axis=-2),
        lambda x: jnp.max(_points(x), -2),
        lambda x: np.where(np.any(_points(x) != _points(x), -2), mp.nan, np.max(_points(x), -2)),
    ),
]

VALUES = (0.0, 0.0, -0.0, 1.0, 1.0, -1.0, 2.0, 0.5, -0.5, 1e-3, -30.0, 30.0, 0.3, -1.7, 3.0)


def points_of(draw: random.Random) -> np.ndarray[Any, Any]:
    """Rows of special values."""
    rows = [[draw.choice(VALUES) for _ in range(WIDTH)] for _ in range(5)]
    rows += [[draw.choice(VALUES)] * WIDTH for _ in range(3)]
    a, b = draw.choice(VALUES), draw.choice(VALUES)
    rows += [[a, a, b, b], [a, b, -a, b], [0.37, -0.21, 1.44, 0.85], [1.21, 0.43, 0.77, 2.3]]
    rows += [[draw.choice((np.inf, -np.inf, draw.choice(VALUES))) for _ in range(WIDTH)] for _ in range(3)]
    rows += [[s * np.inf] * WIDTH for s in (1, -1)] + [[0.7, a, np.inf, b]]
    return np.array(rows)


class Program(NamedTuple):
    """Steps, and for pairs how many arrays back the second one is; if that has another width, both are the last one."""

    steps: list[tuple[Step, int]]

    def __str__(self) -> str:
        return " ".join([step.name + (str(back) if back else "") for step, back in self.steps])

    def run(self, library: str, x: Any) -> Any:
        """The last array."""
        arrays = [x]
        for step, back in self.steps:
            last, earlier = arrays[-1], arrays[max(0, len(arrays) - 1 - back)]
            if 1 < last.shape[-1] != earlier.shape[-1] > 1:
                earlier = last
            arrays.append(getattr(step, library)(*((last, earlier) if back else (last,))))
        return arrays[-1]


def program_of(draw: random.Random) -> Program:
    """One to four steps."""
    steps = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice([ELEMENTWISE, ELEMENTWISE, PAIRS, ROWS])
        steps.append((draw.choice(kind), draw.randint(1, 2) if kind is PAIRS else 0))
    return Program(steps)


def values_of(ys: list[Variable], leaves: dict[Variable, Any]) -> list[np.ndarray[Any, Any]]:
    """The values of Variables, each function by JAX's own operations, so that no program is compiled."""
    found: dict[Variable, Any] = dict(leaves)

    def value(x: Variable) -> Any:
        return found[x] if x in found else found.setdefault(x, jnp.asarray(x.cell.raw()))

    for f in functions_of(ys):
        results = f.op.bind(f.arguments)(*[value(x) for x in f.inputs])
        found.update(zip(f.outputs, results if f.op.multiple_results else (results,), strict=True))
    return [np.asarray(value(y)) for y in ys]


def by_us(f: Callable[[Variable], Variable], rows: np.ndarray[Any, Any], orders: int = ORDERS) -> np.ndarray[Any, Any]:
    """Value and derivatives along the direction, by order and row."""
    x = Variable.from_numpy_array(rows, need_grad=True)
    y = f(x)
    levels = [F.sum(y * WEIGHTS[: y.shape[-1]], axis=-1)]
    for _ in range(orders):
        (g,) = nn.grad(F.sum(levels[-1]), x)
        levels.append(F.sum(g * ALONG[: rows.shape[-1]], axis=-1))
    with jax.enable_x64(True):
        return np.stack(values_of(levels, {x: jnp.asarray(rows)}))


def by_jax(program: Program, rows: np.ndarray[Any, Any], orders: int = ORDERS) -> np.ndarray[Any, Any]:
    """The same by nested gradients of JAX."""

    def first(x: Any) -> Any:
        y = program.run("jax", x)
        return jnp.sum(y * WEIGHTS[: y.shape[-1]], -1)

    def after(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(f(x)))(x) * ALONG[: rows.shape[-1]], -1)

    fs = [first]
    for _ in range(orders):
        fs.append(after(fs[-1]))
    with jax.enable_x64(True), jax.disable_jit():
        return np.stack([np.asarray(f(jnp.asarray(rows))) for f in fs])


def exactly(program: Program, rows: np.ndarray[Any, Any], offset: np.ndarray[Any, Any], far: str) -> Any:
    """Value and derivatives along the direction, at a distance from the points, by differences in 200 digits."""
    small = mp.mpf(10) ** -40
    exact = np.frompyfunc(lambda v: mp.mpf(float(v)), 1, 1)
    base = exact(rows) + exact(offset) * mp.mpf(far)
    weights = exact(WEIGHTS)
    at = []
    for k in range(-2, 3):
        y = program.run("exact", base + exact(ALONG) * (k * small))
        at.append(np.sum(y * weights[: y.shape[-1]], -1))
    m2, m1, z, p1, p2 = at
    results = z, (p1 - m1) / (2 * small), (p1 - 2 * z + m1) / small**2, (p2 - 2 * p1 + 2 * m1 - m2) / (2 * small**3)
    return np.stack(results).astype(float)


def limits(program: Program, rows: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The limit at each order and row, NaN where there is none; and where it depends on the side, as at a kink."""
    with mp.workdps(DIGITS):
        at, farther = exactly(program, rows, ALONG, "0"), exactly(program, rows, ALONG, NEAR[0])
        sides = [exactly(program, rows, side, NEAR[1]) for side in (ALONG, -ALONG, ASIDE, -ASIDE)]
    settled = np.isclose(farther, sides[0], rtol=1e-6, atol=1e-9)
    same = np.all([np.isclose(side, sides[0], rtol=1e-5, atol=1e-8) for side in sides[1:]], 0)
    same[0] &= np.isclose(at[0], sides[0][0])
    smooth = np.logical_and.accumulate(settled & same, 0)  # no derivative where a lower order has none
    return np.where(smooth, sides[0], np.nan), settled & ~same


def limits_far_out(program: Program, rows: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The limit at each order and row with infinities, NaN where none shows; and where certainly no finite one is."""
    with mp.workdps(DIGITS):
        at = np.array([
            [exactly(program, np.where(np.isinf(rows), np.sign(rows) * far * path, rows), side, NEAR[1]) for far in FAR]
            for path, side in ((PATHS[0], ALONG), (PATHS[1], ALONG), (PATHS[0], -ALONG))
        ])  # fmt: skip
    v1, v2, v3 = np.swapaxes(at, 0, 1)
    early, late = v2 - v1, v3 - v2
    converges = (np.abs(late) <= 0.4 * np.abs(early)) | (np.abs(late) <= 1e-9 * np.maximum(1, np.abs(v3)))
    limit = np.where(late == 0, v3, v3 - late**2 / np.where(late == early, np.nan, late - early))
    grows = np.isfinite(v1) & (np.abs(v2) > 3 * np.abs(v1)) & ((np.abs(v3) > 3 * np.abs(v2)) | np.isinf(v3))
    limit = np.where(grows & (np.sign(v3) == np.sign(v2)), np.sign(v3) * np.inf, np.where(converges, limit, np.nan))
    close = [np.isclose(limit[0], each, rtol=1e-2, atol=1e-2) for each in limit]
    smooth = np.logical_and.accumulate(close[2] | np.isnan(limit[0]) & np.isnan(limit[2]), 0)  # not beside a kink
    none = np.isfinite(limit[:2]).all(0) & ~close[1] | np.isinf(limit[:2]).any(0)
    return np.where(close[1] & smooth, limit[0], np.nan), none & smooth


def faults(seed: int, opened: bool = False) -> list[str]:
    """What is wrong with the program of a seed."""
    draw = random.Random(seed)
    program, rows = program_of(draw), points_of(draw)
    if any([step.name == "logsumexp" for step, _ in program.steps]):  # its gradient there is 0: see docs/from_nnabla.md
        rows = rows[~np.isneginf(rows).all(-1)]
    f = nn.from_jax(lambda x: program.run("jax", x)) if opened else lambda x: program.run("ours", x)
    found = faults_when_empty(program, f)
    with np.errstate(all="ignore"):
        got = by_us(f, rows)
        far = np.isinf(rows).any(-1)
        limit, elsewhere = np.full_like(got, np.nan), np.zeros(got.shape, bool)
        limit[:, ~far], elsewhere[:, ~far] = limits(program, rows[~far])
        limit[:, far], elsewhere[:, far] = limits_far_out(program, rows[far])
        scale = np.maximum(1, np.abs(np.where(np.isfinite(limit), limit, 0)))
        there, is_nan = np.isfinite(limit), np.isnan(got)

        def is_limit(y: Any) -> Any:
            return (y == limit) | (np.abs(y - limit) <= np.where(far, 0.02, 1e-5) * scale)

        # Neither a jump nor badly conditioned. At infinities, the derivatives of a value that is not the limit, since a
        # NaN is in no order, say nothing; the value itself must be JAX's.
        exact = np.where(far, is_limit(got)[0] | is_nan[0], np.abs(got[0] - limit[0]) <= 1e-9 * scale[0])
        exact = np.stack([exact | far, *[exact] * ORDERS])
        differs = np.where(far, ~is_nan & ~is_nan[0] & (elsewhere | ~np.isnan(limit)), np.isfinite(got) & there)
        wrong = differs & ~is_limit(got)
        missing = np.where(far, is_nan & ~np.isnan(limit), ~np.isfinite(got) & (there | elsewhere))
        if not (exact & (wrong | missing)).any():
            return found
        theirs = by_jax(program, rows)
        # At a kink where another library gives the same, it is a convention, and so is a factor 0 of an infinity.
        missing &= exact & np.where(far, is_limit(theirs), np.isfinite(theirs))
        wrong &= exact & ~((got == theirs) | (np.abs(got - theirs) <= 1e-3 * scale))
    return found + [
        f"{seed} [{program}] order {order} at {rows[row]}: {got[order, row]}, limit {limit[order, row]}, "
        f"JAX {theirs[order, row]}" for order, row in zip(*np.nonzero(wrong | missing), strict=True)
    ]  # fmt: skip


def faults_when_empty(program: Program, f: Callable[[Variable], Variable]) -> list[str]:
    """Where empty axes give other shapes or values than in JAX."""
    found = []
    for shape in ((0, WIDTH), (2, 0)):
        results: list[Any] = []
        for run in (lambda x: by_us(f, x, 1), lambda x: by_jax(program, x, 1)):
            try:
                results.append(run(np.zeros(shape)))
            except (ValueError, TypeError, IndexError) as error:
                results.append(error)
            if shape[0] == 0 and not isinstance(results[0], Exception):
                results.append(np.zeros((2, 0)))
                break
        got, theirs = results
        if isinstance(got, Exception) or isinstance(theirs, Exception):
            if isinstance(got, Exception) != isinstance(theirs, Exception):
                found.append(f"[{program}] with shape {shape}: {got!r}, JAX {theirs!r}")
        elif got.shape != theirs.shape or not np.array_equal(got, theirs, equal_nan=True):
            found.append(f"[{program}] with shape {shape}: {got.tolist()}, JAX {theirs.tolist()}")
    return found


@pytest.mark.parametrize("seed", slow_but(range(2), range(100)))
def test_special_points(seed: int) -> None:
    assert not faults(seed)


def main(start: int, stop: int, opened: bool) -> None:
    """Try some seeds."""
    for seed in range(start, stop):
        try:
            for fault in faults(seed, opened):
                print(fault, flush=True)
        except Exception as error:
            print(seed, "raised", program_of(random.Random(seed)), type(error).__name__, str(error)[:300], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3)
