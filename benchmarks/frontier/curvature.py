"""Curvature by `nn.natural_gradient`, `nn.fisher`, `nn.lanczos` and `nn.hessian_diagonal`, beside the same in JAX.

JAX has none of these, so they are written by hand with `jax.jvp`, `jax.vjp` and `jax.vmap`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from ..memory.steps import Step, same_results
from ..timing import Contender, Row, forget, medians, row, wait_for

OURS, PEER = "nngrad", "jax, by hand"
Array = np.ndarray[Any, Any]
TOLERANCE = 1e-8
"""In double precision. In single precision a step of Gauss and Newton is 2e-3 off that, by JAX as by nngrad."""


class Case(NamedTuple):
    """What is computed in two ways: each function makes what is called again and again."""

    what: str
    ours: Callable[[], Contender]
    theirs: Callable[[], Contender]


def weights(rng: np.random.Generator, dtype: str, *sizes: int) -> list[Array]:
    """Of a network of dense layers."""
    return [(rng.standard_normal(s) / s[0] ** 0.5).astype(dtype) for s in itertools.pairwise(sizes)]


def network(m: Any, ws: Any, x: Any) -> Any:
    """Its outputs, with F or `jax.numpy`."""
    for w in ws[:-1]:
        x = m.tanh(x @ w)
    return x @ ws[-1]


def own(ws: list[Array]) -> list[nn.Variable]:
    """As Variables."""
    return [nn.Variable.from_numpy_array(w, need_grad=True) for w in ws]


def called(outputs: list[nn.Variable], inputs: list[nn.Variable], arrays: list[Array]) -> Contender:
    """The outputs as a function of nothing."""
    return partial(nn.compile(outputs, inputs), *map(jnp.asarray, arrays))


def gauss_newton(smoke: bool, dtype: str = "f") -> Case:
    """The step of Gauss and Newton for the residuals u_xx + u_yy - 1 of a network, in the space of residuals."""
    rng = np.random.default_rng(0)
    points, width = (6, 3) if smoke else (256, 48)
    ws, x = weights(rng, dtype, 2, width, width, 1), rng.uniform(-1, 1, (points, 2)).astype(dtype)
    damping = 1e-1

    def ours() -> Contender:
        given, at = own(ws), nn.Variable.from_numpy_array(x)
        residual = nn.laplacian(network(F, given, at), at) - 1
        return called(nn.natural_gradient(nn.gauss_newton(residual, given), damping=damping), given, ws)

    def theirs() -> Contender:
        def residual(ws: Any, x: Any) -> Any:
            def second(t: Any) -> Any:
                return jax.jvp(lambda x: jax.jvp(partial(network, jnp, ws), (x,), (t,))[1], (x,), (t,))[1]

            return jnp.sum(jax.vmap(second)(jnp.eye(2, dtype=x.dtype))) - 1

        @jax.jit
        def step(ws: Any) -> Any:
            r = jax.vmap(partial(residual, ws))(x)
            rows = jax.vmap(jax.grad(residual), (None, 0))(ws, x)
            j = jnp.concatenate([g.reshape(points, -1) for g in rows], 1)
            whole = j.T @ jnp.linalg.solve(j @ j.T + damping * jnp.eye(points), r)
            return [p.reshape(w.shape) for p, w in zip(jnp.split(whole, ends), ws, strict=True)]

        ends = np.cumsum([w.size for w in ws])[:-1].tolist()
        return partial(step, [jnp.asarray(w) for w in ws])

    return Case(f"Gauss-Newton step, Laplacian of MLP 2-{width}-{width}-1 at {points} points", ours, theirs)


def fisher(smoke: bool, dtype: str = "f") -> Case:
    """A product of the Fisher information of a classifier with a vector."""
    rng = np.random.default_rng(0)
    batch, width = (3, 4) if smoke else (256, 256)
    ws, v = weights(rng, dtype, 64, width, width, 10), weights(rng, dtype, 64, width, width, 10)
    x = rng.standard_normal((batch, 64)).astype(dtype)

    def ours() -> Contender:
        given, along = own(ws), own(v)
        logits = network(F, given, nn.Variable.from_numpy_array(x))
        return called(nn.fisher(logits, given) @ along, [*given, *along], [*ws, *v])

    def theirs() -> Contender:
        @jax.jit
        def product(ws: Any, v: Any) -> Any:
            logits, back = jax.vjp(lambda ws: network(jnp, ws, x), ws)
            moved = jax.jvp(lambda ws: network(jnp, ws, x), (ws,), (v,))[1]
            p = jax.nn.softmax(logits)
            return back(p * (moved - jnp.sum(p * moved, 1, keepdims=True)) / batch)[0]

        return partial(product, *[[jnp.asarray(w) for w in each] for each in (ws, v)])

    return Case(f"Fisher product, MLP 64-{width}-{width}-10, batch {batch}", ours, theirs)


def lanczos(smoke: bool, dtype: str = "f") -> Case:
    """The largest eigenvalue of the Hessian of a loss."""
    rng = np.random.default_rng(0)
    batch, width, k = (3, 3, 4) if smoke else (256, 64, 40)
    ws = weights(rng, dtype, 16, width, width, 4)
    x = rng.standard_normal((batch, 16)).astype(dtype)
    start = rng.standard_normal(sum([w.size for w in ws]))

    def ours() -> Contender:
        given = own(ws)
        loss = F.mean(network(F, given, nn.Variable.from_numpy_array(x)) ** 2)
        return lambda: nn.lanczos(loss, given, k, start=start, vectors=False).values[-1]

    def theirs() -> Contender:
        flat, unravel = jax.flatten_util.ravel_pytree([jnp.asarray(w) for w in ws])

        @jax.jit
        def product(v: Any) -> Any:
            gradient = jax.grad(lambda flat: jnp.mean(network(jnp, unravel(flat), x) ** 2))
            return jax.jvp(gradient, (flat,), (v,))[1]

        def largest() -> Any:
            basis, matrix = np.zeros((k, len(start))), np.zeros((k, k))
            v = start / np.linalg.norm(start)
            for i in range(k):
                basis[i] = v
                v = np.asarray(product(v.astype(dtype)), np.float64)
                matrix[i, i] = basis[i] @ v
                for _ in range(2):
                    v = v - basis.T @ (basis @ v)
                if i + 1 < k:
                    matrix[i, i + 1] = matrix[i + 1, i] = np.linalg.norm(v)
                    v = v / matrix[i, i + 1]
            return np.linalg.eigvalsh(matrix)[-1]

        return largest

    return Case(f"Lanczos, {k} products with the Hessian, MLP 16-{width}-{width}-4, batch {batch}", ours, theirs)


def hessian_diagonal(smoke: bool, dtype: str = "f") -> Case:
    """The exact diagonal of the Hessian in the inputs of a network."""
    rng = np.random.default_rng(0)
    batch, width, size = (2, 4, 3) if smoke else (64, 256, 32)
    ws, x = weights(rng, dtype, size, width, width, 1), rng.standard_normal((batch, size)).astype(dtype)

    def ours() -> Contender:
        given, at = own(ws), nn.Variable.from_numpy_array(x)
        return called([nn.hessian_diagonal(network(F, given, at), at)], given, ws)

    def theirs() -> Contender:
        @jax.jit
        def diagonal(ws: Any) -> Any:
            def of_one(x: Any) -> Any:
                gradient = jax.grad(lambda x: network(jnp, ws, x)[0])
                along = jax.vmap(lambda t: jax.jvp(gradient, (x,), (t,))[1] @ t)
                return along(jnp.eye(size, dtype=x.dtype))

            return jax.vmap(of_one)(x)

        return partial(diagonal, [jnp.asarray(w) for w in ws])

    return Case(f"Hessian diagonal, MLP {size}-{width}-{width}-1, batch {batch}", ours, theirs)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    lines = []
    for make in (gauss_newton, fisher, lanczos, hessian_diagonal):
        with jax.enable_x64(True):
            exact = make(smoke, "d")
            same_results(Step(exact.theirs(), 0), {OURS: Step(exact.ours(), 0)}, TOLERANCE)
        case, calls, first = make(smoke), {}, {}
        for name, build in ((OURS, case.ours), (PEER, case.theirs)):
            forget()
            start = time.perf_counter()
            calls[name] = build()
            wait_for(calls[name]())
            first[name] = time.perf_counter() - start
        times = medians(calls, *((2, 1) if smoke else (20, 2)))
        lines += [row(case.what, times, OURS, PEER, 1.0), row(f"{case.what}, first result", first, OURS, PEER, 1.0)]
    return lines
