"""Functions that an equation defines: against closed forms, dense solves and unrolled iterations, at orders 0 to 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from nngrad.graph import Variable
from tests.exact import exactly
from tests.leaves import leaf
from tests.oracle import check

RNG = np.random.default_rng(5)
M, B = RNG.normal(size=(3, 3)) + 4 * np.eye(3), RNG.normal(size=3)
T = np.array(0.3)
slow = pytest.mark.slow


def repeated(step: Callable[[Any], Any], x: Any, count: int) -> Any:
    """What JAX differentiates through all steps of an iteration."""
    return lax.scan(lambda x, _: (step(x), None), x, length=count)[0]


# ---------------------------------------------------------------- linear systems


def system(t: Any, symmetric: bool) -> Any:
    """A function that multiplies by a matrix which depends on t."""
    m = M @ M.T if symmetric else M
    sin = F.sin if isinstance(t, Variable) else jnp.sin
    return lambda v: m @ v + sin(t) * v * np.arange(1.0, 4.0)


@pytest.mark.parametrize("method, orders", [("dense", 3), ("cg", 3), ("gmres", 2)])
def test_linear_solve_to_every_order(method: str, orders: int) -> None:
    symmetric = method == "cg"

    def ours(t: Variable, b: Variable) -> Variable:
        matrix = system(t, symmetric)
        return nn.linear_solve(lambda v: F.reshape(matrix(v), shape=(3,)), b * t, method, tol=1e-14)[0]

    def theirs(t: Any, b: Any) -> Any:
        return jnp.linalg.solve(jax.vmap(system(t, symmetric), out_axes=1)(jnp.eye(3)), b * t)

    check(ours, theirs, [T, B], orders)


def test_a_pytree_is_one_vector() -> None:
    a, b = leaf([1.0, 2.0]), leaf([[3.0]])
    x, info = nn.linear_solve(lambda v: {"a": 2 * v["a"] + F.sum(v["b"]), "b": 4 * v["b"]}, {"a": a, "b": b}, "gmres")
    np.testing.assert_allclose(x["b"].d, [[0.75]], rtol=1e-9)
    np.testing.assert_allclose(x["a"].d, [0.125, 0.625], rtol=1e-9)
    info.check()
    assert x["a"].shape == (2,) and info.steps.d >= 3 and info.residual.d < 1e-9


def test_a_long_iteration_begins_anew_until_it_has_converged() -> None:
    n = 50  # more than the basis of GMRES holds, with eigenvalues from 1 to 50
    b = leaf(np.ones(n))
    for method in ("cg", "gmres"):
        x, info = nn.linear_solve(lambda v: v * np.arange(1.0, n + 1), b, method, tol=1e-12, maxiter=2000)
        info.check()
        np.testing.assert_allclose(x.d, 1 / np.arange(1.0, n + 1), rtol=1e-9)


@pytest.mark.parametrize("method", ["cg", "gmres"])
def test_no_more_products_than_there_are_eigenvalues_and_one_for_the_residual(method: str) -> None:
    eigenvalues, b = np.resize([1.0, 2.0, 5.0], 40), leaf(np.linspace(1, 2, 40))
    x, info = nn.linear_solve(lambda v: v * eigenvalues, b, method)
    np.testing.assert_allclose(x.d, b.d / eigenvalues, rtol=1e-9)
    (g,) = nn.grad(F.sum(x), b)
    np.testing.assert_allclose(g.d, 1 / eigenvalues, rtol=1e-9)
    assert info.steps.d == 4
    _, info = nn.linear_solve(lambda v: v * eigenvalues, b, method, x0=b.d / eigenvalues)
    assert info.steps.d == 1


def test_conjugate_gradients_are_one_loop_with_one_product() -> None:
    a, b = leaf(np.linspace(0, 3, 40)), leaf(np.ones(40))
    x, info = nn.linear_solve(lambda v: F.exp(a) * v, b, "cg", tol=1e-12)
    with jax.enable_x64():
        lowered = jax.jit(nn.to_jax([x, info.steps], [a, b])).lower(a.d, b.d).as_text()
    assert lowered.count("stablehlo.exponential") == lowered.count("stablehlo.while") == 1


def test_gmres_of_singular_matrices() -> None:
    cyclic = np.roll(np.eye(5), 1, axis=0)  # whose residuals do not fall until the last product
    x, info = nn.linear_solve(lambda v: F.matmul(leaf(cyclic), v), np.eye(5)[0], "gmres")
    np.testing.assert_allclose(x.d, np.eye(5)[4], atol=1e-12)
    matrix, b = np.diag([1.0, 2.0, 0.0]), np.array([3.0, 4.0, 0.0])
    x, info = nn.linear_solve(lambda v: F.matmul(leaf(matrix), v), b, "gmres")
    info.check()
    np.testing.assert_allclose(x.d, [3, 2, 0], atol=1e-9)
    x, info = nn.linear_solve(lambda v: F.matmul(leaf(matrix), v), b + 1, "gmres", maxiter=20, unconverged="keep")
    assert not info.converged.d and info.residual.d < 1.5  # of least squares: 1
    x, _ = nn.linear_solve(lambda v: F.matmul(leaf(matrix), v), b + 1, "gmres")
    assert np.isnan(x.d).all()


# ---------------------------------------------------------------- roots


def test_a_solver_from_jax_that_reads_arrays_of_its_own() -> None:
    def solved(a: Any, b: Any, other: Any) -> Any:
        x = lax.custom_linear_solve(
            lambda v: a @ v, b, lambda _, r: jnp.linalg.solve(other, r), lambda _, r: jnp.linalg.solve(other.T, r)
        )
        return jnp.sum(x * x)

    with jax.enable_x64(True):
        arrays = jnp.asarray(M), jnp.asarray(B), jnp.asarray(M)
        expected = jax.value_and_grad(solved, (0, 1, 2))(*arrays)
        slope = nj.value_and_grad(solved, (0, 1, 2))
        found = slope(*arrays)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-14)
    assert not found[1][2].any(), "the solver is no part of the equation"


def cubic(a: Any, b: Any) -> Any:
    """The real root of x^3 + a x = b, for a > 0, by Cardano's formula."""
    s = jnp.sqrt(b * b / 4 + a**3 / 27)
    return jnp.cbrt(b / 2 + s) + jnp.cbrt(b / 2 - s)


@pytest.mark.parametrize("linear", ["dense", pytest.param("gmres", marks=slow)])
def test_a_root_against_its_closed_form_to_order_3(linear: str) -> None:
    def ours(a: Variable, b: Variable) -> Variable:
        return nn.root(lambda x: x**3 + a * x - b, 0.5 * b, linear=linear)[0]

    check(ours, cubic, [np.array(1.5), np.array(0.7)], 3)


def test_no_gradient_reaches_the_start() -> None:
    a, start = leaf(1.5), leaf(0.5)
    x, info = nn.root(lambda x: x**3 + a * x - 1.0, start)
    (gs,) = nn.grad(x, start)
    assert gs.d == 0
    (gr,) = nn.grad(info.residual, a)
    assert gr.d == 0
    b = leaf(B)
    y, _ = nn.linear_solve(leaf(M), b, "gmres", x0=start * np.ones(3))
    (gs,) = nn.grad(F.sum(y), start)
    assert gs.d == 0


@slow
@settings(max_examples=4, deadline=None)
@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_random_systems(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-0.5, 0.5, (n, n)) / n, rng.normal(size=n)

    def ours(a: Variable, b: Variable) -> Variable:
        return nn.root(lambda x: x + F.tanh(a @ x) - b, np.zeros(n), tol=1e-14)[0]

    def theirs(a: Any, b: Any) -> Any:
        return repeated(lambda x: b - jnp.tanh(a @ x), b, 60)  # a contraction, at least by half

    check(ours, theirs, [a, b], 2, seed=seed % 1000)


# ---------------------------------------------------------------- fixed points and minima


W, X = 0.4 * RNG.normal(size=(3, 3)), RNG.normal(size=(2, 3))


def settled(w: Any, x: Any) -> Any:
    """A layer that is applied until nothing changes."""
    return repeated(lambda z: jnp.tanh(z @ w + x), jnp.zeros_like(x), 100)


def test_a_deep_equilibrium_layer_to_order_3() -> None:
    def ours(w: Variable, x: Variable) -> Variable:
        return nn.fixed_point(lambda z: F.tanh(z @ w + x), np.zeros((2, 3)), tol=1e-14)[0]

    check(ours, settled, [W, X], 3)


@pytest.mark.parametrize("method", ["iterate", "anderson", "newton"])
def test_methods_for_fixed_points(method: str) -> None:
    w, x = leaf(W), leaf(X)
    z, info = nn.fixed_point(lambda z: F.tanh(z @ w + x), np.zeros((2, 3)), method)
    info.check()
    np.testing.assert_allclose(z.d, exactly(settled, W, X), rtol=1e-8)


def test_derivatives_of_a_fixed_point_by_iterating_too() -> None:
    def ours(w: Variable, x: Variable) -> Variable:
        return nn.fixed_point(lambda z: F.tanh(z @ w + x), np.zeros((2, 3)), "iterate", tol=1e-14, linear="iterate")[0]

    check(ours, settled, [W, X], 2)
    big = leaf(np.linspace(-1, 1, 200))
    z, _ = nn.fixed_point(lambda z: 0.5 * F.sin(z) + big, np.zeros(200), "iterate", tol=1e-13)
    (g,) = nn.grad(F.sum(z), big)
    np.testing.assert_allclose(g.d, 1 / (1 - 0.5 * np.cos(z.d)), rtol=1e-9)


def test_an_iteration_that_diverges_ends() -> None:
    """By its number of products, even once its residual has overflowed."""
    w = Variable.from_numpy_array(np.full(2, 3, "f"), need_grad=True)
    z, _ = nn.fixed_point(lambda z: w * z - 2.0, np.ones(2, "f"), "newton", linear="iterate")
    (g,) = nn.grad(F.sum(z), w)
    assert np.isnan(g.d).all()


def ridge(s: Any, x: Any, y: Any) -> Any:
    """Ridge regression in closed form."""
    return jnp.linalg.solve(x.T @ x + jnp.exp(s) * jnp.eye(3), x.T @ y)


FEATURES, TARGETS = RNG.normal(size=(6, 3)), RNG.normal(size=6)


@pytest.mark.parametrize("linear", ["dense", pytest.param("cg", marks=slow)])
def test_hyper_gradients_of_ridge_regression_to_order_3(linear: str) -> None:
    def ours(s: Variable, x: Variable) -> Variable:
        def loss(w: Variable) -> Variable:
            return 0.5 * F.sum((x @ w - TARGETS) ** 2) + 0.5 * F.exp(s) * F.sum(w * w)

        return nn.minimize(loss, np.zeros(3), "newton", tol=1e-14, linear=linear)[0]

    check(ours, lambda s, x: ridge(s, x, TARGETS), [T, FEATURES], 3 if linear == "dense" else 2)


@pytest.mark.parametrize("method", ["lbfgs", "newton"])
def test_methods_for_minima(method: str) -> None:
    s = leaf(T)

    def loss(w: Variable) -> Variable:
        return F.sum(F.softplus((FEATURES @ w) * np.sign(TARGETS))) + F.exp(s) * F.sum(w * w)

    w, info = nn.minimize(loss, np.zeros(3), method, tol=1e-11)
    info.check()
    (g,) = nn.grad(F.sum(w), s)
    values = []
    for s.d in (T + 1e-4, T - 1e-4):
        values.append(np.sum(nn.minimize(loss, np.zeros(3), "newton", tol=1e-13)[0].d))
    s.d = T
    np.testing.assert_allclose(g.d, (values[0] - values[1]) / 2e-4, rtol=1e-6)


def test_a_minimum_that_values_do_not_tell() -> None:
    """With curvatures from 0.01 to 100, values are the same to rounding long before gradients are small."""
    curvatures = np.logspace(-2, 2, 12)
    w, info = nn.minimize(lambda w: 3.0 + F.sum(curvatures * (w - 1) ** 2), np.zeros(12), tol=1e-11)
    info.check()
    np.testing.assert_allclose(w.d, np.ones(12), rtol=1e-6)


def test_solutions_within_loops_and_of_solutions() -> None:
    a = leaf(1.5)

    def step(x: Variable, _: None) -> Any:
        return nn.root(lambda y: y**3 + a * y - x, x)[0], None

    x, _ = F.scan(step, leaf(2.0), length=2)

    def theirs(a: Any) -> Any:
        return cubic(a, cubic(a, 2.0))

    (g,) = nn.grad(x, a)
    np.testing.assert_allclose(g.d, exactly(jax.grad(theirs), 1.5), rtol=1e-9)
    np.testing.assert_allclose(nn.grad(g, a)[0].d, exactly(jax.grad(jax.grad(theirs)), 1.5), rtol=1e-9)
    nested, _ = nn.root(lambda y: nn.root(lambda z: z**3 + a * z - y, y)[0] - 0.5, np.array(1.0))
    np.testing.assert_allclose(nested.d, 0.5**3 + 1.5 * 0.5, rtol=1e-9)
    (g,) = nn.grad(nested, a)
    np.testing.assert_allclose(g.d, 0.5, rtol=1e-9)


# ---------------------------------------------------------------- what goes wrong


def test_what_does_not_converge_is_said() -> None:
    a = leaf(1.0)
    solutions = {
        keep: nn.root(lambda x: x * x + a, np.array(0.3), maxiter=5, unconverged=keep) for keep in ("nan", "keep")
    }
    for keep, (x, info) in solutions.items():
        assert np.isnan(x.d) == np.isnan(nn.grad(x, a)[0].d) == (keep == "nan")
        assert not info.converged.d and info.residual.d >= 1 and info.steps.d == 5
        with pytest.raises(ArithmeticError, match=r"no convergence: the residual is .* after 5 steps"):
            info.check()
    x, info = nn.linear_solve(lambda v: v * np.arange(1.0, 9.0), np.ones(8), "cg", maxiter=3)
    assert np.isnan(x.d).all()
    with pytest.raises(ArithmeticError, match="maxiter="):
        info.check()
    x, info = nn.linear_solve(np.zeros((2, 2)), np.ones(2))
    assert not info.converged.d


def scanned(v: Variable, start: float) -> Variable:
    return F.scan(lambda h, w: (h + w * v, None), start * F.ones_like(v), np.array([1.0, 2.0]))[0]


def test_a_function_that_is_not_zero_at_zero_is_refused_or_its_solution_nan() -> None:
    b, c = np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3])
    for method, affine in (
        ("dense", lambda v: v + 1.0), ("cg", lambda v: 2 * (F.matmul(leaf(M), v) + c)),
        ("gmres", lambda v: F.where(leaf(c) > 0.2, 2 * v, v + 1)),
    ):
        with pytest.raises(ValueError, match="linear_solve: the function must be linear, but something is added"):
            nn.linear_solve(affine, b, method)
    x, info = nn.linear_solve(lambda v: 2 * (v + c) - 2 * leaf(c), b, "dense")
    np.testing.assert_allclose(x.d, b / 2, rtol=1e-12)
    assert info.converged.d
    for method, affine in (("gmres", lambda v: 2 * (v + c) - leaf(c)), ("dense", lambda v: scanned(v, 1.0))):
        x, info = nn.linear_solve(affine, b, method)
        assert np.isnan(x.d).all() and not info.converged.d


@pytest.mark.parametrize("call, error, message", [
    (lambda: nn.root(lambda x: x[:1], np.zeros(2)), ValueError, r"root: x0 is float64\[2\], but fun returns"),
    (lambda: nn.fixed_point(lambda x: x, 0.0, unconverged="raise"), ValueError, "fixed_point: unconverged must be"),
    (lambda: nn.minimize(lambda x: x, np.zeros(2)), ValueError, "minimize: fun must return a float64 Variable of"),
    (lambda: nn.linear_solve(lambda v: v * v, np.ones(2)), ValueError, "linear_solve: the function must be linear"),
])  # fmt: skip
def test_bad_input(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
