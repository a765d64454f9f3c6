"""Random crops, flips, shifts, erasures and distortions, drawn for each sample separately, and noise for training.

Random numbers are drawn once per `forward()` and shared by gradients of every order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph import Array, Variable, as_variable, composite
from ..graph.arguments import Axes, Ignored, Ints, Probability, Shape, Static, as_ints
from . import array, comparison, control, elementwise, movement, reduction
from .arithmetic import check_same_shape, minimum_scalar
from .axes import axes_of, axis_of
from .indexing import where
from .slicing import take_points
from .stochastic import bernoulli, integers, key_leaf, subkey, uniform

# ---------------------------------------------------------------- windows


def _window(
    x: Variable, key: Variable, batch: tuple[int, ...], sizes: tuple[int, ...], counts: Sequence[int]
) -> Variable:
    """A window of `sizes` from each sample of `x`; along axis i of a sample it starts at one of the first `counts[i]`
    positions, each equally likely."""
    first = len(batch)
    y: Variable = x
    for i, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if count == 1:
            continue
        starts = integers(subkey(key, index=i), high=count, shape=(*batch, 1))
        places = movement.reshape(starts + array.arange(0, size, dtype=np.int32), shape=(*batch, size, 1))
        taken = take_points(y, places, axes=(first + i,), rows=tuple([(a, a) for a in range(first)]))
        order = (*range(1, i + 1), 0, *range(i + 1, len(sizes)))  # a sample begins with the places
        y = movement.transpose(taken, axes=(*range(first), *[first + a for a in order]))
    return elementwise.identity(x) if y is x else y


@composite
def random_crop(x: Array, /, shape: Shape | None = None, base_axis: int = 1, seed: int = -1) -> Variable:
    """A window of each sample, at a random position.

    Args:
        x: `(*batch, *sample)`, where the sample begins at `base_axis`.
        shape: The sizes of a window along the last axes of a sample; None for those of the sample.

    Returns:
        `(*batch, *shape)`.

    Raises:
        ValueError: `shape` is larger than a sample or has more axes, `base_axis` is out of range, or `seed` is below
            -1.
    """
    batch, sample = _split(x, base_axis)
    wanted = sample if shape is None else shape
    if len(wanted) > len(sample) or any(n > m for n, m in zip(wanted[::-1], sample[::-1], strict=False)):
        raise ValueError(f"shape must not exceed that of a sample, {sample}, got {shape}")
    sizes = (*sample[: len(sample) - len(wanted)], *wanted)
    counts = tuple([m - n + 1 for n, m in zip(sizes, sample, strict=True)])
    return _window(x, key_leaf(seed, "random_crop"), batch, sizes, counts)


@composite
def random_shift(
    x: Array, /, shifts: Ints | None = None, border_mode: str = "nearest", constant_value: float = 0,
    base_axis: int = 1, seed: int = -1,
) -> Variable:
    """Each sample shifted by a random whole number of positions.

    Args:
        x: `(*batch, *sample)`, where the sample begins at `base_axis`.
        shifts: The largest shift along each axis, in either direction; if there are fewer than a sample has axes, they
            apply to the last ones. None for 0.
        border_mode: What fills the vacated positions: "nearest", the outermost element; "reflect", the elements
            mirrored at it; "constant", a number.
        constant_value: That number.

    Raises:
        ValueError: A shift is negative, 2**30 or more, or in mode "reflect" not below the size of the axis; there are
            more shifts than axes; `border_mode` is unknown; `base_axis` is out of range; or `seed` is below -1.
    """
    modes = {"nearest": "repeat", "reflect": "reflect", "constant": "constant"}
    if border_mode not in modes:
        raise ValueError(f"border_mode must be 'nearest', 'reflect' or 'constant', got {border_mode!r}")
    batch, sample = _split(x, base_axis)
    last = as_ints(shifts if shifts is not None else ())
    if len(last) > len(sample) or not all(0 <= n < 2**30 for n in last):
        raise ValueError(f"shifts must be at most {len(sample)} ints between 0 and {2**30 - 1}, got {shifts}")
    reach = (*[0] * (len(sample) - len(last)), *last)
    key = key_leaf(seed, "random_shift")
    wide = movement.pad(x, pad_width=tuple([n for n in reach for _ in range(2)]), mode=modes[border_mode],
                        constant_value=constant_value)
    return _window(wide, key, batch, sample, [2 * n + 1 for n in reach])


@composite
def random_flip(x: Array, /, axes: Axes | None = None, base_axis: int = 1, seed: int = -1) -> Variable:
    """Each sample flipped along each of some axes with probability 1/2.

    Args:
        x: `(*batch, *sample)`, where the sample begins at `base_axis`.
        axes: One or several of the axes of `x` that belong to a sample; None for the last.

    Raises:
        ValueError: An axis is a batch axis, out of range or named twice, `base_axis` is out of range, or `seed` is
            below -1.
    """
    batch, _ = _split(x, base_axis)
    flipped = axes_of(-1 if axes is None else axes, x.ndim, "axes")
    if any(a < len(batch) for a in flipped):
        raise ValueError(f"axes must be axes of a sample, {len(batch)} or above, got {axes}")
    coins = bernoulli(key_leaf(seed, "random_flip"), shape=(len(flipped), *batch))
    y: Variable = x
    for axis, coin in zip(flipped, movement.split(coins, axis=0), strict=True):
        y = where(coin, movement.flip(y, axes=axis), y)
    return y


def _split(x: Variable, base_axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The batch axes of `x` and those of a sample."""
    base = axis_of(base_axis, x.ndim, "base_axis") if x.ndim or base_axis else 0
    return x.shape[:base], x.shape[base:]


# ---------------------------------------------------------------- erasure


@composite
def random_erase(
    x: Array, /, prob: Probability = 0.5, area_ratios: Static = (0.02, 0.4), aspect_ratios: Static = (0.3, 3.3333),
    replacements: Static = (0.0, 255.0), n: int | None = None, share: bool = True, inplace: Ignored = False,
    base_axis: int = 1, seed: int = -1, channel_last: bool = False, ste_fine_grained: bool = True,
) -> Variable:
    """Images with random rectangles replaced by noise (Zhong et al., Random Erasing Data Augmentation, 2020).

    Args:
        x: `(*batch, channels, height, width)`, or with the channels last, where the channels or the height begin at
            `base_axis`.
        prob: The probability of each rectangle.
        area_ratios: The smallest and largest share of the image that a rectangle covers.
        aspect_ratios: The smallest and largest ratio of its height to its width.
        replacements: The smallest and largest value of the noise, which is uniform and drawn for each element.
        n: Number of rectangles; None for 1.
        share: Whether the rectangles are the same in all channels of an image.
        channel_last: Whether the channels are the last axis.
        ste_fine_grained: Whether the gradient is 0 where an element was replaced; else it passes everywhere, as if
            nothing had been replaced (an estimator).

    Raises:
        ValueError: `x` does not have three axes after the batch axes, `prob` is not from 0 to 1, a range is not a pair
            in ascending order, `n` is negative, or `seed` is below -1.
    """
    batch, sample = _split(x, base_axis)
    if len(sample) != 3:
        raise ValueError(f"x must have three axes from base_axis on (channels, height, width), got shape {x.shape}")
    for argument, pair, least in (("area_ratios", area_ratios, 0), ("aspect_ratios", aspect_ratios, 0),
                                  ("replacements", replacements, -math.inf)):
        if not isinstance(pair, tuple) or len(pair) != 2 or not least <= pair[0] <= pair[1] < math.inf:
            raise ValueError(f"{argument} must be a tuple (low, high) in ascending order, got {pair!r}")
    count = 1 if n is None else n
    if count < 0:
        raise ValueError(f"n must not be negative, got {n}")
    key = key_leaf(seed, "random_erase")
    if not count:
        return elementwise.identity(x)
    channels, height, width = (sample[2], *sample[:2]) if channel_last else sample
    rectangles = (count, *batch, 1 if share else channels, 1, 1)
    present, area, aspect, top, left = movement.split(uniform(subkey(key, index=0), shape=(5, *rectangles)), axis=0)
    area = _between(area, area_ratios) * (height * width)
    aspect = _between(aspect, aspect_ratios)
    rows, columns = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)
    inside = comparison.logical_and(
        _within(rows, elementwise.sqrt(area * aspect), top, height),
        _within(columns, elementwise.sqrt(area / aspect), left, width),
    )
    inside = comparison.logical_and(inside, comparison.less_scalar(present, val=prob))
    erased = reduction.amax(inside, axis=0)
    if channel_last:
        lead = len(batch)
        erased = movement.transpose(erased, axes=(*range(lead), lead + 1, lead + 2, lead))
    noise = uniform(subkey(key, index=1), low=float(replacements[0]), high=float(replacements[1]), shape=x.shape)
    y = where(erased, array.cast(noise, x.dtype), x)
    return y if ste_fine_grained else control.value_of(x, y)


def _between(u: Variable, bounds: Sequence[float]) -> Variable:
    y: Variable = u * float(bounds[1] - bounds[0]) + float(bounds[0])
    return y


def _within(places: Any, length: Variable, part: Variable, size: int) -> Variable:
    """1 where places are in a segment of this length on an axis of `size`; `part` of the free space comes before it."""
    length = elementwise.floor(minimum_scalar(length, val=size))
    start = elementwise.floor(part * (size + 1 - length))
    at = as_variable(places)
    return comparison.logical_and(comparison.greater_equal(at, start), comparison.less(at, start + length))


# ---------------------------------------------------------------- adversarial noise


@composite
def vat_noise(x: Array, w: Array, /, base_axis: int = 1, eps: float = 1.0) -> Variable:
    """`eps x / norm(x)` for each sample: noise for virtual adversarial training (Miyato et al., 2018).

    No gradient passes to `x`. The gradient of `w` is `eps` times the incoming one: the direction of the next step of
    the power iteration. nnabla writes it to the data of `w`; here `w.d = w.g` does so after `backward()`.

    Args:
        x: `(*batch, *sample)`, where the sample begins at `base_axis`; floating. A sample of zeros stays 0.
        w: The Variable that gets the gradient, of the shape of `x`.
        eps: The norm of the noise of each sample.
    """
    batch, _ = _split(x, base_axis)
    check_same_shape(x=x, w=w)
    length = reduction.norm(x, axis=tuple(range(len(batch), x.ndim)), keepdims=True)
    is_zero = comparison.equal_scalar(length, val=0)
    noise = x * (eps / where(is_zero, array.ones_like(length), length))
    return control.value_of(w * eps, noise)
