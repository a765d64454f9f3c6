"""Derivatives at critical points, to third order, under every composition of reverse and forward mode.

Reverse mode is a gradient. Forward mode is the transpose of a gradient: the gradient of `gx`, which is linear in the
gradient `u` that it starts from, with respect to `u`; or it is a walk from the inputs to the outputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.autodiff.forward_mode import Pushforward
from nngrad.execution.interpret import interpret
from nngrad.graph import Variable
from tests.slow import slow_but, slow_but_every

INF, NAN = math.inf, math.nan


def reverse(y: Variable, x: Variable) -> Variable:
    """dy/dx for elementwise y."""
    return nn.grad([y], [x])[0]


def forward(y: Variable, x: Variable) -> Variable:
    """The derivative of y along ones."""
    u = Variable.from_numpy_array(np.zeros(y.shape, y.dtype))
    (gx,) = nn.grad([y], [x], grad_outputs=[u])
    return nn.grad([gx], [u], grad_outputs=[np.ones(x.shape, x.dtype)])[0]


def pushed(y: Variable, x: Variable) -> Variable:
    """The same by the walk from inputs to outputs."""
    return Pushforward()([y], [x], [const(x, 1)])[0]


MODES: dict[str, Callable[[Variable, Variable], Variable]] = {"r": reverse, "f": forward, "p": pushed}
WAYS = ["".join(way) for n in range(4) for way in itertools.product("rf", repeat=n)]
WAYS += ["p", "pr", "pf", "rp", "fp", "pp", "ppr", "prp", "rpp", "ppp"]
"""Compositions: "rf" is reverse mode and then forward mode of that."""


def levels(f: Callable[[Variable], Variable], x: Variable) -> dict[str, Variable]:
    """The derivatives of f(x), each by one composition."""
    found = {"": f(x)}
    for way in WAYS[1:]:
        found[way] = MODES[way[-1]](found[way[:-1]], x)
    return found


def const(v: Variable, value: float) -> Variable:
    return F.constant(value, v.shape, v.dtype)


def column(v: Variable) -> Variable:
    return F.reshape(v, (-1, 1))


def power(p: float) -> Callable[[float], list[float]]:
    """x^p and its derivatives for x >= 0."""

    def derivatives(x: float) -> list[float]:
        values, factor = [], 1.0
        for n in range(4):
            e = p - n
            values.append(0.0 if factor == 0 else factor * (math.copysign(INF, 1) if x == 0 and e < 0 else x**e))
            factor *= e
        return values

    return derivatives


ZERO = [0.0, 0.0, 0.0, 0.0]
AT_0 = [0.0, 0.0, NAN, NAN]
"""A length and its derivatives at 0; NAN stands for anything that is not finite."""
ROOT_OF_1 = [1, 1 / 2, -1 / 4, 3 / 8]
ROOT_OF_4 = [2, 1 / 4, -1 / 32, 3 / 256]
"""The square root and its derivatives, at 1 and 4."""

# Name, function, points, and the value and first three derivatives at each point.
Row = tuple[str, Callable[[Variable], Variable], list[float], list[list[float]]]
TABLE: list[Row] = [
    ("sqrt", F.sqrt, [0, 4, 1], [[0, INF, -INF, INF], ROOT_OF_4, ROOT_OF_1]),
    ("log", F.log, [0, 1, 2], [[-INF, INF, -INF, INF], [0, 1, -1, 2], [math.log(2), 1 / 2, -1 / 4, 1 / 4]]),
    # Square roots, logarithms and kinks.
    ("abs", F.abs, [0, -2, 2], [[0, 1, 0, 0], [2, -1, 0, 0], [2, 1, 0, 0]]),
    ("square", F.square, [0, -2, 1], [[0, 0, 2, 0], [4, -4, 2, 0], [1, 2, 2, 0]]),
    # Division: -0.0 is approached from below.
    ("reciprocal", F.reciprocal, [0, -0.0, 2], [[INF, -INF, INF, -INF], [-INF] * 4, [1 / 2, -1 / 4, 1 / 4, -3 / 8]]),
    ("3/x", lambda v: 3 / v, [0, -0.0, 1], [[INF, -INF, INF, -INF], [-INF] * 4, [3, -3, 6, -18]]),
    ("div2 below", lambda v: F.div2(const(v, 3), v), [0, -0.0, 1],
     [[INF, -INF, INF, -INF], [-INF] * 4, [3, -3, 6, -18]]),
    ("div2 above", lambda v: F.div2(v, const(v, 2)), [0, 1, 2], [[0, 0.5, 0, 0], [0.5, 0.5, 0, 0], [1, 0.5, 0, 0]]),
    ("x/(x+1)", lambda v: v / (v + 1), [0, -1, 1],
     [[0, 1, -2, 6], [-INF, INF, -INF, INF], [1 / 2, 1 / 4, -1 / 4, 3 / 8]]),
    ("0/(x+1)", lambda v: const(v, 0) / (v + 1), [0, 1, 2], [ZERO] * 3),
    # Powers of a Variable to a number, as a number and as a Variable.
    *[
        (f"{kind} {p}", f, [0, 1, 4], [power(p)(x) for x in (0.0, 1.0, 4.0)])
        for p in (0.0, 1.0, 2.0, 3.0, 4.0, 0.5, 1.5, 2.5, 3.5, -0.5, -1.0, -1.5, -2.0, 0.3, 1.3)
        for kind, f in (
            ("pow_scalar", lambda v, p=p: F.pow_scalar(v, val=p)),
            ("pow2", lambda v, p=p: F.pow2(v, const(v, p))),
        )
    ],
    *[
        (f"{kind} {p} below 0", f, [-1, -2, -0.5], [[x**p, p * x ** (p - 1), p * (p - 1) * x ** (p - 2),
                                                    p * (p - 1) * (p - 2) * x ** (p - 3)] for x in (-1.0, -2.0, -0.5)])
        for p in (0, 1, 2, 3, -1, -2)
        for kind, f in (
            ("pow_scalar", lambda v, p=p: F.pow_scalar(v, val=p)),
            ("pow2", lambda v, p=p: F.pow2(v, const(v, p))),
        )
    ],
    # Powers of a number to a Variable: of base 0 the exponent has no derivative.
    *[
        (f"{kind}", f, [0, 1, -1], [[1, 0, 0, 0], [0, 0, 0, 0], [INF, 0, 0, 0]])
        for kind, f in (
            ("0**x", lambda v: F.pow2(const(v, 0), v)),
            ("r_pow_scalar 0", lambda v: F.r_pow_scalar(v, val=0.0)),
        )
    ],
    ("1**x", lambda v: F.pow2(const(v, 1), v), [0, 1, -1], [[1, 0, 0, 0]] * 3),
    ("x**x", lambda v: F.pow2(v, v), [0, 1, 0], [[1, 0, 0, 0], [1, 1, 2, 3], [1, 0, 0, 0]]),
    # Norms: of no element but 0 the first derivative is 0, and the length has no others. An element 0 among others has
    # the derivatives of |x|**p.
    *[
        (f"norm {p}", lambda v, p=p: F.norm(column(v), p=p, axis=1), [0, -2, 3],
         [ZERO if p == 1 else AT_0, [2, -1, 0, 0], [3, 1, 0, 0]])
        for p in (None, 1, 1.5, 2, 2.5, 3, 4, 5, 7.3)
    ],
    ("sqrt of norm 1", lambda v: F.sqrt(F.norm(column(v), p=1, axis=1)), [0, 4, 1], [ZERO, ROOT_OF_4, ROOT_OF_1]),
    ("norm of what is 0 by way of 0", lambda v: F.norm(F.stack(v * v, v**3, axis=1), axis=1), [0, 0, 0], [AT_0] * 3),
    ("std", lambda v: F.std(F.stack(v, v, -v, -v, axis=1), axis=1), [0, 2, -1], [AT_0, [2, 1, 0, 0], [1, -1, 0, 0]]),
    # where: what is not taken has no influence, at any order.
    ("where sqrt", lambda v: F.where(v > 0, F.sqrt(v), const(v, 0)), [0, -1, 4], [ZERO, ZERO, ROOT_OF_4]),
    ("where log", lambda v: F.where(v > 0, F.log(v), const(v, 7)), [0, -1, 1], [[7, 0, 0, 0]] * 2 + [[0, 1, -1, 2]]),
    ("where not sqrt", lambda v: F.where(v <= 0, const(v, 0), F.sqrt(v)), [0, -1, 4],
     [ZERO, ZERO, ROOT_OF_4]),
    ("where 1/x", lambda v: F.where(F.not_equal_scalar(v, val=0), 1 / v, const(v, 0)), [0, 1, 2],
     [ZERO, [1, -1, 2, -6], [1 / 2, -1 / 4, 1 / 4, -3 / 8]]),
    ("where x/x", lambda v: F.where(F.not_equal_scalar(v, val=0), v / v, const(v, 1)), [0, 1, 2], [[1, 0, 0, 0]] * 3),
    ("where sin(x)/x", lambda v: F.where(F.not_equal_scalar(v, val=0), F.sin(v) / v, const(v, 1)), [0, math.pi, 0],
     [[1, 0, 0, 0], [0, -1 / math.pi, 2 / math.pi**2, 1 / math.pi - 6 / math.pi**3], [1, 0, 0, 0]]),
    ("where x log x", lambda v: F.where(v > 0, v * F.log(v), const(v, 0)), [0, 1, -1], [ZERO, [0, 1, 1, -1], ZERO]),
    ("where exp", lambda v: F.where(v < 10, F.exp(v), v), [0, 1e4, 2e4], [[1] * 4, [1e4, 1, 0, 0], [2e4, 1, 0, 0]]),
    ("where 3 sqrt(2x) + 1", lambda v: F.where(v > 0, 3 * F.sqrt(2 * v) + 1, const(v, 0)), [0, -1, 2],
     [ZERO, ZERO, [7, 3 / 2, -3 / 8, 9 / 32]]),
    ("where both", lambda v: F.where(v > 0, F.sqrt(v), F.sqrt(-v)), [4, -4, 1],
     [ROOT_OF_4, [2, -1 / 4, -1 / 32, -3 / 256], ROOT_OF_1]),
    ("where where", lambda v: F.where(v > 0, F.where(v < 9, F.sqrt(v) * F.log(v), v), const(v, 0)), [0, -1, 1],
     [ZERO, ZERO, [0, 1, 0, -1 / 4]]),
    ("where of several uses", lambda v: several(F.sqrt(v), v), [0, -1, 1], [ZERO, ZERO, [2, 2, 1 / 2, 0]]),
    ("double where", lambda v: F.where(v > 0, F.sqrt(F.where(v > 0, v, const(v, 1))), const(v, 0)), [0, -1, 4],
     [ZERO, ZERO, ROOT_OF_4]),
    # Functions that are flat in places.
    ("sqrt(relu)", lambda v: F.sqrt(F.relu(v)), [0, -1, 4], [ZERO, ZERO, ROOT_OF_4]),
    ("log(relu)", lambda v: F.log(F.relu(v)), [0, -1, 1], [[-INF, 0, 0, 0], [-INF, 0, 0, 0], [0, 1, -1, 2]]),
    ("1/relu6", lambda v: 1 / F.relu6(v), [0, -1, 1], [[INF, 0, 0, 0], [INF, 0, 0, 0], [1, -1, 2, -6]]),
    ("sqrt(max(x, 0))", lambda v: F.sqrt(F.maximum_scalar(v, val=0)), [-1, -2, 4], [ZERO, ZERO, ROOT_OF_4]),
    ("sqrt(-min(x, 0))", lambda v: F.sqrt(-F.minimum_scalar(v, val=0)), [1, 2, -4],
     [ZERO, ZERO, [2, -1 / 4, -1 / 32, -3 / 256]]),
    ("sqrt(max(x, y))", lambda v: F.sqrt(F.maximum2(v, const(v, 0))), [-1, -2, 1], [ZERO, ZERO, ROOT_OF_1]),
    ("relu**2", lambda v: F.relu(v) ** 2, [0, -1, 1], [ZERO, ZERO, [1, 2, 2, 0]]),
    ("x |x|", lambda v: v * F.abs(v), [0, -1, 1], [[0, 0, 2, 0], [-1, 2, -2, 0], [1, 2, 2, 0]]),
    # Products with zeros.
    ("x x x", lambda v: F.mul_n(v, v, v), [0, 1, -1], [[0, 0, 0, 6], [1, 3, 6, 6], [-1, 3, -6, 6]]),
    ("prod", lambda v: F.prod(F.stack(v, v, v, axis=1), axis=1), [0, 1, -1],
     [[0, 0, 0, 6], [1, 3, 6, 6], [-1, 3, -6, 6]]),
    ("sinc", F.sinc, [0, 0, math.pi], [[1, 0, -1 / 3, 0], [1, 0, -1 / 3, 0],
                                       [0, -1 / math.pi, 2 / math.pi**2, 1 / math.pi - 6 / math.pi**3]]),
]  # fmt: skip


def several(r: Variable, v: Variable) -> Variable:
    """r + r^3 where v is positive, else 0: the gradients that meet at r come through one selection."""
    return F.where(v > 0, r + r**3, const(v, 0))


SETTINGS = {
    f"{np.dtype(dtype).name}-{'simplified' if simplified else 'plain'}": (dtype, simplified)
    for dtype in (np.float64, np.float32) for simplified in (True, False)
}  # fmt: skip
QUICK = [SETTINGS["float64-simplified"]]


@pytest.mark.parametrize(("dtype", "simplified"), slow_but(QUICK, SETTINGS.values()), ids=list(SETTINGS))
@pytest.mark.parametrize(("name", "f", "points", "expected"), slow_but_every(2, TABLE), ids=[row[0] for row in TABLE])
def test_derivatives(
    name: str, f: Any, points: list[float], expected: list[list[float]], dtype: Any, simplified: bool
) -> None:
    """Op by op, so that thousands of graphs share the executables of their functions."""
    x = Variable.from_numpy_array(np.array(points, dtype), need_grad=True)
    with nn.simplify(simplified):
        found = levels(f, x)
    tolerance = 1e-12 if dtype == np.float64 else 4e-6
    for way, got in zip(found, interpret(list(found.values()), {}), strict=True):
        wanted = np.array([row[len(way)] for row in expected], dtype)
        got = np.where(np.isnan(wanted) & ~np.isfinite(got), NAN, got)
        scale = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1)
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * scale, err_msg=way)


# ---------------------------------------------------------------- several Variables


def partials(f: Any, xs: list[Any], ways: Iterable[str]) -> dict[str, np.ndarray]:
    """Partial derivatives of elementwise f: "01" by xs[0] and then xs[1], in reverse and in forward mode alike."""
    leaves = [Variable.from_numpy_array(np.array(x, np.float64), need_grad=True) for x in xs]
    found: dict[str, list[Variable]] = {"": [f(*leaves)]}
    for way in ways:
        found[way] = [mode(y, leaves[int(way[-1])]) for y in found[way[:-1]] for mode in MODES.values()]
    flat = [y for ys in found.values() for y in ys]
    results = iter(interpret(flat, {}))
    values = {way: [next(results) for _ in ys] for way, ys in found.items()}
    for way, each in values.items():
        for value in each:
            np.testing.assert_allclose(value, each[0], rtol=1e-12, atol=1e-12, err_msg=way)
    return {way: np.asarray(each[0]) for way, each in values.items()}


@pytest.mark.parametrize("simplified", [True, False])
def test_partials_of_powers(simplified: bool) -> None:
    """At base 0 the exponent has no derivative, in whatever order one differentiates."""
    exponents = [-1, 0, 0.5, 1, 1.5, 2, 3]
    with nn.simplify(simplified):
        got = partials(F.pow2, [[0] * 7, exponents], ["0", "1", "00", "01", "10", "11", "001", "010", "100", "110"])
    np.testing.assert_array_equal(got["0"], [-INF, 0, INF, 1, 0, 0, 0])
    np.testing.assert_array_equal(got["00"], [INF, 0, -INF, 0, INF, 2, 0])
    for way in ("1", "01", "10", "11", "001", "010", "100", "110"):
        np.testing.assert_array_equal(got[way], np.zeros(7), err_msg=way)


@pytest.mark.parametrize("simplified", [True, False])
def test_partials_of_quotients(simplified: bool) -> None:
    with nn.simplify(simplified):
        got = partials(F.div2, [[1, 0, 3], [0, 2, 1]], ["0", "1", "00", "01", "10", "11", "011", "101", "110", "111"])
    np.testing.assert_array_equal(got["0"], [INF, 1 / 2, 1])
    np.testing.assert_array_equal(got["1"], [-INF, 0, -3])
    np.testing.assert_array_equal(got["00"], [0, 0, 0])
    for way in ("01", "10"):
        np.testing.assert_array_equal(got[way], [-INF, -1 / 4, -1], err_msg=way)
    np.testing.assert_array_equal(got["11"], [INF, 0, 6])
    for way in ("011", "101", "110"):
        np.testing.assert_array_equal(got[way], [INF, 1 / 4, 2], err_msg=way)
    np.testing.assert_array_equal(got["111"], [-INF, 0, -18])


def hessian(f: Any, x: np.ndarray, mode: str) -> np.ndarray:
    """Rows of the Hessian of f at x, by composition of modes."""
    leaf = Variable.from_numpy_array(x, need_grad=True)
    y, rows = f(leaf), []
    for direction in np.eye(x.size):
        if mode[0] == "r":
            g = nn.grad([y], [leaf])[0]
        if mode == "rr":
            rows += nn.grad([g], [leaf], grad_outputs=[direction])
        elif mode == "rf":
            rows.append(along(g, leaf, direction))
        else:
            t = along(y, leaf, direction)
            again = nn.grad([t], [leaf]) if mode == "fr" else [F.stack(*[along(t, leaf, e) for e in np.eye(x.size)])]
            rows += again
    return np.stack([np.asarray(row) for row in interpret(rows, {})])


def along(y: Variable, x: Variable, direction: np.ndarray) -> Variable:
    """The derivative of y along a direction: forward mode."""
    u = Variable.from_numpy_array(np.zeros(y.shape, y.dtype))
    (gx,) = nn.grad([y], [x], grad_outputs=[u])
    return nn.grad([gx], [u], grad_outputs=[direction])[0]


@pytest.mark.parametrize("mode", slow_but_every(2, ["rr", "rf", "fr", "ff"]))
@pytest.mark.parametrize("p", [1, 1.5, 2, 2.5, 3, 4])
def test_hessian_of_a_norm(p: float, mode: str) -> None:
    """At the zero vector there is none, but for p = 1, with constant slopes. Beside others, an element 0 has
    the derivatives of |x|^p at 0, and 0 where those are infinite (p < 2)."""
    at_zero = hessian(lambda x: F.norm(x, p=p), np.zeros(3), mode)
    assert not np.isfinite(at_zero).any() if p > 1 else not at_zero.any()
    x = np.array([0.0, 3.0, -4.0])
    y = np.sum(np.abs(x) ** p) ** (1 / p)
    slope = np.sign(x) * (np.abs(x) / y) ** (p - 1)
    bend = np.array([(abs(each) / y) ** (p - 2) if each else float(p == 2) for each in x])
    np.testing.assert_allclose(
        hessian(lambda v: F.norm(v, p=p), x, mode), (p - 1) / y * (np.diag(bend) - np.outer(slope, slope)), atol=1e-14
    )


def test_a_sum_of_sizes_of_what_touches_0_is_smooth() -> None:
    x = np.array([0.0, 0.5, -0.0])
    np.testing.assert_array_equal(hessian(lambda v: F.norm(v * v, p=1), x, "rr"), 2 * np.eye(3))


@pytest.mark.parametrize("length", [F.std, F.norm, lambda x: F.norm(x, p=1.5), lambda x: F.norm(x, p=3)])
def test_an_infinite_slope_at_a_length_of_0_is_the_same_in_both_modes(length: Callable[[Variable], Variable]) -> None:
    x = Variable.from_numpy_array(np.zeros(3))
    direction = Variable.from_numpy_array(np.array([1.0, 2.0, 0.0]))
    root, straight = F.sqrt(length(x)), length(x)
    hidden = F.where(straight > 0, F.sqrt(straight), 0)
    for y, slope in (root, np.nan), (straight, 0.0), (hidden, 0.0):
        (gx,), (tangent,) = nn.grad(y, x), nn.jvp([y], [x], [direction])
        np.testing.assert_array_equal(gx.d, np.full(3, slope))
        np.testing.assert_array_equal(tangent.d, slope)


LENGTHS: dict[str, Callable[[Variable], Variable]] = {
    "norm": F.norm, "root of squares": lambda x: F.sqrt(F.sum(x * x)), "power of squares": lambda x: F.sum(x**2) ** 0.5,
    "std": lambda x: F.std(x) * 2**0.5,
}  # fmt: skip
SMOOTH_IN_LENGTH: dict[str, tuple[Callable[[Variable], Variable], float]] = {
    "square": (lambda r: r**2, 2), "product": (lambda r: 3 * r * F.exp(r) * r, 6), "fourth power": (lambda r: r**4, 0),
    "Gaussian": (lambda r: F.exp(-(r**2) / 0.98), -1 / 0.49), "difference": (lambda r: (1 + r) ** 2 - 2 * r, 2),
    "Matern 3/2": (lambda r: (1 + r * 3**0.5) * F.exp(-(r * 3**0.5)), -3),
    "Matern 5/2": (lambda r: (1 + (t := 5**0.5 * r) + t * t / 3) * F.exp(-t), -5 / 3),
    "cosh": (F.cosh, 1), "log cosh": (lambda r: F.log(F.cosh(2 * r)), 4),
}  # fmt: skip
"""Functions of a length, with twice the coefficient of its square."""
EVEN = ("square", "fourth power", "Gaussian", "difference")


@pytest.mark.parametrize(
    ("length", "simplified"), [*[(name, True) for name in LENGTHS], ("norm", False), ("std", False)]
)
def test_smooth_functions_of_a_length_at_0(length: str, simplified: bool) -> None:
    """Where the length is 0 the gradient is 0, and the Hessian a multiple of the identity; of a standard deviation, of
    what takes the mean away."""
    x = Variable.from_numpy_array(np.zeros(2), need_grad=True)
    unit = np.array([[0.5, -0.5], [-0.5, 0.5]]) if length == "std" else np.eye(2)
    # Through a root of squares, odd powers above the second still have infinite derivatives by the squares.
    names = [name for name in SMOOTH_IN_LENGTH if name in EVEN or length in ("norm", "std")]
    with nn.simplify(simplified):
        first = [nn.grad(SMOOTH_IN_LENGTH[name][0](LENGTHS[length](x)), x)[0] for name in names]
        second = [nn.grad(g[0], x)[0] for g in first]
    found = interpret([*first, *second], {})
    for name, g, h in zip(names, found, found[len(names) :], strict=False):
        np.testing.assert_array_equal(g, [0, 0], err_msg=name)
        np.testing.assert_allclose(h, SMOOTH_IN_LENGTH[name][1] * unit[0], atol=1e-12, err_msg=name)


def test_a_guard_makes_a_length_constant_at_0() -> None:
    """The guarded program's own derivatives are 0 there, not those of the function that it guards."""
    x = Variable.from_numpy_array(np.zeros(2), need_grad=True)
    r = F.sqrt(F.maximum_scalar(F.sum(x * x), val=1e-36))
    (g,) = nn.grad(SMOOTH_IN_LENGTH["Matern 5/2"][0](r), x)
    (h,) = nn.grad(g[0], x)
    np.testing.assert_array_equal(interpret([g, h], {}), np.zeros((2, 2)))


@pytest.mark.parametrize("length", ["norm", "root of squares"])
def test_where_a_function_of_a_length_has_no_more_derivatives(length: str) -> None:
    """A finite number would be wrong: |x|^3 and exp(-|x|) have no third and no second derivative at 0, and of cosh no
    more than the second is known."""
    x = Variable.from_numpy_array(np.zeros(2), need_grad=True)
    r = LENGTHS[length](x)
    for name, order, y in (("cube", 3, r**3), ("exp", 2, F.exp(-r)), ("length", 2, r), ("sin", 2, F.sin(r)),
                           *[("cosh", 4, F.cosh(r))] * (length == "norm")):  # fmt: skip
        for _ in range(order):
            (y,) = nn.grad(F.sum(y * np.array([1.0, 0.5])) if y.ndim else y, x)
        assert not np.isfinite(interpret([y], {})[0]).any(), name


@pytest.mark.parametrize("order", [3, 4])
def test_higher_derivatives_of_even_powers_of_a_length(order: int) -> None:
    """norm(x)^2 + norm(x)^4 is a polynomial, at 0 as elsewhere."""
    direction = np.array([1.0, 0.5])
    for point in (np.zeros(2), np.array([0.3, -0.4])):
        x = Variable.from_numpy_array(point, need_grad=True)
        s = F.sum(x * x)
        found = [F.norm(x) ** 2 + F.norm(x) ** 4, s + s * s]
        for _ in range(order):
            found = [nn.grad(F.sum(y * direction) if y.ndim else y, x)[0] for y in found]
        ours, expected = interpret(found, {})
        np.testing.assert_allclose(ours, expected, atol=1e-12)


@pytest.mark.parametrize("mode", ["rr", "rf", "fr", "ff"])
def test_a_radius_behind_a_selection(mode: str) -> None:
    """sinh(r) / r of r = |x|, where r is a square root, is smooth at 0; selected, it is flat there."""

    def f(x: Variable) -> Variable:
        r = F.sqrt(F.sum(x * x))
        return F.where(r > 0, F.sinh(r) / r, const(r, 1))

    assert np.array_equal(hessian(f, np.zeros(2), mode), np.zeros((2, 2)))
    assert np.isfinite(hessian(f, np.array([1e-3, 0.0]), mode)).all()


@pytest.mark.parametrize("simplified", [True, False])
def test_unit_vectors_behind_a_selection(simplified: bool) -> None:
    """x / |x| of rows, one of them 0: the selection reaches the square root through the sum over the row."""
    x = Variable.from_numpy_array(np.array([[3.0, 4.0], [0.0, 0.0]]), need_grad=True)
    with nn.simplify(simplified):
        r = F.sqrt(F.sum(x * x, axis=1, keepdims=True))
        unit = F.where(r > 0, x / r, const(x, 0))
        (g,) = nn.grad([unit], [x], grad_outputs=[np.array([[1.0, 0.0], [1.0, 1.0]])])
        (gg,) = nn.grad([g], [x], grad_outputs=[np.ones((2, 2))])
    np.testing.assert_allclose(g.d, [[16 / 125, -12 / 125], [0, 0]])
    assert np.isfinite(gg.d).all()
    np.testing.assert_array_equal(gg.d[1], [0, 0])


def test_missing_targets() -> None:
    """NaN in the data behind a selection reaches no parameter."""
    w = Variable.from_numpy_array(np.array([2.0, 3.0]), need_grad=True)
    target = np.array([1.0, NAN])
    known = Variable.from_numpy_array(np.isfinite(target).astype(np.float64))
    loss = F.sum(F.where(known, (w * w - target) ** 2, const(w, 0)))
    (g,) = nn.grad([loss], [w])
    np.testing.assert_array_equal(g.d, [24, 0])
    np.testing.assert_array_equal(nn.grad([g], [w])[0].d, [12 * 4 - 4, 0])


@pytest.mark.parametrize("reduction", [F.max, F.min])
def test_an_infinite_gradient_at_one_extremum(reduction: Any) -> None:
    x = Variable.from_numpy_array(np.array([0.0, 1.0] if reduction is F.min else [0.0, -1.0]), need_grad=True)
    np.testing.assert_array_equal(nn.grad([F.sqrt(reduction(x))], [x])[0].d, [INF, 0])


SMOOTH = [
    F.exp, F.sqrt, F.log, F.cos, F.sin, F.tanh, F.sigmoid, F.softplus, F.erf, F.atan, F.swish, F.gelu, F.asinh, F.elu,
    F.log_sigmoid, F.square, F.lgamma, lambda v: F.sin(v) / v,
]  # fmt: skip


@pytest.mark.parametrize("hidden", [INF, NAN])
def test_infinite_and_missing_values_behind_a_selection(hidden: float) -> None:
    """Of a bounded function, too, the derivative at NaN is NaN, and at infinity it may be 0 times infinity."""
    x = Variable.from_numpy_array(np.array([0.5, hidden]), need_grad=True)
    g = t = F.where(x < 1, F.add_n(*[f(x) for f in SMOOTH]), F.zeros_like(x))
    for _ in range(3):
        (g,) = nn.grad(F.sum(g), x)
        (t,) = nn.jvp(t, x, np.ones(2))
        assert g.d[1] == t.d[1] == 0
        np.testing.assert_allclose(g.d[0], t.d[0], rtol=1e-12)


TAKEN = np.array([True, True, False])


@pytest.mark.parametrize("condition", [
    TAKEN, TAKEN[:, None], np.repeat(TAKEN[:, None], 4, 1),
    lambda: F.broadcast(Variable.from_numpy_array(TAKEN[:, None]), (3, 4)),
], ids=["rows", "column", "repeated", "broadcast"])  # fmt: skip
@pytest.mark.parametrize("f", [
    lambda r: F.exp(-((r - np.arange(4.0)) ** 2)),
    lambda r: F.softmax(r * np.arange(4.0), axis=1),
    lambda r: F.stack(*[(i + 1) * F.concatenate(r, F.sin(r), axis=1)[:, i % 2] for i in range(4)], axis=1),
], ids=["radial", "softmax", "columns"])  # fmt: skip
def test_conditions_that_are_repeated(f: Callable[[Variable], Variable], condition: Any) -> None:
    """Rows that are hidden, one of length 0, in whichever form the condition is: a distance has no derivative there."""

    def gradients(x: Variable, condition: Any) -> list[np.ndarray]:
        y = F.where(condition, f(F.sqrt(F.sum(x * x, axis=1, keepdims=True))), 0)
        (g,) = nn.grad(F.sum(y * y), x)
        return [g.d, nn.grad(F.sum(g * g), x)[0].d]

    points = np.array([[3.0, 4.0], [0.3, -0.2], [0.0, 0.0]])
    found = gradients(Variable.from_numpy_array(points), condition() if callable(condition) else condition)
    expected = gradients(Variable.from_numpy_array(points[:2]), TAKEN[:2])
    for g, without in zip(found, expected, strict=True):
        np.testing.assert_allclose(g, [*without, np.zeros(2)], rtol=1e-9)


def test_one_function_behind_two_selections() -> None:
    """Its gradient is hidden where both are."""
    x = Variable.from_numpy_array(np.array([-1.0, 0.0, 0.5, 4.0]))
    root = F.sqrt(x)
    y = F.where(x > 0, root, 0) + F.where(x > 1, 2 * root, 0)
    (g,) = nn.grad(y, x)
    np.testing.assert_allclose(g.d, [0, 0, 0.5**0.5, 0.75])
    np.testing.assert_allclose(nn.grad(g, x)[0].d, [0, 0, -(0.5**0.5), -3 / 32])


# ---------------------------------------------------------------- what it costs


@pytest.mark.parametrize("f", [
    lambda v: F.softmax(v, axis=1), lambda v: F.cumsum(v, axis=1), lambda v: F.norm(v, axis=1, keepdims=True),
    lambda v: F.flip(v), lambda v: F.pad(v, (1, 1)), lambda v: v[:, 1:],
    lambda v: F.max_pooling(v, kernel=(3,)),
])  # fmt: skip
def test_rows_that_are_not_taken_have_no_influence(f: Callable[[Variable], Variable]) -> None:
    """Through whatever mixes other axes than those along which the condition varies."""
    x = Variable.from_numpy_array(np.array([[1.0, 4.0, 9.0], [0.0, 0.0, 0.0]]))
    taken = Variable.from_numpy_array(np.array([[1.0], [0.0]]))
    y = f(F.sqrt(x))
    (gx,) = nn.grad(F.where(taken, y, 0 * y.d), x)
    (hx,) = nn.hvp(F.where(taken, y, 0 * y.d), x, 1.0)
    first = x[:1]
    (expected,) = nn.grad(f(F.sqrt(first)), first)
    np.testing.assert_allclose(gx.d, np.concatenate([expected.d, np.zeros((1, 3))]), rtol=1e-12)
    assert np.isfinite(hx.d[0]).all() and (hx.d[1] == 0).all()


@pytest.mark.parametrize("p", [2.5, 3, 4])
def test_a_power_of_a_norm_that_is_a_sum_of_powers_is_smooth(p: float) -> None:
    for x in (np.zeros(2), np.array([0.0, -2.0])):
        got = hessian(lambda v: F.norm(v, p=p) ** p, x, "rr")
        np.testing.assert_allclose(got, np.diag(p * (p - 1) * np.abs(x) ** (p - 2)), atol=1e-14)


def test_steps_of_a_length_are_no_limits_of_quotients() -> None:
    v = Variable.from_numpy_array(np.array([[1.0, 3.0], [2.0, -1.0]]))
    y = F.norm(F.std(v, axis=-1), p=1)
    (g,) = nn.grad(y, v)
    (second,) = nn.grad(F.sum(g * np.array([1.0, 2.0])), v)
    np.testing.assert_allclose(g.d, np.sign(v.d - v.d.mean(1, keepdims=True)) / 2)
    np.testing.assert_allclose(second.d, 0, atol=1e-15)


@pytest.mark.parametrize("extremum", [F.max, F.min, lambda x, axis: F.norm(x, p=np.inf, axis=axis)])
def test_the_gradient_of_an_extremum_that_is_nan_is_nan(extremum: Any) -> None:
    x = nn.Variable.from_numpy_array(np.array([[1.0, np.nan, 3.0], [2.0, 2.0, 2.0]]), need_grad=True)
    (first,) = nn.grad(F.sum(extremum(x, axis=1) ** 2), x)
    (second,) = nn.grad(F.sum(first), x)
    np.testing.assert_allclose([first.d, second.d], [[[np.nan] * 3, [n / 3] * 3] for n in (4, 2)])
