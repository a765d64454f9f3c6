"""The stochastic Taylor derivative estimator: a network that solves equations in up to 100,000 dimensions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

import nngrad.functions as F

from .. import stochastic
from ..reproducing.experiment import Experiment, Make, Measured, Point, Quantity, Step, Table, in_jax
from ..tanh_mlp import jax_mlp
from ..timing import wait_for

OURS, TAYLOR, PRODUCTS = "nngrad", "JAX, jet (STDE)", "JAX, jvp of grad"
EXACT, HESSIAN = "nngrad, all directions", "JAX, trace of hessian"
BATCH, WIDTH, DIRECTIONS = 100, 128, 16
SIZES, SMALL = (BATCH, WIDTH, DIRECTIONS), (4, 8, 2)
SECONDS, RATE = 10.0, 1e-3
EQUATIONS: dict[str, tuple[stochastic.Term, stochastic.Term]] = {
    "Sine-Gordon": (F.sin, jnp.sin), "Allen-Cahn": (lambda u: u - u * u * u, lambda u: u - u * u * u),
}  # fmt: skip
"""What is added to the Laplacian, in nngrad and in JAX."""


def function_of(method: str, equation: str, parameters: Any, data: Any, directions: int) -> Callable[..., Any]:
    """Loss and gradients by a method, of parameters, points, right-hand sides and a key."""
    ours, theirs = EQUATIONS[equation]
    if method in (OURS, EXACT):
        return stochastic.in_nngrad(parameters, data, directions if method == OURS else None, ours)
    laplacian = {
        TAYLOR: stochastic.from_jets(directions), PRODUCTS: stochastic.from_products(directions),
        HESSIAN: stochastic.traced,
    }[method]  # fmt: skip
    return stochastic.in_jax(laplacian, theirs)


def step_of(method: str, equation: str, dimension: int, batch: int, width: int, directions: int) -> Step:
    """Loss and gradients at points of the unit ball."""
    parameters, data = stochastic.problem(dimension, batch, width)
    function = function_of(method, equation, parameters, data, directions)
    return in_jax(function, [jnp.asarray(p) for p in parameters], *data)


def tables(smoke: bool) -> Iterable[Table]:
    """Both equations, over the number of dimensions."""
    stochastic.check(6, 3, 8)
    sizes = SMALL if smoke else SIZES
    methods = (OURS, TAYLOR) if smoke else (OURS, TAYLOR, PRODUCTS)
    for equation in list(EQUATIONS)[: 1 if smoke else None]:
        points = []
        most = () if equation == "Allen-Cahn" else (100_000,)
        for dimension in (8,) if smoke else (100, 10_000, *most):
            exact = (EXACT, HESSIAN) if dimension <= 100 and not smoke else ()
            makers: dict[str, Make] = {
                method: partial(step_of, method, equation, dimension, *sizes)
                for method in (*methods, *exact)
            }
            points.append(Point(dimension, makers, None))
        yield Table(equation, "dimensions", points)


# ---------------------------------------------------------------- training


def solution(c: Any, x: Any) -> tuple[Any, Any]:
    """The solution of which neighbouring coordinates interact in pairs, and its Laplacian, at points of rows."""
    a, b = x[:, :-1], x[:, 1:]
    s = a + jnp.cos(b) + b * jnp.cos(a)
    by_a, by_b = 1 - b * jnp.sin(a), jnp.cos(a) - jnp.sin(b)
    sine, cosine = c * jnp.sin(s), c * jnp.cos(s)
    f = jnp.sum(sine, 1)
    along = jnp.sum(cosine * (a * by_a + b * by_b), 1)
    laplacian = jnp.sum(-cosine * (b * jnp.cos(a) + jnp.cos(b)) - sine * (by_a**2 + by_b**2), 1)
    inside = 1 - jnp.sum(x**2, 1)
    return inside * f, inside * laplacian - 4 * along - 2 * x.shape[1] * f


def ball(key: Any, points: int, dimension: int) -> Any:
    """Points of the unit ball, with radii that are uniform."""
    of_radius, of_place = jax.random.split(key)
    place = jax.random.normal(of_place, (points, dimension))
    return jax.random.uniform(of_radius, (points, 1)) * place / jnp.linalg.norm(place, axis=1, keepdims=True)


class Training:
    """A network that one method trains, and the time that it has had."""

    def __init__(self, method: str, dimension: int, sizes: tuple[int, int, int], c: Any) -> None:
        batch, width, directions = sizes
        parameters, data = stochastic.problem(dimension, batch, width)
        function = function_of(method, "Sine-Gordon", parameters, data, directions)
        adam = optax.adam(RATE)

        def step(key: Any, p: Any, state: Any) -> Any:
            key, of_points, of_directions = jax.random.split(key, 3)
            x = ball(of_points, batch, dimension)
            u, laplacian = solution(c, x)
            found = function(p, x, laplacian + jnp.sin(u), jax.random.key_data(of_directions))
            grads = found[1] if len(found) == 2 else list(found[1:])
            updates, state = adam.update(grads, state, p)
            return key, optax.apply_updates(p, updates), state

        p = [jnp.asarray(a) for a in parameters]
        self._state = jax.random.key(1), p, adam.init(p)
        self._step = jax.jit(step).lower(*self._state).compile()
        self.seconds, self.steps = 0.0, 0

    def train(self, steps: int) -> None:
        """Some steps more."""
        start = time.perf_counter()
        for _ in range(steps):
            self._state = self._step(*self._state)
        wait_for(self._state[1])
        self.seconds += time.perf_counter() - start
        self.steps += steps

    def error(self, c: Any, x: Any) -> float:
        """Of the network beside the solution, relative, in the L2 norm."""
        wanted, _ = solution(c, x)
        found = (1 - jnp.sum(x**2, 1)) * jax_mlp(self._state[1], x)[:, 0]
        return float(jnp.linalg.norm(found - wanted) / jnp.linalg.norm(wanted))


def errors(smoke: bool, methods: Collection[str]) -> Iterable[Measured]:
    """The error after a fixed time, in which the methods take steps in turns."""
    for dimension in (8,) if smoke else (100, 1000):
        c = jax.random.normal(jax.random.key(2), (dimension - 1,))
        x = ball(jax.random.key(3), 1000, dimension)
        trained = {
            method: Training(method, dimension, SMALL if smoke else SIZES, c)
            for method in (OURS, TAYLOR, PRODUCTS) if method in methods and not (smoke and method != OURS)
        }  # fmt: skip
        while not smoke and min([each.seconds for each in trained.values()]) < SECONDS:
            for each in trained.values():
                if each.seconds < SECONDS:
                    each.train(20)
        for method, each in trained.items():
            table = f"Sine-Gordon, {SECONDS:g} s of training"
            yield Measured(table, "dimensions", dimension, method, "error", each.error(c, x))
            if each.steps:
                yield Measured(table, "dimensions", dimension, method, "training step", each.seconds / each.steps)


EXPERIMENT = Experiment(
    title="Stochastic Taylor derivative estimator",
    paper="Z. Shi, Z. Hu, M. Lin, K. Kawaguchi: Stochastic Taylor derivative estimator: efficient amortization for "
    "arbitrary differential operators, 2024",
    url="https://arxiv.org/abs/2412.00088",
    ran=f"""
Loss and gradients of the Sine-Gordon and the Allen-Cahn equation, for a tanh network of four layers of {WIDTH},
multiplied by 1 - |x|²; {BATCH} points and {DIRECTIONS} random coordinates, as in the paper; seeds are fixed. Each
method draws its own coordinates. A check in 6 dimensions, with all coordinates drawn, shows that all methods agree.

- *JAX, jet (STDE)*: the paper's method, written from its formulas: `jax.experimental.jet` under `vmap`.
- *JAX, jvp of grad*: the same coordinates with nested first-order derivatives.
- *nngrad*: `nn.laplacian(u, x, directions={DIRECTIONS})`.
- *all directions*: the whole Laplacian, in 100 dimensions: `nn.laplacian(u, x)`, and the trace of `jax.hessian`.

The error is that of a network trained for {SECONDS:g} seconds with Adam ({RATE:g}) on a solution with interactions in
twos, relative to the solution in the L2 norm. The methods take turns of twenty steps until each has used its time.
""",
    differs="""
The paper trains for many more steps, on a GPU, in up to a million dimensions; 100,000 is as far as two cores get in
reasonable time. nngrad reads the rows of the first weights that belong to the random coordinates. Jets push vectors
with one entry per dimension through the first layer, which takes most of their time in many dimensions. Errors after a
few seconds come from different random coordinates and points, and their scatter is larger than the differences between
methods: a method that takes more steps in the same time need not end with the smaller error.
""",
    ours=OURS,
    tables=tables,
    least=True,
    measured=("time", "temporaries", "training step", "error"),
    quantities={"training step": Quantity("time of a step", 1e3, "ms"), "error": Quantity("relative error")},
    further=errors,
)
