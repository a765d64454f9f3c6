"""Docstrings of functions, completed: a source says of each argument once what holds for many functions.

Under `Args:` a function of nngrad's own has entries for what is its own. An entry `...: As for `convolution`.` stands
for all other arguments that the functions named have entries for, and for their ValueError; several are asked in their
order. The usual words are there for what is in neither. So `__doc__` has an entry for each argument, in the order of
the signature.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

from .arguments import Axes, range_of, without_range

USUAL = {
    "x": "Any shape; integers are taken as float32.",
    "x0": "Any shape.",
    "x1": "Any shape that broadcasts with that of `x0`.",
    "val": "The number.",
    "keepdims": "Whether the axes stay, with size 1.",
    "channel_last": "Whether the channel axis is the last one.",
    "shape": "Shape of the result.",
    "dtype": "Dtype of the result.",
    "key": "uint32[2]; equal keys give equal samples.",
    "matmul_precision": "How exactly a device multiplies, as `jax.lax.Precision` has it, or by which algorithm "
    "(`jax.lax.DotAlgorithmPreset`); derivatives do it in the same way. None for `jax.default_matmul_precision`.",
    "seed": "-1 for the stream that `nn.seed` starts, or the seed, 0 or more, of a stream of its own.",
    "inplace": "Ignored; accepted for nnabla's sake.",
    "n_outputs": "Ignored.",
    "base_axis": "Number of batch axes.",
}
"""What is said of an input or argument of F where its function says nothing else."""
WITH_NUMBER = "Any shape; an integer `x` becomes float32 if its dtype does not hold `val`."
"""What is said of an input `x` that meets a number."""
SHAPES, AXIS = "shapes", "axis"
"""Of what the clauses are that name no argument."""
class Words(NamedTuple):
    """What is said of an input whose annotation it is in."""

    said: str


AnyArray: TypeAlias = Annotated[Any, Words("Any shape and dtype.")]
KeptDtype: TypeAlias = Annotated[Any, Words("Any shape and dtype, which the result has too.")]
AnyShape: TypeAlias = Annotated[Any, Words("Any shape.")]
AsFloats: TypeAlias = Annotated[Any, Words("Any shape; integers are taken as float32.")]
Floats: TypeAlias = Annotated[Any, Words("Any shape; floating.")]
WithAxis: TypeAlias = Annotated[Any, Words("Any shape of at least one axis.")]
"""Inputs of ops, as `Array` is one, that say so themselves."""
AXES = "One axis or several; None for all."
"""What is said of an argument `axis` that is annotated as Axes."""
_SECTION = re.compile(r"(Args|Returns|Yields|Raises):$")
_ENTRY = re.compile(r" {4}(\*{0,2}\w+|\.\.\.): ?(.*)")
_OTHERS = "..."
Entries = dict[str, list[str]]
Documented = TypeVar("Documented", bound=Callable[..., Any])


def usual_of(function: Callable[..., Any]) -> dict[str, str]:
    """The usual words for the arguments of a function of F."""
    kind = str(inspect.signature(function).parameters["axis"].annotation) if "axis" in _names(function) else ""
    with_number = {"x": WITH_NUMBER} if "val" in _names(function) else {}
    annotated = {
        p.name: each.said
        for p in inspect.signature(function, eval_str=True).parameters.values()
        for each in getattr(p.annotation, "__metadata__", ()) if isinstance(each, Words)
    }
    return USUAL | {"axis": AXES if kind.startswith("Axes") else "The axis."} | with_number | annotated


def refused_by(function: Callable[..., Any], broadcasts: bool = False) -> dict[str, str]:
    """What a function of F refuses by a ValueError, as far as its signature says so: a clause for its inputs together,
    if there are several, one for an axis, and one for each argument with a range."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
    clauses = {}
    if broadcasts:
        clauses[SHAPES] = "the shapes do not broadcast"
    elif len(inputs) > 1 or any([p.kind is p.VAR_POSITIONAL for p in inputs]):
        clauses[SHAPES] = "the shapes do not fit"
    for p in parameters:
        within = range_of(p.annotation)
        if within is not None:
            clauses[p.name] = within.refused.format(p.name)
        elif without_range(p.annotation) in (Axes, Axes | None):
            clauses[AXIS] = "an axis is out of range, or named twice"
        elif p.name.endswith("axis") and inputs:
            clauses[AXIS] = "an axis is out of range"
        elif p.name == "seed":
            clauses[p.name] = "`seed` is below -1"
    return clauses


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class Completed:
    """The attribute `__doc__` of functions that are objects: completed when it is asked for first. That of their class
    is the class's own."""

    def __init__(self, of_class: str | None) -> None:
        self._of_class = of_class

    def __get__(self, function: Any, owner: type) -> str | None:
        if function is None:
            return self._of_class
        doc = function.__dict__["__doc__"] = function.completed_doc()
        return None if doc is None else str(doc)


def completed(function: Documented) -> Documented:
    """A function that is no op, with a completed docstring: what it shares with those that `...` names, and what they
    raise."""
    function.__doc__ = completed_docstring(function, _names(function), {}, {}, all_errors=True)
    return function


def completed_docstring(
    function: Callable[..., Any], arguments: Iterable[str], usual: Mapping[str, str], raises: Mapping[str, str],
    refused: Mapping[str, str] | None = None, all_errors: bool = False,
) -> str | None:
    """The docstring of a function or class, with an entry for each of the arguments that there are words for.

    Args:
        function: What has the docstring. Functions that an entry `...` names are looked up where it is defined.
        arguments: Their names, in their order.
        usual: What is said of an argument that has no other words.
        raises: What is said of an exception that has none.
        refused: Clauses that the words on ValueError end with, as `refused_by` gives them, but for what these words say
            already.
        all_errors: Whether other exceptions than ValueError are those of the functions named, too.
    """
    if function.__doc__ is None:
        return None
    head, sections = _parsed(function.__doc__)
    own = sections.pop("Args", {})
    known = ChainMap(own, {name: [text] for name, text in usual.items()})
    others = []
    for name in re.findall(r"`([\w.]+)`", " ".join(own.pop(_OTHERS, []))):
        first, *parts = name.split(".")
        other = reduce(getattr, parts, _names_beside(function)[first])
        others.append(_parsed(other.__doc__ or "")[1])
    known.maps[1:1] = [each.get("Args", {}) for each in others]
    entries = {name: known[name] for name in arguments if name in known}
    raised: Entries = {}
    for each in reversed(others):
        raised |= {name: e for name, e in each.get("Raises", {}).items() if all_errors or name == "ValueError"}
    raised |= {name: [text] for name, text in raises.items()} | sections.pop("Raises", {})
    if refused:
        raised["ValueError"] = _with_clauses(raised.get("ValueError", []), refused)
    written = {"Args": entries, **sections, "Raises": dict(sorted(raised.items()))}
    return "\n\n".join([head, *[f"{title}:\n{_written(each)}" for title, each in written.items() if each]])


def _names_beside(function: Callable[..., Any]) -> dict[str, Any]:
    """The globals of the module that defines a function or a class."""
    defined = inspect.unwrap(function)
    return vars(sys.modules[defined.__module__]) if isinstance(defined, type) else defined.__globals__


def _with_clauses(lines: list[str], refused: Mapping[str, str]) -> list[str]:
    """What is said of an exception, and after it the clauses that it has no words for."""
    said = " ".join([line.strip() for line in lines]).rstrip(".")
    if "argument is out of range" in said:
        return lines
    left = [clause for what, clause in refused.items() if not said or (what is not SHAPES and what not in said)]
    if not left:
        return lines
    *most, last = [said, *left] if said else left
    text = f"{', '.join(most)}{', or ' if len(most) > 1 or said else ' or '}{last}." if most else f"{last}."
    first, *rest = textwrap.wrap(text[0].upper() + text[1:], 104)
    return [first, *[f"        {line}" for line in rest]]


def entries_of(function: Callable[..., Any]) -> Entries:
    """What a function's docstring says of its arguments: the lines of each."""
    return _parsed(function.__doc__ or "")[1].get("Args", {})


def _parsed(doc: str) -> tuple[str, dict[str, Entries]]:
    """What is before the sections of a docstring, and their entries: of each the lines, the first without its name.
    Lines of a section that has no entries are one without a name."""
    head: list[str] = []
    sections: dict[str, Entries] = {}
    entries: Entries | None = None
    lines: list[str] = []
    for line in inspect.cleandoc(doc).splitlines():
        if section := _SECTION.match(line):
            entries = sections[section[1]] = {}
        elif entries is None:
            head.append(line)
        elif entry := _ENTRY.match(line) if line else None:
            lines = entries[entry[1]] = [entry[2]]
        elif line and entries:
            lines.append(line)
        elif line:
            lines = entries[""] = [line]
    return "\n".join(head).rstrip(), sections


def _written(entries: Entries) -> str:
    return "\n".join(
        "\n".join([f"    {name}: {first}" if name else first, *rest]) for name, (first, *rest) in entries.items()
    )
