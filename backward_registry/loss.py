"""Backward rules of losses."""

from __future__ import annotations

import jax.numpy as jnp

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, gradients, non_differentiable

non_differentiable(F.class_mask)


def smallest(gy: Variable) -> float:
    """The smallest normal number of the dtype of `gy`."""
    return float(jnp.finfo(gy.dtype).tiny)


@backward(F.softmax_cross_entropy)
def softmax_cross_entropy_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """dy/dx = softmax(x) - mask, with the mask 1 at the label; 0 where the label is negative"""
    x, target = f.inputs
    axis = (-1 if f.args["axis"] is None else f.args["axis"]) % x.ndim
    mask = F.class_mask(target, classes=x.shape[axis], axis=axis, dtype=gy.dtype)
    return -gy * F.less_share(mask, F.softmax(x, axis=axis), axis=axis), None


@backward(F.categorical_cross_entropy)
def categorical_cross_entropy_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """dy/dx = -mask / x, with the mask 1 at the label; 0 where the label is negative"""
    x, target = f.inputs
    axis = (-1 if f.args["axis"] is None else f.args["axis"]) % x.ndim
    mask = F.class_mask(target, classes=x.shape[axis], axis=axis, dtype=gy.dtype)
    return gy * -(mask / F.maximum_scalar(x, val=smallest(gy))), None


gradients(
    F.sigmoid_cross_entropy, "dy/dx = (1 - target) s - target (1 - s) with s = sigmoid(x), dy/dtarget = -x",
    lambda gy, x, target: (
        gy * ((1 - target) * F.sigmoid(x) - target * F.sigmoid_complement(F.sigmoid(x), x)),
        gy * -x if target.spec.differentiable else None,
    ),
)  # fmt: skip


@backward(F.binary_cross_entropy)
def binary_cross_entropy_backward(f: Function, gy: Variable) -> tuple[Variable, Variable | None]:
    """dy/dx = (1 - target) / (1 - x) - target / x, dy/dtarget = log(1 - x) - log(x)"""
    x, target = f.inputs
    tiny = smallest(gy)
    left, right = F.maximum_scalar(x, val=tiny), F.maximum_scalar(1 - x, val=tiny)
    gx = gy * ((1 - target) / right - target / left)
    return gx, (gy * (F.log(right) - F.log(left)) if target.spec.differentiable else None)


def opposed(g: Variable) -> tuple[Variable, Variable]:
    """The gradients of a function of `x0 - x1`."""
    return g, -g


gradients(
    F.squared_error, "dy/dx0 = 2 (x0 - x1), dy/dx1 = -dy/dx0", lambda gy, x0, x1: opposed(gy * (2 * (x0 - x1)))
)
gradients(
    F.absolute_error, "dy/dx0 = 1 where x0 >= x1, else -1; dy/dx1 = -dy/dx0",
    lambda gy, x0, x1: opposed(F.where(F.greater_equal(x0, x1), gy, -gy)),
)  # fmt: skip
gradients(
    F.huber_loss, "dy/dx0 = 2 (x0 - x1), clipped to [-2 delta, 2 delta]; dy/dx1 = -dy/dx0",
    lambda gy, x0, x1, delta: opposed(
        gy * (2 * F.minimum_scalar(F.maximum_scalar(x0 - x1, val=-delta), val=delta))
    ),
)  # fmt: skip
gradients(
    F.epsilon_insensitive_loss, "dy/dx0 = sign(x0 - x1) where |x0 - x1| > epsilon, else 0; dy/dx1 = -dy/dx0",
    lambda gy, x0, x1, epsilon: opposed(
        gy * (F.greater_scalar(x0 - x1, val=epsilon) - F.less_scalar(x0 - x1, val=-epsilon))
    ),
)  # fmt: skip
