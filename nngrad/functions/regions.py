"""RoIAlign, and correlations between the patches of two images."""

from __future__ import annotations

import math

import jax
import numpy as np
from jax import lax

from ..graph import Array, Function, Variable, composite, op
from ..graph.arguments import Ints, Shape, Static, as_ints
from ..graph.axes import AxisMap
from ..graph.spec import FLOAT32
from . import loops, reduction
from .arithmetic import floating, widened
from .array import cast
from .axes import per_axis
from .box_samples import over_samples
from .checkpoints import checkpoint
from .movement import pad, reshape, stack, transpose
from .pooling import sum_pooling
from .slicing import take_points
from .weighted_points import weighted_points, weighted_points_data_grad

# ---------------------------------------------------------------- averages over the bins of boxes


def _cost(f: Function) -> int:
    samples = max(f.args["sampling_ratio"] or 0, 2)
    return 8 * samples**2 * max(f.specs[0].size, f.inputs[0].size)


def _check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"{name} must be of shape {expected}, got {shape}")


@op(linear=True, axes=AxisMap(places=lambda f: ((None, 2), (0, None))), cost=_cost)
def box_averages(
    x: Array, boxes: Array, /, images: Shape, output_size: Ints, spatial_scale: Static, sampling_ratio: int | None
) -> jax.Array:
    """The averages of images over the bins of boxes: the op behind `roi_align`.

    Args:
        x: (pixels of all images, C).
        images: The number of images, their height and their width.
        ...: As in `roi_align`.

    Returns:
        (K, bins, C).
    """
    x, count = floating(x), math.prod(as_ints(output_size))
    _check_shape("x", x.shape, (math.prod(images), *x.shape[1:2]))
    points = lax.expand_dims(widened(x), (0,))
    y = over_samples(
        boxes, images, as_ints(output_size), spatial_scale, sampling_ratio,
        lax.full((1, boxes.shape[0] * count, x.shape[1]), 0, points.dtype),
        lambda weights, indices: weighted_points.forward(points, weights, indices, True),
    )
    return lax.convert_element_type(lax.reshape(y, (boxes.shape[0], count, x.shape[1])), x.dtype)


@op(linear=True, axes=AxisMap(places=lambda f: ((None, None, 1), (None, None))), cost=_cost)
def box_averages_transpose(
    dy: Array, boxes: Array, /, images: Shape, output_size: Ints, spatial_scale: Static, sampling_ratio: int | None
) -> jax.Array:
    """The transpose of `box_averages`: each bin is added to the pixels that it averages.

    Args:
        dy: (K, bins, C).
        ...: As in `box_averages`.

    Returns:
        (pixels of all images, C).
    """
    dy, size = floating(dy), math.prod(images)
    _check_shape("dy", dy.shape, (boxes.shape[0], math.prod(as_ints(output_size)), *dy.shape[2:3]))
    sums = widened(lax.reshape(dy, (1, dy.shape[0] * dy.shape[1], dy.shape[2])))
    x = over_samples(
        boxes, images, as_ints(output_size), spatial_scale, sampling_ratio,
        lax.full((1, size, dy.shape[2]), 0, sums.dtype),
        lambda weights, indices: weighted_points_data_grad.forward(sums, weights, indices, size, True),
    )
    return lax.convert_element_type(lax.squeeze(x, (0,)), dy.dtype)


@composite
def roi_align(
    input: Array, boxes: Array, /, output_size: Ints, spatial_scale: Static = (1.0, 1.0),
    sampling_ratio: int | None = None, channel_last: bool | None = None,
) -> Variable:
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
    if input.ndim != 4 or min(input.shape) < 1:
        raise ValueError(f"input must have four nonempty axes, got shape {input.shape}")
    if boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ValueError(f"boxes must be of shape (K, 5), each row (image index, x1, y1, x2, y2), got {boxes.shape}")
    bins = as_ints(output_size)
    if len(bins) != 2 or min(bins) < 1:
        raise ValueError(f"output_size must be (height, width), both at least 1, got {bins}")
    if not isinstance(spatial_scale, tuple) or len(spatial_scale) != 2:
        raise ValueError(f"spatial_scale must be a tuple (y, x), got {spatial_scale!r}")
    x = input if channel_last else transpose(input, axes=(0, 2, 3, 1))
    pixels = reshape(x, shape=(-1, x.shape[3]))
    y = box_averages(pixels, boxes, x.shape[:3], bins, spatial_scale, sampling_ratio)
    y = reshape(y, shape=(boxes.shape[0], *bins, x.shape[3]))
    return y if channel_last else transpose(y, axes=(0, 3, 1, 2))


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
