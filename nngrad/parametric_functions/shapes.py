"""Shapes and default initial values of the weights of affine functions and convolutions."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..graph import Variable
from ..graph.arguments import Ints
from ..initializer import Rng
from ..parameter import Initializer
from .layer_arguments import axis, evenly, size, sizes
from .layer_parameters import glorot


class Shapes(NamedTuple):
    """Of the weights of a layer."""

    weight: tuple[int, ...]
    bias: tuple[int, ...]
    base_axis: int
    """Not negative."""
    default: Initializer
    """Of the weight."""


def of_affine(inp: Variable, n_outmaps: Ints, base_axis: int, rng: Rng | None) -> Shapes:
    """Those of `affine`."""
    outmaps = sizes(n_outmaps, "n_outmaps")
    if base_axis.__class__ is not int or not 0 <= base_axis <= inp.ndim:
        base_axis = axis(base_axis, inp.ndim, "base_axis")
    inmaps = math.prod(inp.shape[base_axis:])
    return Shapes((inmaps, *outmaps), outmaps, base_axis, glorot(inmaps, math.prod(outmaps), (), rng))


def kernel_extents(inp: Variable, kernel: Ints, base_axis: int) -> tuple[int, ...]:
    """The sizes of a kernel, of which there is one for each spatial axis: those behind the channels."""
    extents, count = sizes(kernel, "kernel"), inp.ndim - base_axis - 1
    if len(extents) != count:
        raise ValueError(f"kernel must be a tuple with a size for each of the {count} spatial axes of inp "
                         f"{inp.shape}, got {kernel!r}")
    return extents


def of_convolution(
    inp: Variable, outmaps: int, kernel: Ints, group: int, channel_last: bool, base_axis: int,
    rng: Rng | None,
) -> Shapes:
    """Those of `convolution`."""
    outmaps = size(outmaps, "outmaps")
    base_axis = axis(base_axis, inp.ndim, "base_axis")
    extents = kernel_extents(inp, kernel, base_axis)
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = evenly(channels, size(group, "group"), "channels")
    shape = (outmaps, *extents, inner) if channel_last else (outmaps, inner, *extents)
    return Shapes(shape, (outmaps,), base_axis, glorot(channels, outmaps, extents, rng))
