"""show_passes: what becomes of a graph on its way to the compiler, pass by pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..autodiff.request import variables
from ..execution.lower import linearize
from ..execution.passes import PASSES, PLATFORMS, Pass, platform_of, shortened
from ..execution.pieces import cut, is_long
from ..execution.plans import device_of
from ..graph import Variable
from ..graph.block import Block

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
    rows = [("pass", "before", "after", "")]
    is_cut = False
    if is_long(program.block):  # then it is made shorter first, and cut if that is not enough
        shorter = shortened(program, place)
        is_cut = is_long(shorter.block)
        rows.append(_row(next(each for each in PASSES if each.name == "roll"), program.block, shorter.block))
        program = shorter
    if is_cut:
        pieces = cut(program.block)
        count, kinds = str(len(program.block.steps)), len({piece.block for piece in pieces})
        rows.append(("cut", count, count, f"{len(pieces)} pieces, of which {kinds} are compiled; no other pass"))
    for each in PASSES if not is_cut else ():
        if each.platform in (None, place):
            after = program if each.name in program.without else program._replace(block=each.run(program.block))
            rows.append(_row(each, program.block, after.block, each.name in program.without))
            program = after
    widths = [max([len(row[i]) for row in rows]) for i in range(3)]
    for name, before, after_, what in rows:
        print(f"{name:<{widths[0]}}  {before:>{widths[1]}}  {after_:>{widths[2]}}  {what}".rstrip())


def _row(each: Pass, before: Block, after: Block, is_left_out: bool = False) -> tuple[str, str, str, str]:
    what = "left out" if is_left_out else f"no {each.what}" if after is before else _changes(before, after)
    return each.name, str(len(before.steps)), str(len(after.steps)), what


def _changes(before: Block, after: Block) -> str:
    """Which ops there are fewer of, and which more."""
    counts = [Counter([op.name for op, _, _ in block.steps]) for block in (before, after)]
    told = []
    for sign, difference in (("-", counts[0] - counts[1]), ("+", counts[1] - counts[0])):
        named = [f"{sign}{n} {name}" for name, n in difference.most_common(_MOST_NAMED)]
        if rest := sum(difference.values()) - sum([n for _, n in difference.most_common(_MOST_NAMED)]):
            named.append(f"{sign}{rest} others")
        told += named
    return ", ".join(told) or "in another order"
