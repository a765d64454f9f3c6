"""PF: functions with parameters of their own, made in the present scope at the first call and found there after.

`name=` puts a scope around a call: `PF.affine(x, 10, name="fc")` makes 'fc/affine/W' and 'fc/affine/b'.
Initializers are functions of a shape (`nngrad.initializer`) or arrays. `fix_parameters` lets no gradient
reach the parameters. `apply_w` and `apply_b` are functions that the weight or bias goes through.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import functions as F
from .graph import Variable
from .graph.arguments import axes_of
from .graph.leaf import as_variable
from .graph.spelling import did_you_mean, no_such_argument
from .initializer import ConstantInitializer, Rng, UniformInitializer, calc_uniform_lim_glorot
from .layer_arguments import axis, divided, fraction, ints, size, sizes
from .parameter import get_parameter_or_create, in_scopes

Init = Callable[[tuple[int, ...]], Any] | np.ndarray[Any, Any] | None
Apply = Callable[[Variable], Variable] | None
Ints = int | Iterable[int]


def parametric_function_api(scope_name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function's parameters live in the scope `scope_name`, and give it a last argument `name`.

    `name` is a scope around that one; None is none. A first argument that is annotated as a Variable may also be
    an array, a list or a number. A call that raises leaves no new parameters behind.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(body)
        name_of_scope = inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
        positions = len(signature.parameters)
        first = next(iter(signature.parameters.values()), None)
        converted = first.name if first is not None and first.annotation in (Variable, "Variable") else None

        known = {*signature.parameters, "name"}

        @functools.wraps(body)
        def call(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
            if kwargs and not kwargs.keys() <= known and (error := no_such_argument(body.__name__, kwargs, known)):
                raise error
            if len(args) == positions + 1 and name is None:
                *args, name = args  # type: ignore[assignment]
            if converted is not None:
                if args:
                    if args[0].__class__ is not Variable:
                        args = (as_variable(args[0], converted, body.__name__), *args[1:])
                elif converted in kwargs:
                    kwargs[converted] = as_variable(kwargs[converted], converted, body.__name__)
            return in_scopes((scope_name,) if name is None else (name, scope_name), body, args, kwargs)

        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), name_of_scope]
        )
        return call

    return decorate


@parametric_function_api("affine")
def affine(
    inp: Variable,
    n_outmaps: Ints,
    base_axis: int = 1,
    w_init: Init = None,
    b_init: Init = None,
    fix_parameters: bool = False,
    rng: Rng | None = None,
    with_bias: bool = True,
    apply_w: Apply = None,
    apply_b: Apply = None,
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


@parametric_function_api("conv")
def convolution(
    inp: Variable,
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
    kernel = sizes(kernel, "convolution: kernel")
    outmaps = size(outmaps, "convolution: outmaps")
    base_axis = axis(base_axis, inp.ndim, "convolution: base_axis")
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = divided(channels, size(group, "convolution: group"), "convolution: channels")
    shape = (outmaps, *kernel, inner) if channel_last else (outmaps, inner, *kernel)
    w = parameter("W", shape, w_init, glorot(channels, outmaps, kernel, rng), fix_parameters)
    b = parameter("b", (outmaps,), b_init, ZEROS, fix_parameters) if with_bias else None
    weight, bias = applied(apply_w, w, "convolution: apply_w"), applied(apply_b, b, "convolution: apply_b")
    return F.convolution(
        inp, weight, bias, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last,
    )


@parametric_function_api("deconv")
def deconvolution(
    inp: Variable,
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
    kernel = sizes(kernel, "deconvolution: kernel")
    outmaps = size(outmaps, "deconvolution: outmaps")
    base_axis = axis(base_axis, inp.ndim, "deconvolution: base_axis")
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = divided(outmaps, size(group, "deconvolution: group"), "deconvolution: outmaps")
    shape = (channels, *kernel, inner) if channel_last else (channels, inner, *kernel)
    w = parameter("W", shape, w_init, glorot(outmaps, channels, kernel, rng), fix_parameters)
    b = parameter("b", (outmaps,), b_init, ZEROS, fix_parameters) if with_bias else None
    weight, bias = applied(apply_w, w, "deconvolution: apply_w"), applied(apply_b, b, "deconvolution: apply_b")
    return F.deconvolution(
        inp, weight, bias, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last, output_padding=output_padding,
    )


@parametric_function_api("depthwise_conv")
def depthwise_convolution(
    inp: Variable,
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
    kernel = sizes(kernel, "depthwise_convolution: kernel")
    base_axis = axis(base_axis, inp.ndim, "depthwise_convolution: base_axis")
    channels = inp.shape[base_axis]
    outmaps = channels * size(multiplier, "depthwise_convolution: multiplier")
    w = parameter("W", (outmaps, *kernel), w_init, glorot(outmaps, channels, kernel, rng), fix_parameters)
    b = parameter("b", (outmaps,), b_init, ZEROS, fix_parameters) if with_bias else None
    return F.depthwise_convolution(
        inp, w, b, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, multiplier=multiplier,
    )


@parametric_function_api("bn")
def batch_normalization(
    inp: Variable,
    axes: Ints = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
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


@parametric_function_api("layer_normalization")
def layer_normalization(
    inp: Variable,
    batch_axis: Ints = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Init] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
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


@parametric_function_api("embed")
def embed(
    inp: Variable,
    n_inputs: int,
    n_features: int,
    initializer: Init = None,
    fix_parameters: bool = False,
    apply_w: Apply = None,
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


@parametric_function_api("prelu")
def prelu(
    inp: Variable,
    base_axis: int = 1,
    shared: bool = True,
    fix_parameters: bool = False,
    slope_init: Init = None,
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


# ---------------------------------------------------------------- parts


ZEROS = None
"""Parameters start as zeros where no initializer is given."""
ONES = ConstantInitializer(1)
QUARTER = ConstantInitializer(0.25)
UNIT_VARIANCE = UniformInitializer((-math.sqrt(3.0), math.sqrt(3.0)))


def parameter(name: str, shape: tuple[int, ...], given: Init, default: Init, fixed: bool) -> Variable:
    """The trained parameter `name` of the present scope."""
    return get_parameter_or_create(name, shape, initial(given, default), True, not fixed)


def initial(given: Any, default: Init) -> Init:
    """The initializer that was given, or the default; a number is a constant."""
    if given is None:
        return default
    return ConstantInitializer(given) if isinstance(given, int | float) else given


def glorot(inmaps: int, outmaps: int, kernel: tuple[int, ...], rng: Rng | None) -> Init:
    """Glorot's initializer. It is set up when it is called, since most calls of a layer find their parameters."""
    return lambda shape: UniformInitializer(calc_uniform_lim_glorot(inmaps, outmaps, kernel), rng)(shape)


def applied(function: Apply, w: Variable | None, name: str) -> Variable | None:
    """What `apply_w` or `apply_b` makes of a parameter; messages start with `name`."""
    if function is None:
        return w
    if not callable(function):
        raise TypeError(f"{name} must be a function of a Variable, got {function!r}")
    return w if w is None else function(w)


def inits(given: Mapping[str, Init] | None, names: tuple[str, ...], function: str) -> dict[str, Init]:
    """Initializers by name of parameter; None where none is given."""
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise TypeError(f"{function}: param_init must be a dict of initializers by name, got {given!r}")
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ValueError(f"{function}: param_init has {', '.join(unknown)}, but the parameters are {', '.join(names)}")
    return {name: given.get(name) for name in names}


if not TYPE_CHECKING:  # checkers of types say it themselves

    def __getattr__(name: str) -> Any:
        raise AttributeError(f"nngrad.parametric_functions has no function {name!r}{did_you_mean(name, globals())}")
