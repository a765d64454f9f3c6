"""Backward rules of movement, selection and creation. Most are linear: the rule is the transpose."""

import nngrad.functions as F

from . import backward, non_differentiable

non_differentiable(F.constant)


@backward(F.cast)
def cast_backward(f, gy):
    """The gradient, cast back"""
    (x,) = f.inputs
    return F.cast(gy, dtype=x.dtype)


@backward(F.reshape)
def reshape_backward(f, gy):
    """The gradient in the shape of x"""
    (x,) = f.inputs
    return F.reshape(gy, shape=x.shape)


@backward(F.broadcast)
def broadcast_backward(f, gy):
    """The gradient summed over the axes that were repeated"""
    return F.sum_to(gy, shape=f.inputs[0].shape)
