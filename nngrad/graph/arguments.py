"""Static arguments: validate them by the annotations in an op's signature, and make them hashable.

The annotation of a static argument names its kind: `float`, `int`, `bool`, `str`, or one of the kinds below, possibly
restricted to a range: `p: Probability`. Optional ones are written `kind | None`. A value that does not fit raises a
`TypeError` or `ValueError` that names the op and the argument.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

import jax
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from .ndarray import checked_shape
from .spec import DType, dtype_of
from .variable import Variable


class Range(NamedTuple):
    """The range of an argument, for use as `Annotated[int, Range(...)]`.

    It is checked where callers' arguments become hashable, and graphs are read from files. `Composite.body` and `apply`
    check nothing, and functions under `explained_by_name` have no ranges.
    """

    holds: Callable[[Any], bool]
    demand: str
    """What an error requires of the argument, after its name."""
    refused: str
    """The docstring's clause for values out of range, with {} for the name."""


def between(low: float, high: float) -> Range:
    """From `low` to `high`, both included."""
    return Range(lambda v: low <= v <= high, f"must be between {low} and {high}", f"`{{}}` is not in [{low}, {high}]")


def at_least(low: float) -> Range:
    """`low` or more."""
    return Range(lambda v: v >= low, f"must be at least {low}", f"`{{}}` is below {low}")


def one_of(*values: Any) -> Range:
    """One of the given values."""
    *most, last = map(repr, values)
    listed = f"{', '.join(most)} or {last}" if most else last
    return Range(lambda v: v in values, f"must be {listed}", "`{}` is unknown")


_POSITIVE = Range(lambda v: v > 0, "must be positive", "`{}` is not positive")
_NOT_NEGATIVE = Range(lambda v: v >= 0, "must not be negative", "`{}` is negative")

Positive: TypeAlias = Annotated[float, _POSITIVE]
NotNegative: TypeAlias = Annotated[float, _NOT_NEGATIVE]
Probability: TypeAlias = Annotated[float, between(0, 1)]
Share: TypeAlias = Annotated[
    float, Range(lambda v: 0 <= v < 1, "must be at least 0 and below 1", "`{}` is not in [0, 1)")
]
AtLeastOne: TypeAlias = Annotated[int, at_least(1)]
Size: TypeAlias = Annotated[int, _NOT_NEGATIVE]
MatmulPrecision: TypeAlias = Annotated[
    str, one_of("default", "high", "highest", *[preset.name for preset in lax.DotAlgorithmPreset])
]


_OR_VARIABLE = "or a Variable"
if TYPE_CHECKING:
    Scalar: TypeAlias = float | Any
    PositiveScalar: TypeAlias = float | Any
    NotNegativeScalar: TypeAlias = float | Any
else:
    Scalar = Annotated[float, _OR_VARIABLE]
    """A number, or a Variable that broadcasts with the inputs, by which the function is differentiated too."""
    PositiveScalar = Annotated[float, _POSITIVE, _OR_VARIABLE]
    NotNegativeScalar = Annotated[float, _NOT_NEGATIVE, _OR_VARIABLE]

T = TypeVar("T")
Coercer: TypeAlias = Callable[[Any], Any]
PythonNumber: TypeAlias = int | float | Fraction


class NegativeZero(float):
    """-0.0 as a static argument, equal only to itself.

    Elsewhere 0.0 and -0.0 are equal, and graphs that differ in the sign of a zero would share an executable.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other.__class__ is NegativeZero

    def __ne__(self, other: object) -> bool:
        return other.__class__ is not NegativeZero

    def __hash__(self) -> int:
        return id(NegativeZero)


_NEGATIVE_ZERO = NegativeZero(-0.0)


def key_of(value: Any) -> Any:
    """A hashable value's part of a cache key. It tells apart values that are merely equal (1, 1.0 and True; 0.0 and
    -0.0), and is the same for every NaN."""
    if isinstance(value, float | np.floating):
        return value.__class__, repr(value)
    return value.__class__, tuple([key_of(v) for v in value]) if isinstance(value, tuple) else value


Ignored: TypeAlias = Annotated[Any, "ignored"]
"""Accepted for compatibility with nnabla, and dropped (`inplace`)."""

Ints: TypeAlias = Annotated[int | Sequence[int], "ints"]
"""A tuple of ints; an int stands for a tuple of one."""

Axes: TypeAlias = Annotated[int | Sequence[int], "axes"]
"""An axis or a tuple of axes."""

Shape: TypeAlias = Annotated[Sequence[int], "shape"]
"""A tuple of non-negative sizes."""

Dims: TypeAlias = Annotated[Sequence[int], "dims"]
"""A shape in which one size may be -1."""

DTypeName: TypeAlias = Annotated[DTypeLike, "dtype"]
"""A dtype."""

Number: TypeAlias = Annotated[PythonNumber, "number"]
"""A number; an int or a `fractions.Fraction` stays exact."""

NumbersEach: TypeAlias = Annotated[Sequence[PythonNumber], "numbers each"]
"""A tuple of such numbers, one for each input."""

IntsEach: TypeAlias = Annotated[Sequence[int], "ints each"]
"""A tuple of ints, one for each input."""

Static: TypeAlias = Annotated[Any, "static"]
"""Any hashable value."""

Target: TypeAlias = Annotated[Any, "target"]
"""A Variable, or what its value is written to; only composites have such arguments."""


def refuse_variable(value: Any, wanted: str) -> None:
    """Raise the TypeError of a check that wants something else than a Variable, if `value` is one."""
    if isinstance(value, Variable):
        raise TypeError(
            f"{wanted}, not a Variable: its present value would become a constant, which has no gradient. If that is "
            "meant, give x.d.item()"
        )


def as_float(value: Any) -> float:
    """A real number as a Python float."""
    refuse_variable(value, "a number")
    if isinstance(value, int | float | np.integer | np.floating) or _is_real_scalar(value):
        result = float(value)
        # One object for every NaN; otherwise no two structures that contain a NaN would be equal.
        return math.nan if result != result else result
    raise TypeError("a number")


def _is_real_scalar(value: Any) -> bool:
    """True if `value` is a zero-dimensional array of a real dtype."""
    if getattr(value, "ndim", None) != 0 or not hasattr(value, "__float__") or not hasattr(value, "dtype"):
        return False
    dtype_of(value.dtype)
    return True


def as_static_float(value: Any) -> float:
    """A real number as a static argument: a float that equals no other number, and where 0.0 and -0.0 differ."""
    if value.__class__ is float and value and value == value:  # the usual case: neither 0 nor NaN
        return value
    result = as_float(value)
    return result if result or math.copysign(1.0, result) > 0 else _NEGATIVE_ZERO


def as_int(value: Any) -> int:
    """A whole number that fits into 64 bits, as a Python int."""
    refuse_variable(value, "an int")
    if isinstance(value, bool | np.bool_):
        raise TypeError("an int")
    try:
        whole = isinstance(value, float | np.floating) and float(value).is_integer()
        result = int(value) if whole else int(value.__index__())
    except (AttributeError, TypeError):
        raise TypeError("an int") from None
    if not -_MOST - 1 <= result <= _MOST:
        raise OverflowError
    return result


def coerced(kind: Any, value: Any, name: str) -> Any:
    """`value`, checked and converted as a static argument of that kind (`int`, `float`, `Ints`, ...), or by a function.

    Raises:
        TypeError: It does not fit; the message begins with `name`.
    """
    try:
        return as_static_float(value) if kind is float else COERCERS.get(kind, kind)(value)
    except TypeError as error:
        raise TypeError(f"{name} must be {error}, got {value!r}") from None


def checked_count(value: Any, name: str, least: int = 1, others: str = "") -> int:
    """`value` as an int of at least `least`. Messages begin with `name`, and mention `others` as also accepted."""
    try:
        number = None if isinstance(value, bool | Variable) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name}: expected an int{others}, got {value!r}")
    if number < least:
        raise ValueError(f"{name}: must be {least} or more, got {value!r}")
    if number > _MOST:
        raise ValueError(f"{name}: must fit in 64 bits, got {value!r:.40}")
    return number


_MOST = 2**63 - 1


def checked_choice(value: T, known: Iterable[T], name: str) -> T:
    """`value`, one of `known`; otherwise raises a ValueError that begins with `name`."""
    if value not in (listed := tuple(known)):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, listed))}, got {value!r}")
    return value


def as_bool(value: Any) -> bool:
    """A bool, from a bool or from 0 or 1."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError("True or False")


def as_str(value: Any) -> str:
    """A string."""
    if isinstance(value, str):
        return value
    raise TypeError("a string")


_INTS = frozenset({int})


def _are_plain(value: tuple[Any, ...]) -> bool:
    """True if all are plain ints of up to 64 bits, as rules pass them, so that none needs a check of its own."""
    return _INTS.issuperset(map(type, value)) and (not value or (min(value) >= -_MOST - 1 and max(value) <= _MOST))


def as_ints(value: Any) -> tuple[int, ...]:
    """A tuple of ints, from an int or a sequence of them."""
    if value.__class__ is tuple and _are_plain(value):
        return value
    try:
        if isinstance(value, str | bytes | dict | set | frozenset):  # not ordered sequences of numbers
            raise TypeError
        if hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0:
            return tuple(as_int(v) for v in value)
        return (as_int(value),)
    except TypeError:
        raise TypeError("an int or a tuple of ints") from None


def as_axes(value: Any) -> int | tuple[int, ...]:
    """An axis, or a tuple of distinct axes."""
    try:
        axes = as_ints(value)
    except TypeError:
        raise TypeError("an axis or a tuple of axes") from None
    if len(set(axes)) != len(axes):
        raise ValueError("distinct axes")
    return axes if hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0 else axes[0]


def as_shape(value: Any) -> tuple[int, ...]:
    """A tuple of non-negative sizes."""
    if value.__class__ is tuple and _are_plain(value) and (not value or min(value) >= 0):
        return value
    shape = as_ints(value)
    if any(n < 0 for n in shape):
        raise ValueError("non-negative sizes")
    return checked_shape(shape)


def as_dims(value: Any) -> tuple[int, ...]:
    """A shape in which one size may be -1, to be inferred."""
    dims = as_ints(value)
    if any(n < -1 for n in dims) or dims.count(-1) > 1:
        raise ValueError("non-negative sizes, of which one may be -1")
    return dims


def as_dtype(value: Any) -> DType:
    """A dtype."""
    try:
        return dtype_of(value)
    except TypeError:
        raise TypeError("a real, integer or bool dtype of up to 64 bits, such as 'float32'") from None


def as_numbers(value: Any) -> tuple[PythonNumber, ...]:
    """A tuple of finite or infinite numbers; ints and Fractions stay exact."""
    if not isinstance(value, tuple | list):
        raise TypeError("a tuple of numbers")
    try:
        return tuple([as_number(v) for v in value])
    except TypeError:
        raise TypeError("a tuple of numbers") from None


def as_number(value: Any) -> PythonNumber:
    """A number; an int or a Fraction stays exact."""
    if value.__class__ is int or isinstance(value, Fraction):
        float(value)
        return value
    return as_static_float(value)


def as_static(value: Any) -> Any:
    """Any hashable value; lists and arrays become tuples."""
    refuse_variable(value, "hashable")
    if isinstance(value, np.ndarray | jax.Array):
        value = value.tolist()
    if isinstance(value, list | tuple):
        value = tuple(as_static(v) for v in value)
    try:
        hash(value)
    except TypeError:
        raise TypeError("hashable (for example a tuple instead of a list)") from None
    return value


COERCERS: dict[Any, Coercer] = {
    float: as_float,
    int: as_int,
    bool: as_bool,
    str: as_str,
    Ints: as_ints,
    Axes: as_axes,
    Shape: as_shape,
    Dims: as_dims,
    DTypeName: as_dtype,
    Number: as_number,
    NumbersEach: as_numbers,
    IntsEach: as_ints,
    Static: as_static,
    Target: lambda value: value,
}
"""The check of each kind. Its TypeError or ValueError says what is expected; an OverflowError means "too large"."""


def coercer_of(annotation: Any, op: str, name: str, static: bool = True) -> Coercer:
    """The check for an argument annotated with `annotation`; its messages name the op and the argument. `static`
    arguments become part of the graph's structure."""
    within, or_variable, annotation = range_of(annotation), may_be_variable(annotation), without_range(annotation)
    kinds = get_args(annotation) if is_union(annotation) else (annotation,)
    optional = NoneType in kinds
    (kind,) = [k for k in kinds if k is not NoneType]
    coerce = as_static_float if kind is float and static else COERCERS[kind]

    def check(value: Any) -> Any:
        if (value is None and optional) or (or_variable and not static and isinstance(value, Variable)):
            return value
        try:
            result = coerce(value)
        except (TypeError, ValueError) as error:
            wanted = f"{error}{' or a Variable' * or_variable}{' or None' * optional}"
            raise base_of(error)(f"{op}: argument {name!r} must be {wanted}, got {value!r}") from None
        except OverflowError:
            raise ValueError(f"{op}: argument {name!r} is too large: {value!r}") from None
        if within is not None and not within.holds(result):
            raise ValueError(f"{op}: {name} {within.demand}, got {value!r}")
        return result

    return check


def is_union(annotation: Any) -> bool:
    """True if the annotation is `kind | None` or another union."""
    return get_origin(annotation) in (UnionType, Union)


def text_of_kind(annotation: Any) -> Any:
    """The type that a caller may pass for an argument with this annotation, without its kind."""
    if is_union(annotation):
        return functools.reduce(operator.or_, [text_of_kind(member) for member in get_args(annotation)])
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return kind | Variable if may_be_variable(annotation) else kind


def may_be_variable(annotation: Any) -> bool:
    """True if an argument with this annotation may be a Variable in place of a number."""
    kinds = get_args(annotation) if is_union(annotation) else (annotation,)
    return any([get_origin(kind) is Annotated and _OR_VARIABLE in get_args(kind) for kind in kinds])


def range_of(annotation: Any) -> Range | None:
    """The range in an argument's annotation, or None."""
    for kind in get_args(annotation) if is_union(annotation) else (annotation,):
        if get_origin(kind) is Annotated and isinstance(get_args(kind)[1], Range):
            within: Range = get_args(kind)[1]
            return within
    return None


def without_range(annotation: Any) -> Any:
    """An annotation without its range, of a number only."""
    if not range_of(annotation) and not may_be_variable(annotation):
        return annotation
    if is_union(annotation):
        return functools.reduce(operator.or_, map(without_range, get_args(annotation)))
    return get_args(annotation)[0]


def one_per_input(check: Coercer, op: str, name: str) -> Callable[[Any, int], Any]:
    """`check`, and a check that the result has one entry per input."""

    def check_all(value: Any, count: int) -> Any:
        values = check(value)
        if len(values) != count:
            raise ValueError(f"{op}: {name} must have one number for each of the {count} inputs, got {value!r}")
        return values

    return check_all


def base_of(error: TypeError | ValueError) -> type[TypeError] | type[ValueError]:
    """TypeError or ValueError, whichever `error` is: JAX's subclasses cannot always be made from a message."""
    return TypeError if isinstance(error, TypeError) else ValueError
