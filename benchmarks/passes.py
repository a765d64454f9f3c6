"""What each pass that prepares graphs for one platform's compiler is worth: with it, and without it.

A pass stays only while it saves 5% of something: of the time to the first result, of later ones, or of memory. The last
row of each says what it saves at most. Where XLA has learnt to do without it, that misses its goal, and the pass can
go; so can a forward that `substitute` puts in the place of another when the case that is for it says so.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.passes import all_passes

from .conv_nets import classifier_parameters, nngrad_classifier
from .frontier.sparse import collocation
from .timing import Contender, Row, forget, medians, row

WORTH_IT = 0.95
Graph = tuple[list[nn.Variable], list[nn.Variable], list[np.ndarray]]
"""Results, what they are computed from, and its arrays."""


class Case(NamedTuple):
    """A graph that a pass is for."""

    name: str
    what: str
    build: Callable[[bool], Graph]
    left_out: tuple[str, ...] = ()
    """Passes that are left out on both sides, since they would see to it."""
    saves_memory: bool = False
    """Whether it is memory that the pass saves, and not time."""


def graph_of(arrays: list[np.ndarray], loss: Callable[..., nn.Variable]) -> Graph:
    """A loss of arrays, and its gradients."""
    leaves = [nn.Variable.from_numpy_array(x, need_grad=True) for x in arrays]
    y = loss(*leaves)
    return [y, *nn.grad(y, leaves)], leaves, arrays


def convolutional(smoke: bool) -> Graph:
    """A network of four convolutions."""
    rng = np.random.default_rng(0)
    width, size, batch = (4, 16, 2) if smoke else (32, 32, 16)
    t = nn.Variable.from_numpy_array(rng.integers(0, 10, (batch, 1)))
    x = nn.Variable.from_numpy_array(rng.standard_normal((batch, 3, size, size)).astype("f"))
    return graph_of(classifier_parameters(rng, width, size), lambda *p: nngrad_classifier(list(p), x, t))


def pooled(smoke: bool) -> Graph:
    """Convolutions with maxima over windows that overlap, and a penalty on the gradient."""
    rng = np.random.default_rng(0)
    width, size, batch = (2, 8, 2) if smoke else (32, 64, 16)
    x = rng.standard_normal((batch, 3, size, size)).astype("f")
    kernels = [(rng.standard_normal((width, m, 3, 3)) * (9 * m) ** -0.5).astype("f") for m in (3, width)]

    def loss(x: nn.Variable, *ws: nn.Variable) -> nn.Variable:
        h = x
        for w in ws:
            h = F.max_pooling(F.relu(F.convolution(h, w, pad=(1, 1))), (3, 3), (2, 2), pad=(1, 1))
        y = F.sum(h * h)
        return y + F.sum(nn.grad(y, x)[0] ** 2)

    return graph_of([x, *kernels], loss)


def grouped(batch: int, channels: int, group: int) -> Callable[[bool], Graph]:
    """A 3x3 convolution in groups, with the gradients of its square. Modulated ones have a group for each sample."""

    def build(smoke: bool) -> Graph:
        rng = np.random.default_rng(0)
        size = 8 if smoke else 32
        x = rng.standard_normal((batch, channels, size, size)).astype("f")
        w = rng.standard_normal((channels, channels // group, 3, 3)).astype("f")
        return graph_of([x, w], lambda x, w: F.sum(F.convolution(x, w, pad=(1, 1), group=group) ** 2))

    return build


def embedded(smoke: bool) -> Graph:
    """Places of a sequence that have vectors of their own, each added to all of a batch."""
    rng = np.random.default_rng(0)
    batch, places, width = (2, 40, 16) if smoke else (32, 196, 256)
    x, e = (rng.standard_normal((n, places, width)).astype("f") for n in (batch, 1))
    w = (rng.standard_normal((width, width)) * width**-0.5).astype("f")

    def loss(x: nn.Variable, e: nn.Variable, w: nn.Variable) -> nn.Variable:
        h = F.tanh(F.reshape(F.reshape(x + e, (-1, width)) @ w, (batch, places, width))) + e
        return F.sum(h * h)

    return graph_of([x, e, w], loss)


def checkpointed(smoke: bool) -> Graph:
    """Layers in segments, of which the gradient computes each again."""
    rng = np.random.default_rng(0)
    count, width, batch = (4, 8, 16) if smoke else (32, 64, 4096)
    ws = [(rng.standard_normal((width, width)) * width**-0.5).astype("f") for _ in range(count)]
    x = rng.standard_normal((batch, width)).astype("f")

    def loss(x: nn.Variable, *ws: nn.Variable) -> nn.Variable:
        def segment(h: nn.Variable, *ws: nn.Variable) -> nn.Variable:
            for w in ws:
                h = F.tanh(h @ w)
            return h

        h = x
        for i in range(0, count, 4):
            h = nn.checkpoint(segment)(h, *ws[i : i + 4])
        return F.sum(h * h)

    return graph_of([x, *ws], loss)


def highway(smoke: bool) -> Graph:
    """Layers with gates, each with weights of its own."""
    rng = np.random.default_rng(0)
    count, width, batch = (6, 4, 2) if smoke else (30, 32, 16)
    ws = [(rng.standard_normal((width, 2 * width)) * width**-0.5).astype("f") for _ in range(count)]
    x = rng.standard_normal((batch, width)).astype("f")

    def loss(x: nn.Variable, *ws: nn.Variable) -> nn.Variable:
        h = x
        for w in ws:
            a, b = F.split(F.reshape(h @ w, (batch, 2, width)), axis=1)
            gate = F.sigmoid(a)
            h = gate * h + (1 - gate) * F.tanh(b)
        return F.sum(h * h)

    return graph_of([x, *ws], loss)


def recurrent(steps: int, penalty: bool = False) -> Callable[[bool], Graph]:
    """An LSTM that is written out, perhaps with a penalty on its gradient."""

    def build(smoke: bool) -> Graph:
        rng = np.random.default_rng(1)
        width, batch = (4, 2) if smoke else (64, 16)
        xs = rng.standard_normal((steps, batch, width)).astype("f")
        w = (rng.standard_normal((2 * width, 4 * width)) * (2 * width) ** -0.5).astype("f")

        def loss(xs: nn.Variable, w: nn.Variable) -> nn.Variable:
            h = c = F.constant(0.0, (batch, width))
            for t in range(steps):
                i, f, g, o = F.split(F.reshape(F.concatenate(xs[t], h, axis=1) @ w, (batch, 4, width)), axis=1)
                c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
                h = F.sigmoid(o) * F.tanh(c)
            y = F.sum(h * h)
            return y + F.sum(nn.grad(y, xs)[0] ** 2) if penalty else y

        return graph_of([xs, w], loss)

    return build


def waves(smoke: bool) -> Graph:
    """A network of sines, with its second derivative along one axis in the loss."""
    rng = np.random.default_rng(0)
    width, points = (4, 16) if smoke else (64, 2048)
    sizes = [2, width, width, width, 1]
    ws = [(rng.standard_normal((m, n)) * m**-0.5).astype("f") for m, n in itertools.pairwise(sizes)]
    xs = [rng.uniform(-1, 1, (points, 1)).astype("f") for _ in range(2)]

    def loss(x: nn.Variable, t: nn.Variable, *ws: nn.Variable) -> nn.Variable:
        h = F.concatenate(x, t, axis=1)
        for w in ws[:-1]:
            h = F.sin(h @ w)
        u = h @ ws[-1]
        u_x, u_t = nn.grad(u, [x, t])
        return F.mean((u_t + u * u_x - nn.grad(u_x, x)[0]) ** 2)

    return graph_of([*xs, *ws], loss)


def pendulums(smoke: bool) -> Graph:
    """Elements of the Jacobian of a collocation."""
    case = collocation(5 if smoke else 2000)
    x = nn.Variable.from_numpy_array(case.x.astype("f"), need_grad=True)
    return [nn.sparse_jacobian(case.function(F, x), x).values], [x], [x.d]


CASES = (
    Case("channels_last", "convolutional network", convolutional),
    Case("substitute", "maxima over windows that overlap, penalty", pooled),
    Case("substitute", "vectors of places", embedded),
    Case("substitute", "modulated convolution of 8 samples", grouped(1, 128, 8)),
    Case("substitute", "depthwise convolution", grouped(8, 32, 32)),
    Case("substitute", "32 layers in checkpoints", checkpointed, saves_memory=True),
    Case("roll", "LSTM of 60 steps", recurrent(60)),
    Case("sine_once", "network of sines, second derivatives", waves),
    Case("sine_once", "Jacobian of a collocation", pendulums),
    Case("sum_once", "highway network of 30 layers", highway),
    Case("sum_once", "LSTM of 7 steps, penalty", recurrent(7, True)),
    Case("sum_once", "LSTM of 60 steps, not rolled", recurrent(60), ("roll",)),
)


def run(smoke: bool, torch: bool) -> list[Row]:
    """The rows of all passes for the platform that this runs on."""
    platform = jax.default_backend()
    missing = {each.name for each in all_passes() if each.platform == "cpu"}.difference([case.name for case in CASES])
    if missing:
        raise ValueError(f"no case shows what is gained by {', '.join(sorted(missing))}")
    F.sum(nn.Variable((2,))).forward()  # so that JAX has started
    rows = []
    for name in [each.name for each in all_passes() if each.platform == platform]:
        of_this = [line for case in CASES if case.name == name for line in compared(case, smoke)]
        most = min(of_this, key=lambda line: line.ratio)
        rows += [*of_this, most._replace(what=f"{name}: what it saves at most", goal=WORTH_IT)]
    return rows


def compared(case: Case, smoke: bool) -> list[Row]:
    """How long the first result takes, and later ones, with a pass and without it; or how much memory they need."""
    first: dict[str, float] = {}
    nbytes: dict[str, int] = {}
    later: dict[str, Contender] = {}
    for side, without in (("with it", case.left_out), ("without it", (*case.left_out, case.name))):
        forget()
        with nn.passes(without=without):
            results, leaves, arrays = case.build(smoke)
            best = nn.compile(results, leaves)
            start = time.perf_counter()
            jax.block_until_ready(best(*arrays))
            first[side] = time.perf_counter() - start
            if case.saves_memory:
                compiled = jax.jit(nn.to_jax(results, leaves)).lower(*arrays).compile()
                nbytes[side] = compiled.memory_analysis().temp_size_in_bytes
        later[side] = lambda best=best, arrays=arrays: best(*arrays)
    sides, what = ("with it", "without it"), f"{case.name}: {case.what}"
    if case.saves_memory:
        shown = [f"{side}: {nbytes[side] / 1e6:.1f} MB" for side in sides]
        return [Row(f"{what}: temporaries", *shown, nbytes[sides[0]] / nbytes[sides[1]], None)]
    times = medians(later, *((1, 1) if smoke else (15, 4)))
    return [row(f"{what}: first result", first, *sides), row(f"{what}: later ones", times, *sides)]
