"""Graphs to look at: what it takes to lay out and write the page of a residual network's second order, unrolled.

There is no peer: layered layouts of graphs of a thousand functions take others tens of seconds. So the figures stand
beside what it takes to build the graph: seconds of the processor, the shortest of several.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.inspection import describe
from nngrad.inspection.viewing.document import document
from nngrad.inspection.viewing.lifetimes import lifetimes_of
from nngrad.inspection.viewing.page_layout import page_layout
from nngrad.inspection.viewing.view import embedded

from .harness import Row

T = TypeVar("T")
STAGES = 4
MICROSECONDS_A_NODE, MEGABYTES = 10.0, 5.0
"""What is wanted of the layout, and of the page."""


def residual_network(blocks: int, maps: int = 4) -> list[nn.Variable]:
    """The loss of a residual network with the squared gradient of its images, and the gradients of that.

    Args:
        blocks: How many blocks it has, a multiple of the number of stages.
        maps: Feature maps of each convolution.
    """
    nn.clear_parameters()
    images, labels = nn.Variable((4, 3, 8, 8), need_grad=True, name="images"), nn.Variable((4, 1), dtype="int32")
    labels.name = "labels"

    def normalised(h: nn.Variable, number: int) -> nn.Variable:
        h = PF.convolution(h, maps, (3, 3), (1, 1), with_bias=False, name=f"conv{number}")
        return PF.batch_normalization(h, name=f"bn{number}")

    x = F.relu(PF.convolution(images, maps, (3, 3), (1, 1), name="stem"))
    for i in range(blocks):
        with nn.parameter_scope(f"stage{i * STAGES // blocks + 1}/block{i % (blocks // STAGES) + 1}"):
            x = F.relu(x + normalised(F.relu(normalised(x, 1)), 2))
    loss = F.mean(F.softmax_cross_entropy(PF.affine(F.mean(x, axis=(2, 3)), 10, name="output"), labels))
    (slope,) = nn.grad([loss], [images])
    total = loss + F.sum(slope**2)
    return [total, *nn.grad([total], list(nn.get_parameters().values()))]


def shortest(function: Callable[[], T], rounds: int) -> tuple[float, T]:
    """Seconds of the processor that a call takes, the shortest of several, and its result."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return min(times), result


def of_size(blocks: int, rounds: int) -> list[Row]:
    """The lines of one network."""
    building, outputs = shortest(lambda: residual_network(blocks), 1)
    found = {}
    found["description"], described = shortest(lambda: describe(outputs), rounds)

    def costs() -> Any:
        vars(described).pop("costs", None)  # which is worked out once
        return described.costs

    def written() -> str:
        return embedded(document(described, "residual network", memory))

    found["costs"], _ = shortest(costs, rounds)
    laid_out, _ = shortest(lambda: page_layout(described), rounds)
    found["memory"], memory = shortest(lambda: lifetimes_of(described), rounds)
    found["document, with the layout"], text = shortest(written, rounds)
    nn.clear_parameters()
    what = f"second order of {blocks} residual blocks, {len(described):,} nodes"
    each, total, size = laid_out / len(described) * 1e6, sum(found.values()), len(text.encode()) / 1e6
    parts = ", ".join([f"{name} {value:.2f}" for name, value in found.items()])
    return [
        Row(f"layout, {what}", f"{each:.2f} µs a node", f"{MICROSECONDS_A_NODE:g} µs", each / MICROSECONDS_A_NODE),
        Row(f"all but the file, {what}", f"{total:.2f} s ({parts})", f"building the graph: {building:.2f} s",
            total / building),
        Row(f"the page's document, {what}", f"{size:.2f} MB", f"{MEGABYTES:g} MB", size / MEGABYTES),
    ]  # fmt: skip


def rows(smoke: bool) -> list[Row]:
    """Two sizes; the second is of more than 100,000 nodes."""
    return [line for blocks in ((STAGES,) if smoke else (104, 516)) for line in of_size(blocks, 1 if smoke else 3)]
