"""Leaves: convert values to leaves, draw random keys, and read the arrays of leaves.

Also the warning for float64 data that turns a graph of float32 parameters into one of float64.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from .engine import KeySource, engine
from .messages import warn_user
from .ndarray import NdArray, host_array
from .options import build_options
from .spec import DType, Spec, refuse_tracer
from .variable import Variable, leaf_of

if TYPE_CHECKING:
    from .op import Op


def drawn_leaf(spec: Spec, source: KeySource, name: str = "") -> Variable:
    """A leaf whose value `source` draws anew at every `forward()`: the key of a random function."""
    x = leaf_of(NdArray.of_spec(spec), name)
    x.key_source = source
    return x


def as_variable(value: object, name: str = "x", op: str = "", floating: DType | None = None) -> Variable:
    """`value` itself if it is a Variable, else a constant leaf; floating values get the dtype `floating`, if given."""
    if isinstance(value, Variable):
        return value
    where = f"{op}: " if op else ""
    refuse_tracer(value, f"{where}{name}")
    if value is None or isinstance(value, str | bytes):
        raise TypeError(f"{where}{name} must be a Variable, an array or a number, got {value!r}")
    if isinstance(value, list | tuple) and any(isinstance(v, Variable) for v in value):
        if name.endswith("]"):  # of a function that takes any number of them
            raise TypeError(f"{where}{name} is a list of Variables; give them one by one: F.{op}(*variables)")
        raise TypeError(f"{where}{name} is a list of Variables; join them: F.stack(*variables)")
    try:
        array = host_array(value, None, floating=floating)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{where}{name} must be a Variable, an array or a number, got {value!r} ({error})") from None
    return leaf_of(NdArray.of_host_array(array))


def refuse_too_many(count: int, **argument: object) -> None:
    """Refuse an argument that would need `count` numbers while the graph is built.

    Raises:
        ValueError: `count` is above 2**27, a gigabyte of float64.
    """
    if count > 2**27:
        named = ", ".join([f"{name} {value}" for name, value in argument.items()])
        raise ValueError(f"{named} needs {count} numbers while the graph is built; the limit is {2**27}")


def as_variables(
    values: Iterable[object], names: Sequence[str], op: str, required: int | None = None
) -> tuple[Any, ...]:
    """The inputs of one function as Variables. Floating arrays and numbers take the common dtype of the floating
    Variables, if there are any, since Variables decide the dtype of the computation.

    Args:
        values: The inputs.
        names: Their names in messages.
        op: The name of the function.
        required: How many precede those that may be None.
    """
    values = tuple(values)
    floating = common_floating(values)
    return tuple([
        None if value is None and required is not None and i >= required else as_variable(value, name, op, floating)
        for i, (value, name) in enumerate(zip(values, names, strict=True))
    ])


def as_operands(
    values: Iterable[object], names: Sequence[str], op: str, required: int | None = None
) -> tuple[Any, ...]:
    """The inputs of one function as Variables, floats as constants, so that equal numbers give equal expressions.
    Not ints, which an executable would not take as arguments, nor NaN, which equals nothing."""
    operands = tuple(values)
    if any(map(_is_number, operands)):
        floating = common_floating(operands)
        operands = tuple([_constant(x, floating) if _is_number(x) else x for x in operands])
    return as_variables(operands, names, op, required)


def _is_number(value: object) -> bool:
    return isinstance(value, float | np.floating) and value == value


def _constant(number: object, floating: DType | None) -> Variable:
    array = host_array(number, None, floating=floating)
    return engine.constant(float(array), (), array.dtype)


def common_floating(values: Iterable[object]) -> DType | None:
    """The common dtype of the floating Variables among `values`; None if there are none."""
    dtypes = {x.spec.dtype for x in values if isinstance(x, Variable) and x.spec.differentiable}
    return functools.reduce(jnp.promote_types, dtypes) if dtypes else None

# ---------------------------------------------------------------- float64 data


class Widened(tuple[Spec, ...]):
    """Specs of results, some of them float64 although some inputs are floating and narrower."""

    __slots__ = ()


def marked_if_wide(specs: tuple[Spec, ...], inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """The specs of results, as `Widened` if they are."""
    narrower = any([s.differentiable and not s.needs_x64 for s in inputs])
    return Widened(specs) if narrower and any([s.dtype == np.float64 for s in specs]) else specs


def warn_where_widened(op: Op, inputs: tuple[Variable, ...]) -> None:
    """Warn the user if a Variable that needs a gradient is promoted by float64 data that needs none.

    A graph that is float64 on purpose has float64 parameters, and does not get the warning.
    """
    if build_options().emitting.builder is not None:
        return
    floating = [(n, x) for n, x in zip(op.names_of(len(inputs)), inputs, strict=True) if x.spec.differentiable]
    promoted = [(n, x) for n, x in floating if not x.spec.needs_x64 and x.need_grad]
    data = [(n, x) for n, x in floating if x.spec.needs_x64 and not x.need_grad] if promoted else []
    if data:
        (name, x), (other, narrow) = data[0], promoted[0]
        called = f" ({narrow.name!r})" if narrow.name else ""
        warn_user(
            f"{op.name}: {name} is {x.spec}, which makes this and all later functions compute in float64, although "
            f"{other}{called} is {narrow.spec} and needs a gradient; this is slow. Pass the data as np.float32, or "
            "make Variables within nn.context_scope(nn.get_extension_context('cpu')), where float64 arrays become "
            f"float32. If you want float64, make {other} float64, or cast it: F.cast({other}, 'float64')"
        )
