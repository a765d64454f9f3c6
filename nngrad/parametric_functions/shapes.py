"""Shapes and default initial values of the weights of affine functions and convolutions, and weights that are
quantised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ..functions.quantization import written
from ..graph import Variable
from ..graph.arguments import Ints
from ..initializer import Rng
from ..parameter import Initializer, get_parameter_or_create
from .layer_arguments import axis, divided, size, sizes
from .layer_parameters import ZEROS, Init, glorot, initial, parameter


class Shapes(NamedTuple):
    """Of the weights of a layer."""

    weight: tuple[int, ...]
    bias: tuple[int, ...]
    base_axis: int
    """Not negative."""
    default: Initializer
    """Of the weight."""


def of_affine(function: str, inp: Variable, n_outmaps: Ints, base_axis: int, rng: Rng | None) -> Shapes:
    """Those of `affine`. Messages start with the name of the function."""
    outmaps = sizes(n_outmaps, f"{function}: n_outmaps")
    if base_axis.__class__ is not int or not 0 <= base_axis <= inp.ndim:
        base_axis = axis(base_axis, inp.ndim, f"{function}: base_axis")
    inmaps = math.prod(inp.shape[base_axis:])
    return Shapes((inmaps, *outmaps), outmaps, base_axis, glorot(inmaps, math.prod(outmaps), (), rng))


def kernel_extents(function: str, inp: Variable, kernel: Ints, base_axis: int) -> tuple[int, ...]:
    """The sizes of a kernel, of which there is one for each spatial axis: those behind the channels."""
    extents, count = sizes(kernel, f"{function}: kernel"), inp.ndim - base_axis - 1
    if len(extents) != count:
        raise ValueError(f"{function}: kernel must be a tuple with a size for each of the {count} spatial axes of inp "
                         f"{inp.shape}, got {kernel!r}")
    return extents


def of_convolution(
    function: str, inp: Variable, outmaps: int, kernel: Ints, group: int, channel_last: bool, base_axis: int,
    rng: Rng | None,
) -> Shapes:
    """Those of `convolution`. Messages start with the name of the function."""
    outmaps = size(outmaps, f"{function}: outmaps")
    base_axis = axis(base_axis, inp.ndim, f"{function}: base_axis")
    extents = kernel_extents(function, inp, kernel, base_axis)
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = divided(channels, size(group, f"{function}: group"), f"{function}: channels")
    shape = (outmaps, *extents, inner) if channel_last else (outmaps, inner, *extents)
    return Shapes(shape, (outmaps,), base_axis, glorot(channels, outmaps, extents, rng))


Quantizer = Callable[[Variable], Variable]


def weight(shapes: Shapes, given: Init, fixed: bool, quantizes: bool, quantizer: Quantizer) -> Variable:
    """The parameter W, quantised, if that is to be; what comes of it is written to the parameter W_q."""
    return _quantized("W", shapes.weight, given, shapes.default, fixed, quantizer if quantizes else None)


def bias(
    shapes: Shapes, given: Init, fixed: bool, with_bias: bool, quantizes: bool, quantizer: Quantizer
) -> Variable | None:
    """The parameter b in the same way, if there is one."""
    if not with_bias:
        return None
    return _quantized("b", shapes.bias, given, ZEROS, fixed, quantizer if quantizes else None)


def _quantized(
    name: str, shape: tuple[int, ...], given: Init, default: Initializer | None, fixed: bool,
    quantizer: Quantizer | None,
) -> Variable:
    w = parameter(name, shape, given, default, fixed)
    if quantizer is None:
        return w
    w_q = get_parameter_or_create(f"{name}_q", shape, initial(given, default), False)
    y = quantizer(w)
    return written(y, {w_q: y})
