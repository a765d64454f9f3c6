"""Drop-in transformations on models of Flax and Equinox: `nngrad.jax` in place of JAX's own, and of folx.

Models, points and the code around the transformations are the same for all contenders: what differs is who
differentiates. First results are those of a process that has traced and compiled nothing, with the time of XLA.
"""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

import nngrad.jax as nj

from .timing import Contender, Row, agreeing, forget, medians, row, wait_for

Makers = dict[str, Callable[[], Contender]]


def flax_network(widths: tuple[int, ...]) -> tuple[Callable[[Any, Any], Any], Any]:
    """A tanh network of one number: its function of parameters and a point, and parameters."""
    from flax import linen

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            for width in widths[1:-1]:
                x = jnp.tanh(linen.Dense(width)(x))
            return linen.Dense(1)(x)[..., 0]

    network = Network()
    return network.apply, network.init(jax.random.key(0), jnp.zeros(widths[0]))


def equinox_network(size: int, width: int) -> Callable[[Any], Any]:
    """A silu network of one number with two hidden layers, of Equinox."""
    import equinox

    network = equinox.nn.MLP(size, "scalar", width, 2, jax.nn.silu, key=jax.random.key(0))
    found: Callable[[Any], Any] = network
    return found


# ---------------------------------------------------------------- contenders in turn


def compared(what: str, ours: str, makers: Makers, goals: Mapping[str, float | None], rounds: int) -> list[Row]:
    """The lines of one case: runs, and first results."""
    firsts, contenders = {}, {}
    for name, make in makers.items():
        forget()
        start = time.perf_counter()
        contenders[name] = make()
        wait_for(contenders[name]())
        firsts[name] = time.perf_counter() - start
    agreeing(contenders, 1e-3)
    times = medians(contenders, rounds, 3)
    lines = [row(f"run: {what}", times, ours, peer, goal) for peer, goal in goals.items() if peer in times]
    return [*lines, *[row(f"first result: {what}", firsts, ours, peer) for peer in goals if peer in firsts]]


def jitted(function: Callable[..., Any], *arrays: Any) -> Callable[[], Contender]:
    """Makes the contender that jits `function`."""

    def make() -> Contender:
        return functools.partial(jax.jit(function), *arrays)

    return make


# ---------------------------------------------------------------- derivatives along a line


def derivative_rows(smoke: bool) -> list[Row]:
    """The sixth derivative of a network of Flax at many points."""
    widths, batch, n = ((1, 8, 8, 1), 4, 3) if smoke else ((1, 64, 64, 64, 1), 1024, 6)
    apply, parameters = flax_network(widths)
    points = jnp.linspace(-1, 1, batch, dtype=jnp.float32)

    def u(t: Any) -> Any:
        return apply(parameters, t[None])

    def nested(derivative: Callable[..., Any]) -> Any:
        f: Callable[..., Any] = u
        for _ in range(n):
            f = derivative(f)
        return jax.vmap(f)

    def along(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]

    def by_jet(t: Any) -> Any:
        from jax.experimental.jet import jet

        series = [jnp.ones_like(t)] + [jnp.zeros_like(t)] * (n - 1)
        return jet(u, (t,), (series,))[1][-1]

    makers = {
        "nj.nth_derivative": jitted(jax.vmap(nj.nth_derivative(u, n)), points),
        "nested jax.grad": jitted(nested(jax.grad), points),
        "jet": jitted(jax.vmap(by_jet), points),
        "nested jax.jvp": jitted(nested(along), points),
    }
    goals = {"nested jax.grad": 0.2, "jet": 0.65, "nested jax.jvp": 1.0}
    what = f"derivative {n} of a Flax MLP {'-'.join(map(str, widths))}, {batch} points"
    return compared(what, "nj.nth_derivative", makers, goals, 2 if smoke else 15)


# ---------------------------------------------------------------- Laplacians


def laplacian_rows(smoke: bool) -> list[Row]:
    """Laplacians at one point, mapped: a tanh network of Flax and a silu network of Equinox."""
    size, width, batch = (3, 8, 4) if smoke else (30, 128, 256)
    apply, parameters = flax_network((size, width, width, width, 1))
    points = jax.random.normal(jax.random.key(1), (batch, size))
    functions = {
        f"a tanh MLP of Flax, {size}-{width}-{width}-{width}-1": functools.partial(apply, parameters),
        f"a silu MLP of Equinox, {size}-{width}-{width}-1": equinox_network(size, width),
    }
    lines = []
    for name, f in functions.items():
        makers = {
            "nj.laplacian": jitted(jax.vmap(nj.laplacian(f)), points),
            "trace of jax.hessian": jitted(jax.vmap(functools.partial(_trace, f)), points),
        }
        if importlib.util.find_spec("folx") is not None:
            makers["folx"] = jitted(jax.vmap(functools.partial(_by_folx, f)), points)
        goals: dict[str, float | None] = {"trace of jax.hessian": None, "folx": 1.0}
        lines += compared(f"Laplacian of {name}, {batch} points", "nj.laplacian", makers, goals, 2 if smoke else 15)
    return lines


def _trace(f: Callable[..., Any], x: Any) -> Any:
    return jnp.trace(jax.hessian(f)(x))


def _by_folx(f: Callable[..., Any], x: Any) -> Any:
    import folx

    return folx.forward_laplacian(f)(x).laplacian


# ---------------------------------------------------------------- a training step with one import changed


def residual(grad: Callable[..., Any], u: Callable[..., Any], x: Any, t: Any) -> Any:
    """Of the Kuramoto-Sivashinsky equation, u_t + u u_x + u_xx + u_xxxx."""
    u_x = grad(u)
    u_xx = grad(u_x)
    u_xxxx = grad(grad(u_xx))
    return grad(u, 1)(x, t) + u(x, t) * u_x(x, t) + u_xx(x, t) + u_xxxx(x, t)


def step_rows(smoke: bool) -> list[Row]:
    """The loss of a PINN of Flax and its gradient, with `grad` from one place or from the other."""
    widths, batch = ((2, 8, 8, 1), 4) if smoke else ((2, 64, 64, 64, 1), 512)
    apply, parameters = flax_network(widths)
    xs, ts = jax.random.normal(jax.random.key(1), (2, batch))

    def step(grad: Callable[..., Any]) -> Callable[[], Contender]:
        def loss(parameters: Any) -> Any:
            def u(x: Any, t: Any) -> Any:
                return apply(parameters, jnp.stack([x, t]))

            return jnp.mean(jax.vmap(lambda x, t: residual(grad, u, x, t))(xs, ts) ** 2)

        def flat(parameters: Any) -> Any:
            value, gradients = jax.value_and_grad(loss)(parameters)
            return jnp.concatenate([value[None], *[jnp.ravel(g) for g in jax.tree.leaves(gradients)]])

        return jitted(flat, parameters)

    makers = {"from nngrad.jax import grad": step(nj.grad), "from jax import grad": step(jax.grad)}
    what = f"Kuramoto-Sivashinsky step, Flax MLP {'-'.join(map(str, widths))}, {batch} points"
    goals = {"from jax import grad": 0.5}
    return compared(what, "from nngrad.jax import grad", makers, goals, 2 if smoke else 15)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    return [*derivative_rows(smoke), *laplacian_rows(smoke), *step_rows(smoke)]
