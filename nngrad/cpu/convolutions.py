"""Convolutions in groups for CPUs.

XLA compiles them as loops, and first rewrites them: for the gradient by the weights it convolves every group with every
other one, and then takes the diagonal; channels by themselves are convolved one element at a time. Here they are sums
of products of matrices, whose transposes are the forms of both gradients.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from ..extend import Ints, Op, Spec
from ..functions.arithmetic import alike, floating, widened
from ..functions.barriers import computed_once
from ..functions.convolution import convolve, convolve_data_grad, convolve_filter_grad, spatial_axes
from ..functions.pooling_windows import at_places, windows
from ..functions.transposition import transposed
from .facts import Shape, first_order, last_order
from .thresholds import MOST_TAPS

Forward = Callable[..., jax.Array]
Choice = Callable[[Sequence[Spec], Mapping[str, Any]], Forward | None]
"""From the specs of the inputs, and the arguments by name, to what runs in place of an op's forward, if anything."""
Side = Literal["product", "data", "filter"]
"""Of the trilinear form: the convolution, its gradient by the data, and that by the weights."""


def _by_matrices(
    x: Any, weight: Any, pad: Ints, stride: Ints, dilation: Ints, group: int, channel_last: bool,
    matmul_precision: str | None,
) -> jax.Array:
    """The sum over the kernel's elements of products of matrices, one per group, with shifted data."""
    if channel_last:
        # Once, and not for each element of the kernel.
        x = computed_once(lambda x: lax.transpose(x, first_order(x.ndim)), x)
        weight = lax.transpose(weight, first_order(weight.ndim))
    (out, channels, *kernel), batch = weight.shape, len(x)
    axes = windows(x.shape, kernel, stride, True, pad, False, dilation)
    sizes = [a.number for a in axes]
    taps = lax.reshape(weight, (group, out // group, channels, math.prod(kernel)))
    y: Any = 0
    for k, part in enumerate(at_places(x, axes, np.zeros((), x.dtype))):
        data = lax.reshape(part, (batch, group, channels, *sizes))
        y = y + lax.dot_general(taps[..., k], data, (((2,), (2,)), ((0,), (1,))), precision=matmul_precision)
    y = lax.reshape(lax.transpose(y, (2, 0, 1, *range(3, y.ndim))), (batch, out, *sizes))
    return lax.transpose(y, last_order(y.ndim)) if channel_last else y


@functools.cache
def _forward(side: Side) -> Forward:
    """The forward of one side."""

    def forward(a: Any, b: Any, shape: Shape = (), **arguments: Any) -> jax.Array:
        def run(a: Any, b: Any) -> jax.Array:
            a, b = widened(a), widened(b)
            if side == "product":
                return _by_matrices(a, b, **arguments)
            if side == "data":
                return transposed(lambda x: _by_matrices(x, b, **arguments), shape, a, "y")
            return transposed(lambda weight: _by_matrices(b, weight, **arguments), shape, a, "y")

        a, b = alike(floating(a), floating(b))
        # Loops read every element several times, and so may those that read the result: XLA is not to fuse either.
        return lax.convert_element_type(computed_once(run, a, b), a.dtype)

    return forward


def _chosen(side: Side, specs: Sequence[Spec], arguments: Mapping[str, Any]) -> Forward | None:
    weight = arguments["shape"] if side == "filter" else specs[1].shape
    if arguments["group"] == 1 or any(map(is_symbolic_dim, (*weight, *specs[0].shape))):
        return None
    return _forward(side) if math.prod(weight[spatial_axes(arguments["channel_last"])]) <= MOST_TAPS else None


CONVOLUTIONS: dict[Op[Any, Any], Choice] = {
    convolve: functools.partial(_chosen, "product"),
    convolve_data_grad: functools.partial(_chosen, "data"),
    convolve_filter_grad: functools.partial(_chosen, "filter"),
}
