"""Backward rules of pooling. Where the maxima are found, each is linear and the rule is its transpose."""

import nngrad.functions as F

from . import backward


@backward(F.max_pooling)
def max_pooling_backward(f, gy):
    """The gradient, where the maxima are"""
    (x,) = f.inputs
    return F.max_pooling_backward(gy, x, **f.args)


@backward(F.max_pooling_backward)
def max_pooling_backward_backward(f, gx):
    """The gradient at the maxima; where they are has no derivative"""
    _, x = f.inputs
    return F.max_pooling_select(gx, x, **f.args), None


@backward(F.max_pooling_select)
def max_pooling_select_backward(f, gy):
    """The gradient, where the maxima are; where they are has no derivative"""
    _, x = f.inputs
    return F.max_pooling_backward(gy, x, **f.args), None


@backward(F.sum_pooling)
def sum_pooling_backward(f, gy):
    """The gradient of each window for each of its elements"""
    return F.sum_pooling_backward(gy, shape=f.inputs[0].shape, **f.args)


@backward(F.average_pooling)
def average_pooling_backward(f, gy):
    """The gradient of each window, divided among its elements"""
    return F.average_pooling_backward(gy, shape=f.inputs[0].shape, **f.args)


@backward(F.sum_pooling_backward)
def sum_pooling_backward_backward(f, gx):
    """The gradient, pooled"""
    return F.sum_pooling(gx, **{name: value for name, value in f.args.items() if name != "shape"})


@backward(F.average_pooling_backward)
def average_pooling_backward_backward(f, gx):
    """The gradient, pooled"""
    return F.average_pooling(gx, **{name: value for name, value in f.args.items() if name != "shape"})


@backward(F.unpooling)
def unpooling_backward(f, gy):
    """The sum over the copies"""
    return F.sum_pooling(gy, **f.args)
