"""Written by `python -m tests.stubs`."""

# ruff: noqa: A004, I001, RUF100

import jax

from ..graph import Array, op
from ..graph.arguments import Scalar
from .activation import celu as celu
from .activation import crelu as crelu
from .activation import elu as elu
from .activation import gelu as gelu
from .activation import leaky_relu as leaky_relu
from .activation import less_mean as less_mean
from .activation import less_share as less_share
from .activation import log_softmax as log_softmax
from .activation import prelu as prelu
from .activation import relu as relu
from .activation import relu6 as relu6
from .activation import selu as selu
from .activation import sigmoid_complement as sigmoid_complement
from .activation import softmax as softmax
from .activation import softplus as softplus
from .activation import tanh_slope as tanh_slope
from .arithmetic import add2 as add2
from .arithmetic import add_n as add_n
from .arithmetic import add_scalar as add_scalar
from .arithmetic import bc_add2 as bc_add2
from .arithmetic import directed as directed
from .arithmetic import div2 as div2
from .arithmetic import divided as divided
from .arithmetic import maximum2 as maximum2
from .arithmetic import maximum_scalar as maximum_scalar
from .arithmetic import minimum2 as minimum2
from .arithmetic import minimum_scalar as minimum_scalar
from .arithmetic import mul2 as mul2
from .arithmetic import mul_n as mul_n
from .arithmetic import mul_scalar as mul_scalar
from .arithmetic import pow2 as pow2
from .arithmetic import pow_scalar as pow_scalar
from .arithmetic import r_div_scalar as r_div_scalar
from .arithmetic import r_pow_scalar as r_pow_scalar
from .arithmetic import r_sub_scalar as r_sub_scalar
from .arithmetic import sub2 as sub2
from .array import arange as arange
from .array import cast as cast
from .array import constant as constant
from .array import eye as eye
from .array import eye_like as eye_like
from .array import linspace as linspace
from .array import matrix_diag as matrix_diag
from .array import matrix_diag_part as matrix_diag_part
from .array import meshgrid as meshgrid
from .array import one_hot as one_hot
from .array import ones_like as ones_like
from .array import shape as shape
from .array import trilu as trilu
from .array import zeros_like as zeros_like
from .associative import associative_scan as associative_scan
from .attention import attention as attention
from .attention import multi_head_attention as multi_head_attention
from .attention import scaled_dot_product_attention as scaled_dot_product_attention
from .augmentation import random_crop as random_crop
from .augmentation import random_erase as random_erase
from .augmentation import random_flip as random_flip
from .augmentation import random_shift as random_shift
from .augmentation import vat_noise as vat_noise
from .batch_statistics import batch_normalization as batch_normalization
from .batch_statistics import fused_batch_normalization as fused_batch_normalization
from .batch_statistics import mean_subtraction as mean_subtraction
from .batch_statistics import sync_batch_normalization as sync_batch_normalization
from .bessel import bessel_first_kind as bessel_first_kind
from .bessel import bessel_j as bessel_j
from .bessel import bessel_ratio as bessel_ratio
from .bessel import i0 as i0
from .bessel import i0e_derivative as i0e_derivative
from .bessel import i1 as i1
from .bessel import scaled_bessel_ratio as scaled_bessel_ratio
from .bits import bits_of as bits_of
from .bits import bitwise as bitwise
from .bits import integer_quotient as integer_quotient
from .branches import cond as cond
from .branches import switch as switch
from .chains import argmax_crf1d as argmax_crf1d
from .chains import crf1d as crf1d
from .clipping import clip as clip
from .clipping import clip_by_norm as clip_by_norm
from .clipping import clip_by_value as clip_by_value
from .clipping import clip_grad_by_norm as clip_grad_by_norm
from .clipping import clip_grad_by_value as clip_grad_by_value
from .clipping import top_k_grad as top_k_grad
from .collectives import all_gather as all_gather
from .collectives import all_reduce as all_reduce
from .collectives import bcast as bcast
from .collectives import reduce_scatter as reduce_scatter
from .collectives import reduce_to_process as reduce_to_process
from .comparison import logical_not as logical_not
from .contractions import bilinear as bilinear
from .contractions import contraction as contraction
from .contractions import einsum as einsum
from .contractions import tensordot as tensordot
from .control import assign as assign
from .control import optimization_barrier as optimization_barrier
from .control import recomputed as recomputed
from .control import sharding_constraint as sharding_constraint
from .control import sink as sink
from .control import unlink as unlink
from .control import update as update
from .control import value_of as value_of
from .convolution import convolution as convolution
from .convolution import convolve as convolve
from .convolution import convolve_data_grad as convolve_data_grad
from .convolution import convolve_filter_grad as convolve_filter_grad
from .convolution import deconvolution as deconvolution
from .convolution import depthwise_convolution as depthwise_convolution
from .convolution import depthwise_deconvolution as depthwise_deconvolution
from .cumulative import cumprod as cumprod
from .cumulative import cumsum as cumsum
from .cumulative import displace as displace
from .cumulative import recurrence as recurrence
from .decompositions import batch_cofactor as batch_cofactor
from .decompositions import batch_eigh as batch_eigh
from .decompositions import batch_expm as batch_expm
from .decompositions import batch_lu as batch_lu
from .decompositions import batch_pinv as batch_pinv
from .decompositions import batch_qr as batch_qr
from .decompositions import batch_svd as batch_svd
from .deformable import deformable_convolution as deformable_convolution
from .detection import nms_detection2d as nms_detection2d
from .detection import nms_mask as nms_mask
from .detection import onnx_non_max_suppression as onnx_non_max_suppression
from .detection import ranked_boxes as ranked_boxes
from .detection import selected_rows as selected_rows
from .distances import cdist as cdist
from .distances import contrastive as contrastive
from .distances import cosine_similarity as cosine_similarity
from .distances import cross_covariance as cross_covariance
from .distances import discriminative_margin_based_clustering_loss as discriminative_margin_based_clustering_loss
from .distances import mean_absolute_error as mean_absolute_error
from .distances import mean_squared_error as mean_squared_error
from .distances import triplet as triplet
from .distributions import binomial as binomial
from .distributions import gamma_moment as gamma_moment
from .distributions import log_gamma_sample as log_gamma_sample
from .distributions import rand_beta as rand_beta
from .distributions import rand_binomial as rand_binomial
from .distributions import rand_gamma as rand_gamma
from .distributions import random_choice as random_choice
from .distributions import weighted_choice as weighted_choice
from .elementwise import abs as abs
from .elementwise import atan2 as atan2
from .elementwise import ceil as ceil
from .elementwise import copy as copy
from .elementwise import floor as floor
from .elementwise import identity as identity
from .elementwise import one_minus_square as one_minus_square
from .elementwise import over_square_sum as over_square_sum
from .elementwise import round as round
from .elementwise import sign as sign
from .elementwise import sinc_derivative as sinc_derivative
from .elementwise import square as square
from .fourier import fft as fft
from .fourier import frames as frames
from .fourier import frames_transpose as frames_transpose
from .fourier import ifft as ifft
from .fourier import istft as istft
from .fourier import real_fft as real_fft
from .fourier import real_fft_transpose as real_fft_transpose
from .fourier import stft as stft
from .fused import fused_convolution as fused_convolution
from .images import image_augmentation as image_augmentation
from .incomplete import beta_moment as beta_moment
from .incomplete import betainc as betainc
from .incomplete import expn as expn
from .incomplete import exponential_integral as exponential_integral
from .incomplete import gammainc as gammainc
from .incomplete import gammaincc as gammaincc
from .incomplete import incomplete_gamma as incomplete_gamma
from .indexing import argsort as argsort
from .indexing import extreme_points as extreme_points
from .indexing import gather as gather
from .indexing import gather_nd as gather_nd
from .indexing import latest_points as latest_points
from .indexing import scatter_add as scatter_add
from .indexing import scatter_nd as scatter_nd
from .indexing import sort as sort
from .indexing import sort_values as sort_values
from .indexing import take_along_axis as take_along_axis
from .indexing import top_k_data as top_k_data
from .indexing import where as where
from .likelihoods import bernoulli_nll as bernoulli_nll
from .likelihoods import black_out as black_out
from .likelihoods import gaussian_kl_divergence as gaussian_kl_divergence
from .likelihoods import gaussian_nll as gaussian_nll
from .likelihoods import negative_sampling as negative_sampling
from .linear import affine as affine
from .linear import batch_cholesky as batch_cholesky
from .linear import batch_det as batch_det
from .linear import batch_inv as batch_inv
from .linear import batch_logdet as batch_logdet
from .linear import batch_matmul as batch_matmul
from .linear import cross as cross
from .linear import dot as dot
from .linear import embed as embed
from .linear import embed_filter_grad as embed_filter_grad
from .linear import matmul as matmul
from .lists import broadcast_arrays as broadcast_arrays
from .lists import dstack as dstack
from .lists import get_item as get_item
from .lists import hstack as hstack
from .lists import pad_sequence as pad_sequence
from .lists import split_axis as split_axis
from .lists import transpose_sequence as transpose_sequence
from .lists import vstack as vstack
from .loops import fori_loop as fori_loop
from .loops import map as map
from .loops import scan as scan
from .loss import absolute_error as absolute_error
from .loss import binary_cross_entropy as binary_cross_entropy
from .loss import categorical_cross_entropy as categorical_cross_entropy
from .loss import class_mask as class_mask
from .loss import epsilon_insensitive_loss as epsilon_insensitive_loss
from .loss import huber_loss as huber_loss
from .loss import kl_multinomial as kl_multinomial
from .loss import sigmoid_cross_entropy as sigmoid_cross_entropy
from .loss import softmax_cross_entropy as softmax_cross_entropy
from .loss import squared_error as squared_error
from .movement import broadcast as broadcast
from .movement import broadcast_to as broadcast_to
from .movement import concatenate as concatenate
from .movement import flip as flip
from .movement import pad as pad
from .movement import pad_transpose as pad_transpose
from .movement import reshape as reshape
from .movement import split as split
from .movement import stack as stack
from .movement import sum_to as sum_to
from .movement import tile as tile
from .movement import transpose as transpose
from .noise import gaussian as gaussian
from .noise import gumbel_softmax as gumbel_softmax
from .noise import rrelu as rrelu
from .noise import simplified_dropconnect as simplified_dropconnect
from .noise import zoneout as zoneout
from .normalization import group_normalization as group_normalization
from .normalization import instance_normalization as instance_normalization
from .normalization import layer_normalization as layer_normalization
from .normalization import norm_normalization as norm_normalization
from .normalization import spectral_norm as spectral_norm
from .normalization import tensor_normalization as tensor_normalization
from .normalization import weight_normalization as weight_normalization
from .normalization import weight_standardization as weight_standardization
from .numbers import bit_shift as bit_shift
from .numbers import isinf as isinf
from .numbers import isnan as isnan
from .numbers import mod2 as mod2
from .numbers import reset_inf as reset_inf
from .numbers import reset_nan as reset_nan
from .numbers import whole_quotient as whole_quotient
from .packed_sequences import pack_padded_sequence as pack_padded_sequence
from .packed_sequences import pad_packed_sequence as pad_packed_sequence
from .patches import average_pooling_1d as average_pooling_1d
from .patches import average_pooling_nd as average_pooling_nd
from .patches import col2im as col2im
from .patches import im2col as im2col
from .patches import max_pooling_1d as max_pooling_1d
from .patches import max_pooling_nd as max_pooling_nd
from .patches import spatial_pyramid_pooling_2d as spatial_pyramid_pooling_2d
from .patches import upsampling_2d as upsampling_2d
from .polynomial import linear_combination as linear_combination
from .polynomial import monomial as monomial
from .pooling import average_pooling as average_pooling
from .pooling import average_pooling_backward as average_pooling_backward
from .pooling import global_average_pooling as global_average_pooling
from .pooling import max_pooling as max_pooling
from .pooling import max_pooling_backward as max_pooling_backward
from .pooling import max_pooling_select as max_pooling_select
from .pooling import sum_pooling as sum_pooling
from .pooling import sum_pooling_backward as sum_pooling_backward
from .pooling import unpooling as unpooling
from .quantization import dequantize_linear as dequantize_linear
from .quantization import fixed_point_quantize as fixed_point_quantize
from .quantization import min_max_quantize as min_max_quantize
from .quantization import pow2_quantize as pow2_quantize
from .quantization import prune as prune
from .quantization import quantize_linear as quantize_linear
from .quantization import straight_through as straight_through
from .recurrent import gru as gru
from .recurrent import lstm as lstm
from .recurrent import rnn as rnn
from .reduction import amax as amax
from .reduction import amin as amin
from .reduction import argmax as argmax
from .reduction import argmin as argmin
from .reduction import logsumexp as logsumexp
from .reduction import max as max
from .reduction import mean as mean
from .reduction import min as min
from .reduction import norm as norm
from .reduction import prod as prod
from .reduction import reduce as reduce
from .reduction import reduce_mean as reduce_mean
from .reduction import reduce_sum as reduce_sum
from .reduction import std as std
from .reduction import sum as sum
from .reduction import var as var
from .regions import box_averages as box_averages
from .regions import box_averages_transpose as box_averages_transpose
from .regions import patch_correlation as patch_correlation
from .regions import roi_align as roi_align
from .resampling import interpolate as interpolate
from .resampling import onnx_resize as onnx_resize
from .resampling import resample as resample
from .resampling import resample_transpose as resample_transpose
from .rounding import rounded as rounded
from .rounding import signum as signum
from .selection import diagonal as diagonal
from .selection import permutate as permutate
from .selection import select_item as select_item
from .separable import adaptive_separable_convolution as adaptive_separable_convolution
from .sets import bool_fill as bool_fill
from .sets import bool_gather as bool_gather
from .sets import bool_scatter as bool_scatter
from .sets import distinct as distinct
from .sets import nonzero as nonzero
from .sets import searchsorted as searchsorted
from .sets import segment_prod as segment_prod
from .sets import true_places as true_places
from .sets import true_ranks as true_ranks
from .sets import unique as unique
from .shaping import depth2space as depth2space
from .shaping import expand_dims as expand_dims
from .shaping import flatten as flatten
from .shaping import moveaxis as moveaxis
from .shaping import repeat as repeat
from .shaping import shift as shift
from .shaping import space2depth as space2depth
from .shaping import squeeze as squeeze
from .shaping import swapaxes as swapaxes
from .slicing import put_points as put_points
from .slicing import put_slices as put_slices
from .slicing import slice as slice
from .slicing import take_points as take_points
from .slicing import take_slices as take_slices
from .solves import batch_solve as batch_solve
from .solves import triangular_solve as triangular_solve
from .sparse import CooMatrix as CooMatrix
from .sparse import sparse_matmul as sparse_matmul
from .special import betaln as betaln
from .special import digamma_derivative as digamma_derivative
from .special import digamma_difference as digamma_difference
from .special import erfcx_integral as erfcx_integral
from .special import hurwitz_zeta as hurwitz_zeta
from .special import logaddexp as logaddexp
from .special import polygamma as polygamma
from .special import xlog1py as xlog1py
from .special import xlogy as xlogy
from .special import zeta as zeta
from .stochastic import bernoulli as bernoulli
from .stochastic import distinct_integers as distinct_integers
from .stochastic import dropout as dropout
from .stochastic import integers as integers
from .stochastic import normal as normal
from .stochastic import rand as rand
from .stochastic import randint as randint
from .stochastic import randn as randn
from .stochastic import subkey as subkey
from .stochastic import uniform as uniform
from .traced.jax_functions import jax_function as jax_function
from .units import lstm_step as lstm_step
from .units import maxout as maxout
from .units import scaled_swish as scaled_swish
from .units import slstm as slstm
from .validation import binary_error as binary_error
from .validation import confusion_matrix as confusion_matrix
from .validation import top_n_error as top_n_error
from .warping import affine_grid as affine_grid
from .warping import cell_fraction as cell_fraction
from .warping import cell_indices as cell_indices
from .warping import cell_slope as cell_slope
from .warping import warp_by_flow as warp_by_flow
from .warping import warp_by_grid as warp_by_grid
from .weighted_points import weighted_points as weighted_points
from .weighted_points import weighted_points_data_grad as weighted_points_data_grad
from .weighted_points import weighted_points_weight_grad as weighted_points_weight_grad
from .weighting import average as average
from .weighting import batch_l2_norm_squared as batch_l2_norm_squared
from .weighting import bias as bias
from .weighting import linear_interpolate as linear_interpolate
from .weighting import scale as scale
from .while_loops import while_loop as while_loop

FAMILIES: tuple[str, ...]
PLAIN: dict[str, tuple[str, ...]]

def names() -> list[str]: ...
def plain_names() -> tuple[str, ...]: ...

@op
def equal(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where `x0 == x1`, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def equal_scalar(
    x0: Array, /, val: Scalar = 1.0
) -> jax.Array:
    """1 where `x0 == val`, else 0.

    Args:
        x0: Any shape.
        val: The number.
    """

@op
def not_equal(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where `x0 != x1`, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def not_equal_scalar(
    x0: Array, /, val: Scalar = 1.0
) -> jax.Array:
    """1 where `x0 != val`, else 0.

    Args:
        x0: Any shape.
        val: The number.
    """

@op
def less(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where `x0 < x1`, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def less_scalar(
    x0: Array, /, val: Scalar = 1.0
) -> jax.Array:
    """1 where `x0 < val`, else 0.

    Args:
        x0: Any shape.
        val: The number.
    """

@op
def less_equal(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where `x0 <= x1`, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def less_equal_scalar(
    x0: Array, /, val: Scalar = 1.0
) -> jax.Array:
    """1 where `x0 <= val`, else 0.

    Args:
        x0: Any shape.
        val: The number.
    """

@op
def greater(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where `x0 > x1`, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def greater_scalar(
    x0: Array, /, val: Scalar = 1.0
) -> jax.Array:
    """1 where `x0 > val`, else 0.

    Args:
        x0: Any shape.
        val: The number.
    """

@op
def greater_equal(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where `x0 >= x1`, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def greater_equal_scalar(
    x0: Array, /, val: Scalar = 1.0
) -> jax.Array:
    """1 where `x0 >= val`, else 0.

    Args:
        x0: Any shape.
        val: The number.
    """

@op
def logical_and(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where neither `x0` nor `x1` is 0, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def logical_and_scalar(
    x0: Array, /, val: bool
) -> jax.Array:
    """1 where `x0` is not 0 and `val` is True, else 0.

    Args:
        x0: Any shape.
        val: The other boolean.
    """

@op
def logical_or(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where `x0` or `x1` is not 0, or both are not, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def logical_or_scalar(
    x0: Array, /, val: bool
) -> jax.Array:
    """1 where `x0` is not 0 or `val` is True, else 0.

    Args:
        x0: Any shape.
        val: The other boolean.
    """

@op
def logical_xor(
    x0: Array, x1: Array, /
) -> jax.Array:
    """1 where just one of `x0` and `x1` is 0, else 0; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def logical_xor_scalar(
    x0: Array, /, val: bool
) -> jax.Array:
    """1 where either `x0` is not 0 or `val` is True, and not both, else 0.

    Args:
        x0: Any shape.
        val: The other boolean.
    """

@op
def cbrt(
    x: Array, /
) -> jax.Array:
    """The cube root, negative where `x` is; its derivative at 0 is infinite.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def reciprocal(
    x: Array, /
) -> jax.Array:
    """`1 / x`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def sqrt(
    x: Array, /
) -> jax.Array:
    """Square root; NaN where `x` is negative, and its derivative at 0 is infinite.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def exp(
    x: Array, /
) -> jax.Array:
    """e to the power of `x`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def log(
    x: Array, /
) -> jax.Array:
    """Natural logarithm; minus infinity at 0, and NaN where `x` is negative.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def erf(
    x: Array, /
) -> jax.Array:
    """The error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to `x`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def sin(
    x: Array, /
) -> jax.Array:
    """Sine.

    Args:
        x: Angles in radians, of any shape; integers are taken as float32.
    """

@op
def cos(
    x: Array, /
) -> jax.Array:
    """Cosine.

    Args:
        x: Angles in radians, of any shape; integers are taken as float32.
    """

@op
def tan(
    x: Array, /
) -> jax.Array:
    """Tangent.

    Args:
        x: Angles in radians, of any shape; integers are taken as float32.
    """

@op
def asin(
    x: Array, /
) -> jax.Array:
    """The angle in [-pi/2, pi/2] whose sine is `x`; NaN where there is none.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def acos(
    x: Array, /
) -> jax.Array:
    """The angle in [0, pi] whose cosine is `x`; NaN where there is none.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def atan(
    x: Array, /
) -> jax.Array:
    """The angle in [-pi/2, pi/2] whose tangent is `x`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def sinc(
    x: Array, /
) -> jax.Array:
    """`sin(x) / x`, and 1 at 0: not normalised by pi.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def sinh(
    x: Array, /
) -> jax.Array:
    """Hyperbolic sine, `(exp(x) - exp(-x)) / 2`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def cosh(
    x: Array, /
) -> jax.Array:
    """Hyperbolic cosine, `(exp(x) + exp(-x)) / 2`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def asinh(
    x: Array, /
) -> jax.Array:
    """The number whose hyperbolic sine is `x`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def acosh(
    x: Array, /
) -> jax.Array:
    """The number that is not negative and whose hyperbolic cosine is `x`; NaN where there is none.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def atanh(
    x: Array, /
) -> jax.Array:
    """The number whose hyperbolic tangent is `x`; NaN where there is none.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def log1p(
    x: Array, /
) -> jax.Array:
    """`log(1 + x)`, accurate near 0 too; minus infinity at -1, and NaN below.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def expm1(
    x: Array, /
) -> jax.Array:
    """`exp(x) - 1`, accurate near 0 too.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def log2(
    x: Array, /
) -> jax.Array:
    """Logarithm to base 2; minus infinity at 0, and NaN where `x` is negative.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def log10(
    x: Array, /
) -> jax.Array:
    """Logarithm to base 10; minus infinity at 0, and NaN where `x` is negative.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def rsqrt(
    x: Array, /
) -> jax.Array:
    """`1 / sqrt(x)`; infinite at 0, and NaN where `x` is negative.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def erfc(
    x: Array, /
) -> jax.Array:
    """`1 - erf(x)`, accurate where that is small.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def erfcx(
    x: Array, /
) -> jax.Array:
    """`exp(x^2) erfc(x)`, without underflow where `x` is large.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def erfinv(
    x: Array, /
) -> jax.Array:
    """The number whose error function is `x`; infinite at -1 and 1, and NaN beyond.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def erfcinv(
    x: Array, /
) -> jax.Array:
    """The number `y` with `erfc(y) = x`, accurate where `x` is small; infinite at 0 and 2, and NaN beyond.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def ndtr(
    x: Array, /
) -> jax.Array:
    """The probability that a standard normal number is not above `x`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def ndtri(
    x: Array, /
) -> jax.Array:
    """The number that a standard normal one does not exceed with probability `x`; infinite at 0 and 1, NaN beyond.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def log_ndtr(
    x: Array, /
) -> jax.Array:
    """The logarithm of `ndtr(x)`, without underflow where `x` is far below 0.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def lgamma(
    x: Array, /
) -> jax.Array:
    """The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ...

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def digamma(
    x: Array, /
) -> jax.Array:
    """The derivative of `lgamma`; infinite at 0, and NaN at -1, -2, ...

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def i0e(
    x: Array, /
) -> jax.Array:
    """The modified Bessel function of order 0, times `exp(-|x|)`.

    Its derivatives at 0 are those from above.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def i1e(
    x: Array, /
) -> jax.Array:
    """The modified Bessel function of order 1, times `exp(-|x|)`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def expi(
    x: Array, /
) -> jax.Array:
    """The exponential integral: that of `exp(t) / t` from minus infinity to x, as its principal value.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def hard_sigmoid(
    x: Array, /
) -> jax.Array:
    """`min(max(0.2 x + 0.5, 0), 1)`; its derivative at both kinks is 0.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def hard_tanh(
    x: Array, /
) -> jax.Array:
    """`min(max(x, -1), 1)`; its derivative at -1 and 1 is 1.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def sigmoid(
    x: Array, /
) -> jax.Array:
    """`1 / (1 + exp(-x))`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def log_sigmoid(
    x: Array, /
) -> jax.Array:
    """`log(sigmoid(x))`, computed without overflow.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def tanh(
    x: Array, /
) -> jax.Array:
    """Hyperbolic tangent.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def tanh_shrink(
    x: Array, /
) -> jax.Array:
    """`x - tanh(x)`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def softsign(
    x: Array, /
) -> jax.Array:
    """`x / (1 + |x|)`.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def swish(
    x: Array, /
) -> jax.Array:
    """`x * sigmoid(x)` (Ramachandran et al., 2017), also called SiLU.

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def mish(
    x: Array, /
) -> jax.Array:
    """`x * tanh(softplus(x))` (Misra, 2019).

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def gcd(
    x0: Array, x1: Array, /
) -> jax.Array:
    """The greatest common divisor of integers, not negative; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def lcm(
    x0: Array, x1: Array, /
) -> jax.Array:
    """The least common multiple of integers, not negative; broadcast together.

    Args:
        x0: Any shape.
        x1: Any shape that broadcasts with that of `x0`.

    Raises:
        ValueError: The shapes do not broadcast.
    """

@op
def binary_sigmoid(
    x: Array, /
) -> jax.Array:
    """1 where `x > 0`, else 0; its gradient is 1/2 where `|x| < 1`, else 0 (Courbariaux and others, 2016).

    Args:
        x: Any shape; integers are taken as float32.
    """

@op
def binary_tanh(
    x: Array, /
) -> jax.Array:
    """1 where `x > 0`, else -1; its gradient is 1 where `|x| < 1`, else 0 (Courbariaux and others, 2016).

    Args:
        x: Any shape; integers are taken as float32.
    """
