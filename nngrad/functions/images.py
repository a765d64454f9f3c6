"""Random augmentation of images: geometry and colour."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np

from ..graph import Array, Variable, as_variable, composite
from ..graph.arguments import Ints, NotNegative, Shape, as_ints, at_least
from ..graph.spec import FLOAT32, DType
from . import array, elementwise, movement
from .arithmetic import maximum_scalar
from .stochastic import bernoulli, key_leaf, normal, subkey, uniform
from .warping import warped

Factor: TypeAlias = Annotated[float, at_least(1)]


@composite
def image_augmentation(
    x: Array, /, shape: Shape | None = None, pad: Ints = (0, 0), min_scale: float = 1.0, max_scale: float = 1.0,
    angle: NotNegative = 0.0, aspect_ratio: Factor = 1.0, distortion: NotNegative = 0.0, flip_lr: bool = False,
    flip_ud: bool = False, brightness: NotNegative = 0.0, brightness_each: bool = False, contrast: Factor = 1.0,
    contrast_center: float = 0.0, contrast_each: bool = False, noise: NotNegative = 0.0, seed: int = -1,
) -> Variable:
    """Images, each randomly transformed as the arguments allow.

    A window of `shape` is taken at a random position of the image, which is scaled, rotated, stretched and distorted
    around the centre of that window, with linear interpolation and 0 beyond the margins. Then the values are changed to
    `(y - contrast_center) c + contrast_center + b`, and noise is added. Gradients of every order see the same draws.

    Args:
        x: `(*batch, channels, height, width)`; integers are taken as float32.
        shape: `(channels, height, width)` of the result; None for that of an image.
        pad: The number of rows and columns of 0 added on either side.
        min_scale: The smallest magnification; all factors are log-uniform.
        max_scale: The largest magnification.
        angle: The largest angle of a rotation, in radians, in either direction.
        aspect_ratio: The largest factor by which height and width are stretched against each other.
        distortion: The largest distortion, in either direction: points move away from the centre by a share of their
            distance. The share grows with the square of the distance, and is this at the middle of an edge.
        flip_lr: Whether to mirror half of the images left to right.
        flip_ud: Whether to mirror half of the images top to bottom.
        brightness: The largest magnitude of the number b.
        brightness_each: Whether it is drawn for each channel.
        contrast: The largest factor c; its inverse is the smallest.
        contrast_center: The value that contrast leaves unchanged.
        contrast_each: Whether it is drawn for each channel.
        noise: The standard deviation of the noise.

    Returns:
        `(*batch, *shape)`.

    Raises:
        ValueError: `x` has fewer than three axes, `shape` differs in channels, or a number is out of range.
    """
    if x.ndim < 3:
        raise ValueError(f"x must have axes for channels, height and width, got shape {x.shape}")
    margins = as_ints(pad)
    wanted = x.shape[-3:] if shape is None else shape
    if len(wanted) != 3 or wanted[0] != x.shape[-3]:
        raise ValueError(f"shape must be (channels, height, width) with {x.shape[-3]} channels as x has, got {shape}")
    if len(margins) != 2 or min(margins) < 0:
        raise ValueError(f"pad must be two nonnegative ints, got {pad}")
    if not 0 < min_scale <= max_scale:
        raise ValueError(f"min_scale must be positive and not exceed max_scale, got {min_scale} and {max_scale}")
    x = x if x.spec.differentiable else array.cast(x, FLOAT32)
    batch, channels = x.shape[:-3], wanted[0]
    # Positions are computed in float32 for 16-bit images too.
    wide = x.dtype if x.dtype.itemsize > 2 else FLOAT32
    draws = _Draws(key_leaf(seed, "image_augmentation"), math.prod(batch), wide)
    y = movement.reshape(x, shape=(draws.images, *x.shape[-3:]))
    moves = flip_lr or flip_ud or angle or distortion or any(margins) or wanted != x.shape[-3:]
    if moves or min_scale != 1 or max_scale != 1 or aspect_ratio != 1:
        size = wanted[1], wanted[2]
        scale = elementwise.exp(draws.between(0, math.log(min_scale), math.log(max_scale)))
        stretch = elementwise.exp(draws.either(1, math.log(aspect_ratio) / 2))
        rows, columns = _rotated(size, draws, angle, distortion)
        rows, columns = rows / (scale * stretch), columns / (scale / stretch)
        if flip_ud:
            rows = rows * draws.sign(2)
        if flip_lr:
            columns = columns * draws.sign(3)
        # How far the centre of the window may be from that of the image.
        room = [
            0.5 * (n + 2 * margin - m / factor)
            for n, m, margin, factor in zip(y.shape[2:], size, margins, (scale * stretch, scale / stretch), strict=True)
        ]
        rows, columns = (
            along + (n - 1) / 2 + draws.either(i, 1) * maximum_scalar(r, val=0)
            for i, along, n, r in zip((4, 5), (rows, columns), y.shape[2:], room, strict=True)
        )
        y = _interpolated(y, rows, columns)
    if contrast != 1:
        factor = elementwise.exp(draws.either(8, math.log(contrast), channels if contrast_each else 1))
        y = (y - contrast_center) * array.cast(factor, x.dtype) + contrast_center
    if brightness:
        y = y + array.cast(draws.either(9, brightness, channels if brightness_each else 1), x.dtype)
    if noise:
        y = y + array.cast(normal(subkey(draws.key, index=10), sigma=noise, shape=y.shape), x.dtype)
    return movement.reshape(y, shape=(*batch, *wanted))


class _Draws(NamedTuple):
    """Random numbers per image, or per channel; equal indices give equal numbers."""

    key: Variable
    images: int
    dtype: DType

    def between(self, index: int, low: float, high: float, channels: int = 1) -> Variable:
        """Uniform from `low` to `high`."""
        y = uniform(subkey(self.key, index=index), low=low, high=high, shape=(self.images, channels, 1, 1))
        return array.cast(y, self.dtype)

    def either(self, index: int, most: float, channels: int = 1) -> Variable:
        """Uniform from `-most` to `most`."""
        return self.between(index, -most, most, channels)

    def sign(self, index: int) -> Variable:
        """1 or -1."""
        heads = bernoulli(subkey(self.key, index=index), shape=(self.images, 1, 1, 1), dtype=self.dtype)
        return heads * 2 - 1


def _rotated(size: tuple[int, int], draws: _Draws, angle: float, distortion: float) -> tuple[Variable, Variable]:
    """The rows and columns of the result relative to its centre, rotated and distorted, before scaling."""
    rows, columns = (np.arange(n, dtype=draws.dtype) - draws.dtype.type((n - 1) / 2) for n in size)
    down, right = as_variable(rows[:, None]), as_variable(columns[None, :])
    if distortion:
        distance = (2 * rows[:, None] / size[0]) ** 2 + (2 * columns[None, :] / size[1]) ** 2
        factor = 1 + draws.either(6, distortion) * as_variable(distance)
        down, right = down * factor, right * factor
    if angle:
        turn = draws.either(7, angle)
        cosine, sine = elementwise.cos(turn), elementwise.sin(turn)
        down, right = cosine * down + sine * right, cosine * right - sine * down
    return down, right


def _interpolated(x: Variable, rows: Variable, columns: Variable) -> Variable:
    """`x`, interpolated linearly at positions between its pixels; 0 outside."""
    count, whole = x.shape[0], np.broadcast_shapes(rows.shape, columns.shape)[-2:]
    along = [
        movement.reshape(movement.broadcast(places, shape=(count, 1, *whole)), shape=(count, math.prod(whole)))
        for places in (columns, rows)
    ]
    return warped(x, movement.stack(*along, axis=-1), x.shape[2:], whole, "zero", "linear", False)
