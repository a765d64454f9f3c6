"""Written by `python -m tests.stubs`."""

# ruff: noqa: A004, I001, RUF100

from ..graph import Array, Variable
from ..graph.arguments import Ints
from ..initializer import Rng
from ..parameter import get_parameter_or_create as get_parameter_or_create
from .layer_parameters import Init
from .variations import Level
from .activation import prelu as prelu
from .affine import affine as affine
from .affine import embed as embed
from .attention import multi_head_attention as multi_head_attention
from .attention import transformer as transformer
from .attention import transformer_decode as transformer_decode
from .attention import transformer_encode as transformer_encode
from .batch_statistics import batch_normalization as batch_normalization
from .batch_statistics import fused_batch_normalization as fused_batch_normalization
from .batch_statistics import mean_subtraction as mean_subtraction
from .batch_statistics import sync_batch_normalization as sync_batch_normalization
from .convolution import convolution as convolution
from .convolution import deconvolution as deconvolution
from .convolution import deformable_convolution as deformable_convolution
from .convolution import depthwise_convolution as depthwise_convolution
from .convolution import depthwise_deconvolution as depthwise_deconvolution
from .layer_parameters import parametric_function_api as parametric_function_api
from .low_rank import cpd3_convolution as cpd3_convolution
from .low_rank import svd_affine as svd_affine
from .low_rank import svd_convolution as svd_convolution
from .normalization import group_normalization as group_normalization
from .normalization import instance_normalization as instance_normalization
from .normalization import layer_normalization as layer_normalization
from .quantized import min_max_quantize as min_max_quantize
from .recurrent import LSTMCell as LSTMCell
from .recurrent import gru as gru
from .recurrent import lstm as lstm
from .recurrent import lstm_cell as lstm_cell
from .recurrent import rnn as rnn
from .weights import spectral_norm as spectral_norm
from .weights import weight_normalization as weight_normalization

def fixed_point_quantized_affine(
    inp: Array, n_outmaps: Ints, base_axis: int = 1, w_init: Init = None, b_init: Init = None, fix_parameters: bool
    = False, rng: Rng | None = None, with_bias: bool = True, quantize_w: bool = True, sign_w: bool = True, n_w: int
    = 8, delta_w: float = 0.0625, ste_fine_grained_w: bool = True, quantize_b: bool = True, sign_b: bool = True,
    n_b: int = 8, delta_b: float = 0.0625, ste_fine_grained_b: bool = True, name: str | None = None
) -> Variable:
    """`affine` with W and b rounded by `F.fixed_point_quantize`.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros; W_q
    and b_q, what comes of them, which each `forward()` writes, not trained.

    Args:
        inp: Of shape (batch axes..., axes to flatten...).
        n_outmaps: Shape of the outputs, or their number.
        base_axis: Number of batch axes; a negative one counts from the end.
        w_init: Initial W.
        b_init: Initial b.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        quantize_w: Whether W is quantised.
        sign_w: For W: Whether one of the bits is the sign.
        n_w: For W: Number of bits.
        delta_w: For W: The step.
        ste_fine_grained_w: For W: Whether the gradient passes only where `x` is within the range, ends included;
            else it passes everywhere.
        quantize_b: Whether b is quantised.
        sign_b: For b: Whether one of the bits is the sign.
        n_b: For b: Number of bits.
        delta_b: For b: The step.
        ste_fine_grained_b: For b: Whether the gradient passes only where `x` is within the range, ends included;
            else it passes everywhere.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A shape does not fit, an argument is out of range, or a parameter has another shape already.
    """

def fixed_point_quantized_convolution(
    inp: Array, outmaps: int, kernel: Ints, pad: Ints | None = None, stride: Ints | None = None, dilation: Ints |
    None = None, group: int = 1, channel_last: bool = False, w_init: Init = None, b_init: Init = None, base_axis:
    int = 1, fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True, quantize_w: bool = True,
    sign_w: bool = True, n_w: int = 8, delta_w: float = 0.0625, ste_fine_grained_w: bool = True, quantize_b: bool =
    True, sign_b: bool = True, n_b: int = 8, delta_b: float = 0.0625, ste_fine_grained_b: bool = True, name: str |
    None = None
) -> Variable:
    """`convolution` with W and b rounded by `F.fixed_point_quantize`.

    Parameters: W (outmaps, channels / group, *kernel), or (outmaps, *kernel, channels / group) with `channel_last`,
    uniform within Glorot's limits; b (outmaps,), zeros; W_q and b_q, what comes of them, which each `forward()`
    writes, not trained.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...); channels last with `channel_last`.
        outmaps: Number of output channels.
        kernel: Size of the kernel along each spatial axis; an int is for all of them.
        pad: Zeros added at both ends of each spatial axis; 0 by default. A single entry, here and below, applies to all
            axes.
        stride: Step of the kernel; 1 by default.
        dilation: Spacing between the kernel's elements; 1 by default.
        group: Number of groups of channels, each convolved separately.
        channel_last: Whether the channel axis is the last one.
        w_init: Initial W.
        b_init: Initial b.
        base_axis: Number of batch axes; a negative one counts from the end.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        quantize_w: Whether W is quantised.
        sign_w: For W: Whether one of the bits is the sign.
        n_w: For W: Number of bits.
        delta_w: For W: The step.
        ste_fine_grained_w: For W: Whether the gradient passes only where `x` is within the range, ends included;
            else it passes everywhere.
        quantize_b: Whether b is quantised.
        sign_b: For b: Whether one of the bits is the sign.
        n_b: For b: Number of bits.
        delta_b: For b: The step.
        ste_fine_grained_b: For b: Whether the gradient passes only where `x` is within the range, ends included;
            else it passes everywhere.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A shape does not fit, an argument is out of range, or a parameter has another shape already.
    """

def pow2_quantized_affine(
    inp: Array, n_outmaps: Ints, base_axis: int = 1, w_init: Init = None, b_init: Init = None, fix_parameters: bool
    = False, rng: Rng | None = None, with_bias: bool = True, quantize_w: bool = True, sign_w: bool = True,
    with_zero_w: bool = False, n_w: int = 8, m_w: int = 2, ste_fine_grained_w: bool = True, quantize_b: bool = True,
    sign_b: bool = True, with_zero_b: bool = False, n_b: int = 8, m_b: int = 2, ste_fine_grained_b: bool = True,
    name: str | None = None
) -> Variable:
    """`affine` with W and b rounded by `F.pow2_quantize`.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros; W_q
    and b_q, what comes of them, which each `forward()` writes, not trained.

    Args:
        inp: Of shape (batch axes..., axes to flatten...).
        n_outmaps: Shape of the outputs, or their number.
        base_axis: Number of batch axes; a negative one counts from the end.
        w_init: Initial W.
        b_init: Initial b.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        quantize_w: Whether W is quantised.
        sign_w: For W: Whether one of the bits is the sign.
        with_zero_w: For W: Whether one of the bits represents 0.
        n_w: For W: Number of bits.
        m_w: For W: Exponent of the largest power.
        ste_fine_grained_w: For W: Whether the gradient is 0 where `|x|` would be rounded to more than the largest
            power, and, without `sign`, where `x` is negative; else it passes everywhere.
        quantize_b: Whether b is quantised.
        sign_b: For b: Whether one of the bits is the sign.
        with_zero_b: For b: Whether one of the bits represents 0.
        n_b: For b: Number of bits.
        m_b: For b: Exponent of the largest power.
        ste_fine_grained_b: For b: Whether the gradient is 0 where `|x|` would be rounded to more than the largest
            power, and, without `sign`, where `x` is negative; else it passes everywhere.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A shape does not fit, an argument is out of range, or a parameter has another shape already.
    """

def pow2_quantized_convolution(
    inp: Array, outmaps: int, kernel: Ints, pad: Ints | None = None, stride: Ints | None = None, dilation: Ints |
    None = None, group: int = 1, w_init: Init = None, b_init: Init = None, base_axis: int = 1, fix_parameters: bool
    = False, rng: Rng | None = None, with_bias: bool = True, quantize_w: bool = True, with_zero_w: bool = False,
    sign_w: bool = True, n_w: int = 8, m_w: int = 2, ste_fine_grained_w: bool = True, quantize_b: bool = True,
    with_zero_b: bool = False, sign_b: bool = True, n_b: int = 8, m_b: int = 2, ste_fine_grained_b: bool = True,
    name: str | None = None
) -> Variable:
    """`convolution` with W and b rounded by `F.pow2_quantize`.

    Parameters: W (outmaps, channels / group, *kernel), uniform within Glorot's limits; b (outmaps,), zeros; W_q and
    b_q, what comes of them, which each `forward()` writes, not trained.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...); channels last with `channel_last`.
        outmaps: Number of output channels.
        kernel: Size of the kernel along each spatial axis; an int is for all of them.
        pad: Zeros added at both ends of each spatial axis; 0 by default. A single entry, here and below, applies to all
            axes.
        stride: Step of the kernel; 1 by default.
        dilation: Spacing between the kernel's elements; 1 by default.
        group: Number of groups of channels, each convolved separately.
        w_init: Initial W.
        b_init: Initial b.
        base_axis: Number of batch axes; a negative one counts from the end.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        quantize_w: Whether W is quantised.
        with_zero_w: For W: Whether one of the bits represents 0.
        sign_w: For W: Whether one of the bits is the sign.
        n_w: For W: Number of bits.
        m_w: For W: Exponent of the largest power.
        ste_fine_grained_w: For W: Whether the gradient is 0 where `|x|` would be rounded to more than the largest
            power, and, without `sign`, where `x` is negative; else it passes everywhere.
        quantize_b: Whether b is quantised.
        with_zero_b: For b: Whether one of the bits represents 0.
        sign_b: For b: Whether one of the bits is the sign.
        n_b: For b: Number of bits.
        m_b: For b: Exponent of the largest power.
        ste_fine_grained_b: For b: Whether the gradient is 0 where `|x|` would be rounded to more than the largest
            power, and, without `sign`, where `x` is negative; else it passes everywhere.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A shape does not fit, an argument is out of range, or a parameter has another shape already.
    """

def pruned_affine(
    inp: Array, n_outmaps: Ints, base_axis: int = 1, w_init: Init = None, b_init: Init = None, fix_parameters: bool
    = False, rng: Rng | None = None, with_bias: bool = True, prune_w: bool = True, rate_w: float = 0.9, prune_b:
    bool = True, rate_b: float = 0.9, name: str | None = None
) -> Variable:
    """`affine` with W and b pruned by `F.prune`.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros; W_q
    and b_q, what comes of them, which each `forward()` writes, not trained.

    Args:
        inp: Of shape (batch axes..., axes to flatten...).
        n_outmaps: Shape of the outputs, or their number.
        base_axis: Number of batch axes; a negative one counts from the end.
        w_init: Initial W.
        b_init: Initial b.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        prune_w: Whether W is pruned.
        rate_w: For W: The share of elements to remove, from 0 to 1; 1 leaves nothing.
        prune_b: Whether b is pruned.
        rate_b: For b: The share of elements to remove, from 0 to 1; 1 leaves nothing.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A shape does not fit, an argument is out of range, or a parameter has another shape already.
    """

def pruned_convolution(
    inp: Array, outmaps: int, kernel: Ints, pad: Ints | None = None, stride: Ints | None = None, dilation: Ints |
    None = None, group: int = 1, channel_last: bool = False, w_init: Init = None, b_init: Init = None, base_axis:
    int = 1, fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True, prune_w: bool = True,
    rate_w: float = 0.9, prune_b: bool = True, rate_b: float = 0.9, name: str | None = None
) -> Variable:
    """`convolution` with W and b pruned by `F.prune`.

    Parameters: W (outmaps, channels / group, *kernel), or (outmaps, *kernel, channels / group) with `channel_last`,
    uniform within Glorot's limits; b (outmaps,), zeros; W_q and b_q, what comes of them, which each `forward()`
    writes, not trained.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...); channels last with `channel_last`.
        outmaps: Number of output channels.
        kernel: Size of the kernel along each spatial axis; an int is for all of them.
        pad: Zeros added at both ends of each spatial axis; 0 by default. A single entry, here and below, applies to all
            axes.
        stride: Step of the kernel; 1 by default.
        dilation: Spacing between the kernel's elements; 1 by default.
        group: Number of groups of channels, each convolved separately.
        channel_last: Whether the channel axis is the last one.
        w_init: Initial W.
        b_init: Initial b.
        base_axis: Number of batch axes; a negative one counts from the end.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        prune_w: Whether W is pruned.
        rate_w: For W: The share of elements to remove, from 0 to 1; 1 leaves nothing.
        prune_b: Whether b is pruned.
        rate_b: For b: The share of elements to remove, from 0 to 1; 1 leaves nothing.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A shape does not fit, an argument is out of range, or a parameter has another shape already.
    """

def min_max_quantized_affine(
    inp: Array, n_outmaps: Ints, base_axis: int = 1, w_init: Init = None, b_init: Init = None, fix_parameters: bool
    = False, rng: Rng | None = None, with_bias: bool = True, quantize_w: bool = True, ql_min_w: Level = 0, ql_max_w:
    Level = 255, w_min_max: bool = False, qr_min_w_init: Init = None, qr_max_w_init: Init = None,
    ste_fine_grained_w: bool = True, quantize_b: bool = True, ql_min_b: Level = 0, ql_max_b: Level = 255, b_min_max:
    bool = False, qr_min_b_init: Init = None, qr_max_b_init: Init = None, ste_fine_grained_b: bool = True, eps:
    float = 0.01, name: str | None = None
) -> Variable:
    """`affine` with W and b rounded by `min_max_quantize`.

    Parameters: W (size of the flattened axes, *n_outmaps), uniform within Glorot's limits; b (*n_outmaps), zeros; W_q
    and b_q, their rounded values, which each `forward()` writes, not trained. min_max_quantize_w/... and
    min_max_quantize_b/... are those of `min_max_quantize`.

    Args:
        inp: Of shape (batch axes..., axes to flatten...).
        n_outmaps: Shape of the outputs, or their number.
        base_axis: Number of batch axes; a negative one counts from the end.
        w_init: Initial W.
        b_init: Initial b.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        quantize_w: Whether W is quantised.
        ql_min_w: As in `min_max_quantize`, for W.
        ql_max_w: As in `min_max_quantize`, for W.
        w_min_max: As `x_min_max` of `F.min_max_quantize`, for W.
        qr_min_w_init: Initial qr_min of W; -2 by default.
        qr_max_w_init: Initial qr_max of W; 2 by default.
        ste_fine_grained_w: As `ste_fine_grained` of `F.min_max_quantize`, for W.
        quantize_b: Whether b is quantised.
        ql_min_b: As in `min_max_quantize`, for b.
        ql_max_b: As in `min_max_quantize`, for b.
        b_min_max: As `x_min_max` of `F.min_max_quantize`, for b.
        qr_min_b_init: Initial qr_min of b; -6 by default.
        qr_max_b_init: Initial qr_max of b; 6 by default.
        ste_fine_grained_b: As `ste_fine_grained` of `F.min_max_quantize`, for b.
        eps: The smallest width of the range; positive.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A shape does not fit, an argument is out of range, or a parameter has another shape already.
    """

def min_max_quantized_convolution(
    inp: Array, outmaps: int, kernel: Ints, pad: Ints | None = None, stride: Ints | None = None, dilation: Ints |
    None = None, group: int = 1, channel_last: bool = False, w_init: Init = None, b_init: Init = None, base_axis:
    int = 1, fix_parameters: bool = False, rng: Rng | None = None, with_bias: bool = True, quantize_w: bool = True,
    ql_min_w: Level = 0, ql_max_w: Level = 255, w_min_max: bool = False, qr_min_w_init: Init = None, qr_max_w_init:
    Init = None, ste_fine_grained_w: bool = True, quantize_b: bool = True, ql_min_b: Level = 0, ql_max_b: Level =
    255, b_min_max: bool = False, qr_min_b_init: Init = None, qr_max_b_init: Init = None, ste_fine_grained_b: bool =
    True, eps: float = 0.01, name: str | None = None
) -> Variable:
    """`convolution` with W and b rounded by `min_max_quantize`.

    Parameters: W (outmaps, channels / group, *kernel), or (outmaps, *kernel, channels / group) with `channel_last`,
    uniform within Glorot's limits; b (outmaps,), zeros; W_q and b_q, their rounded values, which each `forward()`
    writes, not trained. min_max_quantize_w/... and min_max_quantize_b/... are those of `min_max_quantize`.

    Args:
        inp: Of shape (batch axes..., channels, spatial axes...); channels last with `channel_last`.
        outmaps: Number of output channels.
        kernel: Size of the kernel along each spatial axis; an int is for all of them.
        pad: Zeros added at both ends of each spatial axis; 0 by default. A single entry, here and below, applies to all
            axes.
        stride: Step of the kernel; 1 by default.
        dilation: Spacing between the kernel's elements; 1 by default.
        group: Number of groups of channels, each convolved separately.
        channel_last: Whether the channel axis is the last one.
        w_init: Initial W.
        b_init: Initial b.
        base_axis: Number of batch axes; a negative one counts from the end.
        fix_parameters: Whether W and b are constants.
        rng: Generator for the default `w_init`.
        with_bias: Whether there is a b.
        quantize_w: Whether W is quantised.
        ql_min_w: As in `min_max_quantize`, for W.
        ql_max_w: As in `min_max_quantize`, for W.
        w_min_max: As `x_min_max` of `F.min_max_quantize`, for W.
        qr_min_w_init: Initial qr_min of W; -2 by default.
        qr_max_w_init: Initial qr_max of W; 2 by default.
        ste_fine_grained_w: As `ste_fine_grained` of `F.min_max_quantize`, for W.
        quantize_b: Whether b is quantised.
        ql_min_b: As in `min_max_quantize`, for b.
        ql_max_b: As in `min_max_quantize`, for b.
        b_min_max: As `x_min_max` of `F.min_max_quantize`, for b.
        qr_min_b_init: Initial qr_min of b; -6 by default.
        qr_max_b_init: Initial qr_max of b; 6 by default.
        ste_fine_grained_b: As `ste_fine_grained` of `F.min_max_quantize`, for b.
        eps: The smallest width of the range; positive.
        name: Scope around that of the parameters.

    Raises:
        ValueError: A shape does not fit, an argument is out of range, or a parameter has another shape already.
    """
