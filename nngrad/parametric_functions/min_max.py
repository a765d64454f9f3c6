"""Levels that are spread evenly over ranges of their own, and layers with such weights."""

from __future__ import annotations

from typing import TypeAlias

from .. import functions as F
from ..graph import Array, Variable
from ..graph.arguments import Ints
from ..graph.leaf import as_variable
from ..initializer import ConstantInitializer, Rng
from ..parameter import get_parameter_or_create
from .layer_parameters import Init, initial, own_parameters
from .shapes import bias, of_affine, of_convolution, weight

Level: TypeAlias = float | Array
"""A number, which becomes a parameter that is not trained, or a Variable or an array."""


@own_parameters("min_max_quantize")
def min_max_quantize(
    x: Array,
    ql_min: Level = 0,
    ql_max: Level = 255,
    decay: float = 0.999,
    x_min_max: bool = False,
    ema: bool = False,
    ste_fine_grained: bool = True,
    eps: float = 0.01,
    qr_min_init: Init = None,
    qr_max_init: Init = None,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """`x` rounded to levels of a range, as `F.min_max_quantize` has it (Jacob and others, 2018).

    Parameters: qr_min (-6) and qr_max (6), the range, of the shape of `ql_min`, trained but for `x_min_max` and `ema`
    together; ql_min and ql_max, of shape (1, ..., 1) with as many axes as `x`, where they are given as numbers, not
    trained. With `x_min_max` each `forward()` writes the range.

    Args:
        ql_min: The lowest level: a number, or an array with as many axes as `x`, along each its size or 1, for ranges
            along axes.
        ql_max: The highest level, in the same way.
        qr_min_init: Initial qr_min.
        qr_max_init: Initial qr_max.
        fix_parameters: Whether qr_min and qr_max are constants.
        ...: As for `F.min_max_quantize`.

    Raises:
        TypeError: As in `F.min_max_quantize`.
        ValueError: As in `F.min_max_quantize`, or a parameter has another shape already.
    """
    lowest, highest = _level("ql_min", ql_min, x.ndim), _level("ql_max", ql_max, x.ndim)
    trained = not (x_min_max and ema)
    qr_min, qr_max = [
        get_parameter_or_create(name, lowest.shape, initial(given, ConstantInitializer(default)), trained,
                                trained and not fix_parameters)
        for name, given, default in (("qr_min", qr_min_init, -6), ("qr_max", qr_max_init, 6))
    ]  # fmt: skip
    return F.min_max_quantize(
        x, qr_min, qr_max, lowest, highest, decay=decay, x_min_max=x_min_max, ema=ema,
        ste_fine_grained=ste_fine_grained, eps=eps,
    )


def _level(name: str, value: Level, ndim: int) -> Variable:
    if isinstance(value, int | float):
        return get_parameter_or_create(name, (1,) * ndim, ConstantInitializer(value), False)
    return as_variable(value, name, "min_max_quantize")


@own_parameters("min_max_quantized_affine")
def min_max_quantized_affine(
    inp: Array,
    n_outmaps: Ints,
    base_axis: int = 1,
    w_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    ql_min_w: Level = 0,
    ql_max_w: Level = 255,
    w_min_max: bool = False,
    qr_min_w_init: Init = None,
    qr_max_w_init: Init = None,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    ql_min_b: Level = 0,
    ql_max_b: Level = 255,
    b_min_max: bool = False,
    qr_min_b_init: Init = None,
    qr_max_b_init: Init = None,
    ste_fine_grained_b: bool = True,
    eps: float = 0.01,
    name: str | None = None,
) -> Variable:
    """`affine` with W and b rounded by `min_max_quantize`.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros;
    W_q and b_q, what comes of them, which each `forward()` writes, not trained.
    min_max_quantize_w/... and min_max_quantize_b/... are those of `min_max_quantize`.

    Args:
        inp: As for `affine`.
        n_outmaps: As for `affine`.
        base_axis: As for `affine`.
        ql_min_w: As for `min_max_quantize`, for W.
        ql_max_w: As for `min_max_quantize`, for W.
        w_min_max: As `x_min_max` of `F.min_max_quantize`, for W.
        qr_min_w_init: Initial qr_min of W; -2 by default.
        qr_max_w_init: Initial qr_max of W; 2 by default.
        ste_fine_grained_w: As `ste_fine_grained` of `F.min_max_quantize`, for W.
        ql_min_b: As for `min_max_quantize`, for b.
        ql_max_b: As for `min_max_quantize`, for b.
        b_min_max: As `x_min_max` of `F.min_max_quantize`, for b.
        qr_min_b_init: Initial qr_min of b; -6 by default.
        qr_max_b_init: Initial qr_max of b; 6 by default.
        ste_fine_grained_b: As `ste_fine_grained` of `F.min_max_quantize`, for b.
        ...: As for `F.min_max_quantize`.
    """
    shapes = of_affine("min_max_quantized_affine", inp, n_outmaps, base_axis, rng)
    w = weight(
        shapes, w_init, fix_parameters, quantize_w,
        lambda w: min_max_quantize(
            w, ql_min_w, ql_max_w, x_min_max=w_min_max, ste_fine_grained=ste_fine_grained_w, eps=eps,
            qr_min_init=-2 if qr_min_w_init is None else qr_min_w_init,
            qr_max_init=2 if qr_max_w_init is None else qr_max_w_init,
            fix_parameters=fix_parameters, name="min_max_quantize_w",
        ),
    )
    b = bias(
        shapes, b_init, fix_parameters, with_bias, quantize_b,
        lambda b: min_max_quantize(
            b, ql_min_b, ql_max_b, x_min_max=b_min_max, ste_fine_grained=ste_fine_grained_b, eps=eps,
            qr_min_init=qr_min_b_init,
            qr_max_init=qr_max_b_init,
            fix_parameters=fix_parameters, name="min_max_quantize_b",
        ),
    )
    return F.affine(inp, w, b, base_axis=shapes.base_axis)


@own_parameters("min_max_quantized_conv")
def min_max_quantized_convolution(
    inp: Array,
    outmaps: int,
    kernel: Ints,
    pad: Ints | None = None,
    stride: Ints | None = None,
    dilation: Ints | None = None,
    group: int = 1,
    channel_last: bool = False,
    w_init: Init = None,
    b_init: Init = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    ql_min_w: Level = 0,
    ql_max_w: Level = 255,
    w_min_max: bool = False,
    qr_min_w_init: Init = None,
    qr_max_w_init: Init = None,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    ql_min_b: Level = 0,
    ql_max_b: Level = 255,
    b_min_max: bool = False,
    qr_min_b_init: Init = None,
    qr_max_b_init: Init = None,
    ste_fine_grained_b: bool = True,
    eps: float = 0.01,
    name: str | None = None,
) -> Variable:
    """`convolution` with W and b rounded by `min_max_quantize`.

    Parameters: W (outmaps, channels / group, *kernel), or (outmaps, *kernel, channels / group) with `channel_last`,
    uniform within Glorot's limits; b (outmaps,), zeros; W_q and b_q, what comes of them, which each `forward()`
    writes, not trained.
    min_max_quantize_w/... and min_max_quantize_b/... are those of `min_max_quantize`.

    Args:
        inp: As for `convolution`.
        outmaps: As for `convolution`.
        kernel: As for `convolution`.
        pad: As for `convolution`.
        stride: As for `convolution`.
        dilation: As for `convolution`.
        group: As for `convolution`.
        channel_last: As for `convolution`.
        base_axis: As for `convolution`.
        ...: As for `min_max_quantized_affine`.
    """
    shapes = of_convolution("min_max_quantized_convolution", inp, outmaps, kernel, group, channel_last, base_axis, rng)
    w = weight(
        shapes, w_init, fix_parameters, quantize_w,
        lambda w: min_max_quantize(
            w, ql_min_w, ql_max_w, x_min_max=w_min_max, ste_fine_grained=ste_fine_grained_w, eps=eps,
            qr_min_init=-2 if qr_min_w_init is None else qr_min_w_init,
            qr_max_init=2 if qr_max_w_init is None else qr_max_w_init,
            fix_parameters=fix_parameters, name="min_max_quantize_w",
        ),
    )
    b = bias(
        shapes, b_init, fix_parameters, with_bias, quantize_b,
        lambda b: min_max_quantize(
            b, ql_min_b, ql_max_b, x_min_max=b_min_max, ste_fine_grained=ste_fine_grained_b, eps=eps,
            qr_min_init=qr_min_b_init,
            qr_max_init=qr_max_b_init,
            fix_parameters=fix_parameters, name="min_max_quantize_b",
        ),
    )
    return F.convolution(
        inp, w, b, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last,
    )
