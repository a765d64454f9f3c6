"""Sums, products, powers, maxima and minima of Variables, and of a Variable and a number."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..graph import Array, Function, Op, Variable, composite, op
from ..graph.arguments import Ignored, Scalar


def is_floating(x: Any) -> bool:
    """True if `x` has a floating dtype."""
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def floating(x: jax.Array) -> jax.Array:
    """`x`, cast to float32 unless its dtype is floating."""
    return x if is_floating(x) else lax.convert_element_type(x, jnp.float32)


def of_floats(
    function: Callable[[jax.Array], jax.Array], doc: str, name: str = "", wide: bool = False, **facts: Any
) -> Op[[Array], Variable]:
    """Make an elementwise op of a `function` on floating arrays. Integers become float32, and with `wide` so do 16-bit
    floats. The op is named after the function unless `name` is given; `facts` go to the op."""

    def forward(x: Array, /) -> jax.Array:
        x = floating(x)
        return lax.convert_element_type(function(widened(x)), x.dtype) if wide else function(x)

    forward.__name__, forward.__doc__ = name or function.__name__, doc
    forward.__module__ = sys._getframe(1).f_globals["__name__"]
    return op(elementwise=True, diagonal=True, **facts)(forward)


_COMPUTED_AS = Primitive("computed_as")
"""Its second input, with the derivatives of its first for when JAX differentiates the emitted function. Not a
`custom_jvp`: JAX loses such rules when it differentiates a loop twice."""
_COMPUTED_AS.def_impl(lambda y, value: value)
_COMPUTED_AS.def_abstract_eval(lambda y, value: value)
ad.defjvp(_COMPUTED_AS, lambda along, y, value: along, None)
batching.defbroadcasting(_COMPUTED_AS)
mlir.register_lowering(_COMPUTED_AS, mlir.lower_fun(lambda y, value: value, multiple_results=False))


def computed_as(y: jax.Array, value: jax.Array) -> jax.Array:
    """`y`, computed as the equal `value`, which loses fewer digits. Its derivatives are those of the formula `y`."""
    same: jax.Array = _COMPUTED_AS.bind(y, value)
    return same


def widened(x: jax.Array) -> jax.Array:
    """`x`, with 16-bit floats cast to float32, so that long sums lose neither range nor precision."""
    return lax.convert_element_type(x, jnp.float32) if is_floating(x) and x.dtype.itemsize == 2 else x


def numeric(x: jax.Array) -> jax.Array:
    """`x`, with booleans cast to float32."""
    return lax.convert_element_type(x, jnp.float32) if x.dtype == bool else x


def alike(*xs: jax.Array) -> list[jax.Array]:
    """The arrays, cast to their common dtype."""
    dtype = xs[0].dtype
    if all([isinstance(x, jax.Array) and x.dtype == dtype and not x.weak_type for x in xs]):
        return list(xs)
    dtype = functools.reduce(jnp.promote_types, [x.dtype for x in xs])
    return [lax.convert_element_type(x, dtype) for x in xs]


def broadcast_pair(x0: jax.Array, x1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both arrays, broadcast to their common shape and cast to their common dtype."""
    x0, x1 = alike(x0, x1)
    if x0.shape != x1.shape:
        shape = broadcast_shape(x0=x0, x1=x1)
        x0, x1 = jnp.broadcast_to(x0, shape), jnp.broadcast_to(x1, shape)
    return x0, x1


def broadcast_shape(**inputs: jax.Array | Variable | None) -> tuple[int, ...]:
    """The common shape of all inputs that are not None; a ValueError names them if they do not broadcast."""
    shape_of = {name: x.shape for name, x in inputs.items() if x is not None}
    try:
        return jnp.broadcast_shapes(*shape_of.values())
    except ValueError:
        shapes = " and ".join([f"{name} of shape {shape}" for name, shape in shape_of.items()])
        raise ValueError(f"{shapes} do not broadcast") from None


def check_same_shape(**inputs: jax.Array | Variable) -> None:
    """Raise a ValueError that names the inputs unless all have the same shape."""
    shapes = [str(x.shape) for x in inputs.values()]
    if len(set(shapes)) > 1:
        raise ValueError(f"{' and '.join(inputs)} must have the same shape, got {' and '.join(shapes)}")


def number_pair(x0: jax.Array, x1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both arrays in their common shape and dtype, with booleans cast to float32."""
    return broadcast_pair(numeric(x0), numeric(x1))


def floating_pair(x0: jax.Array, x1: jax.Array) -> list[jax.Array]:
    """Both arrays in their common shape and dtype, integers as float32."""
    return [floating(x) for x in broadcast_pair(x0, x1)]


def matched(x: jax.Array, val: float | jax.Array) -> tuple[jax.Array, Any]:
    """`x` and `val` in one dtype: that of `x`, or float32 if `x` is an integer whose dtype cannot hold `val`."""
    if isinstance(val, jax.Array):  # an input of the program
        return x, lax.convert_element_type(val, x.dtype)
    if not is_floating(x):
        if x.dtype != bool and val.is_integer() and np.iinfo(x.dtype).min <= val <= np.iinfo(x.dtype).max:
            return x, x.dtype.type(int(val))
        x = lax.convert_element_type(x, jnp.float32)
    return x, x.dtype.type(val)


def broadcast_scalar(x: jax.Array, val: float | jax.Array) -> tuple[jax.Array, jax.Array]:
    """`x`, and an array of its shape filled with `val`."""
    x, number = matched(x, val)
    return x, lax.full_like(x, number)


def _factors(f: Function) -> tuple[int, ...]:
    """The exponent of each factor of a product."""
    return (1,) * len(f.inputs)


def raised(x: jax.Array, power: int) -> jax.Array:
    """`x ** power` by repeated multiplication."""
    # The quotient comes first, since x ** -power might overflow where the result does not.
    return lax.integer_pow(x, power) if power >= 0 else lax.integer_pow(lax.div(lax.full_like(x, 1), x), -power)


# ---------------------------------------------------------------- two Variables


@op(elementwise=True, diagonal=True, broadcasts=True, linear="together")
def add2(x0: Array, x1: Array, /, inplace: Ignored = False) -> jax.Array:
    """`x0 + x1`, broadcast together, in their common dtype; booleans count as float32."""
    return lax.add(*number_pair(x0, x1))


@composite
def bc_add2(x0: Array, x1: Array, /, inplace: Ignored = False) -> Variable:
    """`x0 + x1`: nnabla's other name for `add2`."""
    return add2(x0, x1)


@op(elementwise=True, diagonal=True, broadcasts=True, linear="together")
def sub2(x0: Array, x1: Array, /, inplace: Ignored = False) -> jax.Array:
    """`x0 - x1`, broadcast together, in their common dtype; booleans count as float32."""
    return lax.sub(*number_pair(x0, x1))


@op(elementwise=True, diagonal=True, broadcasts=True, linear="each", powers=_factors, unbounded=True)
def mul2(x0: Array, x1: Array, /, inplace: Ignored = False) -> jax.Array:
    """`x0 * x1`, element by element, broadcast together, in their common dtype; booleans count as float32."""
    return lax.mul(*number_pair(x0, x1))


@op(elementwise=True, diagonal=True, broadcasts=True, linear=True, powers=lambda f: (1, -1), unbounded=True)
def div2(x0: Array, x1: Array, /, inplace: Ignored = False) -> jax.Array:
    """`x0 / x1`, element by element, broadcast together; integers are divided as float32."""
    return lax.div(*floating_pair(x0, x1))


@op(elementwise=True, diagonal=True, broadcasts=True, unbounded=True)
def divided(x0: Array, x1: Array, /, limits: bool = False) -> jax.Array:
    """`x0 / x1`, broadcast together, and 0 where `x1` is 0, with derivatives of 0 there.

    Gradients have it written without a division where the algebra shows that `x1` is a factor of `x0`.

    Args:
        x0: The numerator; integers are taken as float32.
        x1: The denominator.
        limits: Whether a function that is 0 where `x1` is counts as having that factor. The value is then right where
            `x1` is 0, and its derivatives there need not be.
    """
    x0, x1 = floating_pair(x0, x1)
    zero = lax.full_like(x1, 0)
    at_zero = lax.eq(x1, zero)
    return lax.select(at_zero, zero, lax.div(x0, lax.select(at_zero, lax.full_like(x1, 1), x1)))


@op(elementwise=True, diagonal=True, broadcasts=True, linear=True, unbounded=True)
def directed(g: Array, x: Array, y: Array, /) -> jax.Array:
    """`g x / y`, broadcast together, and `g x` where `y` is 0: a gradient in the direction of a vector.

    Where `y` is 0, so is `x`: the result is 0, or NaN if `g` is infinite. Derivatives by `x` and `y` are not finite.

    Args:
        g: The gradient.
        x: Elements of the vector; integers are taken as float32.
        y: Its length.
    """
    product, y = floating_pair(lax.mul(*number_pair(g, x)), y)
    return lax.div(product, lax.select(lax.eq(y, lax.full_like(y, 0)), lax.full_like(y, 1), y))


@op(elementwise=True, diagonal=True, broadcasts=True, unbounded=True, precision="high")
def pow2(x0: Array, x1: Array, /, inplace: Ignored = False) -> jax.Array:
    """`x0 ** x1`, element by element, broadcast together; integers are raised as float32.

    Where the base is 0 the derivative with respect to the exponent is 0; where both are 0, so is the one with respect
    to the base. A negative base to a power that is not whole gives NaN.
    """
    return lax.pow(*floating_pair(x0, x1))


@op(elementwise=True, diagonal=True, broadcasts=True)
def maximum2(x0: Array, x1: Array, /) -> jax.Array:
    """`max(x0, x1)`, element by element, broadcast together, in their common dtype; NaN propagates.

    Where they are equal, each gets half of the gradient.
    """
    return lax.max(*broadcast_pair(x0, x1))


@op(elementwise=True, diagonal=True, broadcasts=True)
def minimum2(x0: Array, x1: Array, /) -> jax.Array:
    """`min(x0, x1)`, element by element, broadcast together, in their common dtype; NaN propagates.

    Where they are equal, each gets half of the gradient.
    """
    return lax.min(*broadcast_pair(x0, x1))


# ---------------------------------------------------------------- any number of Variables


def _unchanged(arguments: tuple[Any, ...], start: int, stop: int, count: int) -> tuple[Any, ...]:
    """The arguments for part of a sum or product; see `Op.fold`."""
    return arguments


@op(elementwise=True, diagonal=True, broadcasts=True, linear="together", fold=_unchanged)
def add_n(*x: Array) -> jax.Array:
    """`x[0] + x[1] + ...`, broadcast together, in their common dtype; booleans count as float32.

    Args:
        x: One or more summands, of any shapes that broadcast.
    """
    total: jax.Array = functools.reduce(lambda a, b: lax.add(*number_pair(a, b)), x)
    return total


@op(
    elementwise=True, diagonal=True, broadcasts=True, linear="each", powers=_factors, unbounded=True, fold=_unchanged
)
def mul_n(*x: Array) -> jax.Array:
    """`x[0] * x[1] * ...`, broadcast together, in their common dtype; booleans count as float32.

    Its gradient contains no division, so it is right where factors are 0.

    Args:
        x: One or more factors, of any shapes that broadcast.
    """
    product: jax.Array = functools.reduce(lambda a, b: lax.mul(*number_pair(a, b)), x)
    return product


# ---------------------------------------------------------------- a Variable and a number


@op(elementwise=True, diagonal=True, linear="together", offset="val", numbers=("val",), of_variables=add2)
def add_scalar(x: Array, /, val: Scalar = 1.0, inplace: Ignored = False) -> jax.Array:
    """`x + val`."""
    return lax.add(*broadcast_scalar(x, val))


@op(elementwise=True, diagonal=True, linear=True, numbers=("val",), of_variables=mul2)
def mul_scalar(x: Array, /, val: Scalar = 1.0, inplace: Ignored = False) -> jax.Array:
    """`x * val`."""
    return lax.mul(*broadcast_scalar(x, val))


def _is_multiplied(exponent: Any) -> bool:
    """True if a power is computed by multiplication, and a square root for half-integer exponents."""
    return not isinstance(exponent, jax.Array) and abs(exponent) <= 64 and float(2 * exponent).is_integer()


@op(
    elementwise=True, diagonal=True, unbounded=True, numbers=("val",), own_way=_is_multiplied, precision="high",
    of_variables=pow2,
)  # fmt: skip
def pow_scalar(x: Array, /, val: Scalar = 1.0, inplace: Ignored = False) -> jax.Array:
    """`x ** val`; whole powers up to 64 are computed by multiplication, and half-integer ones with a square root.

    Its derivative is 0 everywhere if `val` is 0. A negative base to a power that is not whole gives NaN.

    Args:
        x: The base, of any shape; integers are taken as float32 unless `val` is whole, not negative and at most 64.
        val: The exponent.
    """
    if not _is_multiplied(val):
        x = floating(x)
        return lax.pow(x, lax.full_like(x, val))
    whole = int(val)  # towards zero, so that x ** whole is no larger than the result
    if whole == val:
        return raised(floating(x) if val < 0 else numeric(x), whole)
    x = floating(x)
    root = lax.rsqrt(x) if val < 0 else lax.sqrt(x)
    return lax.mul(raised(x, whole), root) if whole else root


@op(
    elementwise=True, diagonal=True, linear="together", offset="val", numbers=("val",),
    of_variables=lambda x, val: sub2(val, x),
)  # fmt: skip
def r_sub_scalar(x: Array, /, val: Scalar = 1.0) -> jax.Array:
    """`val - x`."""
    x, minuend = broadcast_scalar(x, val)
    return lax.sub(minuend, x)


@op(elementwise=True, diagonal=True, unbounded=True, numbers=("val",), of_variables=lambda x, val: div2(val, x))
def r_div_scalar(x: Array, /, val: Scalar = 1.0) -> jax.Array:
    """`val / x`.

    Args:
        x: The divisor, of any shape; integers are taken as float32.
        val: The dividend.
    """
    x, dividend = broadcast_scalar(floating(x), val)
    return lax.div(dividend, x)


@op(
    elementwise=True, diagonal=True, unbounded=True, numbers=("val",), precision="high",
    of_variables=lambda x, val: pow2(val, x),
)  # fmt: skip
def r_pow_scalar(x: Array, /, val: Scalar = 1.0) -> jax.Array:
    """`val ** x`; its derivative is 0 if `val` is 0, and NaN if `val` is negative.

    Args:
        x: The exponent, of any shape; integers are taken as float32.
        val: The base.
    """
    x, base = broadcast_scalar(floating(x), val)
    return lax.pow(base, x)


@op(elementwise=True, diagonal=True, numbers=("val",), of_variables=maximum2)
def maximum_scalar(x: Array, /, val: Scalar = 1.0) -> jax.Array:
    """`max(x, val)`, element by element; NaN propagates. Where they are equal the derivative is 1/2."""
    return lax.max(*broadcast_scalar(x, val))


@op(elementwise=True, diagonal=True, numbers=("val",), of_variables=minimum2)
def minimum_scalar(x: Array, /, val: Scalar = 1.0) -> jax.Array:
    """`min(x, val)`, element by element; NaN propagates. Where they are equal the derivative is 1/2."""
    return lax.min(*broadcast_scalar(x, val))
