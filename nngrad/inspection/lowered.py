"""show_passes: what becomes of a graph on its way to the compiler, pass by pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..autodiff.request import variables
from ..execution.cpu.rolling import loops_in
from ..execution.hoisting import hoisted_in
from ..execution.lower import linearize
from ..execution.partitions import Partition
from ..execution.passes import HOIST, PLATFORMS, Pass, is_too_long, lowered, platform_of, steps_of_lowering
from ..execution.plans import device_of
from ..graph import Variable
from ..graph.block import Block
from ..graph.tables import aligned

_MOST_NAMED = 4
"""How many ops are named of those that a pass takes away or adds."""


def show_passes(outputs: Variable | Iterable[Variable], platform: str | None = None) -> None:
    """Print each pass that prepares a graph for the compiler: how many functions there are before it and after, and
    which it has taken away and added.

    Nothing is compiled or run. `nn.passes(without=[...])` leaves passes out, here and where programs are compiled.

    Args:
        outputs: A Variable or Variables; give it a loss together with its gradients.
        platform: That of the compiler, by the name that JAX has for it; where the graph would run by default.

    Raises:
        TypeError: Something is not a Variable.
        ValueError: nngrad has no passes for the platform, and JAX does not know it.
    """
    listed = variables(outputs, "outputs")
    program = linearize(listed, device=device_of(listed)).program
    place = platform_of(program) if platform is None else platform
    if platform is not None and platform not in (*PLATFORMS, "gpu", "cuda", "rocm", "tpu"):
        raise ValueError(f"platform: there is none called {platform!r}; expected 'cpu', 'gpu' or 'tpu'")
    is_cut = is_too_long(program) and lowered(program, place).partitions is not None
    hoisted = program.block if is_cut or "hoist" in program.without else HOIST.run(program.block)
    stages = [(HOIST, program.block, hoisted), *steps_of_lowering(program, place)]
    rows = [("pass", "before", "after", "")]
    rows += [_row(each, before, after, each.name in program.without) for each, before, after in stages]
    print("\n".join(aligned(rows, numbers=(1, 2))))


def _row(each: Pass, before: Block, after: Block | list[Partition], is_left_out: bool) -> tuple[str, str, str, str]:
    count = str(len(before.steps))
    if isinstance(after, list):
        kinds = len({partition.block for partition in after})
        what = f"{len(after)} partitions, of which {kinds} are compiled; their numbers are inputs, and no pass follows"
        return each.name, count, count, what
    what = "left out" if is_left_out else f"no {each.what}" if after is before else _changes(before, after)
    return each.name, count, str(len(after.steps)), what


def _changes(before: Block, after: Block) -> str:
    """Which ops there are fewer of, and which more; what the new loops are; and which numbers are inputs."""
    counts = [Counter([op.name for op, _, _ in block.steps]) for block in (before, after)]
    told = []
    for sign, difference in (("-", counts[0] - counts[1]), ("+", counts[1] - counts[0])):
        named = [f"{sign}{n} {name}" for name, n in difference.most_common(_MOST_NAMED)]
        if rest := sum(difference.values()) - sum([n for _, n in difference.most_common(_MOST_NAMED)]):
            named.append(f"{sign}{rest} others")
        told += named
    loops = loops_in(after)[len(loops_in(before)) :]
    told += [f"a loop: {loop.steps} steps of {loop.functions} functions" for loop in loops]
    if numbers := hoisted_in(after) - hoisted_in(before):
        told.append(f"numbers that are inputs: {numbers}")
    return ", ".join(told) or "in another order, or in bodies"
