"""Backward rules of reductions and scans."""

import nngrad.functions as F

from . import backward


def spread(f, gy):
    """`gy`, a reduction's gradient, over the axes that `f` reduced: the shape of `f`'s input."""
    (x,) = f.inputs
    shape = x.shape
    axes = F.reduction.axes_of(f.args["axis"], len(shape))
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return F.broadcast(F.reshape(gy, shape=kept), shape=shape)


@backward(F.sum)
def sum_backward(f, gy):
    """dy/dx = 1"""
    return spread(f, gy)


@backward(F.mean)
def mean_backward(f, gy):
    """dy/dx = 1/n for each of the n elements of a mean"""
    return spread(f, gy) * (gy.size / f.inputs[0].size)
