"""Uses of signatures: complete docstrings, so that the source describes an argument of many functions only once, and
name the argument that does not fit in errors of functions that users call.

Under `Args:` a function of nngrad has entries for its own arguments. An entry `...: As for `convolution`.` stands for
all other arguments that the named functions describe, and for their ValueError; several are searched in order. `USUAL`
describes arguments that neither describes. So `__doc__` has an entry for each argument, in the order of the signature.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import textwrap
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, Never, ParamSpec, TypeAlias, TypeVar, get_args, get_origin

import numpy as np

from .arguments import COERCERS, Axes, is_union, range_of, without_range
from .messages import no_such_argument

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
class Words(NamedTuple):
    """The description of an input whose annotation contains it."""

    said: str


AnyArray: TypeAlias = Annotated[Any, Words("Any shape and dtype.")]
KeptDtype: TypeAlias = Annotated[Any, Words("Any shape and dtype, which the result has too.")]
AnyShape: TypeAlias = Annotated[Any, Words("Any shape.")]
AsFloats: TypeAlias = Annotated[Any, Words("Any shape; integers are taken as float32.")]
Floats: TypeAlias = Annotated[Any, Words("Any shape; floating.")]
WithAxis: TypeAlias = Annotated[Any, Words("Any shape of at least one axis.")]
"""Annotations for inputs of ops, like `Array`, that carry their own description."""
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
        p.name: each.said
        for p in inspect.signature(function, eval_str=True).parameters.values()
        for each in getattr(p.annotation, "__metadata__", ()) if isinstance(each, Words)
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


class Completed:
    """A descriptor that completes `__doc__` of callable objects on first access. For the class itself it returns the
    class's own docstring."""

    def __init__(self, of_class: str | None) -> None:
        self._of_class = of_class

    def __get__(self, function: Any, owner: type) -> str | None:
        if function is None:
            return self._of_class
        doc = function.__dict__["__doc__"] = function.completed_doc()
        return None if doc is None else str(doc)


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
    """The globals of the module that defines a function or class."""
    defined = inspect.unwrap(function)
    return vars(sys.modules[defined.__module__]) if isinstance(defined, type) else defined.__globals__


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

# ---------------------------------------------------------------- errors that name the argument


P = ParamSpec("P")
R = TypeVar("R")

REFUSALS = TypeError, ValueError, ArithmeticError, AttributeError, LookupError
"""The exceptions that functions raise for arguments that do not fit."""

_ANYTHING = Any, inspect.Parameter.empty
_MARKS = ":([ "
"""The characters that may follow the name of a function or an argument in a message."""
_NOTHING = object()
"""A value that fits no argument."""


def explained(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """`function`, with errors that name it and the argument if a keyword is unknown or a value does not fit the
    signature. This costs nothing unless there is an error.

    Args:
        function: The function to wrap.
        name: What users call it, if not by its own name.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except REFUSALS as error:
            clearer = refusal(error, function, name, args, kwargs)
            if clearer is None:
                raise
            raise clearer from clearer.__cause__

    name = name or function.__qualname__.removesuffix(".__init__")
    return call


def explained_by_name(function: Callable[P, R]) -> Callable[P, R]:
    """As `explained`, for functions composed of others: all other errors begin with the function's name too, except
    those that a user's function among the arguments may have raised, unless they begin with an argument's name."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except REFUSALS as error:
            raise_by_name(error, function, args, kwargs)

    return call


def raise_by_name(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Never:
    """Raise the `error` of a call as `explained_by_name` describes."""
    name = function.__name__
    clearer = refusal(error, function, name, args, kwargs)
    if clearer is not None:
        raise clearer from clearer.__cause__
    about = tuple([f"{n}{mark}" for n in inspect.signature(function).parameters for mark in _MARKS])
    foreign = any([callable(each) for each in (*args, *kwargs.values())]) and not str(error).startswith(about)
    kind = next((each for each in (TypeError, ValueError, IndexError) if isinstance(error, each)), None)
    if foreign or kind is None or str(error).startswith((f"{name}:", f"{name}(")):
        raise error
    raise kind(f"{name}{_unmentioned(str(error), function, args, kwargs)}: {error}") from error.__cause__


def _unmentioned(said: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The non-array arguments, in parentheses, for an error from inside that names no argument of the function."""
    signature = inspect.signature(function)
    if any([re.search(rf"\b{n}\b", said) for n in signature.parameters]):
        return ""
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the error that is being explained
        return ""
    given = [f"{n}={v!r:.50}" for n, v in arguments.items() if isinstance(v, int | float | str | tuple | list)]
    return f"({', '.join(given)})" if given else ""


def refusal(
    error: Exception, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Exception | None:
    """The clearer exception to raise in place of a call's `error`; None if that says enough, or if the arguments did
    not cause it."""
    signature = inspect.signature(function)
    names = [n for n in signature.parameters if n != "self"]
    unlisted = getattr(function, "unlisted", ())  # keywords that it takes, but its signature omits
    kwargs = {n: value for n, value in kwargs.items() if n not in unlisted}
    if isinstance(error, TypeError) and not any([p.kind is p.VAR_KEYWORD for p in signature.parameters.values()]):
        misspelt = no_such_argument(name, kwargs, names)
        if misspelt is not None:
            return misspelt
    if str(error).startswith(tuple([f"{n}{mark}" for n in (name, *names) for mark in _MARKS])):
        return None
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the error that is being explained
        return None
    for n in names:
        p = signature.parameters[n]
        if n in given and given[n] is not p.default and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            wrong = _misfit(given[n], p, function, name)
            if wrong is not None:
                wrong.__cause__ = error
                return wrong
    return None


def _misfit(value: Any, parameter: inspect.Parameter, function: Callable[..., Any], name: str) -> Exception | None:
    """The error for a `value` that does not fit a parameter, or None if it fits."""
    annotation = _evaluated(parameter.annotation, function)
    try:
        if _fits(value, annotation):
            return None
    except OverflowError:
        return ValueError(f"{name}: argument {parameter.name!r} is too large: {value!r:.200}")
    return TypeError(f"{name}: argument {parameter.name!r} must be {_in_words(annotation)}, got {value!r:.200}")


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """An annotation as an object; Any if it names something that is imported for type checkers only."""
    try:
        while isinstance(annotation, str):
            annotation = eval(annotation, inspect.unwrap(function).__globals__)
    except NameError:
        return Any
    return annotation


def _fits(value: Any, annotation: Any) -> bool:
    """Whether `value` fits an annotation, as far as can be told. OverflowError: a smaller one would."""
    if is_union(annotation):
        return any([_fits(value, each) for each in get_args(annotation)])
    if annotation in COERCERS:
        try:
            COERCERS[annotation](value)
        except (TypeError, ValueError):
            return False
        return True
    kind, inner = get_origin(annotation) or annotation, get_args(annotation)
    if kind is Annotated:
        return _fits(value, inner[0])
    if kind is Literal:
        return isinstance(value, str) and value in inner
    if not isinstance(kind, type) or kind in _ANYTHING or getattr(kind, "_is_protocol", False):
        return True
    return _is_of(value, kind, inner)


def _is_of(value: Any, kind: type, inner: tuple[Any, ...]) -> bool:
    """Whether a value is of a class, and its items fit the annotation's parameters."""
    if not inner or not issubclass(kind, Iterable) or issubclass(kind, Mapping | np.ndarray):
        return isinstance(value, kind)
    if not isinstance(value, list | tuple | set | np.ndarray):  # iterators are not consumed
        return hasattr(value, "__iter__") and not isinstance(value, str | bytes)
    return getattr(value, "ndim", 1) > 0 and all([any([_fits(e, t) for t in inner if t is not ...]) for e in value])


def _in_words(annotation: Any) -> str:
    """An annotation in words."""
    kind, inner = get_origin(annotation) or annotation, get_args(annotation)
    if is_union(annotation):
        return " or ".join(dict.fromkeys(map(_in_words, inner)))
    if annotation in COERCERS:
        try:
            COERCERS[annotation](_NOTHING)
        except TypeError as error:
            return str(error)
    if kind is Literal:
        return " or ".join(map(repr, inner))
    if kind is Callable:
        return "a function"
    if kind is np.ndarray:
        return "an array"
    if inner:
        return "a dict" if issubclass(kind, Mapping) else f"a list whose items are each {_in_words(inner[0])}"
    name = "None" if kind is NoneType else getattr(kind, "__name__", str(kind))
    return name if kind is NoneType else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
