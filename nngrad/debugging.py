"""Debug mode: every function remembers where it was called, and what is not a number is found out and traced back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .graph import Function, Variable, switched
from .graph.options import Switched, start_with
from .graph.place import Place, users_place


class Debug:
    """What debug mode looks for.

    Args:
        inf: Whether infinity is looked for, besides NaN.
    """

    def __init__(self, inf: bool = True) -> None:
        self.inf = inf

    def place(self) -> Place | None:
        """Where the user's program is: the innermost line that is not nngrad's."""
        return users_place()

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


class Checker:
    """Looks at the results of functions as they run, and says where what reaches the end began."""

    def __init__(self, inf: bool) -> None:
        self.inf = inf
        self.findings: dict[Function, Finding] = {}

    def ran(self, f: Function, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Look at one function."""
        wrong = {i: text for i, result in enumerate(results) for text in [self.wrong(result)] if text}
        if wrong:
            bad = [i for i, array in enumerate(inputs) if self.wrong(array)]
            self.findings[f] = Finding(wrong, bad, [self.described(array) for array in inputs])

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
        which = f"output {index}" if len(f.specs) > 1 else "the result"
        lines = [f"{finding.outputs[index]} in {which} of {f.op.name} (order {f.order}), {f!r}"]
        for name, x, text in zip(f.op.names_of(len(f.inputs)), f.inputs, finding.described, strict=True):
            lines.append(f"  its input {name}, {_named(x)}, is {text}")
        origin = f.origin
        if origin is not None:
            lines.append(f"  it is part of the gradient of {origin.op.name} (order {origin.order})" + _called(origin))
            lines.append(f"  which was asked for at {_place(f)}")
        else:
            lines.append(f"  {f.op.name} was called at {_place(f)}")
        return "\n".join(lines)

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


_CLEAN = Finding({}, [], [])


def _named(x: Variable) -> str:
    name = f" {x.name!r}" if x.name else ""
    return f"the leaf{name} {x.spec}" if x.parent is None else f"{x.spec} from {x.parent.op.name}"


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
