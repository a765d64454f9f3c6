"""Debug mode: every function remembers where it was called, and what is not a number is found out and traced back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..execution.stepwise import MarkedArray, Trail, written_at
from ..graph import Function, Variable, switched
from ..graph.options import Switched, start_with


class Debug:
    """What debug mode looks for.

    Args:
        inf: Whether infinity is looked for, besides NaN.
    """

    def __init__(self, inf: bool = True) -> None:
        self.inf = inf

    def checker(self) -> Checker:
        """Returns what looks at the functions of one run."""
        return Checker(self.inf)


class Finding(NamedTuple):
    """A function with results that are not finite."""

    outputs: dict[int, str]
    """What is wrong with which outputs."""
    inputs: list[int]
    """Which of its inputs are not finite either."""
    described: list[str]
    """All of its inputs, for messages."""
    within: Sequence[Beginning | None]
    """For a function with bodies: where in them it began, for each output."""


class Beginning(NamedTuple):
    """A function in a body that has made something that is not finite, of what is."""

    function: Function
    output: int
    """Which of its outputs it is."""
    finding: Finding
    trail: Trail


class Checker:
    """Looks at the results of functions as they run, and says where what reaches the end began."""

    def __init__(self, inf: bool) -> None:
        self.inf = inf
        self.findings: dict[Function, Finding] = {}

    def ran(
        self, f: Function, inputs: Sequence[Any], results: Sequence[Any], within: Sequence[Beginning | None]
    ) -> None:
        """Look at one function; `within` is what `marks` said of the functions in its bodies."""
        finding = self.found(inputs, results, within)
        if finding is not None:
            self.findings[f] = finding

    def found(
        self, inputs: Sequence[Any], results: Sequence[Any], within: Sequence[Beginning | None] = ()
    ) -> Finding | None:
        """Returns what there is to say of the results of a function; None if all are finite."""
        wrong = {i: text for i, result in enumerate(results) for text in [self.wrong(result)] if text}
        if not wrong:
            return None
        bad = [i for i, array in enumerate(inputs) if self.wrong(array)]
        return Finding(wrong, bad, [self.described(array) for array in inputs], within)

    def marks(
        self, f: Function, inputs: Sequence[MarkedArray], results: Sequence[Any], trail: Trail
    ) -> list[Beginning | None]:
        """Where what is not finite in the results of a function of a body began: in what it was given, or here."""
        finding = self.found([x.array for x in inputs], results)
        if finding is None:
            return [None] * len(results)
        earlier = next((inputs[i].mark for i in finding.inputs if inputs[i].mark is not None), None)
        return [
            None if i not in finding.outputs else Beginning(f, i, finding, trail) if earlier is None else earlier
            for i in range(len(results))
        ]

    def of_part(self, mark: Beginning, array: Any) -> Beginning | None:
        """Where what is not finite in a part of an array began."""
        return mark if self.wrong(array) else None

    def finish(self, outputs: Sequence[Variable]) -> None:
        """Raise a FloatingPointError if something that is not finite has reached `outputs`."""
        for y in outputs:
            finding = None if y.parent is None else self.findings.get(y.parent)
            if y.parent is not None and finding is not None and y.index in finding.outputs:
                raise FloatingPointError(self.message(*self.source(y.parent, y.index)))

    def source(self, f: Function, index: int) -> tuple[Function, int]:
        """The function where it began, and which of its outputs it is."""
        while True:
            for i in self.findings[f].inputs:
                x = f.inputs[i]
                if x.parent is not None and x.index in self.findings.get(x.parent, _CLEAN).outputs:
                    f, index = x.parent, x.index
                    break
            else:
                return f, index

    def message(self, f: Function, index: int) -> str:
        """Returns what is wrong, with which function, and where that was called."""
        finding = self.findings[f]
        within = finding.within[index] if finding.within else None
        if within is not None and not finding.inputs:
            return self.message_within(within, f)
        return self.described_finding(f, index, finding) + "\n" + self.located(f)

    def message_within(self, beginning: Beginning, f: Function) -> str:
        """Returns the same of a function in a body of `f`."""
        lines = [self.described_finding(*beginning[:3], "the body's")]
        part = f"part of a derivative of order {beginning.function.order} of what was " * (beginning.function.order > 0)
        lines += [f"  {beginning.function.op.name} is {part}{written_at(beginning.function)}"]
        lines += [f"  {step}" for step in reversed(beginning.trail)]
        return "\n".join([*lines, self.located(f)])

    def described_finding(self, f: Function, index: int, finding: Finding, leaf: str = "the leaf") -> str:
        """Returns what is wrong with which function, and what that was given."""
        which = f"output {index}" if len(f.specs) > 1 else "the result"
        lines = [f"{finding.outputs[index]} in {which} of {f.op.name} (order {f.order}), {f!r}"]
        for name, x, text in zip(f.op.names_of(len(f.inputs)), f.inputs, finding.described, strict=True):
            lines.append(f"  its input {name}, {_named(x, leaf)}, is {text}")
        return "\n".join(lines)

    def located(self, f: Function) -> str:
        """Returns where a function was called."""
        origin = f.origin
        if origin is None:
            return f"  {f.op.name} was called at {_place(f)}"
        gradient = f"  it is part of the gradient of {origin.op.name} (order {origin.order})" + _called(origin)
        return f"{gradient}\n  which was asked for at {_place(f)}"

    def wrong(self, array: Any) -> str:
        """Returns what is not finite in an array; nothing where all is well."""
        values = np.asarray(array)
        if values.dtype.kind in "biu":
            return ""
        bad = ~np.isfinite(values) if self.inf else np.isnan(values)
        if not bad.any():
            return ""
        what = "NaN" if np.isnan(values).any() else "infinity"
        if not values.shape:
            return what
        first = [int(i) for i in np.argwhere(bad)[0]]
        return f"{what} ({bad.sum()} of {values.size} elements, the first at {first})"

    def described(self, array: Any) -> str:
        """Returns what a function was given."""
        values, wrong = np.asarray(array), self.wrong(array)
        if wrong:
            return f"not finite itself: {wrong}"
        if not values.size:
            return "empty"
        if values.size == 1:
            return f"{values.reshape(())[()]:.6g}"
        return f"finite, between {values.min():.6g} and {values.max():.6g}"


_CLEAN = Finding({}, [], [], ())


def _named(x: Variable, leaf: str) -> str:
    name = f" {x.name!r}" if x.name else ""
    return f"{leaf}{name} {x.spec}" if x.parent is None else f"{x.spec} from {x.parent.op.name}"


def _place(f: Function) -> str:
    return str(getattr(f, "place", None) or "a place that is not known: it was built outside of debug mode")


def _called(f: Function) -> str:
    return f", which was called at {f.place}" if getattr(f, "place", None) else ""


def debug(on: bool = True, *, inf: bool = True) -> Switched:
    """Debug mode, in this thread or asyncio task. The environment variable NNGRAD_DEBUG=1 switches it on from the
    start, in all.

    Functions that are applied within remember where in the user's program that was. Graphs that run within run
    function by function; where a NaN or an infinity reaches a result, a FloatingPointError says in which
    function it began, of which order of differentiation that is, what it was given, and where it was called. What is
    not finite but does not reach a result, as in the branch of a `where` that is not taken, is no error.

    Training steps, `nn.compile` and `nn.to_jax` are compiled as a whole, and not looked into.

    Args:
        on: False switches debug mode off within.
        inf: Whether infinity is an error, besides NaN.

    Raises:
        TypeError: `on` or `inf` is no bool.
        FloatingPointError: Within, by whatever runs a graph.
    """
    for value, name in ((on, "on"), (inf, "inf")):
        if not isinstance(value, bool):
            raise TypeError(f"{name}: expected True or False, got {value!r}")
    return switched(debug=Debug(inf) if on else None)


if os.environ.get("NNGRAD_DEBUG", "").lower() not in ("", "0", "false", "no", "off"):
    start_with(debug=Debug())
