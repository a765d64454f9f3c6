"""What each pass that prepares graphs for one platform's compiler is worth: with it, and without it.

A pass stays only while it saves 5% of something: of the time to the first result, of later ones, or of memory. So can a
forward that `substitute` puts in the place of another when the case that is for it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.passes import all_passes

from .harness import Account, Case, Step, in_nngrad
from .memory import nngrad_recurrent, of_recurrent
from .models import Arrays, dense_weights, normal, variables
from .sparse import collocation

V = nn.Variable
Graph = tuple[list[V], list[V]]
"""Results, and what they are computed from."""


class Shown(NamedTuple):
    """A graph that a pass is for."""

    name: str
    what: str
    build: Callable[[bool], Graph]
    left_out: tuple[str, ...] = ()
    """Passes that are left out on both sides, since they would see to it."""
    saves_memory: bool = False
    """Whether it is memory that the pass saves, and not time."""


def graph_of(arrays: Arrays, loss: Callable[..., V]) -> Graph:
    """A loss of arrays, and its gradients."""
    leaves = variables(arrays)
    y = loss(*leaves)
    return [y, *nn.grad(y, leaves)], leaves


def convolutional(smoke: bool) -> Graph:
    """Four convolutions with maxima over 2x2 windows."""
    rng = np.random.default_rng(0)
    width, size, batch = (4, 16, 2) if smoke else (32, 32, 16)
    maps = [3, *[width] * (1 if smoke else 3)]
    kernels = [normal(rng, width, m, 3, 3, scale=(9 * m) ** -0.5) for m in maps]

    def loss(x: V, *ws: V) -> V:
        h = x
        for w in ws:
            h = F.max_pooling(F.relu(F.convolution(h, w, pad=(1, 1))), (2, 2), (2, 2))
        return F.sum(h * h)

    return graph_of([normal(rng, batch, 3, size, size), *kernels], loss)


def grouped(batch: int, channels: int, group: int, smoke: bool) -> Graph:
    """A 3x3 convolution in groups, with the gradients of its square. Modulated ones have a group for each sample."""
    rng, size = np.random.default_rng(0), 8 if smoke else 32
    arrays = [normal(rng, batch, channels, size, size), normal(rng, channels, channels // group, 3, 3)]
    return graph_of(arrays, lambda x, w: F.sum(F.convolution(x, w, pad=(1, 1), group=group) ** 2))


def embedded(smoke: bool) -> Graph:
    """Places of a sequence that have vectors of their own, each added to all of a batch."""
    rng = np.random.default_rng(0)
    batch, places, width = (2, 40, 16) if smoke else (32, 196, 256)

    def loss(x: V, e: V, w: V) -> V:
        h = F.tanh(F.reshape(F.reshape(x + e, (-1, width)) @ w, (batch, places, width))) + e
        return F.sum(h * h)

    arrays = [normal(rng, batch, places, width), normal(rng, 1, places, width)]
    return graph_of([*arrays, normal(rng, width, width, scale=width**-0.5)], loss)


def checkpointed(smoke: bool) -> Graph:
    """Layers in segments, of which the gradient computes each again."""
    rng = np.random.default_rng(0)
    count, width, batch = (4, 8, 16) if smoke else (32, 64, 4096)

    def loss(x: V, *ws: V) -> V:
        def segment(h: V, *ws: V) -> V:
            for w in ws:
                h = F.tanh(h @ w)
            return h

        h = x
        for i in range(0, count, 4):
            h = nn.checkpoint(segment)(h, *ws[i : i + 4])
        return F.sum(h * h)

    return graph_of([normal(rng, batch, width), *dense_weights(rng, "f", *[width] * (count + 1))], loss)


def recurrent(steps: int, penalty: bool, smoke: bool) -> Graph:
    """An LSTM that is written out, perhaps with a penalty on its gradient."""
    arrays = of_recurrent(steps, *((4, 2) if smoke else (64, 16)))

    def loss(x: V, *weights: V) -> V:
        y = nngrad_recurrent(list(weights), x)
        return y + F.sum(nn.grad(y, x)[0] ** 2) if penalty else y

    return graph_of([arrays.x, *arrays.weights], loss)


def recomputed(smoke: bool) -> Graph:
    """A recurrence that is written out, whose gradients compute its steps again."""
    n = 4 if smoke else 64
    rng = np.random.default_rng(0)
    x, w, u = variables([normal(rng, n, n, n), *[normal(rng, n, n, scale=n**-0.5) for _ in range(2)]])
    h = F.constant(0, shape=(n, n))
    for t in range(n):
        h = F.tanh(x[t] @ w + h @ u)
    y = F.sum(h * h)
    return [y, *nn.grad(y, [w, u], recompute="sqrt")], [x, w, u]


def waves(smoke: bool) -> Graph:
    """A network of sines, with its second derivative along one axis in the loss."""
    rng = np.random.default_rng(0)
    width, points = (4, 16) if smoke else (64, 2048)

    def loss(x: V, t: V, *ws: V) -> V:
        h = F.concatenate(x, t, axis=1)
        for w in ws[:-1]:
            h = F.sin(h @ w)
        u = h @ ws[-1]
        u_x, u_t = nn.grad(u, [x, t])
        return F.mean((u_t + u * u_x - nn.grad(u_x, x)[0]) ** 2)

    xs = [rng.uniform(-1, 1, (points, 1)).astype("f") for _ in range(2)]
    return graph_of([*xs, *dense_weights(rng, "f", 2, width, width, width, 1)], loss)


def pendulums(smoke: bool) -> Graph:
    """Elements of the Jacobian of a collocation."""
    wanted = collocation(5 if smoke else 2000)
    x = V.from_numpy_array(wanted.x.astype("f"), need_grad=True)
    return [nn.sparse_jacobian(wanted.function(F, x), x).values], [x]


GRAPHS = (
    Shown("channels_last", "convolutional network", convolutional),
    Shown("substitute", "vectors of places", embedded),
    Shown("substitute", "modulated convolution of 8 samples", partial(grouped, 1, 128, 8)),
    Shown("substitute", "depthwise convolution", partial(grouped, 8, 32, 32)),
    Shown("substitute", "32 layers in checkpoints", checkpointed, saves_memory=True),
    Shown("slices", "recurrence of 64 steps, recomputed", recomputed, saves_memory=True),
    Shown("roll", "LSTM of 60 steps", partial(recurrent, 60, False)),
    Shown("sine_once", "network of sines, second derivatives", waves),
    Shown("sine_once", "Jacobian of a collocation", pendulums),
    Shown("sum_once", "LSTM of 7 steps, penalty", partial(recurrent, 7, True)),
    Shown("sum_once", "LSTM of 60 steps, not rolled", partial(recurrent, 60, False), ("roll",)),
)


def step_of(build: Callable[[bool], Graph], without: tuple[str, ...], smoke: bool) -> Step:
    """A graph without some passes."""
    with nn.passes(without=without):
        step = in_nngrad(*build(smoke))
        jax.block_until_ready(step.run())  # which compiles it

    def account() -> Account:
        with nn.passes(without=without):
            return step.account() if step.account is not None else {}

    return Step(step.run, account)


def cases(smoke: bool) -> Iterable[Case]:
    """All passes for the platform that this runs on; few graphs where tiny."""
    missing = {p.name for p in all_passes() if p.platform == "cpu"}.difference([shown.name for shown in GRAPHS])
    if missing:
        raise ValueError(f"no case shows what is gained by {', '.join(sorted(missing))}")
    here = {each.name for each in all_passes() if each.platform == jax.default_backend()}
    for shown in [shown for shown in GRAPHS if shown.name in here and not (smoke and "60" in shown.what)]:
        ways = {
            "with it": partial(step_of, shown.build, shown.left_out, smoke),
            "without it": partial(step_of, shown.build, (*shown.left_out, shown.name), smoke),
        }
        measures = ("temporaries",) if shown.saves_memory else ("time", "first result")
        yield Case(f"{shown.name}: {shown.what}", ways, measures=measures)
