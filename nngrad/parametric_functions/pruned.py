"""Layers whose smallest weights are left out."""

from __future__ import annotations

from .. import functions as F
from ..graph import Array, Variable
from ..graph.arguments import Ints
from ..initializer import Rng
from .layer_parameters import Init, own_parameters
from .shapes import bias, of_affine, of_convolution, weight


@own_parameters("pruned_affine")
def pruned_affine(
    inp: Array,
    n_outmaps: Ints,
    base_axis: int = 1,
    w_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    prune_w: bool = True,
    rate_w: float = 0.9,
    prune_b: bool = True,
    rate_b: float = 0.9,
    name: str | None = None,
) -> Variable:
    """`affine` with W and b pruned by `F.prune`.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros;
    W_q and b_q, what comes of them, which each `forward()` writes, not trained.

    Args:
        inp: As for `affine`.
        n_outmaps: As for `affine`.
        base_axis: As for `affine`.
        prune_w: Whether W is pruned.
        rate_w: As `rate` of `F.prune`, for W.
        prune_b: Whether b is pruned.
        rate_b: As `rate` of `F.prune`, for b.
    """
    shapes = of_affine("pruned_affine", inp, n_outmaps, base_axis, rng)
    w = weight(
        shapes, w_init, fix_parameters, prune_w,
        lambda w: F.prune(w, rate=rate_w),
    )
    b = bias(
        shapes, b_init, fix_parameters, with_bias, prune_b,
        lambda b: F.prune(b, rate=rate_b),
    )
    return F.affine(inp, w, b, base_axis=shapes.base_axis)


@own_parameters("pruned_conv")
def pruned_convolution(
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
    prune_w: bool = True,
    rate_w: float = 0.9,
    prune_b: bool = True,
    rate_b: float = 0.9,
    name: str | None = None,
) -> Variable:
    """`convolution` with W and b pruned by `F.prune`.

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
        ...: As for `pruned_affine`.
    """
    shapes = of_convolution("pruned_convolution", inp, outmaps, kernel, group, channel_last, base_axis, rng)
    w = weight(
        shapes, w_init, fix_parameters, prune_w,
        lambda w: F.prune(w, rate=rate_w),
    )
    b = bias(
        shapes, b_init, fix_parameters, with_bias, prune_b,
        lambda b: F.prune(b, rate=rate_b),
    )
    return F.convolution(
        inp, w, b, base_axis=shapes.base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last,
    )
