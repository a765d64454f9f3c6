"""Gradients through a hundred steps of training with momentum, beside the same in JAX.

The gradient of an error on held-out data is by the rate, the momentum, weights of samples and the weights at the
beginning. In JAX it is taken in two ways: by `jax.grad` of a scan with `jax.grad` in its body, and by a reverse pass
written out by hand, which keeps weights and momenta before each step and gets derivatives of its gradient by one
`jax.jvp` of it, forward over reverse, as arXiv 2505.00793 does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj

from .harness import Case, Step, in_jax, in_nngrad

OURS, BY_JAX, PEER, BY_HAND = "nngrad", "nngrad.jax", "jax.grad of a scan", "jax, forward over reverse by hand"
Array = np.ndarray[Any, Any]


class Learned(NamedTuple):
    """What the gradient is with respect to."""

    rate: Any
    momentum: Any
    of_samples: Any
    weights: Any


class Data(NamedTuple):
    """Samples to train on, and held-out ones."""

    x: Array
    y: Array
    others: Array
    targets: Array


def drawn(samples: int, width: int) -> tuple[Learned, Data]:
    """A network of three layers, and data for it."""
    rng = np.random.default_rng(0)
    sizes = (16, width), (width, width), (width, 4)
    weights = [(rng.standard_normal(s) / s[0] ** 0.5).astype("f") for s in sizes]
    seen, held_out = [[rng.standard_normal((samples, n)).astype("f") for n in (16, 4)] for _ in range(2)]
    of_samples = rng.uniform(0.5, 1.5, samples).astype("f")
    return Learned(np.float32(0.05), np.float32(0.9), of_samples, weights), Data(*seen, *held_out)


def errors(m: Any, ws: Any, x: Any, y: Any) -> Any:
    """The squared error of each sample, with F or `jax.numpy`."""
    for w in ws[:-1]:
        x = m.tanh(x @ w)
    return m.sum((x @ ws[-1] - y) ** 2, axis=1)


def ours(learned: Learned, data: Data, steps: int) -> Step:
    """By F."""
    own = jax.tree.map(partial(nn.Variable.from_numpy_array, need_grad=True), learned)
    x, y, others, targets = map(nn.Variable.from_numpy_array, data)

    def step(state: Any, _: Any) -> Any:
        ws, ms = state
        gs = nn.grad(F.mean(own.of_samples * errors(F, ws, x, y)), ws)
        ms = [own.momentum * m + g for m, g in zip(ms, gs, strict=True)]
        return ([w - own.rate * m for w, m in zip(ws, ms, strict=True)], ms), None

    still = [F.constant(0, w.shape) for w in own.weights]
    (ws, _), _ = F.scan(step, (own.weights, still), length=steps)
    loss, leaves = F.mean(errors(F, ws, others, targets)), jax.tree.leaves(own)
    return in_nngrad([loss, *nn.grad(loss, leaves)], leaves)


def moved(learned: Learned, gradient: Any, state: Any) -> Any:
    """Weights and momenta after a step."""
    ws, ms = state
    ms = [learned.momentum * m + g for m, g in zip(ms, gradient, strict=True)]
    return [w - learned.rate * m for w, m in zip(ws, ms, strict=True)], ms


def train_loss(data: Data, ws: Any, of_samples: Any) -> Any:
    """What a step of training takes the gradient of, in JAX."""
    return jnp.mean(of_samples * errors(jnp, ws, data.x, data.y))


def held_out_loss(data: Data, ws: Any) -> Any:
    """What the trained weights are worth, in JAX."""
    return jnp.mean(errors(jnp, ws, data.others, data.targets))


def by_scan(lib: Any, data: Data, steps: int) -> Any:
    """By `grad` of a scan with `grad` in its body, of `jax` or of `nngrad.jax`."""

    def outer(learned: Learned) -> Any:
        def step(state: Any, _: Any) -> Any:
            return moved(learned, lib.grad(partial(train_loss, data))(state[0], learned.of_samples), state), None

        begin = learned.weights, [jnp.zeros_like(w) for w in learned.weights]
        (ws, _), _ = jax.lax.scan(step, begin, length=steps)
        return held_out_loss(data, ws)

    return lambda *leaves: lib.value_and_grad(outer)(Learned(*leaves[:3], list(leaves[3:])))


def by_hand(data: Data, steps: int) -> Any:
    """By a reverse pass that is written out; of a state it keeps weights and momenta before each step."""

    slopes = jax.grad(partial(train_loss, data), (0, 1))

    def outer(*leaves: Any) -> Any:
        learned = Learned(*leaves[:3], list(leaves[3:]))

        def step(state: Any, _: Any) -> Any:
            return moved(learned, slopes(state[0], learned.of_samples)[0], state), state

        def back(arrived: Any, before: Any) -> Any:
            """From what arrives after a step to what arrives before it, with the sums of what it gives to others."""
            (gws, gms, sums), (ws, ms) = arrived, before
            gms = [gm - learned.rate * gw for gm, gw in zip(gms, gws, strict=True)]
            still = jnp.zeros_like(learned.of_samples)
            (g, _), (of_weights, of_samples) = jax.jvp(slopes, (ws, learned.of_samples), (gms, still))
            _, after = moved(learned, g, before)
            rate = -sum([jnp.vdot(gw, m) for gw, m in zip(gws, after, strict=True)])
            momentum = sum([jnp.vdot(gm, m) for gm, m in zip(gms, ms, strict=True)])
            sums = [s + d for s, d in zip(sums, (rate, momentum, of_samples), strict=True)]
            gws = [gw + d for gw, d in zip(gws, of_weights, strict=True)]
            return (gws, [learned.momentum * gm for gm in gms], sums), None

        still = [jnp.zeros_like(w) for w in learned.weights]
        (ws, _), before = jax.lax.scan(step, (learned.weights, still), length=steps)
        loss, gws = jax.value_and_grad(partial(held_out_loss, data))(ws)
        sums = [jnp.zeros_like(a) for a in leaves[:3]]
        (gws, _, sums), _ = jax.lax.scan(back, (gws, still, sums), before, reverse=True)
        return loss, [*sums, *gws]

    return outer


def cases(smoke: bool) -> Iterable[Case]:
    """By F and by `nngrad.jax`, beside both ways of JAX."""
    samples, width, steps = (6, 4, 3) if smoke else (1024, 64, 100)
    learned, data = drawn(samples, width)
    given = jax.tree.leaves(learned)
    ways = {
        OURS: lambda: ours(learned, data, steps), PEER: lambda: in_jax(by_scan(jax, data, steps), *given),
        BY_HAND: lambda: in_jax(by_hand(data, steps), *given), BY_JAX: lambda: in_jax(by_scan(nj, data, steps), *given),
    }  # fmt: skip
    pairs = [(name, peer) for name in (OURS, BY_JAX) for peer in (PEER, BY_HAND)]
    what = f"{steps} steps of training, {samples:,} samples: hypergradients"
    yield Case(what, ways, pairs, ("time", "first result", "temporaries"))
