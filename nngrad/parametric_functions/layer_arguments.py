"""Shapes and default initial values of layers' weights, and checks of sizes and axes that name the argument."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..extend import Ints, Variable, coerced
from ..functions.axes import axis_of
from ..initializer import Rng
from ..parameter import Initializer
from .layer_parameters import ZEROS, Apply, Init, glorot, parameter, reparametrized


def ints(value: int | Iterable[int], name: str) -> tuple[int, ...]:
    """`value`, an int or several, as a tuple."""
    result: tuple[int, ...] = coerced(Ints, value, name)
    return result


def sizes(value: int | Iterable[int], name: str) -> tuple[int, ...]:
    """`value`, an int or several, all at least 1, as a tuple."""
    result: tuple[int, ...] = (value,) if value.__class__ is int else ints(value, name)
    if result and min(result) < 1:
        raise ValueError(f"{name} must be 1 or more, got {value!r}")
    return result


def size(value: int, name: str) -> int:
    """`value`, checked to be an int of at least 1."""
    result = as_whole_number(value, name)
    if result < 1:
        raise ValueError(f"{name} must be 1 or more, got {value!r}")
    return result


def as_whole_number(value: int, name: str) -> int:
    """`value`, checked to be an int."""
    result: int = coerced(int, value, name)
    return result


def fraction(value: float, name: str) -> float:
    """`value`, checked to be a number from 0 to 1."""
    result: float = coerced(float, value, name)
    if not 0 <= result <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}")
    return result


def axis(value: int, ndim: int, name: str) -> int:
    """The axis `value` as a nonnegative number."""
    return axis_of(as_whole_number(value, name), ndim, name)


def evenly(count: int, group: int, name: str) -> int:
    """The size of each of the groups into which `count` splits evenly."""
    if count % group:
        raise ValueError(f"{name} must be a multiple of {group}, got {count}")
    return count // group


class Shapes(NamedTuple):
    """The shapes of a layer's weights."""

    weight: tuple[int, ...]
    bias: tuple[int, ...]
    base_axis: int
    """The first axis of a sample, not negative."""
    default: Initializer
    """The default initializer of the weight."""

    def weight_and_bias(
        self, w_init: Init, b_init: Init, fixed: bool, with_bias: bool, apply_w: Apply, apply_b: Apply
    ) -> tuple[Variable | None, Variable | None]:
        """The parameters W and b of the current scope, after `apply_w` and `apply_b`."""
        w = parameter("W", self.weight, w_init, self.default, fixed)
        b = parameter("b", self.bias, b_init, ZEROS, fixed) if with_bias else None
        return reparametrized(apply_w, w, "apply_w"), reparametrized(apply_b, b, "apply_b")


def of_affine(inp: Variable, n_outmaps: Ints, base_axis: int, rng: Rng | None) -> Shapes:
    """The shapes for `affine`."""
    outmaps = sizes(n_outmaps, "n_outmaps")
    if base_axis.__class__ is not int or not 0 <= base_axis <= inp.ndim:
        base_axis = axis(base_axis, inp.ndim, "base_axis")
    inmaps = math.prod(inp.shape[base_axis:])
    return Shapes((inmaps, *outmaps), outmaps, base_axis, glorot(inmaps, math.prod(outmaps), (), rng))


def kernel_extents(inp: Variable, kernel: Ints, base_axis: int) -> tuple[int, ...]:
    """The sizes of a kernel, one for each spatial axis; these follow the channels."""
    extents, count = sizes(kernel, "kernel"), inp.ndim - base_axis - 1
    if not isinstance(kernel, Iterable):
        extents *= count
    if len(extents) != count:
        raise ValueError(f"kernel must have {count} sizes, one for each spatial axis of inp {inp.shape}, got "
                         f"{kernel!r}")
    return extents


def of_convolution(
    inp: Variable, outmaps: int, kernel: Ints, group: int, channel_last: bool, base_axis: int, rng: Rng | None,
    transposed: bool = False,
) -> Shapes:  # fmt: skip
    """The shapes for `convolution`, or for `deconvolution` if `transposed`."""
    outmaps = size(outmaps, "outmaps")
    base_axis = axis(base_axis, inp.ndim, "base_axis")
    extents = kernel_extents(inp, kernel, base_axis)
    channels = inp.shape[-1 if channel_last else base_axis]
    first, second, split = (channels, outmaps, "outmaps") if transposed else (outmaps, channels, "channels")
    inner = evenly(second, size(group, "group"), split)
    shape = (first, *extents, inner) if channel_last else (first, inner, *extents)
    return Shapes(shape, (outmaps,), base_axis, glorot(second, first, extents, rng))
