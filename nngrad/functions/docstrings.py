"""Complete docstrings, so that the source describes an argument of many functions only once.

Under `Args:` a function of nngrad has entries for its own arguments. An entry `...: As in `convolution`.` stands for
all other arguments that the named functions describe, and for their ValueError; several are searched in order. `USUAL`
describes arguments that neither describes. So `__doc__` has an entry for each argument, in the order of the signature.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, TypeVar

from ..graph import Composite, Op
from ..graph.arguments import Axes, range_of, without_range
from ..graph.signatures import Completed, Words

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
"""The description of an input or argument of F that its function does not describe."""
WITH_NUMBER = "Any shape; an integer `x` becomes float32 if its dtype does not hold `val`."
"""The description of an input `x` that is combined with a number."""
SHAPES, AXIS = "shapes", "axis"
"""Keys of the clauses that belong to no single argument."""
AXES = "One axis or several; None for all."
"""The description of an argument `axis` annotated as Axes."""
_SECTION = re.compile(r"(Args|Returns|Yields|Raises):$")
_ENTRY = re.compile(r" {4}(\*{0,2}\w+|\.\.\.): ?(.*)")
_OTHERS = "..."
Entries = dict[str, list[str]]
Documented = TypeVar("Documented", bound=Callable[..., Any])


def usual_of(function: Callable[..., Any]) -> dict[str, str]:
    """The usual descriptions for the arguments of a function of F."""
    kind = str(inspect.signature(function).parameters["axis"].annotation) if "axis" in _names(function) else ""
    with_number = {"x": WITH_NUMBER} if "val" in _names(function) else {}
    annotated = {
        p.name: words.said
        for p in inspect.signature(function, eval_str=True).parameters.values()
        for words in getattr(p.annotation, "__metadata__", ()) if isinstance(words, Words)
    }
    return USUAL | {"axis": AXES if kind.startswith("Axes") else "The axis."} | with_number | annotated


def refused_by(function: Callable[..., Any], broadcasts: bool = False) -> dict[str, str]:
    """When a function of F raises a ValueError, as far as its signature tells: a clause for the shapes of several
    inputs, one for an axis, and one for each argument with a range."""
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


def completed(function: Documented) -> Documented:
    """Complete the docstring of a function that is not an op with the arguments and errors of the functions that `...`
    names."""
    function.__doc__ = completed_docstring(function, _names(function), {}, {}, all_errors=True)
    return function


def completed_docstring(
    function: Callable[..., Any], arguments: Iterable[str], usual: Mapping[str, str], raises: Mapping[str, str],
    refused: Mapping[str, str] | None = None, all_errors: bool = False,
) -> str | None:
    """The docstring of a function or class, with an entry for each argument that is described anywhere.

    Args:
        function: The owner of the docstring. Functions that an entry `...` names are looked up where it is defined.
        arguments: The arguments' names, in order.
        usual: The descriptions of arguments that have no other.
        raises: The descriptions of exceptions that have no other.
        refused: Clauses, as from `refused_by`, to append to the entry of ValueError if it does not mention them yet.
        all_errors: Whether to take over exceptions other than ValueError from the named functions, too.
    """
    if function.__doc__ is None:
        return None
    head, sections = _parsed(function.__doc__)
    described = sections.pop("Args", {})
    known = ChainMap(described, {name: [text] for name, text in usual.items()})
    others = []
    defined = inspect.unwrap(function)
    beside = vars(sys.modules[defined.__module__]) if isinstance(defined, type) else defined.__globals__
    for name in re.findall(r"`([\w.]+)`", " ".join(described.pop(_OTHERS, []))):
        first, *parts = name.split(".")
        other = reduce(getattr, parts, beside[first])
        others.append(_parsed(other.__doc__ or "")[1])
    known.maps[1:1] = [sections_of_other.get("Args", {}) for sections_of_other in others]
    entries = {name: known[name] for name in arguments if name in known}
    raised: Entries = {}
    for sections_of_other in reversed(others):
        errors = sections_of_other.get("Raises", {}).items()
        raised |= {name: e for name, e in errors if all_errors or name == "ValueError"}
    raised |= {name: [text] for name, text in raises.items()} | sections.pop("Raises", {})
    if refused:
        raised["ValueError"] = _with_clauses(raised.get("ValueError", []), refused)
    written = {"Args": entries, **sections, "Raises": dict(sorted(raised.items()))}
    return "\n\n".join([head, *[f"{title}:\n{_written(section)}" for title, section in written.items() if section]])


def _with_clauses(lines: list[str], refused: Mapping[str, str]) -> list[str]:
    """The lines of an exception's entry, with the clauses appended that it does not mention."""
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
    """The lines of each argument's entry in a function's docstring."""
    return _parsed(function.__doc__ or "")[1].get("Args", {})


def _parsed(doc: str) -> tuple[str, dict[str, Entries]]:
    """Split a docstring into what precedes its sections, and the entries of each section by name: their lines, the
    first without the name. A section without entries has one entry named ""."""
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


def docstring_of(function: Op | Composite) -> str | None:
    """The docstring of an op or composite; for nngrad's own, completed for each argument."""
    if isinstance(function, Op):
        body, broadcasts, keyed = function.forward, function.broadcasts, "key" in function.input_names
    else:
        body, broadcasts, keyed = function.body, False, False
    if not function.module.startswith("nngrad."):
        return body.__doc__
    raises = {"TypeError": "`key` is not uint32[2]."} if keyed else {}
    parameters = function.__signature__.parameters
    return completed_docstring(body, parameters, usual_of(body), raises, refused_by(body, broadcasts))


Completed.complete = staticmethod(docstring_of)
