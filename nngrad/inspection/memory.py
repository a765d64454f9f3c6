"""`memory_report`: the memory of a graph, predicted and measured, and which values are kept or rematerialised."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..extend import Function, Spec, Variable, device_of, executables, functions_of, linearize, variables
from ..memory import Timeline, timeline
from .recomputation import kept_for_gradients
from .shown import as_html, shown_bytes

_BARS = " ▁▂▃▄▅▆▇█"
_READ = "read by a gradient"
_BASE = "others are recomputed from it"


class Held(NamedTuple):
    """Values of one op, shape, dtype and reason."""

    op: str
    """The name of the op."""
    spec: Spec
    number: int
    nbytes: int
    """The total bytes of these values."""
    why: str


class MemoryReport(NamedTuple):
    """The result of `memory_report`; print it for a readable report."""

    peak: int
    """The peak bytes of temporaries (not leaves and results), estimated from the structure of the graph."""
    compiled: int | None
    """The bytes of temporaries that the compiler reports; None if it was not asked, or reports nothing."""
    leaves: int
    """Bytes of the leaves."""
    results: int
    """Bytes of the outputs."""
    kept: tuple[Held, ...]
    """Values that are kept until a gradient reads them, the largest first."""
    recomputed: tuple[Held, ...]
    """Values that are rematerialised for a gradient rather than kept, the largest first."""
    timeline: Timeline
    """The live bytes at each step of the predicted schedule."""

    def __str__(self) -> str:
        compiled = "" if self.compiled is None else f", as compiled {shown_bytes(self.compiled)}"
        lines = [
            f"temporaries: predicted peak {shown_bytes(self.peak)}{compiled}",
            f"leaves {shown_bytes(self.leaves)}, results {shown_bytes(self.results)}",
        ]
        for title, rows in (("kept", self.kept), ("computed again", self.recomputed)):
            total = sum([row.nbytes for row in rows])
            lines.append(f"{title}: {shown_bytes(total)}" if rows else f"{title}: nothing")
            for r in rows[:_MOST_ROWS]:
                lines.append(f"  {shown_bytes(r.nbytes):>9}  {r.number} x {r.op} {r.spec!r}: {r.why}")
            if len(rows) > _MOST_ROWS:
                lines.append(f"  and {len(rows) - _MOST_ROWS} more")
        return "\n".join([*lines, f"live bytes over the schedule: |{self._bars()}|"])

    def _repr_html_(self) -> str:
        return as_html(str(self))

    def _bars(self) -> str:
        live = self.timeline.live
        n = len(live)
        width = min(64, n)
        tops = [max(live[i * n // width : (i + 1) * n // width]) for i in range(width)]
        return "".join([_BARS[math.ceil(8 * top / self.peak)] if self.peak else " " for top in tops])


_MOST_ROWS = 8


def memory_report(outputs: Variable | Iterable[Variable], compile: bool = True) -> MemoryReport:
    """Report the memory that the graph of `outputs` takes: pass a loss together with its gradients.

    The prediction is an estimate from the structure of the graph, the one that recomputation uses to rank graphs; the
    compiler reports the actual number. See docs/memory.md.

    Args:
        outputs: A Variable or Variables.
        compile: Whether to compile the graph, which takes time, and ask the compiler. Nothing is run.

    Raises:
        TypeError: Something is not a Variable.
    """
    listed = variables(outputs, "outputs")
    linear = linearize(listed, device=device_of(listed))
    line = timeline(linear.program)
    compiled = executables.temporary_bytes(linear.program) if compile else None
    held, again = _held(functions_of(listed))
    results = sum([y.spec.nbytes for y in listed])
    leaves = sum([spec.nbytes for spec in linear.program.block.inputs])
    return MemoryReport(line.peak, compiled, leaves, results, held, again, line)


def _held(functions: list[Function]) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    """The values of lower orders that gradients read, and the values that are rematerialised instead."""
    retained, again = kept_for_gradients(functions)
    whys = {original: _reason(value.parent) for value, original in again}
    return _rows({x: _READ if is_read else _BASE for x, is_read in retained.items()}), _rows(whys)


def _reason(f: Function | None) -> str:
    policy = None if f is None else f.mark
    return "built within nn.recompute()" if policy is None else f"chosen by {policy!r}"


def _rows(reasons: dict[Variable, str]) -> tuple[Held, ...]:
    groups: dict[tuple[str, Spec, str], int] = {}
    for x, why in reasons.items():
        key = ("leaf" if x.parent is None else x.parent.name, x.spec, why)
        groups[key] = groups.get(key, 0) + 1
    rows = [Held(op, spec, n, n * spec.nbytes, why) for (op, spec, why), n in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.op, row.why)))
