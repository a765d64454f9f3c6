"""Resampling to finer and coarser grids: nearest, linear and cubic interpolation along axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np
from jax import lax

from ..graph import Array, Function, Variable, as_variable, composite, op
from ..graph.arguments import Ints, Shape, Static, as_float, as_ints, coerced, one_of
from ..graph.axes import AxisMap
from .arithmetic import add2, floating, widened
from .elementwise import identity
from .interpolation_taps import ROUNDINGS, Grid, Kernel, Taps, positions, taps, transposed_taps

# ---------------------------------------------------------------- one axis after the other


def _axes_led(f: Function, size: tuple[int, ...], shape: tuple[int, ...]) -> Mapping[str, Any]:
    changed = {"axes": tuple([a + len(size) for a in f.args["axes"]])}
    return changed | ({"shape": (*size, *f.args["shape"])} if "shape" in f.args else {})


RESAMPLED = AxisMap(
    places=lambda f: (tuple([None if a in f.args["axes"] else a for a in range(f.inputs[0].ndim)]),), leading=_axes_led
)
Mode: TypeAlias = Annotated[str, one_of("nearest", "linear", "cubic", "area")]
Rounding: TypeAlias = Annotated[str, one_of(*ROUNDINGS)]


@op(linear=True, axes=RESAMPLED)
def resample(
    x: Array, /, axes: Ints, grids: Static, mode: Mode, rounding: Rounding = "floor", cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False, bounded: bool = False,
) -> jax.Array:
    """`x` interpolated at evenly spaced positions along some axes: the op behind `interpolate` and `onnx_resize`.

    Args:
        x: Any shape; whole numbers are taken as float32.
        axes: The axes, not negative.
        grids: For each of them (size, step, offset): element i of the result is at the position offset + step i of x.
        mode: 'nearest', 'linear', 'cubic', or 'area': the mean of the elements that lie, even in part, between a
            position and the next one. Beyond the ends, the first or the last element is repeated.
        rounding: The direction in which 'nearest' rounds: 'floor', 'ceil', 'round_prefer_floor' or 'round_prefer_ceil'.
        cubic_coeff_a: The parameter a of the cubic kernel (Keys 1981).
        exclude_outside: Whether the cubic kernel ignores positions outside of x, and its weights are scaled to sum to
            1.
        bounded: Whether the result is 0 at positions outside of x.

    Raises:
        ValueError: An axis is out of range or empty, or there is not one grid for each axis.
    """
    x = floating(x)
    kernel = Kernel(mode, rounding, cubic_coeff_a, exclude_outside, bounded)
    return _along(x, as_ints(axes), _taps_of(x.shape, axes, grids, kernel))


@op(linear=True, axes=RESAMPLED)
def resample_transpose(
    y: Array, /, shape: Shape, axes: Ints, grids: Static, mode: Mode, rounding: Rounding = "floor",
    cubic_coeff_a: float = -0.75, exclude_outside: bool = False, bounded: bool = False,
) -> jax.Array:
    """The transpose of `resample` of an array of `shape`: each element is added to those from which it is interpolated.

    Args:
        y: Of the shape that `resample` returns.
        shape: The shape of x and of the result.
        ...: As in `resample`.
    """
    y = floating(y)
    kernel = Kernel(mode, rounding, cubic_coeff_a, exclude_outside, bounded)
    forward = _taps_of(shape, axes, grids, kernel)
    sizes = {a: len(of_axis.indices) for a, of_axis in zip(as_ints(axes), forward, strict=True)}
    expected = tuple([sizes.get(a, n) for a, n in enumerate(shape)])
    if y.shape != expected:
        raise ValueError(f"y must have the shape of the resampled x, {expected}, got {y.shape}")
    back = [transposed_taps(of_axis, shape[a]) for a, of_axis in zip(as_ints(axes), forward, strict=True)]
    return _along(y, as_ints(axes), back)


def _taps_of(shape: Shape, axes: Ints, grids: Any, kernel: Kernel) -> list[Taps]:
    """The taps along each axis of an array of `shape`."""
    axes = as_ints(axes)
    if not isinstance(grids, tuple) or len(grids) != len(axes):
        raise ValueError(f"grids must be a tuple of (size, step, offset), one for each of axes {axes}, got {grids!r}")
    for a in axes:
        if not 0 <= a < len(shape) or axes.count(a) > 1:
            raise ValueError(f"axes must be distinct axes of x, of shape {tuple(shape)}, got {axes}")
        if shape[a] == 0:
            raise ValueError(f"cannot interpolate x of shape {tuple(shape)} along axis {a}: it is empty")
    return [taps(shape[a], Grid(*grid), kernel) for a, grid in zip(axes, grids, strict=True)]


def _along(x: jax.Array, axes: tuple[int, ...], of_axes: list[Taps]) -> jax.Array:
    """Weighted sums of slices along each axis; axes that become shorter come first."""
    dtype = x.dtype
    x = widened(x)
    for _, axis, one in sorted([(len(one.indices) / x.shape[a], a, one) for a, one in zip(axes, of_axes, strict=True)]):
        x = _weighted(x, axis, one)
    return lax.convert_element_type(x, dtype)


def _weighted(x: jax.Array, axis: int, of_axis: Taps) -> jax.Array:
    """For each row of taps, the weighted sum of slices along `axis`."""
    shape = tuple([len(of_axis.indices) if a == axis else n for a, n in enumerate(x.shape)])
    total: jax.Array | None = None
    for indices, weights in zip(of_axis.indices.T, of_axis.weights.T, strict=True):
        part = _slices(x, indices, axis)
        if not np.all(weights == 1):
            part = lax.mul(part, lax.broadcast_in_dim(weights.astype(x.dtype), shape, (axis,)))
        if not np.all(weights):
            part = lax.select(lax.broadcast_in_dim(weights != 0, shape, (axis,)), part, lax.full_like(part, 0))
        total = part if total is None else lax.add(total, part)
    return lax.full(shape, 0, x.dtype) if total is None else total


def _slices(x: jax.Array, indices: np.ndarray, axis: int) -> jax.Array:
    """The slices of `x` at constant indices along an axis."""
    others = tuple([a for a in range(x.ndim) if a != axis])
    dimensions = lax.GatherDimensionNumbers(offset_dims=others, collapsed_slice_dims=(axis,), start_index_map=(axis,))
    window = tuple([1 if a == axis else n for a, n in enumerate(x.shape)])
    return lax.gather(x, indices[:, None], dimensions, window, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


# ---------------------------------------------------------------- nnabla's functions


@composite
def interpolate(
    x: Array, /, scale: Static | None = None, output_size: Static | None = None,
    mode: Mode = "linear", align_corners: bool = False, half_pixel: bool = False, half_pixel_for_nn: bool = False,
    channel_last: bool = False,
) -> Variable:
    """`x` resized along 1 to 3 spatial axes, without antialiasing.

    Element i of m in the result is at the position i n / m among n elements, unless `align_corners`, `half_pixel` or
    `half_pixel_for_nn` is set. A result of one element is at position 0, except with `half_pixel_for_nn`, 'cubic' or
    'area'.

    Args:
        x: (*batch, *sizes), or (*batch, *sizes, C) if `channel_last`. Whole numbers are taken as float32.
        scale: A factor for each spatial axis: a size n becomes n times the factor, rounded down. A number, here and
            below, is for all axes of (N, C, *sizes).
        output_size: The sizes of the result; if given, `scale` is ignored.
        mode: 'linear', between the two nearest elements along each axis; 'nearest', which takes the element at the
            position rounded down; 'cubic', cubic convolution (Keys 1981) with a = -0.75 of the four nearest elements,
            PyTorch's bicubic with `half_pixel`; or 'area', the mean of the elements from i n / m to (i + 1) n / m.
        align_corners: Whether the position is i (n - 1) / (m - 1), so that the first and last elements stay.
        half_pixel: Whether it is (i + 1/2) n / m - 1/2, and 0 where that is negative: elements are areas of size 1.
        half_pixel_for_nn: For 'nearest', whether it is (i + 1/2) n / m.
        channel_last: Whether the channel axis is the last.

    Raises:
        TypeError: `scale` or `output_size` is neither a number nor a tuple of numbers.
        ValueError: Neither `scale` nor `output_size` is given, or not for 1 to 3 axes of `x`, or as a number for an `x`
            without batch, channel and spatial axes; `mode` is unknown; a size is 0; or both `align_corners` and
            `half_pixel` are set, or one of them with 'area'.
    """
    if scale is None and output_size is None:
        raise ValueError("scale or output_size is required")
    if align_corners and half_pixel:
        raise ValueError("align_corners and half_pixel must not both be True")
    if mode == "area" and (align_corners or half_pixel):
        raise ValueError("align_corners and half_pixel must be False with mode 'area'")
    name, entries = ("scale", scale) if output_size is None else ("output_size", output_size)
    if not isinstance(entries, tuple):
        if not 3 <= x.ndim <= 5:
            raise ValueError(f"{name}={entries} is for all spatial axes of (N, C, *sizes), but x has shape {x.shape}. "
                             "Give a tuple with an entry for each axis")
        entries = (entries,) * (x.ndim - 2)
    numbers = _numbers(entries, name)
    count = len(numbers)
    first = x.ndim - count - channel_last
    if not 1 <= count <= 3 or first < 0:
        raise ValueError(f"{name} must have 1 to 3 entries, one for each spatial axis of x, of shape {x.shape}, got "
                         f"{count}")
    before = x.shape[first : first + count]
    after = coerced(as_ints, entries, name) if output_size is not None else tuple([
        math.floor(factor * n) for factor, n in zip(numbers, before, strict=True)
    ])
    if min(before) < 1 or min(after) < 1:
        raise ValueError(f"cannot resample from sizes {before} to {after}: all must be at least 1")
    centred = mode == "nearest" and half_pixel_for_nn
    grids = []
    for n, m in zip(before, after, strict=True):
        if centred or (m == 1 and mode in ("cubic", "area") and not align_corners):
            step = n / m
        else:
            step = 0.0 if m == 1 else (n - 1) / (m - 1) if align_corners else n / m
        grids.append((m, step, step / 2 if centred else step / 2 - 0.5 if half_pixel and step else 0.0))
    return _resized(x, first, grids, mode)


@composite
def onnx_resize(
    x: Array, /, roi: Static = (), scales: Static = (), sizes: Ints = (),
    mode: Annotated[str, one_of("nearest", "linear", "cubic")] = "nearest",
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float | None = None,
    exclude_outside: int | None = None, extrapolation_value: float | None = None,
    nearest_mode: Rounding = "round_prefer_floor",
) -> Variable:
    """`x` resized as in ONNX's operator Resize (version 11).

    Args:
        x: Any shape; each axis may be resized. Whole numbers are taken as float32.
        roi: For 'tf_crop_and_resize', the first positions along all axes, and then the last ones; 0 is the first
            element and 1 the last one. An axis of scale 1 is not cropped.
        scales: A factor for each axis: a size n becomes n times the factor, rounded down.
        sizes: The sizes of the result, instead of `scales`.
        mode: 'nearest', 'linear' or 'cubic', along each axis in turn.
        coordinate_transformation_mode: The position of element i of m among n elements, where s is the scale:
            'half_pixel', (i + 1/2) / s - 1/2; 'pytorch_half_pixel', the same, but 0 where m is 1; 'align_corners',
            i (n - 1) / (m - 1); 'asymmetric', i / s; 'tf_half_pixel_for_nn', (i + 1/2) / s; or 'tf_crop_and_resize',
            evenly from the first to the last position of `roi`.
        cubic_coeff_a: The parameter of the cubic kernel; None for -0.75.
        exclude_outside: 1 if the cubic kernel ignores positions outside of `x`; else the nearest element is repeated.
        extrapolation_value: The value at positions outside of `x` with 'tf_crop_and_resize'; None for 0.
        nearest_mode: How 'nearest' rounds: 'round_prefer_floor', 'round_prefer_ceil', 'floor' or 'ceil'.

    Raises:
        TypeError: `roi` or `scales` is not a tuple of numbers.
        ValueError: Neither or both of `scales` and `sizes` are given, or not for each axis; a size is 0; `roi` does not
            fit; or a mode is unknown.
    """
    factors, sizes = _numbers(scales, "scales"), as_ints(sizes)
    name, values = ("scales", factors) if factors else ("sizes", sizes)
    if bool(factors) == bool(sizes) or len(values) != x.ndim:
        raise ValueError(f"exactly one of scales and sizes must be given, with a number for each axis of x, of shape "
                         f"{x.shape}, got scales={factors} and sizes={sizes}")
    after = sizes or tuple([math.floor(factor * n) for factor, n in zip(factors, x.shape, strict=True)])
    if min(x.shape) < 1 or min(after) < 1:
        raise ValueError(f"{name}={values}: cannot resample from {x.shape} to {after}: all sizes must be at least 1")
    factors = factors or tuple([m / n for n, m in zip(x.shape, after, strict=True)])
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    ends = _numbers(roi, "roi")
    if cropped and len(ends) != 2 * x.ndim:
        raise ValueError(f"roi must have a start and an end for each axis of x, of shape {x.shape}, got {ends}")
    grids = []
    for axis, (n, m, scale) in enumerate(zip(x.shape, after, factors, strict=True)):
        end = (ends[axis], ends[axis + x.ndim]) if cropped else (0.0, 1.0)
        grids.append((m, *_transformed(coordinate_transformation_mode, n, m, scale, *end)))
    a = -0.75 if cubic_coeff_a is None else cubic_coeff_a
    y = _resized(x, 0, grids, mode, nearest_mode, a, bool(exclude_outside), cropped)
    if not (cropped and extrapolation_value):
        return y
    inside = np.ones(())
    for n, grid in zip(x.shape, grids, strict=True):
        at = positions(Grid(*grid))
        inside = inside[..., None] * ((at >= 0) & (at <= n - 1))
    return add2(y, as_variable((extrapolation_value * (1 - inside)).astype(y.dtype)))


def _transformed(mode: str, n: int, m: int, scale: float, start: float, end: float) -> tuple[float, float]:
    """Step and offset of the positions of m elements among n."""
    if scale == 1:
        return 1.0, 0.0
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and m > 1):
        return 1 / scale, 0.5 / scale - 0.5
    if mode == "pytorch_half_pixel":
        return 0.0, 0.0
    if mode == "align_corners":
        return (n - 1) / (m - 1) if m > 1 else 0.0, 0.0
    if mode == "asymmetric":
        return 1 / scale, 0.0
    if mode == "tf_half_pixel_for_nn":
        return 1 / scale, 0.5 / scale
    if mode != "tf_crop_and_resize":
        raise ValueError(f"onnx_resize: coordinate_transformation_mode {mode!r} is unknown")
    if m > 1:
        return (end - start) * (n - 1) / (m - 1), start * (n - 1)
    return 0.0, (start + end) / 2 * (n - 1)


def _resized(x: Variable, first: int, grids: list[tuple[int, float, float]], mode: str, *kernel: Any) -> Variable:
    """`x` resampled along its axes from `first` on, except those whose elements keep their positions."""
    moving = {first + i: grid for i, grid in enumerate(grids) if grid != (x.shape[first + i], 1.0, 0.0)}
    if not moving:
        return identity(x)
    y: Variable = resample(x, tuple(moving), tuple(moving.values()), mode, *kernel)
    return y


def _numbers(values: Any, name: str) -> tuple[float, ...]:
    """A tuple of floats, from a number or several."""
    try:
        return tuple([as_float(v) for v in (values if isinstance(values, tuple) else (values,))])
    except TypeError:
        raise TypeError(f"{name} must be a number or a tuple of numbers, got {values!r}") from None
