"""Curvature by `nn.natural_gradient`, `nn.fisher` and `nn.lanczos`, beside the same in JAX.

JAX has none of these, so they are written by hand with `jax.jvp`, `jax.vjp` and `jax.vmap`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from .harness import Case, Contender, Step, in_jax, in_nngrad
from .models import dense_weights as weights
from .models import plain_mlp, variables

TOLERANCE = 1e-2
"""Of single precision: a step of Gauss and Newton is 2e-3 off that in double precision, by JAX as by nngrad."""


def gauss_newton(smoke: bool) -> Case:
    """The step of Gauss and Newton for the residuals u_xx + u_yy - 1 of a network, in the space of residuals."""
    rng = np.random.default_rng(0)
    points, width = (6, 3) if smoke else (256, 48)
    ws, x = weights(rng, "f", 2, width, width, 1), rng.uniform(-1, 1, (points, 2)).astype("f")
    damping = 1e-1

    def ours() -> Step:
        given, at = variables(ws), nn.Variable.from_numpy_array(x)
        residual = nn.laplacian(plain_mlp(F.tanh, given, at), at) - 1
        return in_nngrad(nn.natural_gradient(nn.gauss_newton(residual, given), damping=damping), given)

    def theirs() -> Step:
        def residual(ws: Any, x: Any) -> Any:
            def second(t: Any) -> Any:
                return jax.jvp(lambda x: jax.jvp(partial(plain_mlp, jnp.tanh, ws), (x,), (t,))[1], (x,), (t,))[1]

            return jnp.sum(jax.vmap(second)(jnp.eye(2, dtype=x.dtype))) - 1

        def step(ws: Any) -> Any:
            r = jax.vmap(partial(residual, ws))(x)
            rows = jax.vmap(jax.grad(residual), (None, 0))(ws, x)
            j = jnp.concatenate([g.reshape(points, -1) for g in rows], 1)
            whole = j.T @ jnp.linalg.solve(j @ j.T + damping * jnp.eye(points), r)
            return [p.reshape(w.shape) for p, w in zip(jnp.split(whole, ends), ws, strict=True)]

        ends = np.cumsum([w.size for w in ws])[:-1].tolist()
        return in_jax(step, ws)

    return case(f"Gauss-Newton step, Laplacian of MLP 2-{width}-{width}-1 at {points} points", ours, theirs)


def fisher(smoke: bool) -> Case:
    """A product of the Fisher information of a classifier with a vector."""
    rng = np.random.default_rng(0)
    batch, width = (3, 4) if smoke else (256, 256)
    ws, v = weights(rng, "f", 64, width, width, 10), weights(rng, "f", 64, width, width, 10)
    x = rng.standard_normal((batch, 64)).astype("f")

    def ours() -> Step:
        given, along = variables(ws), variables(v)
        logits = plain_mlp(F.tanh, given, nn.Variable.from_numpy_array(x))
        return in_nngrad(nn.fisher(logits, given) @ along, [*given, *along])

    def theirs() -> Step:
        def product(ws: Any, v: Any) -> Any:
            logits, back = jax.vjp(lambda ws: plain_mlp(jnp.tanh, ws, x), ws)
            moved = jax.jvp(lambda ws: plain_mlp(jnp.tanh, ws, x), (ws,), (v,))[1]
            p = jax.nn.softmax(logits)
            return back(p * (moved - jnp.sum(p * moved, 1, keepdims=True)) / batch)[0]

        return in_jax(product, ws, v)

    return case(f"Fisher product, MLP 64-{width}-{width}-10, batch {batch}", ours, theirs)


def lanczos(smoke: bool) -> Case:
    """The largest eigenvalue of the Hessian of a loss."""
    rng = np.random.default_rng(0)
    batch, width, k = (3, 3, 4) if smoke else (256, 64, 40)
    ws = weights(rng, "f", 16, width, width, 4)
    x = rng.standard_normal((batch, 16)).astype("f")
    start = rng.standard_normal(sum([w.size for w in ws]))

    def ours() -> Contender:
        given = variables(ws)
        loss = F.mean(plain_mlp(F.tanh, given, nn.Variable.from_numpy_array(x)) ** 2)
        return lambda: nn.lanczos(loss, given, k, start=start, vectors=False).values[-1]

    def theirs() -> Contender:
        flat, unravel = jax.flatten_util.ravel_pytree([jnp.asarray(w) for w in ws])

        @jax.jit
        def product(v: Any) -> Any:
            gradient = jax.grad(lambda flat: jnp.mean(plain_mlp(jnp.tanh, unravel(flat), x) ** 2))
            return jax.jvp(gradient, (flat,), (v,))[1]

        def largest() -> Any:
            basis, matrix = np.zeros((k, len(start))), np.zeros((k, k))
            v = start / np.linalg.norm(start)
            for i in range(k):
                basis[i] = v
                v = np.asarray(product(v.astype("f")), np.float64)
                matrix[i, i] = basis[i] @ v
                for _ in range(2):
                    v = v - basis.T @ (basis @ v)
                if i + 1 < k:
                    matrix[i, i + 1] = matrix[i + 1, i] = np.linalg.norm(v)
                    v = v / matrix[i, i + 1]
            return np.linalg.eigvalsh(matrix)[-1]

        return largest

    return case(f"Lanczos, {k} products with the Hessian, MLP 16-{width}-{width}-4, batch {batch}", ours, theirs)


def case(what: str, ours: Any, theirs: Any) -> Case:
    """Both ways."""
    return Case(what, {"nngrad": ours, "jax, by hand": theirs}, measures=("time", "first result"), tolerance=TOLERANCE)


def cases(smoke: bool) -> Iterable[Case]:
    """All."""
    return [make(smoke) for make in (gauss_newton, fisher, lanczos)]
