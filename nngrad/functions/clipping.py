"""Clipping of values and of gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..graph import AnyShape, Array, Floats, Function, Variable, composite, op
from ..graph.arguments import Axes, Positive
from ..graph.axes import AxisMap, Places
from .arithmetic import broadcast_shape, maximum2, minimum2
from .axes import axes_of, mixes
from .axis_maps import base_axis_leading
from .indexing import batch_of_samples
from .reduction import norm

# ---------------------------------------------------------------- values


@composite
def clip(x: AnyShape, min: Array | None = None, max: Array | None = None, /) -> Variable:
    """`x` clipped to bounds, either of which may be left out.

    The gradient is 0 where a bound replaces `x`, and is shared equally where they are equal.

    Args:
        min: The lower bound, a number or an array that broadcasts with `x`; None for no bound.
        max: The upper bound, likewise. Where it is below the lower one, the result is the upper one.
    """
    broadcast_shape(x=x, min=min, max=max)
    y = x if min is None else maximum2(x, min)
    return y if max is None else minimum2(y, max)


@composite
def clip_by_value(x: AnyShape, min: Array, max: Array, /) -> Variable:
    """`min(max(x, min), max)`. Where a bound replaces `x`, the gradient goes to the bound.

    Args:
        min: The lower bound, a number or an array that broadcasts with `x`.
        max: The upper bound, likewise. Where it is below the lower one, the result is the upper one.
    """
    broadcast_shape(x=x, min=min, max=max)
    return minimum2(maximum2(x, min), max)


@composite
def clip_by_norm(x: Floats, clip_norm: Array, /, axis: Axes | None = None) -> Variable:
    """`x`, scaled down where its Euclidean norm exceeds a bound: `x clip_norm / max(norm(x), clip_norm)`.

    Args:
        clip_norm: The bound, a positive number or an array that broadcasts with the norms.
        axis: The axes over which a norm is taken; None for all. They stay in the norms, with size 1.
    """
    broadcast_shape(x=x, clip_norm=clip_norm)
    y: Variable = x * (clip_norm / maximum2(norm(x, axis=axis, keepdims=True), clip_norm))
    return y


# ---------------------------------------------------------------- gradients


@op(elementwise=True, diagonal=True, broadcasts=True, reads=1)
def clip_grad_by_value(x: Floats, min: Array, max: Array, /) -> jax.Array:
    """`x` unchanged; each element of the gradient that passes is clipped to bounds.

    This applies to gradients of every order: a clipped gradient is differentiated as any other result, so an element at
    a bound has derivative 0; and the gradient that then comes back to `x` is clipped in turn. Tangents pass unchanged.

    Args:
        min: The lower bound, a number or an array that broadcasts with `x`.
        max: The upper bound, likewise.
    """
    return jnp.broadcast_to(x, broadcast_shape(x=x, min=min, max=max))


@op(forwards_inputs=True, axes=mixes("axes"))
def clip_grad_by_norm(x: Floats, /, clip_norm: Positive | None = None, axes: Axes | None = None) -> jax.Array:
    """`x` unchanged; a gradient `g` that passes becomes `clip_norm g / norm(g)`, scaled up or down.

    A gradient of 0 stays 0, and has derivative 0. This applies to gradients of every order: a scaled gradient is
    differentiated as any other result, so only changes of its direction count; and the gradient that then comes back to
    `x` is scaled in turn. Tangents pass unchanged.

    Args:
        clip_norm: The Euclidean norm that gradients get; None for 1.
        axes: The axes over which a norm is taken; None for all.
    """
    axes_of(axes, x.ndim, "axes")
    y: jax.Array = x
    return y


def _sample_axes(f: Function) -> tuple[Places, ...]:
    ndim, base = f.inputs[0].ndim, f.args["base_axis"]
    first = base + ndim if base < 0 else base
    return (tuple([a if a < first else None for a in range(ndim)]),)


@op(forwards_inputs=True, axes=AxisMap(places=_sample_axes, leading=base_axis_leading))
def top_k_grad(x: Array, /, k: int, abs: bool = False, base_axis: int = 1) -> jax.Array:
    """`x` unchanged; the gradient that passes keeps only the `k` largest elements of each sample.

    This applies to gradients of every order. Tangents pass unchanged.

    Args:
        x: `(*batch, *sample)`, where the sample begins at `base_axis`; floating.
        k: The number of elements.
        abs: Whether elements are compared by magnitude.

    Raises:
        ValueError: A sample has fewer than `k` elements, `k` is below 1, or `base_axis` is out of range.
    """
    batch_of_samples(x.shape, base_axis, k)
    y: jax.Array = x
    return y
