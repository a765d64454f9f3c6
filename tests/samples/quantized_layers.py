"""Samples of affine functions and convolutions with quantised weights."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from . import fixed, real, sample, whole
from .quantization import estimated


def convolved(x, w, **options):
    """Convolution along one axis."""
    return lax.conv_general_dilated(x, w, options.pop("strides", (1,)), options.pop("padding", "VALID"), **options)


def scaled(w, axes):
    """The signs of `w`, times their mean size over `axes`."""
    return estimated(jnp.sign(w) * jnp.abs(w).mean(axes, keepdims=True), w)


def powers(w, fixed_at, bits):
    """`w` with powers of two where it is fixed: the nearest of all there are."""
    largest = np.floor(np.log2(np.abs(w).max() / 0.75))
    codes = 2.0 ** (largest - np.arange(2 ** (bits - 2)))
    codes = np.concatenate([codes, -codes, [0.0]])
    # The middle of the least code and 0 is what the least code is rounded to.
    nearest = codes[np.argmin(np.abs(np.asarray(w)[..., None] - codes), axis=-1)]
    return np.where(fixed_at == 1, nearest, w)


WEIGHT = [[0.9, -0.3], [0.06, 0.42], [-1.3, 0.2]]
FILTERS = [[[0.9, -0.3], [0.06, 0.42]], [[-1.3, 0.2], [0.7, -0.1]]]


def quantised(weight, fixed_at, bits=4):
    """What is to be a constant of the reference: the weights, of which some are fixed."""
    at = powers(np.array(weight), np.array(fixed_at), bits)
    return lambda w: estimated(jnp.array(at), w)


SAMPLES = [
    sample("binary_connect_affine", real(2, 3), real(3, 2), real(3, 2), real(2), numeric=False,
           ref=lambda x, w, _, b: x @ estimated(jnp.sign(w), w) + b),
    sample("binary_connect_convolution", real(1, 2, 4), real(2, 1, 2), real(2, 1, 2), real(2), group=2, pad=1,
           numeric=False, ref=lambda x, w, _, b: b[:, None] + convolved(
               x, estimated(jnp.sign(w), w), padding=[(1, 1)], feature_group_count=2)),
    sample("binary_weight_affine", real(2, 3), real(3, 2), real(3, 2), real(2), real(2), numeric=False,
           ref=lambda x, w, _, a, b: x @ scaled(w, 0) + b),
    sample("binary_weight_convolution", real(1, 2, 5), real(2, 2, 2), real(2, 2, 2), real(2), stride=2, numeric=False,
           ref=lambda x, w, *_: convolved(x, scaled(w, (1, 2)), strides=(2,))),
    sample("inq_quantize", fixed(*WEIGHT), whole([0, 1], [1, 0], [0, 0]), fixed([9.0, 0.5], [9.0, 9.0], [9.0, 9.0]),
           whole([0, 1], [0, 0], [1, 0]), lambda rng: np.array(3, np.int32), num_bits=4,
           inq_iterations=(3, 5), numeric=False,
           ref=lambda w, *_: (quantised([[0.9, 0.5], [0.06, 0.42], [-1.3, 0.2]], [[1, 1], [1, 0], [1, 0]])(w),
                              jnp.array([[1, 1], [1, 0], [1, 0]], np.int32))),
    sample("inq_quantize", fixed(*WEIGHT), whole([0, 1], [1, 0], [0, 0]), fixed([9.0, 0.5], [9.0, 9.0], [9.0, 9.0]),
           whole([0, 1], [0, 0], [1, 0]), lambda rng: np.array(3, np.int32), num_bits=5,
           inq_iterations=(3, 5), numeric=False,
           ref=lambda w, *_: (quantised([[0.9, 0.5], [0.06, 0.42], [-1.3, 0.2]], [[1, 1], [1, 0], [1, 0]], 5)(w),
                              jnp.array([[1, 1], [1, 0], [1, 0]], np.int32))),
    sample("inq_affine", real(2, 3), fixed(*WEIGHT), whole([0, 1], [0, 0], [1, 0]), real(2), numeric=False,
           ref=lambda x, w, i, b: x @ quantised(WEIGHT, [[0, 1], [0, 0], [1, 0]])(w) + b),
    sample("inq_convolution", real(1, 2, 4), fixed(*FILTERS), whole(*np.zeros((2, 2, 2))), num_bits=3,
           inq_iterations=0, selection_algorithm="random", numeric=False,
           ref=lambda x, w, i: convolved(x, quantised(FILTERS, np.ones((2, 2, 2)), 3)(w))),
    sample("binary_connect_affine", real(1, 2, 2), fixed([0.0, 0.7], [-0.4, 0.0]), real(2, 2), base_axis=2, orders=2,
           quantize_zero_to=-1.0, numeric=False,
           ref=lambda x, w, _: x @ estimated(jnp.array([[-1.0, 1.0], [-1.0, -1.0]]), w)),
    sample("binary_weight_affine", real(1, 2, 2), fixed([0.0, 0.7], [-0.4, 0.0]), real(2, 2), real(2), base_axis=-1,
           orders=2, quantize_zero_to=-1.0, numeric=False,
           ref=lambda x, w, *_: x @ estimated(jnp.array([[-0.2, 0.35], [-0.2, -0.35]]), w)),
    sample("binary_connect_convolution", real(1, 1, 2, 5), fixed([[0.0, 0.7], [0.3, -0.4]]), real(1, 2, 2), base_axis=2,
           stride=2, dilation=2, quantize_zero_to=-1.0, numeric=False, orders=2,
           ref=lambda x, w, _: convolved(x[0], estimated(jnp.array([[[-1.0, 1.0], [1.0, -1.0]]]), w), strides=(2,),
                                         rhs_dilation=(2,))[None]),
    sample("binary_weight_convolution", real(1, 1, 2, 3), fixed([[0.0, 0.7]], [[0.3, -0.4]]), real(2, 1, 2), real(2),
           base_axis=2, pad=1, dilation=2, group=2, quantize_zero_to=-1.0, numeric=False, orders=2,
           ref=lambda x, w, *_: convolved(
               x[0], estimated(jnp.array([[[-0.35, 0.35]], [[0.35, -0.35]]]), w), padding=[(1, 1)], rhs_dilation=(2,),
               feature_group_count=2)[None]),
    sample("inq_affine", real(1, 2, 3), fixed(*WEIGHT), whole([0, 1], [0, 0], [1, 0]), base_axis=2, num_bits=3,
           inq_iterations=0, selection_algorithm="random", orders=2, numeric=False,
           ref=lambda x, w, i: x @ quantised(WEIGHT, np.ones((3, 2)), 3)(w)),
    sample("inq_convolution", real(1, 1, 2, 5), fixed(*[f[:1] for f in FILTERS]), whole(*np.ones((2, 1, 2))),
           base_axis=2, pad=1, stride=2, dilation=2, group=2, numeric=False, orders=2,
           ref=lambda x, w, i: convolved(
               x[0], quantised([f[:1] for f in FILTERS], np.ones((2, 1, 2)))(w), padding=[(1, 1)], strides=(2,),
               rhs_dilation=(2,), feature_group_count=2)[None]),
]
