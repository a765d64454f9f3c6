"""Uses of signatures: annotations that describe inputs, and errors of functions that users call, which name the
argument that does not fit."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, Never, ParamSpec, TypeAlias, TypeVar, get_args, get_origin

import numpy as np

from .arguments import COERCERS, is_union
from .messages import no_such_argument


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


class Completed:
    """A descriptor that completes `__doc__` of callable objects on first access. For the class itself it returns the
    class's own docstring."""

    complete: Callable[[Any], str | None]
    """The completed docstring of an object. A package above implements it."""

    def __init__(self, of_class: str | None) -> None:
        self._of_class = of_class

    def __get__(self, function: Any, owner: type) -> str | None:
        if function is None:
            return self._of_class
        doc = function.__dict__["__doc__"] = Completed.complete(function)
        return None if doc is None else str(doc)


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


def explained(function: Callable[P, R], name: str = "", composed: bool = False) -> Callable[P, R]:
    """`function`, with errors that name it and the argument if a keyword is unknown or a value does not fit the
    signature. This costs nothing unless there is an error.

    Args:
        function: The function to wrap.
        name: What users call it, if not by its own name.
        composed: True for a function composed of others: all other errors begin with its name too, except those that a
            user's function among the arguments may have raised, unless they begin with an argument's name.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except REFUSALS as error:
            if composed:
                raise_by_name(error, function, args, kwargs)
            clearer = refusal(error, function, name, args, kwargs)
            if clearer is None:
                raise
            raise clearer from clearer.__cause__

    name = name or function.__qualname__.removesuffix(".__init__")
    return call


def explained_by_name(function: Callable[P, R]) -> Callable[P, R]:
    """As `explained`, for functions composed of others."""
    return explained(function, composed=True)


def raise_by_name(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Never:
    """Raise the `error` of a call as `explained_by_name` describes."""
    name = function.__name__
    clearer = refusal(error, function, name, args, kwargs)
    if clearer is not None:
        raise clearer from clearer.__cause__
    about = tuple([f"{n}{mark}" for n in inspect.signature(function).parameters for mark in _MARKS])
    foreign = any([callable(cls) for cls in (*args, *kwargs.values())]) and not str(error).startswith(about)
    kind = next((argument for argument in (TypeError, ValueError, IndexError) if isinstance(error, argument)), None)
    if foreign or kind is None or str(error).startswith((f"{name}:", f"{name}(")):
        raise error
    raise kind(f"{name}{_unmentioned(str(error), function, args, kwargs)}: {error}") from error.__cause__


def _unmentioned(said: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The arguments that are no operands, in parentheses, for an error from inside that names none of the function."""
    signature = inspect.signature(function)
    if any([re.search(rf"\b{n}\b", said) for n in signature.parameters]):
        return ""
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the error that is being explained
        return ""
    shown = [f"{n}={v!r:.50}" for n, v in arguments.items() if isinstance(v, int | float | str | tuple | list)]
    operands = [n for n, p in signature.parameters.items() if p.kind is p.POSITIONAL_ONLY]
    if operands:  # where Variables may stand for numbers after them
        shown += [f"{n} of shape {v.shape}" for n, v in arguments.items() if n not in operands and hasattr(v, "shape")]
    return f"({', '.join(shown)})" if shown else ""


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
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the error that is being explained
        return None
    for n in names:
        p = signature.parameters[n]
        if n in bound and bound[n] is not p.default and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            wrong = _misfit(bound[n], p, function, name)
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
    """True if `value` fits an annotation, as far as can be told. OverflowError: a smaller one would."""
    if is_union(annotation):
        return any([_fits(value, member) for member in get_args(annotation)])
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
    """True if a value is of a class, and its items fit the annotation's parameters."""
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
