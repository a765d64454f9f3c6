"""Forms of convolutions for CPUs.

XLA gives a plain convolution in 16 or 32 bits to one of two libraries, and compiles others as loops. It prefers YNNPACK
for those over images, of which many channels take twice Eigen's time; so these are written in a way that only Eigen can
do. XLA first rewrites groups: for the gradient by the weights it convolves every group with every other one, and then
takes the diagonal; channels by themselves are convolved one element at a time. So groups are convolved here in one of
three other forms, whose transposes are the forms of both gradients. Where little lies under a kernel, one product of
matrices takes less than a library.
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

from ..extend import Ints, Op, Spec, coerced
from ..functions.arithmetic import alike, floating, widened
from ..functions.barriers import computed_once
from ..functions.convolution import (
    convolve,
    convolve_data_grad,
    convolve_filter_grad,
    data_grad,
    padded,
    spatial_axes,
)
from ..functions.pooling_windows import at_places, windows
from ..functions.transposition import missing_places, transposed
from .facts import Shape, first_order, last_order
from .thresholds import (
    FEW_CHANNELS,
    LEAST_BATCH,
    MANY_GROUPS,
    MOST_TAPS,
    TAKEN_BY_YNNPACK,
    WIDE_GROUP,
    WORTH_THE_LIBRARY,
)

Forward = Callable[..., jax.Array]
Choice = Callable[[Sequence[Spec], Mapping[str, Any]], Forward | None]
"""From the specs of the inputs, and the arguments by name, to what runs in place of an op's forward, if anything."""
Side = Literal["product", "data", "filter"]
"""Of the trilinear form: the convolution, its gradient by the data, and that by the weights."""

# ---------------------------------------------------------------- large kernels


def _is_exchanged(data: Sequence[int], weight: Sequence[int], arguments: Mapping[str, Any]) -> bool:
    """True if XLA on CPUs, without groups, swaps data and kernel, since the kernel is larger than the data, and
    reverses the data. It then compiles the convolution as a loop, which is much slower than the library for
    convolutions."""
    spatial = spatial_axes(arguments["channel_last"])
    places = data[spatial]
    return not any(map(is_symbolic_dim, places)) and 1 < math.prod(places) < math.prod(weight[spatial])


def _product_of_padded(x: Any, weight: Any, pad: Ints, *, channel_last: bool, **arguments: Any) -> jax.Array:
    """The product with x padded explicitly, so that it is no smaller than the kernel."""
    ends = [(0, 0, 0)] * x.ndim
    ends[spatial_axes(channel_last)] = [(p, p, 0) for p in coerced(Ints, pad, "pad")]
    none = (0,) * (x.ndim - 2)
    y: jax.Array = convolve.forward(padded(floating(x), ends), weight, none, channel_last=channel_last, **arguments)
    return y


_DATA_GRAD_BY_LIBRARY = functools.partial(data_grad, keeps_places=True)

# ---------------------------------------------------------------- images


def _by_eigen(
    x: Any, weight: Any, pad: Ints, stride: Ints, dilation: Ints, group: int, channel_last: bool,
    matmul_precision: str | None,
) -> jax.Array:
    """The product with a gap after each row of the data, over which it steps. YNNPACK takes no gaps, and Eigen steps
    over them as fast as over none."""
    (p, q), (s, t), (d, e) = (coerced(Ints, steps, "steps") for steps in (pad, stride, dilation))
    axes = (0, 3, 1, 2) if channel_last else (0, 1, 2, 3)
    y: jax.Array = lax.conv_general_dilated(
        x, weight, (2 * s, t), [(2 * p, 2 * p), (q, q)], (2, 1), (2 * d, e),
        lax.ConvDimensionNumbers(axes, axes, axes), precision=matmul_precision,
    )  # fmt: skip
    return y


def _is_for_eigen(spec: Spec, weight: Shape, arguments: Mapping[str, Any], side: Side) -> bool:
    """True if XLA would give a side of a convolution with kernels `weight` in one group to YNNPACK, and Eigen takes
    less. The gradient by the weights is a convolution with the batch for channels."""
    out, taken, batch = weight[0], weight[-1 if arguments["channel_last"] else 1], spec.shape[0]
    if len(weight) != 4 or spec.dtype.itemsize > 4 or any(map(is_symbolic_dim, (batch, *weight))):
        return False
    if side == "filter":
        return batch >= LEAST_BATCH and max(batch, out) > TAKEN_BY_YNNPACK
    has_gaps = side == "data" and max(coerced(Ints, arguments["stride"], "stride")) > 1
    return not has_gaps and min(taken, out) > TAKEN_BY_YNNPACK


# ---------------------------------------------------------------- few numbers under a kernel


def _by_patches(
    x: Any, weight: Any, *, pad: Ints, stride: Ints, dilation: Ints, matmul_precision: str | None, **arguments: Any
) -> jax.Array:
    """One product of matrices: what lies under the kernel at each place, side by side, and the weights."""
    axes = windows(x.shape, weight.shape[1:-1], stride, True, pad, True, dilation)
    patches = lax.concatenate(at_places(x, axes, np.zeros((), x.dtype)), x.ndim - 1)
    weights = lax.reshape(weight, (len(weight), patches.shape[-1]))
    return lax.dot_general(patches, weights, (((x.ndim - 1,), (1,)), ((), ())), precision=matmul_precision)


def _in_patches(weight: Shape, arguments: Mapping[str, Any], side: Side) -> Forward | None:
    """A side of a convolution with kernels `weight` in one group; None if the library does it as fast."""
    if not arguments["channel_last"] or any(map(is_symbolic_dim, weight)):
        return None
    out, taken, under = weight[0], weight[-1], math.prod(weight[1:-1])
    if under == 1:
        pays = taken > FEW_CHANNELS or max(coerced(Ints, arguments["stride"], "stride")) > 1
    else:
        few = taken <= FEW_CHANNELS and under <= MOST_TAPS and under * taken <= 2 * out <= 2 * TAKEN_BY_YNNPACK
        pays = side == "product" and few
    return _side(_by_patches, side) if pays else None


# ---------------------------------------------------------------- groups


def _group_by_group(x: Any, weight: Any, *, group: int, channel_last: bool, **arguments: Any) -> jax.Array:
    """A convolution of each group, for the library."""
    axis = x.ndim - 1 if channel_last else 1
    xs = lax.split(x, [x.shape[axis] // group] * group, axis)
    weights = lax.split(weight, [len(weight) // group] * group)
    ys = [
        convolve.forward(a, b, group=1, channel_last=channel_last, **arguments)
        for a, b in zip(xs, weights, strict=True)
    ]
    return lax.concatenate(ys, axis)


def _by_elements(
    x: Any, weight: Any, pad: Ints, stride: Ints, dilation: Ints, group: int, channel_last: bool,
    matmul_precision: str | None,
) -> jax.Array:
    """The sum over the kernel's elements of shifted data times a number per channel: for groups of one channel."""
    spatial = spatial_axes(channel_last)
    axes = windows(x.shape, weight.shape[spatial], stride, True, pad, channel_last, dilation)
    taps = lax.reshape(weight, (group, len(weight) // group, math.prod(weight.shape[spatial])))
    # With one axis more, for the filters of each channel.
    channel = x.ndim - 1 if channel_last else 1
    y: Any = 0
    for k, part in enumerate(at_places(x, axes, np.zeros((), x.dtype))):
        shape = (*part.shape[: channel + 1], taps.shape[1], *part.shape[channel + 1 :])
        data = lax.broadcast_in_dim(part, shape, [i for i in range(len(shape)) if i != channel + 1])
        y = y + data * lax.broadcast_in_dim(taps[:, :, k], shape, (channel, channel + 1))
    return lax.reshape(y, (*y.shape[:channel], len(weight), *y.shape[channel + 2 :]))


def _by_matrices(
    x: Any, weight: Any, pad: Ints, stride: Ints, dilation: Ints, group: int, channel_last: bool,
    matmul_precision: str | None,
) -> jax.Array:
    """The sum over the kernel's elements of products of matrices, one per group, with shifted data."""
    if channel_last:
        # Once, and not for each element of the kernel.
        x = computed_once(lambda x: lax.transpose(x, first_order(x.ndim)), x)
        weight = lax.transpose(weight, first_order(weight.ndim))
    (out, taken, *kernel), batch = weight.shape, len(x)
    axes = windows(x.shape, kernel, stride, True, pad, False, dilation)
    places = [a.number for a in axes]
    taps = lax.reshape(weight, (group, out // group, taken, math.prod(kernel)))
    y: Any = 0
    for k, part in enumerate(at_places(x, axes, np.zeros((), x.dtype))):
        data = lax.reshape(part, (batch, group, taken, *places))
        y = y + lax.dot_general(taps[..., k], data, (((2,), (2,)), ((0,), (1,))), precision=matmul_precision)
    y = lax.reshape(lax.transpose(y, (2, 0, 1, *range(3, y.ndim))), (batch, out, *places))
    return lax.transpose(y, last_order(y.ndim)) if channel_last else y


@functools.cache
def _side(form: Forward, side: Side) -> Forward:
    """One side of the trilinear form of which `form` is the product."""

    @functools.wraps(form)
    def forward(a: Any, b: Any, shape: Shape = (), **arguments: Any) -> jax.Array:
        def run(a: Any, b: Any) -> jax.Array:
            a, b = widened(a), widened(b)
            if side == "product":
                return form(a, b, **arguments)
            if side == "data":
                return transposed(lambda x: form(x, b, **arguments), shape, a, "y")
            return transposed(lambda weight: form(b, weight, **arguments), shape, a, "y")

        a, b = alike(floating(a), floating(b))
        # Loops read every element several times, and so may those that read the result: XLA is not to fuse either.
        # But it does not use the library in calls.
        y = run(a, b) if form in (_group_by_group, _by_patches, _by_eigen) else computed_once(run, a, b)
        return lax.convert_element_type(y, a.dtype)

    return forward


def is_by_elements(weight: Shape, arguments: Mapping[str, Any]) -> bool:
    """True if a convolution with kernels `weight`, or a gradient of one, takes each channel by itself, element by
    element of the kernel. It is as fast in either layout."""
    if arguments["group"] == 1 or any(map(is_symbolic_dim, weight)):
        return False
    channel_last = arguments["channel_last"]
    return weight[-1 if channel_last else 1] == 1 and math.prod(weight[spatial_axes(channel_last)]) <= MOST_TAPS


def _in_groups(spec: Spec, weight: Shape, arguments: Mapping[str, Any], side: Side) -> Forward | None:
    """A side of a convolution with kernels `weight` in several groups, which `spec` is the first input of; None if XLA
    does it as fast."""
    if any(map(is_symbolic_dim, (*weight, *spec.shape))):
        return None
    group, channel_last = arguments["group"], arguments["channel_last"]
    if is_by_elements(weight, arguments):
        # With several filters per channel, XLA takes 15 to 300 times as long for the gradient by weights in 32 bits.
        return None if side == "filter" and weight[0] == group else _side(_by_elements, side)
    are_few = math.prod(weight[spatial_axes(channel_last)]) <= MOST_TAPS
    taken = weight[-1 if channel_last else 1]
    is_for_library = spec.dtype.itemsize <= 4 and side != "filter"
    is_exchanged = side != "filter" and _is_exchanged(spec.shape, weight, arguments)
    is_as_fast = taken >= WIDE_GROUP or is_for_library or not are_few
    if is_as_fast and group <= MANY_GROUPS and not is_exchanged:
        return _side(_group_by_group, side)
    return _side(_by_matrices, side) if are_few and not is_for_library else None


# ---------------------------------------------------------------- choices


def _in_one_group(spec: Spec, weight: Shape, arguments: Mapping[str, Any], side: Side) -> Forward | None:
    """A side of a convolution with kernels `weight` in one group, which `spec` is the first input of; None if XLA does
    it as fast."""
    by_patches = _in_patches(weight, arguments, side)
    if by_patches is not None or not _is_for_eigen(spec, weight, arguments, side):
        return by_patches
    return _side(_by_eigen, side)


def _product(specs: Sequence[Spec], arguments: Mapping[str, Any]) -> Forward | None:
    x, weight = specs
    if arguments["group"] > 1:
        return _in_groups(x, weight.shape, arguments, "product")
    if _is_exchanged(x.shape, weight.shape, arguments):
        return _product_of_padded
    return _in_one_group(x, weight.shape, arguments, "product")


def _gradient_by_data(specs: Sequence[Spec], arguments: Mapping[str, Any]) -> Forward | None:
    y, weight = specs
    if arguments["group"] > 1:
        return _in_groups(y, weight.shape, arguments, "data")
    if not _is_exchanged(y.shape, weight.shape, arguments):
        return _in_one_group(y, weight.shape, arguments, "data")
    spatial = spatial_axes(arguments["channel_last"])
    places, kernel, sizes = y.shape[spatial], weight.shape[spatial], arguments["shape"][spatial]
    more = zip(sizes, coerced(Ints, arguments["stride"], "stride"), missing_places(places, kernel), strict=True)
    by_library = math.prod([n + s * m for n, s, m in more]) * math.prod(kernel)
    return _DATA_GRAD_BY_LIBRARY if by_library <= WORTH_THE_LIBRARY * math.prod(sizes) * math.prod(places) else None


def _gradient_by_weight(specs: Sequence[Spec], arguments: Mapping[str, Any]) -> Forward | None:
    if arguments["group"] > 1:
        return _in_groups(specs[0], arguments["shape"], arguments, "filter")
    return _in_one_group(specs[0], arguments["shape"], arguments, "filter")


CONVOLUTIONS: dict[Op[Any, Any], Choice] = {
    convolve: _product,
    convolve_data_grad: _gradient_by_data,
    convolve_filter_grad: _gradient_by_weight,
}
