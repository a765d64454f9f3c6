"""Backward rules of functions that move elements. They are linear: the rule is the transpose."""

from collections.abc import Sequence

import nngrad.functions as F
from nngrad.functions.operands import Operand, reshaped
from nngrad.graph import Function, Variable

from .batching import batched
from .rules import adjoint_pair, backward, gradients

# ---------------------------------------------------------------- shape

gradients(F.reshape, "The gradient in the shape of x", lambda gy, x: F.reshape(gy, shape=x.shape))


@backward(F.transpose)
def transpose_backward(f: Function, gy: Variable) -> Variable:
    """The gradient with its axes permuted back"""
    axes = f.args["axes"]
    if axes is None:
        return F.transpose(gy)
    order = [a % gy.ndim for a in axes]
    return F.transpose(gy, axes=tuple(order.index(i) for i in range(gy.ndim)))


@backward(F.broadcast)
def broadcast_backward(f: Function, gy: Variable) -> Variable:
    """The gradient summed over the axes that were repeated"""
    return F.sum_to(gy, shape=f.inputs[0].shape)


@batched(F.broadcast)
def broadcast_batched(f: Function, operands: Sequence[Operand]) -> Variable:
    """A thin value stands for repeated ones"""
    (x,), ndim = operands, f.specs[0].ndim
    return reshaped(x.value, (*x.size, *(1,) * (ndim - x.x.ndim), *x.own))


gradients(F.flip, "The gradient flipped back", lambda gy, axes: F.flip(gy, axes=axes))

# ---------------------------------------------------------------- joining and parting


@backward(F.concatenate)
def concatenate_backward(f: Function, gy: Variable) -> list[Variable]:
    """The slice of the gradient that belongs to each input"""
    axis = f.args["axis"] % gy.ndim
    gxs: list[Variable] = []
    start = 0
    for x in f.inputs:
        key = [(0, n, 1) for n in x.shape]
        key[axis] = (start, x.shape[axis], 1)
        gxs.append(F.take_slices(gy, key=tuple(key)))
        start += x.shape[axis]
    return gxs


adjoint_pair(F.split, F.stack)


# ---------------------------------------------------------------- margins

adjoint_pair(F.pad, F.pad_transpose)
