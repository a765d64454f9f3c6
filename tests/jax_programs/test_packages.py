"""Programs of packages that rest on JAX, where these are installed (`pip install 'nngrad[packages]'`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.jax as nj

from .agreement import agree, agree_to_order, gradients, package

pytestmark = pytest.mark.filterwarnings("ignore")  # which packages give on a JAX that is newer than they are

RNG = np.random.default_rng(0)
MATRIX = np.array([[3.0, 1.0, 0.2], [1.0, 2.5, 0.3], [0.2, 0.3, 4.0]])
VECTOR = np.array([0.3, 0.5, 0.9])


def orders(usual: int) -> Any:
    """Derivatives up to an order in the fast tests, and to the third in the slow ones."""
    return pytest.mark.parametrize("order", [usual, pytest.param(3, marks=pytest.mark.slow)])


@pytest.mark.parametrize("kind", ["checkpointed", pytest.param("bounded", marks=pytest.mark.slow)])
def test_loops_of_equinox(kind: str) -> None:
    loops = package("equinox.internal")
    options = {"checkpoints": 2} if kind == "checkpointed" else {}

    def f(x: Any, y: Any, loop: Any = None) -> Any:
        def step(carry: Any, a: Any) -> Any:
            return jnp.sin(carry) * x + a * y, carry

        last, ys = loop(step, x, jnp.arange(3.0))
        return last + ys.sum()

    def derived(m: Any) -> Any:  # JAX has no second derivative of Equinox's loops
        loop = jax.lax.scan if m is jax else lambda *given: loops.scan(*given, kind=kind, **options)
        return gradients(lambda x, y: f(x, y, loop), m, 2)

    agree(derived, 0.7, 0.3)


def pendulum(adjoint: str, steps: int = 3) -> Any:
    """The end of a swing, of its parameters and its start."""
    diffrax = package("diffrax")

    def end(parameters: Any, start: Any) -> Any:
        def force(t: Any, y: Any, p: Any) -> Any:
            return jnp.stack([y[1], -p["k"] * jnp.sin(y[0]) - p["c"] * y[1]])

        found = diffrax.diffeqsolve(
            diffrax.ODETerm(force), diffrax.Heun(), 0.0, 0.3, 0.1, start, parameters, max_steps=steps,
            adjoint=getattr(diffrax, adjoint)(),
        )  # fmt: skip
        return jnp.sum(found.ys**2)

    return end


PARAMETERS, START = {"k": 2.0, "c": 0.3}, np.array([1.0, 0.2])


@pytest.mark.parametrize(
    "adjoint", ["RecursiveCheckpointAdjoint", pytest.param("BacksolveAdjoint", marks=pytest.mark.slow)]
)
def test_adjoints_of_diffrax(adjoint: str) -> None:
    agree_to_order(1, pendulum(adjoint), PARAMETERS, START)


def test_a_refused_second_gradient_names_the_function_the_argument_and_the_order() -> None:
    swing = pendulum("RecursiveCheckpointAdjoint")
    slope = nj.grad(swing, argnums=1)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work") as refused:
        nj.jacrev(slope, argnums=1)(PARAMETERS, START)
    said = "\n".join(refused.value.__notes__)
    assert "by argument 1, transformation 2 of end" in said and "JAX cannot differentiate it" in said


@pytest.mark.slow
def test_forward_mode_of_diffrax() -> None:
    swing = pendulum("ForwardMode")
    agree(lambda m: lambda p, y: (m.jacfwd(swing)(p, y), m.jvp(swing, (p, y), (p, y))), PARAMETERS, START)


def root_of(solver: str, a: Any) -> Any:
    """A root by optimistix, squared."""
    optimistix = package("optimistix")
    found = optimistix.root_find(
        lambda y, a: y**3 + a[0] * y - a[1], getattr(optimistix, solver)(1e-12, 1e-12), jnp.array([0.5, 0.7]), a
    )
    return jnp.sum(found.value**2)


@orders(1)
def test_a_root_of_optimistix(order: int) -> None:
    agree_to_order(order, lambda a: root_of("Newton", a), np.array([0.9, 1.2]))


def ridge(w: Any, strength: Any) -> Any:
    """A regression with a term that is not quadratic."""
    x, y = np.random.default_rng(0).standard_normal((6, 3)), np.random.default_rng(1).standard_normal(6)
    return jnp.mean((x @ w - y) ** 2) + strength * jnp.sum(w**2) + 0.1 * jnp.sum(jnp.log(jnp.cosh(w)))


@orders(1)
def test_lbfgs_of_jaxopt(order: int) -> None:
    jaxopt = package("jaxopt")
    solver = jaxopt.LBFGS(ridge, maxiter=30, tol=1e-9)
    agree_to_order(order, lambda s: jnp.sum(solver.run(jnp.zeros(3), s).params ** 2), 0.3, rtol=1e-6)


def test_a_solver_of_lineax() -> None:
    lineax = package("lineax")

    def f(t: Any, b: Any) -> Any:
        matrix = lineax.MatrixLinearOperator(MATRIX + t * jnp.eye(3) + t**2 * jnp.outer(b, b))
        return jnp.sum(lineax.linear_solve(matrix, b, lineax.LU()).value ** 2)

    agree_to_order(2, f, 0.4, VECTOR, rtol=1e-7)


def log_density(w: Any) -> Any:
    """A logistic regression's."""
    x = np.random.default_rng(0).standard_normal((6, 3))
    return -jnp.sum(jnp.logaddexp(0.0, -x @ w)) - 0.5 * jnp.sum(w**2)


@orders(1)
def test_hmc_of_blackjax(order: int) -> None:
    blackjax = package("blackjax")

    def chain(w: Any) -> Any:
        kernel = blackjax.hmc(log_density, step_size=0.05, inverse_mass_matrix=jnp.ones(3), num_integration_steps=2)

        def step(state: Any, key: Any) -> Any:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jnp.sum(jax.lax.scan(step, kernel.init(w), jax.random.split(jax.random.key(3), 2))[1] ** 2)

    agree_to_order(order, chain, VECTOR)


@orders(1)
def test_tensor_products_of_e3nn(order: int) -> None:
    e3nn = package("e3nn_jax")

    def energy(positions: Any, weights: Any) -> Any:
        vectors = positions[np.array([0, 0, 1])] - positions[np.array([1, 2, 2])]
        harmonics = e3nn.spherical_harmonics("0e + 1o + 2e", vectors, True)
        products = e3nn.tensor_product(harmonics, harmonics, filter_ir_out=["0e", "1o"]).array
        return jnp.sum(jnp.tanh(products @ weights[: products.shape[-1]]))

    agree_to_order(order, energy, RNG.standard_normal((3, 3)), RNG.standard_normal(40))
