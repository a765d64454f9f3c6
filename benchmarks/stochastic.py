"""A loss with the Laplacian from random directions, and its gradient, in up to 100,000 dimensions: time and memory.

The network, batch and number of directions are those of Shi, Hu, Lin and Kawaguchi (2024), "Stochastic Taylor
Derivative Estimator", whose formulation in JAX is written here from its formulas: unit vectors along coordinates
that `jax.random.choice` draws without replacement, each pushed to second order by `jet`, under `vmap`. Memory is what
the compiler allots beside arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from .memory.steps import temporaries_of
from .peers import Parameters
from .tanh_mlp import jax_mlp, nngrad_mlp, tanh_parameters
from .timing import Row, medians, row

OURS, THEIRS = "nn.laplacian, directions", "vmap of jet, random directions"
EXACT, HESSIAN = "nn.laplacian, exact", "trace of jax.hessian"
MOST_EXACT = 1000
"""In how many dimensions the full Laplacian is taken too."""

Data = tuple[Any, Any, Any]
"""Points, what the equation is to give there, and a key."""
Term = Callable[[Any], Any]
"""What an equation adds to the Laplacian of u, of u."""


def in_nngrad(parameters: Parameters, data: Data, directions: int | None, term: Term = F.sin) -> Callable[..., Any]:
    """The loss and its gradient as nngrad has them, as a function of the parameters and the data."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    x, wanted, key = (nn.Variable.from_numpy_array(np.asarray(a)) for a in data)
    u = (1 - F.sum(x**2, axis=1)) * F.reshape(nngrad_mlp(p, x), shape=x.shape[:1])
    loss = F.mean((nn.laplacian(u, x, directions=directions, seed=key) + term(u) - wanted) ** 2)
    function: Callable[..., Any] = nn.to_jax([loss, *nn.grad(loss, p)], [*p, x, wanted, key])
    return lambda p, *data: function(*p, *data)


def in_jax(laplacian: Callable[..., Any], term: Term = jnp.sin) -> Callable[..., Any]:
    """The loss and its gradient in JAX, with the Laplacian at a point by `laplacian(u, x, key)`."""

    def loss(p: list[Any], x: Any, wanted: Any, key: Any) -> Any:
        def u(x: Any) -> Any:
            return (1 - jnp.sum(x**2)) * jax_mlp(p, x)[0]

        residuals = jax.vmap(lambda x, g: laplacian(u, x, key) + term(u(x)) - g)(x, wanted)
        return jnp.mean(residuals**2)

    return jax.value_and_grad(loss)


def from_jets(directions: int) -> Callable[..., Any]:
    """The mean of second derivatives along random coordinates, each by Taylor mode."""
    from jax.experimental.jet import jet

    return from_directions(lambda u, x, v: jet(u, (x,), ((v, jnp.zeros_like(x)),))[1][1], directions)


def from_products(directions: int) -> Callable[..., Any]:
    """The same, each by a product of the Hessian and a vector."""
    return from_directions(lambda u, x, v: v @ jax.jvp(jax.grad(u), (x,), (v,))[1], directions)


def from_directions(second: Callable[..., Any], directions: int) -> Callable[..., Any]:
    """The mean of second derivatives `second(u, x, v)` along random coordinates."""

    def laplacian(u: Callable[[Any], Any], x: Any, key: Any) -> Any:
        chosen = jax.random.choice(jax.random.wrap_key_data(key), x.size, (directions,), replace=False)
        vectors = jax.nn.one_hot(chosen, x.size, dtype=x.dtype)
        return x.size / directions * jnp.sum(jax.vmap(lambda v: second(u, x, v))(vectors))

    return laplacian


def traced(u: Callable[[Any], Any], x: Any, key: Any) -> Any:
    """The trace of the Hessian."""
    return jnp.trace(jax.hessian(u)(x))


def compiled(function: Callable[..., Any], parameters: Parameters, data: Data) -> Any:
    """The function's executable for these arguments."""
    return jax.jit(function).lower([jnp.asarray(a) for a in parameters], *data).compile()


def problem(dimension: int, batch: int, width: int) -> tuple[Parameters, Data]:
    """Parameters of the network, and points of the unit ball."""
    rng = np.random.default_rng(0)
    along = rng.standard_normal((batch, dimension))
    points = rng.uniform(size=(batch, 1)) * along / np.linalg.norm(along, axis=1, keepdims=True)
    wanted = rng.standard_normal(batch)
    arrays = jnp.asarray(points, "f"), jnp.asarray(wanted, "f"), jax.random.key_data(jax.random.key(0))
    return tanh_parameters(rng, dimension, width, width, width, width, 1), arrays


def check(dimension: int, batch: int, width: int) -> None:
    """Raise unless all agree where all coordinates are drawn."""
    parameters, data = problem(dimension, batch, width)
    laplacians = (from_jets(dimension), from_products(dimension), traced)
    functions = (in_nngrad(parameters, data, dimension), *[in_jax(laplacian) for laplacian in laplacians])
    expected, *others = [jax.tree.leaves(compiled(f, parameters, data)(list(parameters), *data)) for f in functions]
    for other in others:
        for a, b in zip(expected, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * float(np.abs(a).max()))


def rows_of(dimension: int, batch: int, width: int, directions: int, smoke: bool) -> list[Row]:
    """Time and memory in a number of dimensions."""
    parameters, data = problem(dimension, batch, width)
    functions = {OURS: in_nngrad(parameters, data, directions), THEIRS: in_jax(from_jets(directions))}
    if dimension <= MOST_EXACT:
        functions[EXACT] = in_nngrad(parameters, data, None)
        functions[HESSIAN] = in_jax(traced)
    executables = {name: compiled(function, parameters, data) for name, function in functions.items()}
    p = [jnp.asarray(a) for a in parameters]
    times = medians(
        {name: lambda run=run: run(p, *data) for name, run in executables.items()}, 2 if smoke else 7, 1
    )
    sizes = {name: temporaries_of(executable) / 2**20 for name, executable in executables.items()}
    what = f"sine-Gordon loss and gradient, {dimension:,} dimensions, {directions} directions, batch {batch}"
    rows = [row(what, times, OURS, THEIRS, 1.0), in_mebibytes(what, sizes, OURS, THEIRS, 1.0)]
    for peer in (EXACT, HESSIAN):
        if peer in times:
            rows += [row(what, times, OURS, peer), in_mebibytes(what, sizes, OURS, peer)]
    return rows


def in_mebibytes(what: str, sizes: dict[str, float], ours: str, peer: str, goal: float | None = None) -> Row:
    """The line that compares what two executables allot."""
    shown = [f"{name}: {sizes[name]:.2f} MiB" for name in (ours, peer)]
    return Row(f"memory: {what}", *shown, sizes[ours] / max(sizes[peer], 1e-9), goal)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    check(6, 3, 8)
    if smoke:
        return rows_of(8, 4, 8, 2, smoke)
    return [line for dimension in (100, 1000, 10_000, 100_000) for line in rows_of(dimension, 100, 128, 16, smoke)]
