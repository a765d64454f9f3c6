"""Backward rules of losses."""

from __future__ import annotations

import jax.numpy as jnp

import nngrad.functions as F
from nngrad.functions.loss import last_or
from nngrad.graph import Function, Variable

from .rules import backward, non_differentiable

non_differentiable(F.class_mask)


def smallest(gy: Variable) -> float:
    """The smallest normal number of the dtype of `gy`."""
    return float(jnp.finfo(gy.dtype).tiny)


@backward(F.softmax_cross_entropy)
def softmax_cross_entropy_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """dy/dx = softmax(x) - mask, with the mask 1 at the label; 0 where the label is negative"""
    x, target = f.inputs
    axis = last_or(f.args["axis"], x.ndim)
    mask = F.class_mask(target, classes=x.shape[axis], axis=axis, dtype=gy.dtype)
    return -gy * F.less_share(mask, F.softmax(x, axis=axis), axis=axis), None


@backward(F.categorical_cross_entropy)
def categorical_cross_entropy_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """dy/dx = -mask / x, with the mask 1 at the label; 0 where the label is negative"""
    x, target = f.inputs
    axis = last_or(f.args["axis"], x.ndim)
    mask = F.class_mask(target, classes=x.shape[axis], axis=axis, dtype=gy.dtype)
    return gy * -(mask / F.maximum_scalar(x, val=smallest(gy))), None


@backward(F.sigmoid_cross_entropy)
def sigmoid_cross_entropy_backward(f: Function, gy: Variable) -> tuple[Variable, Variable | None]:
    """dy/dx = (1 - target) s - target (1 - s) with s = sigmoid(x), dy/dtarget = -x"""
    x, target = f.inputs
    s = F.sigmoid(x)
    gx = gy * ((1 - target) * s - target * F.sigmoid_complement(s, x))
    return gx, (gy * -x if target.spec.differentiable else None)




@backward(F.binary_cross_entropy)
def binary_cross_entropy_backward(f: Function, gy: Variable) -> tuple[Variable, Variable | None]:
    """dy/dx = (1 - target) / (1 - x) - target / x, dy/dtarget = log(1 - x) - log(x)"""
    x, target = f.inputs
    tiny = smallest(gy)
    left, right = F.maximum_scalar(x, val=tiny), F.maximum_scalar(1 - x, val=tiny)
    gx = gy * ((1 - target) / right - target / left)
    return gx, (gy * (F.log(right) - F.log(left)) if target.spec.differentiable else None)


@backward(F.squared_error)
def squared_error_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = 2 (x0 - x1), dy/dx1 = -dy/dx0"""
    x0, x1 = f.inputs
    g = gy * (2 * (x0 - x1))
    return g, -g


@backward(F.absolute_error)
def absolute_error_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = 1 where x0 >= x1, else -1; dy/dx1 = -dy/dx0"""
    x0, x1 = f.inputs
    g = F.where(F.greater_equal(x0, x1), gy, -gy)
    return g, -g


@backward(F.huber_loss)
def huber_loss_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = 2 (x0 - x1), clipped to [-2 delta, 2 delta]; dy/dx1 = -dy/dx0"""
    x0, x1 = f.inputs
    delta = f.args["delta"]
    g = gy * (2 * F.minimum_scalar(F.maximum_scalar(x0 - x1, val=-delta), val=delta))
    return g, -g


@backward(F.epsilon_insensitive_loss)
def epsilon_insensitive_loss_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = sign(x0 - x1) where |x0 - x1| > epsilon, else 0; dy/dx1 = -dy/dx0"""
    x0, x1 = f.inputs
    d, epsilon = x0 - x1, f.args["epsilon"]
    g = gy * (F.greater_scalar(d, val=epsilon) - F.less_scalar(d, val=-epsilon))
    return g, -g
