"""Graphs to look at: what it takes to lay out and write the page of a residual network's second order, unrolled.

There is no peer: layered layouts of graphs of a thousand functions take others tens of seconds. So the figures stand
beside what is wanted: seconds of the processor, and bytes of the page.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.inspection import Description, describe
from nngrad.inspection.viewing.document import Measured, document, labels_of, structure_of_layout
from nngrad.inspection.viewing.layout import layout
from nngrad.inspection.viewing.runs import lifetimes_of
from nngrad.inspection.viewing.view import embedded

from .timing import Row

T = TypeVar("T")
STAGES = 4
MICROSECONDS_A_NODE = 10.0
MEGABYTES = 5.0
ROUNDS = 3


def block(x: nn.Variable, maps: int, name: str) -> nn.Variable:
    """Two convolutions with batch normalisation, beside which the input goes on."""

    def normalised(h: nn.Variable, number: int) -> nn.Variable:
        h = PF.convolution(h, maps, (3, 3), (1, 1), with_bias=False, name=f"conv{number}")
        return PF.batch_normalization(h, name=f"bn{number}")

    with nn.parameter_scope(name):
        return F.relu(x + normalised(F.relu(normalised(x, 1)), 2))


def residual_network(blocks: int, maps: int = 4) -> list[nn.Variable]:
    """The loss of a residual network with the squared gradient of its images, and the gradients of that.

    Args:
        blocks: How many blocks it has, a multiple of the number of stages.
        maps: Feature maps of each convolution.
    """
    nn.clear_parameters()
    images, labels = nn.Variable((4, 3, 8, 8), need_grad=True, name="images"), nn.Variable((4, 1), dtype="int32")
    labels.name = "labels"
    x = F.relu(PF.convolution(images, maps, (3, 3), (1, 1), name="stem"))
    for stage in range(STAGES):
        with nn.parameter_scope(f"stage{stage + 1}"):
            for k in range(blocks // STAGES):
                x = block(x, maps, f"block{k + 1}")
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


def figures(blocks: int, rounds: int) -> tuple[int, dict[str, float], int]:
    """How many nodes there are, the seconds that each part takes, and the bytes of the page's document."""
    building, outputs = shortest(lambda: residual_network(blocks), 1)
    found = {"building": building}
    found["description"], described = shortest(lambda: describe(outputs), rounds)

    def costs() -> Any:
        vars(described).pop("costs", None)  # which is worked out once
        return described.costs

    found["costs"], _ = shortest(costs, rounds)
    found["layout"], _ = shortest(lambda: layout(structure_of_layout(described), labels_of(described)), rounds)
    found["memory"], memory = shortest(lambda: lifetimes_of(described, outputs), rounds)
    found["document"], text = shortest(lambda: written(described, measured=Measured(memory)), rounds)
    nn.clear_parameters()
    return len(described), found, len(text.encode())


def written(described: Description, measured: Measured) -> str:
    """The document of a graph, as it stands in the page; with the layout."""
    return embedded(document(described, "residual network", measured))


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rows = []
    # The last one is of more than 100,000 nodes.
    for blocks, rounds in [(STAGES, 1)] if smoke else [(104, ROUNDS), (516, ROUNDS)]:
        count, seconds, size = figures(blocks, rounds)
        what = f"second order of {blocks} residual blocks, {count:,} nodes"
        building = seconds.pop("building")
        each = seconds["layout"] / count * 1e6
        rows.append(Row(f"layout, {what}", f"{each:.2f} µs a node", f"{MICROSECONDS_A_NODE:g} µs",
                        each / MICROSECONDS_A_NODE, 1.0))  # fmt: skip
        parts = ", ".join([f"{name} {value:.2f}" for name, value in seconds.items()])
        total = sum(seconds.values()) - seconds["layout"]  # which is in the document's
        built = f"building the graph: {building:.2f} s"
        rows.append(Row(f"all but the file, {what}", f"{total:.2f} s ({parts})", built, total / building, None))
        ratio, goal = size / 1e6 / MEGABYTES, 1.0 if count < 50_000 else None
        rows.append(Row(f"the page's document, {what}", f"{size / 1e6:.2f} MB", f"{MEGABYTES:g} MB", ratio, goal))
    return rows
