"""Layers whose weights are rounded to fixed-point numbers or to powers of two."""

from __future__ import annotations

from .. import functions as F
from ..graph import Array, Variable
from ..graph.arguments import Ints
from ..initializer import Rng
from .layer_parameters import Init, own_parameters
from .shapes import bias, of_affine, of_convolution, weight


@own_parameters("fp_quantized_affine")
def fixed_point_quantized_affine(
    inp: Array,
    n_outmaps: Ints,
    base_axis: int = 1,
    w_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    sign_w: bool = True,
    n_w: int = 8,
    delta_w: float = 0.0625,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    sign_b: bool = True,
    n_b: int = 8,
    delta_b: float = 0.0625,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """`affine` with W and b rounded by `F.fixed_point_quantize`.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros;
    W_q and b_q, what comes of them, which each `forward()` writes, not trained.

    Args:
        inp: As for `affine`.
        n_outmaps: As for `affine`.
        base_axis: As for `affine`.
        sign_w: As `sign` of `F.fixed_point_quantize`, for W.
        n_w: As `n` of `F.fixed_point_quantize`, for W.
        delta_w: As `delta` of `F.fixed_point_quantize`, for W.
        ste_fine_grained_w: As `ste_fine_grained` of `F.fixed_point_quantize`, for W.
        sign_b: As `sign` of `F.fixed_point_quantize`, for b.
        n_b: As `n` of `F.fixed_point_quantize`, for b.
        delta_b: As `delta` of `F.fixed_point_quantize`, for b.
        ste_fine_grained_b: As `ste_fine_grained` of `F.fixed_point_quantize`, for b.
    """
    shapes = of_affine("fixed_point_quantized_affine", inp, n_outmaps, base_axis, rng)
    w = weight(
        shapes, w_init, fix_parameters, quantize_w,
        lambda w: F.fixed_point_quantize(
            w, sign=sign_w, n=n_w, delta=delta_w, ste_fine_grained=ste_fine_grained_w
        ),
    )
    b = bias(
        shapes, b_init, fix_parameters, with_bias, quantize_b,
        lambda b: F.fixed_point_quantize(
            b, sign=sign_b, n=n_b, delta=delta_b, ste_fine_grained=ste_fine_grained_b
        ),
    )
    return F.affine(inp, w, b, base_axis=shapes.base_axis)


@own_parameters("fp_quantized_conv")
def fixed_point_quantized_convolution(
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
    sign_w: bool = True,
    n_w: int = 8,
    delta_w: float = 0.0625,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    sign_b: bool = True,
    n_b: int = 8,
    delta_b: float = 0.0625,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """`convolution` with W and b rounded by `F.fixed_point_quantize`.

    Parameters: W (outmaps, channels / group, *kernel), or (outmaps, *kernel, channels / group) with `channel_last`,
    uniform within Glorot's limits; b (outmaps,), zeros; W_q and b_q, what comes of them, which each `forward()`
    writes, not trained.

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
        ...: As for `fixed_point_quantized_affine`.
    """
    shapes = of_convolution(
        "fixed_point_quantized_convolution", inp, outmaps, kernel, group, channel_last, base_axis, rng
    )
    w = weight(
        shapes, w_init, fix_parameters, quantize_w,
        lambda w: F.fixed_point_quantize(
            w, sign=sign_w, n=n_w, delta=delta_w, ste_fine_grained=ste_fine_grained_w
        ),
    )
    b = bias(
        shapes, b_init, fix_parameters, with_bias, quantize_b,
        lambda b: F.fixed_point_quantize(
            b, sign=sign_b, n=n_b, delta=delta_b, ste_fine_grained=ste_fine_grained_b
        ),
    )
    return F.convolution(
        inp, w, b, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last,
    )


@own_parameters("pow2_quantized_affine")
def pow2_quantized_affine(
    inp: Array,
    n_outmaps: Ints,
    base_axis: int = 1,
    w_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    sign_w: bool = True,
    with_zero_w: bool = False,
    n_w: int = 8,
    m_w: int = 2,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    sign_b: bool = True,
    with_zero_b: bool = False,
    n_b: int = 8,
    m_b: int = 2,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """`affine` with W and b rounded by `F.pow2_quantize`.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros;
    W_q and b_q, what comes of them, which each `forward()` writes, not trained.

    Args:
        sign_w: As `sign` of `F.pow2_quantize`, for W.
        with_zero_w: As `with_zero` of `F.pow2_quantize`, for W.
        n_w: As `n` of `F.pow2_quantize`, for W.
        m_w: As `m` of `F.pow2_quantize`, for W.
        ste_fine_grained_w: As `ste_fine_grained` of `F.pow2_quantize`, for W.
        sign_b: As `sign` of `F.pow2_quantize`, for b.
        with_zero_b: As `with_zero` of `F.pow2_quantize`, for b.
        n_b: As `n` of `F.pow2_quantize`, for b.
        m_b: As `m` of `F.pow2_quantize`, for b.
        ste_fine_grained_b: As `ste_fine_grained` of `F.pow2_quantize`, for b.
        ...: As for `fixed_point_quantized_affine`.
    """
    shapes = of_affine("pow2_quantized_affine", inp, n_outmaps, base_axis, rng)
    w = weight(
        shapes, w_init, fix_parameters, quantize_w,
        lambda w: F.pow2_quantize(
            w, sign=sign_w, with_zero=with_zero_w, n=n_w, m=m_w, ste_fine_grained=ste_fine_grained_w
        ),
    )
    b = bias(
        shapes, b_init, fix_parameters, with_bias, quantize_b,
        lambda b: F.pow2_quantize(
            b, sign=sign_b, with_zero=with_zero_b, n=n_b, m=m_b, ste_fine_grained=ste_fine_grained_b
        ),
    )
    return F.affine(inp, w, b, base_axis=shapes.base_axis)


@own_parameters("pow2_quantized_conv")
def pow2_quantized_convolution(
    inp: Array,
    outmaps: int,
    kernel: Ints,
    pad: Ints | None = None,
    stride: Ints | None = None,
    dilation: Ints | None = None,
    group: int = 1,
    w_init: Init = None,
    b_init: Init = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    with_zero_w: bool = False,
    sign_w: bool = True,
    n_w: int = 8,
    m_w: int = 2,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    with_zero_b: bool = False,
    sign_b: bool = True,
    n_b: int = 8,
    m_b: int = 2,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """`convolution` with W and b rounded by `F.pow2_quantize`.

    Parameters: W (outmaps, channels / group, *kernel), uniform within Glorot's limits; b (outmaps,), zeros; W_q and
    b_q, what comes of them, which each `forward()` writes, not trained.

    Args:
        inp: As for `convolution`.
        base_axis: As for `convolution`.
        ...: As for `pow2_quantized_affine` and `fixed_point_quantized_convolution`.
    """
    shapes = of_convolution("pow2_quantized_convolution", inp, outmaps, kernel, group, False, base_axis, rng)
    w = weight(
        shapes, w_init, fix_parameters, quantize_w,
        lambda w: F.pow2_quantize(
            w, sign=sign_w, with_zero=with_zero_w, n=n_w, m=m_w, ste_fine_grained=ste_fine_grained_w
        ),
    )
    b = bias(
        shapes, b_init, fix_parameters, with_bias, quantize_b,
        lambda b: F.pow2_quantize(
            b, sign=sign_b, with_zero=with_zero_b, n=n_b, m=m_b, ste_fine_grained=ste_fine_grained_b
        ),
    )
    return F.convolution(
        inp, w, b, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
    )
