"""What is different in two graphs, as text."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .cost import applications_in
from .count import Tally, short_number, tally_of
from .description import Description
from .lines import Line, Part, Writer
from .matching import matching
from .naming import Names
from .printed import Printed

if TYPE_CHECKING:
    from .listing import Listing


class Difference(Printed):
    """What is different in two graphs; `str()` of it is a text, in which lines of functions that only the first one has
    begin with '-', and those that only the second one has with '+'. What both have is called as in the first one.
    """

    def __init__(
        self, before: Listing, after: Listing, marked: Sequence[tuple[str, Line]], context: int | None
    ) -> None:
        self.lines = tuple([line for _, line in marked])
        """All lines of both."""
        self.marks = tuple([mark for mark, _ in marked])
        """'-', '+' or ' ' for each of them."""
        self._described = before.described, after.described
        self._context = context

    def __bool__(self) -> bool:
        """Whether anything is different."""
        return any([mark != " " for mark in self.marks])

    @cached_property
    def before(self) -> Tally:
        """What the first graph costs, as `nn.count` counts it."""
        return tally_of(applications_in(self._described[0].block))

    @cached_property
    def after(self) -> Tally:
        """What the second graph costs."""
        return tally_of(applications_in(self._described[1].block))

    @property
    def summary(self) -> str:
        """What the two cost, in a line."""
        said = [("functions", "functions"), ("products", "matrix_products"), ("convolutions", "convolutions"),
                ("FLOPs", "flops"), ("bytes", "bytes")]  # fmt: skip
        pairs = [(title, getattr(self.before, name), getattr(self.after, name)) for title, name in said]
        return ", ".join([f"{title} {_changed(x, y)}" for title, x, y in pairs if x or y])

    def __repr__(self) -> str:
        return f"<difference of two graphs: {self.summary or 'no functions'}>"

    def _shown(self) -> tuple[list[Line], list[str]]:
        """The lines with what is different, and some around them."""
        if self._context is None:
            return list(self.lines), list(self.marks)
        near = bytearray(len(self.marks))
        for i, mark in enumerate(self.marks):
            if mark != " ":
                first, last = max(0, i - self._context), min(len(near), i + self._context + 1)
                near[first:last] = b"\1" * (last - first)
        lines: list[Line] = []
        marks: list[str] = []
        left_out = 0
        for is_near, mark, line in zip([*near, 1], [*self.marks, ""], [*self.lines, None], strict=True):
            if not is_near:
                left_out += 1
                continue
            if left_out:
                lines.append(Line(0, (Part(f"… {left_out} line{'s' * (left_out > 1)} the same"),)))
                marks.append(" ")
                left_out = 0
            if line is not None:
                lines.append(line)
                marks.append(mark)
        return lines, marks


def _changed(before: int, after: int) -> str:
    if before == after:
        return f"{short_number(before)} as before"
    share = f" ({(after - before) / before:+.0%})" if before else ""
    return f"{short_number(before)} → {short_number(after)}{share}"


def listing_difference(before: Listing, after: Listing, context: int | None = 2) -> Difference:
    """The difference of two graphs; see `Listing.diff`."""
    if context is not None and (isinstance(context, bool) or not isinstance(context, int)):
        raise TypeError(f"context: expected a number of lines or None, got {context!r}")
    if context is not None and context < 0:
        raise ValueError(f"context: expected a number of lines that is not negative, got {context}")
    a, b = before.described, after.described
    found = matching(a, b)
    here = {j: i for i, j in found.there.items()}
    columns = [name for name in before.columns if name in after.columns and name != "location"]
    old, new = Writer(a, columns), Writer(_renamed(a, b, here), columns)
    return Difference(before, after, list(_merged(old, new, found.there, here)), context)


def _renamed(a: Description, b: Description, here: dict[int, int]) -> Description:
    """The second graph, with what is in the first one called as it is there, and other names for all else."""
    names = Names()
    for name in (*a.names, *[name for results in a.results for name in results[1:] if name]):
        names.given(name)
    renamed = copy.copy(b)
    renamed.results, renamed.names = [], []
    for j, own in enumerate(b.results):
        i = here.get(j)
        theirs = ("",) * len(own) if i is None else a.results[i]
        results = tuple([
            "" if not name else there or names.like(name) for name, there in zip(own, theirs, strict=True)
        ])  # fmt: skip
        renamed.results.append(results)
        renamed.names.append(next(filter(None, results), b.names[j]))
    return renamed


def _merged(old: Writer, new: Writer, there: dict[int, int], here: dict[int, int]) -> Iterator[tuple[str, Line]]:
    """The lines of both, in the order of the second; what it lacks comes after what it follows in the first."""
    gone: dict[int, list[int]] = {-1: []}
    before = -1
    for i in old.nodes:
        if i in there:
            before = there[i]
            gone[before] = []
        else:
            gone[before].append(i)
    yield from [("-", line) for i in gone[-1] for line in old.node_lines(i)]
    for j in new.nodes:
        theirs = [line for i in (here.get(j),) if i is not None for line in old.node_lines(i)]
        yield from _either(theirs, list(new.node_lines(j)))
        yield from [("-", line) for i in gone.get(j, ()) for line in old.node_lines(i)]
    yield from _either([old.results()], [new.results()])


def _either(before: list[Line], after: list[Line]) -> list[tuple[str, Line]]:
    """The lines of one node in both graphs: once where they say the same."""
    if _said(before) == _said(after):
        return [(" ", line) for line in after]
    return [*[("-", line) for line in before], *[("+", line) for line in after]]


def _said(lines: list[Line]) -> Any:
    return [(line.depth, line.parts, line.shapes) for line in lines]
