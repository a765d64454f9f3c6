"""Programs of packages that rest on JAX, differentiated by `nngrad.jax` and by JAX.

Programs are the same for both: what differs is who differentiates. Beside times there are the products of matrices in
what XLA gets, which follow from the program alone. A case whose package is not installed is left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import nngrad.jax as nj

from .drop_in import compared, jitted
from .timing import Row

Differentiated = tuple[Any, Callable[[Any], Callable[..., Any]]]
"""Points, and what makes the derivative of a module of transformations."""


def of_diffrax(smoke: bool) -> Differentiated:
    """The Hessian of a loss of an ODE's solution."""
    import diffrax

    size, steps = (3, 2) if smoke else (8, 10)
    matrix = 0.3 * jax.random.normal(jax.random.key(0), (size, size))

    def loss(start: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, args: jnp.tanh(matrix @ y))
        solution = diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 1.0, 1 / steps, start, adjoint=diffrax.DirectAdjoint(), max_steps=steps + 2
        )
        return jnp.sum(solution.ys**2)

    return jax.random.normal(jax.random.key(1), (size,)), lambda by: by.hessian(loss)


def of_blackjax(smoke: bool) -> Differentiated:
    """The gradient through steps of Hamiltonian Monte Carlo on a logistic regression."""
    import blackjax

    size, examples, steps = (2, 8, 2) if smoke else (5, 200, 5)
    data = jax.random.normal(jax.random.key(0), (examples, size))
    signs = jnp.sign(data[:, 0])
    keys = jax.random.split(jax.random.key(1), steps)

    def density(w: Any) -> Any:
        return -jnp.sum(jnp.logaddexp(0.0, -signs * (data @ w))) - 0.5 * jnp.sum(w**2)

    kernel = blackjax.hmc(density, step_size=0.05, inverse_mass_matrix=jnp.ones(size), num_integration_steps=10)

    def loss(start: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, Any]:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jnp.sum(jax.lax.scan(step, kernel.init(start), keys)[1] ** 2)

    return jnp.full(size, 0.1), lambda by: by.grad(loss)


def of_equinox(smoke: bool) -> Differentiated:
    """The third derivatives of a network."""
    import equinox

    size, width = (2, 4) if smoke else (4, 32)
    network = equinox.nn.MLP(size, "scalar", width, 2, jax.nn.silu, key=jax.random.key(0))
    return jax.random.normal(jax.random.key(1), (size,)), lambda by: by.jacfwd(by.hessian(network))


def of_flax(smoke: bool) -> Differentiated:
    """The gradient of a penalty on the gradient of a convolutional network."""
    from flax import linen

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            for channels in (4,) if smoke else (8, 16):
                x = linen.avg_pool(jax.nn.softplus(linen.Conv(channels, (3, 3))(x)), (2, 2), (2, 2))
            return linen.Dense(1)(x.reshape(len(x), -1))[:, 0]

    network, images = Network(), jax.random.normal(jax.random.key(0), (2, 4, 4, 3) if smoke else (16, 16, 16, 3))

    def made(by: Any) -> Callable[..., Any]:
        def penalty(parameters: Any) -> Any:
            slopes = by.grad(lambda x: jnp.sum(network.apply(parameters, x)))(images)
            return jnp.mean((jnp.sqrt(jnp.sum(slopes**2, (1, 2, 3)) + 1e-8) - 1) ** 2)

        return by.grad(penalty)

    return network.init(jax.random.key(1), images), made


def soft_spheres(smoke: bool) -> Differentiated:
    """The Hessian of the energy of soft spheres in a periodic box, as jax-md writes it."""

    def distance(a: Any, b: Any) -> Any:
        apart = jnp.mod(a - b + 2.0, 4.0) - 2.0
        squared = jnp.sum(apart**2)
        return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 0.0)), 0.0)

    def energy(places: Any) -> Any:
        distances = jax.vmap(jax.vmap(distance, (None, 0)), (0, None))(places, places)
        energies = jnp.where(distances < 1.0, 0.5 * (1.0 - distances) ** 2, 0.0)
        return 0.5 * jnp.sum(energies * (1 - jnp.eye(len(places))))

    return jax.random.uniform(jax.random.key(0), (4 if smoke else 32, 2), maxval=4.0), lambda by: by.hessian(energy)


CASES: dict[str, tuple[str | None, Callable[[bool], Differentiated]]] = {
    "Hessian through an ODE (diffrax, DirectAdjoint)": ("diffrax", of_diffrax),
    "gradient through HMC (blackjax)": ("blackjax", of_blackjax),
    "third derivatives of an MLP (Equinox)": ("equinox", of_equinox),
    "gradient penalty of a convolutional network (Flax)": ("flax", of_flax),
    "Hessian of soft spheres": (None, soft_spheres),
}


def products(function: Callable[..., Any], point: Any) -> int:
    """How many products of matrices, and convolutions, XLA gets."""
    text = jax.jit(function).lower(point).as_text()
    return text.count("stablehlo.dot_general") + text.count("stablehlo.convolution")


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    del torch
    lines: list[Row] = []
    for name, (package, make) in CASES.items():
        if package is not None and importlib.util.find_spec(package) is None:
            continue
        point, derivative = make(smoke)
        functions = {"nngrad.jax": derivative(nj), "jax": derivative(jax)}
        ours, theirs = [products(function, point) for function in functions.values()]
        if theirs:
            what = f"products: {name}"
            lines.append(Row(what, f"nngrad.jax: {ours}", f"jax: {theirs}", ours / theirs, 1.0))
        makers = {who: jitted(_flat(function), point) for who, function in functions.items()}
        lines += compared(name, "nngrad.jax", makers, {"jax": 1.0}, 2 if smoke else 30)
    return lines


def _flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """Its results in one array."""
    return lambda point: jnp.concatenate([jnp.ravel(y) for y in jax.tree.leaves(function(point))])
