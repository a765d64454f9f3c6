"""A closed graph, and where it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from ..graph.block import Block, run_steps
from ..graph.exchange import Processes, group_of, several_processes
from ..graph.html import html_table, titled
from ..graph.mesh import Axes, Mesh, running_on


class Program(NamedTuple):
    """A closed graph, where it runs, and what is done to it before: equal structures at one place are equal programs.
    """

    block: Block
    """What it computes. Its inputs are the leaves of the graph."""
    device: jax.Device | None = None
    """Where it runs; None leaves it to JAX."""
    without: frozenset[str] = frozenset()
    """The passes that are left out when it is lowered (`nn.passes`)."""
    mesh: Mesh | None = None
    """The devices that it runs on; None for one."""
    places: tuple[Axes, ...] = ()
    """The axes of the mesh that each leaf is divided over."""
    uneven: tuple[int, ...] = ()
    """Numbers of the leaves that are batches which the mesh cannot divide evenly."""

    def __repr__(self) -> str:
        block = self.block
        return f"<program: {len(block.inputs)} leaves, {len(block.steps)} functions, {len(block.outputs)} results>"

    def _repr_html_(self) -> str:
        counts = Counter([op.name for op, _, _ in self.block.steps])
        return titled(repr(self)[1:-1], html_table([(name, str(n)) for name, n in counts.most_common()],
                                              ("function", "times"), numbers=True))  # fmt: skip

    def unread(self, leaves: Sequence[int]) -> list[int]:
        """Those of the leaves of these numbers on which no result depends."""
        read = {i for _, _, ins in self.block.steps for i in ins}.union(self.block.outputs)
        return [i for i in leaves if i not in read]

    @property
    def group(self) -> Processes | None:
        """The processes that functions in it exchange among; None where they exchange nothing, or there is but one.

        Raises:
            ValueError: There are several groups of them, or there is a mesh besides.
        """
        if not several_processes():
            return None
        group = group_of(self.block.groups)
        if group is not None and self.mesh is not None:
            raise ValueError(
                f"the graph exchanges arrays among the processes {list(group)}, each of which has a graph of its own; "
                f"under {self.mesh!r} all have one graph: leave the exchange out, or run it outside of the mesh"
            )
        return group


def in_one(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The program as one function, just as it is."""
    steps, outputs = program.block.steps, program.block.outputs

    def run(*arrays: Any) -> tuple[Any, ...]:
        if program.mesh is None:
            values = run_steps(steps, arrays)
        else:
            arrays = tuple(program.mesh.divided(arrays, program.uneven))
            with running_on(program.mesh):
                values = run_steps(steps, arrays)
        return tuple([arrays[i] if i >= 0 else values[~i] for i in outputs])

    return run
