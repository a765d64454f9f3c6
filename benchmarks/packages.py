"""Programs of packages that rest on JAX, differentiated by `nngrad.jax` and by JAX.

Programs are the same for both: what differs is who differentiates. Beside times there are the products of matrices in
what XLA gets, which follow from the program alone. A case whose package is not installed is left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nngrad.jax as nj

from .harness import Account, Case, Step, Way, in_jax
from .models import dense_parameters, mlp, normal

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


def of_e3nn(smoke: bool) -> Differentiated:
    """The gradient of a loss of forces of an equivariant network."""
    import e3nn_jax as e3nn

    atoms, channels = (3, 2) if smoke else (24, 16)
    rng = np.random.default_rng(0)
    start, end = np.nonzero(~np.eye(atoms, dtype=bool))
    positions, forces = normal(rng, atoms, 3, scale=2.0), normal(rng, atoms, 3)
    ws = [normal(rng, *shape, scale=0.3) for shape in ((8, channels), (3 * channels, channels), (channels,))]

    def energy(ws: Any, positions: Any) -> Any:
        apart = positions[end] - positions[start]
        lengths = jnp.sqrt(jnp.sum(apart**2, 1, keepdims=True))
        harmonics = e3nn.spherical_harmonics("0e + 1o + 2e", e3nn.IrrepsArray("1o", apart), True)
        radial = jnp.exp(-((lengths - np.linspace(0, 5, 8)) ** 2)) @ ws[0]
        arrived = jax.ops.segment_sum(radial[..., None] * harmonics.array[:, None], start, atoms)
        h = e3nn.IrrepsArray(harmonics.irreps, arrived)
        scalars = e3nn.tensor_product(h, h, filter_ir_out=["0e"]).array.reshape(atoms, -1)
        return jnp.sum(jnp.tanh(scalars @ ws[1]) @ ws[2])

    def made(by: Any) -> Callable[..., Any]:
        return by.grad(lambda ws: jnp.mean((by.grad(energy, 1)(ws, positions) + forces) ** 2))  # type: ignore[no-any-return]

    return ws, made


def of_optax(smoke: bool) -> Differentiated:
    """A step of training by optax, where a first gradient is all that is asked for."""
    rng = np.random.default_rng(0)
    parameters = dense_parameters(rng, 64, *[8 if smoke else 256] * 2, 10)
    x, t = normal(rng, 64, 64), rng.integers(0, 10, 64)
    optimizer = optax.adam(1e-3)

    def loss(p: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(mlp(jax.nn.relu, p, x), t))

    def made(by: Any) -> Callable[..., Any]:
        return lambda p: optax.apply_updates(p, optimizer.update(by.grad(loss)(p), optimizer.init(p))[0])

    return parameters, made


PROGRAMS: dict[str, tuple[str, Callable[[bool], Differentiated]]] = {
    "Hessian through an ODE (diffrax, DirectAdjoint)": ("diffrax", of_diffrax),
    "third derivatives of an MLP (Equinox)": ("equinox", of_equinox),
    "gradient penalty of a convolutional network (Flax)": ("flax", of_flax),
    "gradient of a loss of forces (e3nn)": ("e3nn_jax", of_e3nn),
    "step of training by a first gradient (optax)": ("optax", of_optax),
}


def cases(smoke: bool) -> Iterable[Case]:
    """Those whose packages are installed."""
    for name, (package, make) in PROGRAMS.items():
        if importlib.util.find_spec(package) is not None:
            point, derivative = make(smoke)
            ways: dict[str, Way] = {
                who: partial(step_of, derivative(lib), point) for who, lib in (("nngrad.jax", nj), ("jax", jax))
            }
            yield Case(name, ways, measures=("time", "first result", "tracing", "products"))


def step_of(function: Callable[..., Any], point: Any) -> Step:
    """The derivative, and how many products of matrices, and convolutions, XLA gets."""
    step = in_jax(function, point)

    def account() -> Account:
        text = jax.jit(function).lower(point).as_text()
        products = float(text.count("stablehlo.dot_general") + text.count("stablehlo.convolution"))
        return {**(step.account() if step.account is not None else {}), "products": products}

    return Step(step.run, account)
