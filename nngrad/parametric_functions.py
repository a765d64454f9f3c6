"""PF: functions with parameters of their own, made in the present scope at the first call and found there after.

`name=` puts a scope around a call: `PF.affine(x, 10, name="fc")` makes 'fc/affine/W' and 'fc/affine/b'.
Initializers are functions of a shape (`nngrad.initializer`), arrays or numbers. `fix_parameters` lets no gradient
reach the parameters. `apply_w` and `apply_b` are functions that the weight or bias goes through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import functions as F
from .graph import Array, Variable
from .graph.arguments import Ints, axes_of
from .graph.spelling import did_you_mean
from .initializer import ConstantInitializer, Rng, UniformInitializer
from .layer_arguments import axis, divided, fraction, ints, size, sizes
from .layer_parameters import Apply, Init, applied, glorot, initial, inits, own_parameters, parameter
from .layer_parameters import parametric_function_api as parametric_function_api
from .parameter import get_parameter_or_create

ZEROS = None
"""Parameters start as zeros where no initializer is given."""
ONES = ConstantInitializer(1)
QUARTER = ConstantInitializer(0.25)
UNIT_VARIANCE = UniformInitializer((-math.sqrt(3.0), math.sqrt(3.0)))


@own_parameters("affine")
def affine(
    inp: Array,
    n_outmaps: Ints,
    base_axis: int = 1,
    w_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    apply_w: Apply = None,
    apply_b: Apply = None,
    name: str | None = None,
) -> Variable:
    """`inp`, flattened from `base_axis` on, times W, plus b.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros.

    Args:
        inp: Of shape (batch axes..., axes to flatten...).
        n_outmaps: Shape of the outputs, or their number.
        base_axis: Number of batch axes; a negative one counts from the end.
        w_init: Initial W.
        b_init: Initial b.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        apply_w: Function that W goes through.
        apply_b: Function that b goes through.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A size is below 1, `base_axis` is out of range, or a parameter has another shape already.
    """
    outmaps = sizes(n_outmaps, "affine: n_outmaps")
    if base_axis.__class__ is not int or not 0 <= base_axis <= inp.ndim:
        base_axis = axis(base_axis, inp.ndim, "affine: base_axis")
    inmaps = math.prod(inp.shape[base_axis:])
    w = parameter("W", (inmaps, *outmaps), w_init, glorot(inmaps, math.prod(outmaps), (), rng), fix_parameters)
    b = parameter("b", outmaps, b_init, ZEROS, fix_parameters) if with_bias else None
    weight, bias = applied(apply_w, w, "affine: apply_w"), applied(apply_b, b, "affine: apply_b")
    return F.affine(inp, weight, bias, base_axis=base_axis)


@own_parameters("conv")
def convolution(
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
    apply_w: Apply = None,
    apply_b: Apply = None,
    name: str | None = None,
) -> Variable:
    """N-dimensional convolution with a bias per channel.

    Parameters: W of shape (outmaps, channels / group, *kernel), or (outmaps, *kernel, channels / group) with
    `channel_last`, uniform within Glorot's limits; b of shape (outmaps,), zeros.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...); channels last with `channel_last`.
        outmaps: Number of output channels.
        kernel: Size of the kernel along each spatial axis.
        pad: Zeros at both ends of each spatial axis; by default none.
        stride: Step along each spatial axis; by default 1.
        dilation: Distance of the kernel's elements along each spatial axis; by default 1.
        group: Number of groups that channels are split into.
        channel_last: Whether channels are the last axis.
        w_init: Initial W.
        b_init: Initial b.
        base_axis: Number of batch axes; a negative one counts from the end.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        apply_w: Function that W goes through.
        apply_b: Function that b goes through.
        name: Scope around that of the parameters.

    Raises:
        ValueError: The sizes do not fit `inp`, an argument is out of range, or a parameter has another shape already.
    """
    extents = sizes(kernel, "convolution: kernel")
    outmaps = size(outmaps, "convolution: outmaps")
    base_axis = axis(base_axis, inp.ndim, "convolution: base_axis")
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = divided(channels, size(group, "convolution: group"), "convolution: channels")
    shape = (outmaps, *extents, inner) if channel_last else (outmaps, inner, *extents)
    w = parameter("W", shape, w_init, glorot(channels, outmaps, extents, rng), fix_parameters)
    b = parameter("b", (outmaps,), b_init, ZEROS, fix_parameters) if with_bias else None
    weight, bias = applied(apply_w, w, "convolution: apply_w"), applied(apply_b, b, "convolution: apply_b")
    return F.convolution(
        inp, weight, bias, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last,
    )


@own_parameters("deconv")
def deconvolution(
    inp: Array,
    outmaps: int,
    kernel: Ints,
    pad: Ints | None = None,
    stride: Ints | None = None,
    dilation: Ints | None = None,
    group: int = 1,
    channel_last: bool = False,
    output_padding: Ints | None = None,
    w_init: Init = None,
    b_init: Init = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    apply_w: Apply = None,
    apply_b: Apply = None,
    name: str | None = None,
) -> Variable:
    """Transposed convolution with a bias per channel: the shape of `inp` is that of the output of a convolution.

    Parameters: W of shape (channels, outmaps / group, *kernel), or (channels, *kernel, outmaps / group) with
    `channel_last`, uniform within Glorot's limits; b of shape (outmaps,), zeros.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...); channels last with `channel_last`.
        outmaps: Number of output channels.
        kernel: Size of the kernel along each spatial axis.
        pad: Elements that are cut off both ends of each spatial axis; by default none.
        stride: Distance that neighbours along a spatial axis have in the output; by default 1.
        dilation: Distance of the kernel's elements along each spatial axis; by default 1.
        group: Number of groups that channels are split into.
        channel_last: Whether channels are the last axis.
        output_padding: Elements that are added at the end of each spatial axis of the output; by default none.
        w_init: Initial W.
        b_init: Initial b.
        base_axis: Number of batch axes; a negative one counts from the end.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        apply_w: Function that W goes through.
        apply_b: Function that b goes through.
        name: Scope around that of the parameters.

    Raises:
        ValueError: The sizes do not fit `inp`, an argument is out of range, or a parameter has another shape already.
    """
    extents = sizes(kernel, "deconvolution: kernel")
    outmaps = size(outmaps, "deconvolution: outmaps")
    base_axis = axis(base_axis, inp.ndim, "deconvolution: base_axis")
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = divided(outmaps, size(group, "deconvolution: group"), "deconvolution: outmaps")
    shape = (channels, *extents, inner) if channel_last else (channels, inner, *extents)
    w = parameter("W", shape, w_init, glorot(outmaps, channels, extents, rng), fix_parameters)
    b = parameter("b", (outmaps,), b_init, ZEROS, fix_parameters) if with_bias else None
    weight, bias = applied(apply_w, w, "deconvolution: apply_w"), applied(apply_b, b, "deconvolution: apply_b")
    return F.deconvolution(
        inp, weight, bias, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last, output_padding=output_padding,
    )


@own_parameters("depthwise_conv")
def depthwise_convolution(
    inp: Array,
    kernel: Ints,
    pad: Ints | None = None,
    stride: Ints | None = None,
    dilation: Ints | None = None,
    multiplier: int = 1,
    w_init: Init = None,
    b_init: Init = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution of each channel by itself, with `multiplier` kernels each, and a bias per output channel.

    Parameters: W (channels * multiplier, *kernel), uniform within Glorot's limits; b (channels * multiplier,), zeros.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...).
        kernel: Size of the kernel along each spatial axis.
        pad: Zeros at both ends of each spatial axis; by default none.
        stride: Step along each spatial axis; by default 1.
        dilation: Distance of the kernel's elements along each spatial axis; by default 1.
        multiplier: Number of output channels per channel.
        w_init: Initial W.
        b_init: Initial b.
        base_axis: Number of batch axes; a negative one counts from the end.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        name: Scope around that of the parameters.

    Raises:
        ValueError: The sizes do not fit `inp`, an argument is out of range, or a parameter has another shape already.
    """
    extents = sizes(kernel, "depthwise_convolution: kernel")
    base_axis = axis(base_axis, inp.ndim, "depthwise_convolution: base_axis")
    channels = inp.shape[base_axis]
    outmaps = channels * size(multiplier, "depthwise_convolution: multiplier")
    w = parameter("W", (outmaps, *extents), w_init, glorot(outmaps, channels, extents, rng), fix_parameters)
    b = parameter("b", (outmaps,), b_init, ZEROS, fix_parameters) if with_bias else None
    return F.depthwise_convolution(
        inp, w, b, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, multiplier=multiplier,
    )


@own_parameters("bn")
def batch_normalization(
    inp: Array,
    axes: Ints = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Any:
    """`gamma * (inp - m) / sqrt(v + eps) + beta`, mean m and variance v per index of `axes` (Ioffe and Szegedy, 2015).

    Parameters: beta (zeros), gamma (ones), and, not trained, the running mean (zeros) and var (ones); each has
    the size of `inp` along `axes` and size 1 along all other axes.

    Args:
        inp: The input.
        axes: The axes that are kept; the statistics go over all others.
        decay_rate: How much of the running statistics is kept at each step, from 0 to 1.
        eps: Added to the variance.
        batch_stat: Whether the statistics are those of `inp`, which move the running ones; else the running ones.
        output_stat: Whether to return (y, m, v) in place of y.
        fix_parameters: Whether beta and gamma are constants.
        param_init: Initial values by name of parameter: each a function of a shape, an array or a number.
        no_scale: Leave gamma out.
        no_bias: Leave beta out.
        name: Scope around that of the parameters.

    Raises:
        ValueError: An argument is out of range, `param_init` names none, or a parameter has another shape already.
    """
    decay_rate = fraction(decay_rate, "batch_normalization: decay_rate")
    kept = axes_of(ints(axes, "batch_normalization: axes"), inp.ndim, "batch_normalization: axes")
    shape = tuple([n if i in kept else 1 for i, n in enumerate(inp.shape)])
    init = inits(param_init, ("beta", "gamma", "mean", "var"), "batch_normalization")
    beta = None if no_bias else parameter("beta", shape, init["beta"], ZEROS, fix_parameters)
    gamma = None if no_scale else parameter("gamma", shape, init["gamma"], ONES, fix_parameters)
    mean = get_parameter_or_create("mean", shape, initial(init["mean"], ZEROS), False)
    var = get_parameter_or_create("var", shape, initial(init["var"], ONES), False)
    return F.batch_normalization(
        inp, beta, gamma, mean, var, axes=kept, decay_rate=decay_rate, eps=eps, batch_stat=batch_stat,
        output_stat=output_stat,
    )


@own_parameters("layer_normalization")
def layer_normalization(
    inp: Array,
    batch_axis: Ints = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Any:
    """`gamma * (inp - m) / sqrt(v + eps) + beta`, mean m and variance v per element of the batch (Ba et al., 2016).

    Parameters: beta (zeros) and gamma (ones), of the shape of `inp` with size 1 along `batch_axis`.

    Args:
        inp: The input.
        batch_axis: The axis, or axes, of the batch; the statistics go over all others.
        eps: Added to the variance.
        output_stat: Whether to return (y, m, v) in place of y.
        fix_parameters: Whether beta and gamma are constants.
        param_init: Initial values by name of parameter: each a function of a shape, an array or a number.
        no_scale: Leave gamma out.
        no_bias: Leave beta out.
        name: Scope around that of the parameters.

    Raises:
        ValueError: An argument is out of range, `param_init` names none, or a parameter has another shape already.
    """
    batch = axes_of(ints(batch_axis, "layer_normalization: batch_axis"), inp.ndim, "layer_normalization: batch_axis")
    shape = tuple([1 if i in batch else n for i, n in enumerate(inp.shape)])
    init = inits(param_init, ("beta", "gamma"), "layer_normalization")
    beta = None if no_bias else parameter("beta", shape, init["beta"], ZEROS, fix_parameters)
    gamma = None if no_scale else parameter("gamma", shape, init["gamma"], ONES, fix_parameters)
    return F.layer_normalization(inp, beta, gamma, batch_axis=batch, eps=eps, output_stat=output_stat)


@own_parameters("embed")
def embed(
    inp: Array,
    n_inputs: int,
    n_features: int,
    initializer: Init = None,
    fix_parameters: bool = False,
    apply_w: Apply = None,
    name: str | None = None,
) -> Variable:
    """The rows of W that `inp` names.

    Parameter: W of shape (n_inputs, n_features), uniform between -sqrt(3) and sqrt(3), which is variance 1.

    Args:
        inp: Numbers of rows, of any shape; one that is not from 0 to n_inputs - 1 gives a row of NaN.
        n_inputs: Number of rows.
        n_features: Length of a row.
        initializer: Initial W.
        fix_parameters: Whether W is a constant.
        apply_w: Function that W goes through.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A size is below 1, or a parameter has another shape already.
    """
    shape = size(n_inputs, "embed: n_inputs"), size(n_features, "embed: n_features")
    w = parameter("W", shape, initializer, UNIT_VARIANCE, fix_parameters)
    return F.embed(inp, applied(apply_w, w, "embed: apply_w"))


@own_parameters("prelu")
def prelu(
    inp: Array,
    base_axis: int = 1,
    shared: bool = True,
    fix_parameters: bool = False,
    slope_init: Init = None,
    name: str | None = None,
) -> Variable:
    """`inp` where it is positive, and `inp` times a slope where it is negative; derivative 1 at 0 (He et al., 2015).

    Parameter: slope, 0.25; of shape () if it is `shared`, else (channels,).

    Args:
        inp: The input.
        base_axis: The axis of the channels.
        shared: Whether all channels have one slope.
        fix_parameters: Whether the slope is a constant.
        slope_init: Initial slope.
        name: Scope around that of the parameters.

    Raises:
        ValueError: `base_axis` is out of range where slopes are not shared, or a parameter has another shape already.
    """
    shape = () if shared else (inp.shape[axis(base_axis, inp.ndim, "prelu: base_axis")],)
    slope = parameter("slope", shape, slope_init, QUARTER, fix_parameters)
    return F.prelu(inp, slope, base_axis=base_axis)


if not TYPE_CHECKING:  # checkers of types say it themselves

    def __getattr__(name: str) -> Any:
        raise AttributeError(f"nngrad.parametric_functions has no function {name!r}{did_you_mean(name, globals())}")
