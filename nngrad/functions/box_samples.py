"""Sample points within the bins of boxes: which pixels each is interpolated from, and with which weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph.arguments import as_float
from .arithmetic import floating, widened
from .barriers import computed_once


def _placed(first: jax.Array, step: jax.Array, part: jax.Array) -> jax.Array:
    return first + step * part


class BinAxis(NamedTuple):
    """The bins of K boxes along one axis; all but the sizes are arrays (K, 1)."""

    bins: int
    """The number of bins of each box."""
    size: int
    """The number of pixels of the images."""
    first: jax.Array
    """Where the first bin begins, in pixels."""
    step: jax.Array
    """The size of a bin."""
    samples: jax.Array
    """The number of samples of each bin."""

    def taps(self, sample: Any) -> list[tuple[jax.Array, jax.Array]]:
        """The pixels before and after a sample in each bin, each with its weight (K, bins)."""
        place = lax.broadcasted_iota(self.first.dtype, (self.first.shape[0], self.bins), 1)
        count = jnp.maximum(self.samples, 1)
        # XLA may round a product and a sum differently wherever it recomputes them. Computed once, the weights are
        # consistent with the pixels. The call that sees to it is for XLA's compiler for CPUs alone.
        part = place + (sample + 0.5) / count
        at = lax.platform_dependent(
            self.first, self.step, part, cpu=functools.partial(computed_once, _placed), default=_placed
        )
        near = (at >= -1) & (at <= self.size) & (sample < self.samples)
        at = jnp.clip(at, 0, self.size - 1)
        before = jnp.minimum(jnp.floor(at), max(self.size - 2, 0))
        share = jnp.where(near, 1 / count, 0)
        pixel = lax.convert_element_type(before, jnp.int32)
        behind = jnp.minimum(pixel + 1, self.size - 1)
        return [(pixel, (1 - (at - before)) * share), (behind, (at - before) * share)]


def over_samples(
    boxes: jax.Array, images: Sequence[int], bins: tuple[int, ...], scale: Any, ratio: int | None, start: jax.Array,
    part: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """`start` plus the parts of all samples in the bins of `boxes` (K, 5) in `images`, given as (count, height, width).

    `part` takes the weights and the points (1, 4, bins of all boxes) of one sample of each bin; a point is -1 where
    there is no such image. If `ratio` is not positive, samples are about one pixel apart."""
    boxes = widened(floating(boxes))
    count: Any
    axes = []
    for i, size in enumerate(images[1:]):
        low, high = [boxes[:, column : column + 1] * as_float(scale[i]) - 0.5 for column in (2 - i, 4 - i)]
        step = (high - low) / bins[i]
        samples = jnp.full_like(step, ratio) if ratio and ratio > 0 else jnp.maximum(jnp.ceil(step), 0)
        axes.append(BinAxis(bins[i], size, low, step, samples))
    image = lax.convert_element_type(jnp.maximum(boxes[:, :1, None], 0), jnp.int32)
    if ratio and ratio > 0:
        if ratio**2 > np.iinfo(np.int32).max:
            raise ValueError(f"sampling_ratio {ratio} is too large: int32 cannot count the samples of a bin")
        columns, count = jnp.int32(ratio), ratio**2
    else:
        rows, columns = [lax.convert_element_type(jnp.max(axis.samples, initial=0), jnp.int32) for axis in axes]
        count = rows * columns

    def added(i: Any, total: jax.Array) -> jax.Array:
        number = lax.convert_element_type(i, jnp.int32)
        weights, points = [], []
        for row, down in axes[0].taps(lax.div(number, columns)):
            for column, right in axes[1].taps(lax.rem(number, columns)):
                point = (image * images[1] + row[:, :, None]) * images[2] + column[:, None, :]
                points.append(jnp.where(image < images[0], point, -1).reshape(-1))
                weights.append((down[:, :, None] * right[:, None, :]).reshape(-1))
        more = part(jnp.stack(weights)[None], jnp.stack(points)[None])
        return lax.add(total, lax.convert_element_type(more, total.dtype))  # the dtype of the boxes may be wider

    result: jax.Array = lax.fori_loop(0, count, added, start)
    return result
