"""What each pass that prepares graphs for one platform's compiler is worth: with it, and without it.

A pass stays only while a row of it says that it saves 5% of something. Where XLA has learnt to do without one, no row
of it is below 0.95 any more, and it can go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.passes import PASSES

from .conv_nets import classifier_parameters, nngrad_classifier
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


def recurrent(steps: int) -> Callable[[bool], Graph]:
    """An LSTM that is written out."""

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
            return F.sum(h * h)

        return graph_of([xs, w], loss)

    return build


CASES = (
    Case("channels_last", "convolutional network", convolutional),
    Case("roll", "LSTM of 60 steps", recurrent(60)),
    Case("sum_once", "LSTM of 7 steps", recurrent(7)),
    Case("sum_once", "LSTM of 60 steps, not rolled", recurrent(60), ("roll",)),
)


def run(smoke: bool, torch: bool) -> list[Row]:
    """The rows of all passes for the platform that this runs on."""
    platform = jax.default_backend()
    missing = {each.name for each in PASSES if each.platform == "cpu"}.difference([case.name for case in CASES])
    if missing:
        raise ValueError(f"no case shows what is gained by {', '.join(sorted(missing))}")
    names = [each.name for each in PASSES if each.platform == platform]
    F.sum(nn.Variable((2,))).forward()  # so that JAX has started
    return [line for case in CASES if case.name in names for line in compared(case, smoke)]


def compared(case: Case, smoke: bool) -> list[Row]:
    """How long the first result takes, and later ones, with a pass and without it."""
    first: dict[str, float] = {}
    later: dict[str, Contender] = {}
    for side, without in (("with it", case.left_out), ("without it", (*case.left_out, case.name))):
        forget()
        with nn.passes(without=without):
            results, leaves, arrays = case.build(smoke)
            compiled = nn.compile(results, leaves)
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arrays))
        first[side] = time.perf_counter() - start
        later[side] = lambda compiled=compiled, arrays=arrays: compiled(*arrays)
    times = medians(later, *((1, 1) if smoke else (15, 4)))
    sides, what = ("with it", "without it"), f"{case.name}: {case.what}"
    return [row(f"{what}: first result", first, *sides), row(f"{what}: later ones", times, *sides, WORTH_IT)]
