"""Backward rules of the activation functions."""

import nngrad.functions as F
from nngrad.functions.activation import GELU_CUBIC, GELU_END, GELU_SCALE, slope_shape
from nngrad.functions.array import zeros_like
from nngrad.graph import Function, Variable

from .rules import backward, gradients, slopes


def gated(gy: Variable, condition: Variable) -> Variable:
    """`gy` where the condition holds, else 0. It selects instead of multiplying by a mask, so that an infinite gradient
    leaves no NaN where the activation is flat: sqrt(relu(x)) has the gradient 0 for negative x."""
    return F.where(condition, gy, zeros_like(gy))


# ---------------------------------------------------------------- piecewise linear

gradients(F.relu, "dy/dx = 1 where x > 0, else 0", lambda gy, x: gated(gy, F.greater_scalar(x, val=0.0)))
gradients(
    F.leaky_relu, "dy/dx = 1 where x > 0, else alpha",
    lambda gy, x, alpha: F.where(F.greater_scalar(x, val=0.0), gy, alpha * gy),
)  # fmt: skip


@backward(F.prelu)
def prelu_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = 1 where x0 >= 0, else x1; dy/dx1 = x0 where x0 < 0, else 0, summed over elements that share a slope"""
    x0, x1 = f.inputs
    shape = slope_shape(x0, x1, f.args["base_axis"])
    slope = F.reshape(x1, shape=shape)
    straight = F.greater_equal_scalar(x0, val=0.0)
    gslope = F.where(straight, zeros_like(gy), gy * x0)
    return F.where(straight, gy, gy * slope), F.reshape(F.sum_to(gslope, shape=shape), shape=x1.shape)


gradients(
    F.relu6, "dy/dx = 1 where 0 < x < 6, else 0",
    lambda gy, x: gated(gy, F.logical_and(F.greater_scalar(x, val=0.0), F.less_scalar(x, val=6.0))),
)  # fmt: skip
gradients(
    F.hard_sigmoid, "dy/dx = 0.2 where 0 < y < 1, else 0",
    lambda gy, y: gated(0.2 * gy, F.logical_and(F.greater_scalar(y, val=0.0), F.less_scalar(y, val=1.0))),
)  # fmt: skip
gradients(
    F.hard_tanh, "dy/dx = 1 where -1 <= x <= 1, else 0",
    lambda gy, x: gated(gy, F.logical_and(F.greater_equal_scalar(x, val=-1.0), F.less_equal_scalar(x, val=1.0))),
)  # fmt: skip

# ---------------------------------------------------------------- exponential below 0


def bent(gy: Variable, x: Variable, straight: Variable, above: Variable, scale: Variable | float) -> Variable:
    """`above` where it is straight, else `gy scale exp(x)`: the result plus `scale` would round to 0 far below 0."""
    return F.where(straight, above, gy * (scale * F.exp(F.where(straight, zeros_like(x), x))))


gradients(
    F.elu, "dy/dx = 1 where x >= 0, else alpha exp(x)",
    lambda gy, x, alpha: bent(gy, x, F.greater_equal_scalar(x, val=0.0), gy, alpha),
)  # fmt: skip
gradients(
    F.selu, "dy/dx = scale where x > 0, else scale alpha exp(x)",
    lambda gy, x, scale, alpha: bent(gy, x, F.greater_scalar(x, val=0.0), scale * gy, scale * alpha),
)  # fmt: skip

# ---------------------------------------------------------------- sigmoids

_FEW = 16
"""The largest number of functions above `x` that are looked at."""


def is_at_hand(f: Function) -> bool:
    """True if a slope may read the input of `f` beside its output: it is an input of the graph, or comes from inputs by
    a few elementwise functions, which a compiler repeats at no cost; or a gradient reads it already. A layer's product
    is not: it would be kept in memory for this alone."""
    if f.order:
        return True
    waiting, count = [*f.inputs], 0
    for x in waiting:  # which grows
        g = x.parent
        if g is not None and g.inputs:
            count += 1
            if count > _FEW or not g.op.diagonal:
                return False
            waiting += g.inputs
    return True


@backward(F.sigmoid)
def sigmoid_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = y (1 - y)"""
    (x,), (y,) = f.inputs, f.outputs
    return gy * (y * (F.sigmoid_complement(y, x) if is_at_hand(f) else 1 - y))


gradients(F.sigmoid_complement, "dy/ds = -1 of y = 1 - s; x only gives the value", lambda gy: (-gy, None))
slopes(F.log_sigmoid, "dy/dx = sigmoid(-x)", lambda x: F.sigmoid(-x))
slopes(F.softplus, "dy/dx = sigmoid(beta x)", lambda x, beta: F.sigmoid(beta * x))


@backward(F.tanh)
def tanh_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 - y^2"""
    (x,), (y,) = f.inputs, f.outputs
    return gy * (F.tanh_slope(y, x) if is_at_hand(f) else 1 - y * y)


gradients(F.tanh_slope, "dy/dt = -2 t of y = 1 - t^2; x only gives the value", lambda gy, t: (gy * (-2 * t), None))


slopes(F.tanh_shrink, "dy/dx = tanh(x)^2", lambda x: F.tanh(x) * F.tanh(x))
slopes(F.softsign, "dy/dx = (1 + |x|)^-2", lambda x: (1 + F.abs(x)) ** -2)
slopes(
    F.swish, "dy/dx = s + y (1 - s) with s = sigmoid(x)",
    lambda x, y: F.sigmoid(x) + y * F.sigmoid_complement(F.sigmoid(x), x),
)  # fmt: skip


@backward(F.gelu)
def gelu_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = s + x s (1 - s) u' with s = sigmoid(u), u = 2 a (x + b x^3), u' = 2 a (1 + 3 b x^2)"""
    (x,) = f.inputs
    # From |x| = GELU_END on, s (1 - s) is 0 in every dtype: x is cut there, lest x^2 overflow and meet that 0.
    z = F.minimum_scalar(F.maximum_scalar(x, val=-GELU_END), val=GELU_END)
    u = 2 * GELU_SCALE * (z + GELU_CUBIC * z**3)
    s = F.sigmoid(u)
    slope = 2 * GELU_SCALE * (1 + 3 * GELU_CUBIC * z**2)
    return gy * (s + z * (s * F.sigmoid_complement(s, u) * slope))


@backward(F.mish)
def mish_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = t + x (1 - t^2) sigmoid(x) with t = tanh(p), p = softplus(x)"""
    (x,) = f.inputs
    # From x = 380 on, 1 - t^2 is 0 in every dtype: x is cut there, lest a multiple of it overflow and meet that 0.
    z = F.minimum_scalar(x, val=380.0)
    p = F.softplus(z)
    t = F.tanh(p)
    return gy * (t + z * (F.tanh_slope(t, p) * F.sigmoid(z)))


# ---------------------------------------------------------------- along an axis


gradients(
    F.softmax, "dy_i/dx_j = y_i (1[i = j] - y_j) along the axis",
    lambda gy, y, axis: F.less_share(gy * y, y, axis=axis),
)  # fmt: skip
gradients(
    F.log_softmax, "dy_i/dx_j = 1[i = j] - exp(y_j) along the axis",
    lambda gy, y, axis: F.less_share(gy, F.exp(y), axis=axis),
)  # fmt: skip


def total(x: Variable, axis: int | None) -> Variable:
    """The sum along `axis`, by default the last, which stays with size 1."""
    return F.sum(x, axis=-1 if axis is None else axis, keepdims=True)


gradients(
    F.less_share, "of x - p sum(x): gx = gy - sum(p gy), gp = -gy sum(x)",
    lambda gy, x, p, axis: (F.less_mean(gy, p, axis=axis), -gy * total(x, axis)),
)  # fmt: skip
gradients(
    F.less_mean, "of x - sum(p x): gx = gy - p sum(gy), gp = -x sum(gy)",
    lambda gy, x, p, axis: (F.less_share(gy, p, axis=axis), -x * total(gy, axis)),
)  # fmt: skip
