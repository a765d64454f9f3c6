"""RoIAlign, and correlations between the patches of two images."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from ..graph import Array, Function, Variable, composite, op
from ..graph.arguments import Ints, Shape, Static, as_ints
from ..graph.axes import AxisMap, Places
from ..graph.spec import FLOAT32
from . import loops, reduction
from .arithmetic import floating, widened
from .array import cast
from .axes import per_axis
from .box_samples import Bins, over_samples
from .checkpoints import checkpoint
from .movement import pad, stack, transpose
from .pooling import sum_pooling
from .slicing import take_points
from .weighted_points import weighted_points, weighted_points_data_grad

# ---------------------------------------------------------------- averages over the bins of boxes


def _aligned_places(f: Function) -> tuple[Places, ...]:
    channels = 3 if f.args["channel_last"] else 1
    return tuple([channels if a == channels else None for a in range(4)]), (0, None)


def _spread_places(f: Function) -> tuple[Places, ...]:
    return _aligned_places(f)[0], (None, None)


def _aligned_cost(f: Function) -> int:
    samples = max(f.args["sampling_ratio"] or 0, 2)
    return 8 * samples**2 * max(f.specs[0].size, f.inputs[0].size)


@op(linear=True, axes=AxisMap(places=_aligned_places), cost=_aligned_cost)
def roi_align(
    input: Array,
    boxes: Array,
    /,
    output_size: Ints,
    spatial_scale: Static = (1.0, 1.0),
    sampling_ratio: int | None = None,
    channel_last: bool | None = None,
) -> jax.Array:
    """The averages of an image over the bins of boxes, from bilinear samples (He et al. 2017, "Mask R-CNN").

    It is linear in the images, and so differentiable in them to any order. As in nnabla, boxes get no gradient;
    `warp_by_grid` has one for the positions that it samples.

    Args:
        input: (batch, C, height, width), or (batch, height, width, C) if `channel_last`.
        boxes: (K, 5): the index of the image, truncated to a whole number and at least 0, and the box (x1, y1, x2, y2).
            The centre of the first pixel is at 1/2, divided by the scale. A box whose image does not exist has bins of
            0.
        output_size: (height, width): the number of bins of a box.
        spatial_scale: The factor of the boxes' coordinates, (y, x): the size of `input`, divided by that of the image
            to which they refer.
        sampling_ratio: The number of samples in a bin along each axis. If None or not positive, it is the size of the
            bin in pixels, rounded up: that is slower, and a box without area has bins of 0. A sample up to one pixel
            outside of the image takes the nearest pixel, and one farther out is 0.
        channel_last: Whether the channel axis of `input` and of the result is the last one; None stands for False.

    Returns:
        (K, C, *output_size), or (K, *output_size, C).

    Raises:
        TypeError: `spatial_scale` is not a tuple of numbers.
        ValueError: The shapes do not fit, or `output_size` or `spatial_scale` does not have two entries.
    """
    x = floating(input)
    last = bool(channel_last)
    layout = _check_boxes(x.shape, boxes.shape, output_size, spatial_scale, last)
    batch, height, width, channels = layout
    size = batch * height * width
    pixels = (1, size, channels) if last else (1, channels, size)
    points = widened(lax.reshape(x if last else lax.transpose(x, (1, 0, 2, 3)), pixels))
    bins = as_ints(output_size)
    sums = boxes.shape[0] * bins[0] * bins[1]
    start = lax.full((1, sums, channels) if last else (1, channels, sums), 0, widened(x).dtype)

    def added(y: jax.Array, weights: jax.Array, indices: jax.Array) -> jax.Array:
        return lax.add(y, _in_dtype_of(y, weighted_points.forward(points, weights, indices, last)))

    bins_of = Bins.of(boxes, layout[:3], bins, spatial_scale, sampling_ratio)
    y = lax.convert_element_type(over_samples(bins_of, sampling_ratio, start, added), x.dtype)
    shape = (boxes.shape[0], *bins, channels) if last else (channels, boxes.shape[0], *bins)
    y = lax.reshape(y, shape)
    return y if last else lax.transpose(y, (1, 0, 2, 3))


@op(linear=True, axes=AxisMap(places=_spread_places), cost=_aligned_cost)
def roi_align_backward(
    dy: Array,
    boxes: Array,
    /,
    shape: Shape,
    output_size: Ints,
    spatial_scale: Static = (1.0, 1.0),
    sampling_ratio: int | None = None,
    channel_last: bool | None = None,
) -> jax.Array:
    """The transpose of `roi_align` in an input of `shape`: each bin is added to the pixels that it averages.

    Args:
        dy: Of the shape that `roi_align` returns.
        shape: The shape of the images and of the result.
        ...: As for `roi_align`.

    Raises:
        TypeError: As in `roi_align`.
        ValueError: As in `roi_align`, or the shape of `dy` does not fit.
    """
    dy = floating(dy)
    last = bool(channel_last)
    layout = _check_boxes(tuple(shape), boxes.shape, output_size, spatial_scale, last)
    batch, height, width, channels = layout
    bins = as_ints(output_size)
    count = boxes.shape[0]
    expected = (count, *bins, channels) if last else (count, channels, *bins)
    if dy.shape != expected:
        raise ValueError(f"dy must have the shape of the bins, {expected}, got {dy.shape}")
    sums, size = count * bins[0] * bins[1], batch * height * width
    values = (1, sums, channels) if last else (1, channels, sums)
    arrived = widened(lax.reshape(dy if last else lax.transpose(dy, (1, 0, 2, 3)), values))
    start = lax.full((1, size, channels) if last else (1, channels, size), 0, widened(dy).dtype)

    def added(x: jax.Array, weights: jax.Array, indices: jax.Array) -> jax.Array:
        return lax.add(x, _in_dtype_of(x, weighted_points_data_grad.forward(arrived, weights, indices, size, last)))

    bins_of = Bins.of(boxes, layout[:3], bins, spatial_scale, sampling_ratio)
    x = lax.convert_element_type(over_samples(bins_of, sampling_ratio, start, added), dy.dtype)
    x = lax.reshape(x, shape if last else (channels, batch, height, width))
    return x if last else lax.transpose(x, (1, 0, 2, 3))


def _in_dtype_of(total: jax.Array, part: jax.Array) -> jax.Array:
    """`part` in the dtype of the sum `total`; that of the boxes may be wider."""
    return lax.convert_element_type(part, total.dtype)


def _check_boxes(
    shape: tuple[int, ...], boxes: tuple[int, ...], output_size: Ints, spatial_scale: Any, last: bool
) -> tuple[int, int, int, int]:
    """Batch, height, width and channels of the images; a ValueError or TypeError says what does not fit."""
    if len(shape) != 4 or any([n < 1 for n in shape]):
        raise ValueError(f"input must have four nonempty axes, got shape {shape}")
    if len(boxes) != 2 or boxes[1] != 5:
        raise ValueError(f"boxes must be of shape (K, 5), each row (image index, x1, y1, x2, y2), got {boxes}")
    bins = as_ints(output_size)
    if len(bins) != 2 or min(bins) < 1:
        raise ValueError(f"output_size must be (height, width), both at least 1, got {bins}")
    if not isinstance(spatial_scale, tuple) or len(spatial_scale) != 2:
        raise ValueError(f"spatial_scale must be a tuple (y, x), got {spatial_scale!r}")
    batch, channels = shape[0], shape[3] if last else shape[1]
    height, width = shape[1:3] if last else shape[2:]
    return batch, height, width, channels


# ---------------------------------------------------------------- products of patches


@composite
def patch_correlation(
    x1: Array,
    x2: Array,
    /,
    patch: Ints = (1, 1),
    shift: Ints = (0, 0),
    patch_step: Ints = (1, 1),
    shift_step: Ints = (1, 1),
    padding: Ints = (0, 0, 0, 0),
    channel_last: bool = False,
) -> Variable:
    """Correlations between the patches of one image and nearby patches of another.

    Each is the sum, over channels and pixels, of a patch of `x1` times a patch of `x2` that is displaced by -shift,
    -shift + shift_step, ... up to shift along each axis (Dosovitskiy et al. 2015, "FlowNet"). Outside of the images
    there are zeros.

    Args:
        x1: (batch, C, height, width), or (batch, height, width, C) if `channel_last`.
        x2: Of the shape of `x1`.
        patch: The height and the width of a patch; here and below one number applies to both axes.
        shift: The largest displacement of a patch of `x2`.
        patch_step: The distance between patches of `x1`.
        shift_step: The distance between displacements.
        padding: The number of zeros added at the top, the bottom, the left and the right; or at both ends of the
            height, and of the width; one number for all.
        channel_last: Whether the channel axis is the last, and the displacements come after the pixels.

    Returns:
        (batch, Cy, Cx, Ho, Wo), or (batch, Ho, Wo, Cy, Cx): Cy = 2 shift // shift_step + 1 displacements along y, and
        Ho = (height + padding - patch) // patch_step + 1 patches, and so along x.

    Raises:
        ValueError: The shapes do not fit, or an argument is out of range.
    """
    if x1.ndim != 4 or x1.shape != x2.shape:
        raise ValueError(f"x1 and x2 must have the same shape of four axes, got {x1.shape} and {x2.shape}")
    kernel = per_axis(patch, "patch", 2, 1, 1)
    stride = per_axis(patch_step, "patch_step", 2, 1, 1)
    far, step = (per_axis(shift, "shift", 2, 0, 0), per_axis(shift_step, "shift_step", 2, 1, 1))
    if isinstance(padding, tuple) and len(padding) == 2:
        padding = (padding[0], padding[0], padding[1], padding[1])
    margins = per_axis(padding, "padding", 4, 0, 0)
    x1, x2 = (x if x.spec.differentiable else cast(x, FLOAT32) for x in (x1, x2))
    if channel_last:
        x1, x2 = transpose(x1, axes=(0, 3, 1, 2)), transpose(x2, axes=(0, 3, 1, 2))
    for axis, (n, k) in enumerate(zip(x1.shape[2:], kernel, strict=True)):
        if k > n + margins[2 * axis] + margins[2 * axis + 1]:
            raise ValueError(f"patch must not exceed padded x1, of shape {x1.shape} before padding, got {kernel}")
    count = tuple([2 * f // s + 1 for f, s in zip(far, step, strict=True)])
    # Nothing is read after the last displacement, which may be before the edge if steps are more than twice the shift.
    behind = [m + (n - 1) * s - f for m, n, s, f in zip(margins[1::2], count, step, far, strict=True)]
    wider = (margins[0] + far[0], max(behind[0], 0), margins[2] + far[1], max(behind[1], 0))
    first, second = pad(x1, pad_width=(0, 0, 0, 0, *margins)), pad(x2, pad_width=(0, 0, 0, 0, *wider))
    if min(behind) < 0:
        height, width = (n + min(b, 0) for n, b in zip(second.shape[2:], behind, strict=True))
        second = second[:, :, :height, :width]
    y = _products(first, second, count, step)
    if kernel != (1, 1) or stride != (1, 1):
        y = sum_pooling(y, kernel=kernel, stride=stride)
    return transpose(y, axes=(0, 3, 4, 1, 2)) if channel_last else y


def _products(x: Variable, w: Variable, count: tuple[int, ...], step: tuple[int, ...]) -> Variable:
    """Products of each pixel of `x` with displaced ones of `w`, summed over the channels: (batch, *count, height,
    width). A loop goes through the displacements along the height, and gradients repeat its products."""
    height, width = x.shape[2:]

    @checkpoint
    def row(places: Variable) -> Variable:
        below = take_points(w, places, axes=(2,), at=2)
        starts = range(0, count[1] * step[1], step[1])
        return stack(*[reduction.sum(x * below[..., j : j + width], axis=1) for j in starts], axis=1)

    places = (step[0] * np.arange(count[0])[:, None] + np.arange(height)).astype(np.int32)[:, :, None]
    return transpose(loops.map(row, places), axes=(1, 0, 2, 3, 4))
