"""Backward rules of the activation functions."""

import nngrad.functions as F
from nngrad.functions.activation import GELU_CUBIC, GELU_SCALE, slope_shape
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


@backward(F.elu)
def elu_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 where x >= 0, else alpha exp(x)"""
    (x,) = f.inputs
    straight = F.greater_equal_scalar(x, val=0.0)
    # y + alpha would do for alpha exp(x), but it rounds to 0 far below 0.
    below = F.where(straight, zeros_like(x), x)
    return F.where(straight, gy, gy * (f.args["alpha"] * F.exp(below)))


@backward(F.selu)
def selu_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = scale where x > 0, else scale alpha exp(x)"""
    (x,) = f.inputs
    scale, alpha = f.args["scale"], f.args["alpha"]
    straight = F.greater_scalar(x, val=0.0)
    below = F.where(straight, zeros_like(x), x)
    return F.where(straight, scale * gy, gy * (scale * alpha * F.exp(below)))


# ---------------------------------------------------------------- sigmoids

slopes(F.sigmoid, "dy/dx = y (1 - y)", lambda y: y * (1 - y))
slopes(F.log_sigmoid, "dy/dx = sigmoid(-x)", lambda x: F.sigmoid(-x))
slopes(F.softplus, "dy/dx = sigmoid(beta x)", lambda x, beta: F.sigmoid(beta * x))
slopes(F.tanh, "dy/dx = 1 - y^2", lambda y: 1 - y * y)


@backward(F.tanh_shrink)
def tanh_shrink_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = tanh(x)^2"""
    (x,) = f.inputs
    t = F.tanh(x)
    return gy * (t * t)


slopes(F.softsign, "dy/dx = (1 + |x|)^-2", lambda x: (1 + F.abs(x)) ** -2)


@backward(F.swish)
def swish_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = s + y (1 - s) with s = sigmoid(x)"""
    (x,) = f.inputs
    (y,) = f.outputs
    s = F.sigmoid(x)
    return gy * (s + y * (1 - s))


@backward(F.gelu)
def gelu_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = (1 + t)/2 + x/2 (1 - t^2) u' with t = tanh u, u = a (x + b x^3), u' = a (1 + 3 b x^2)"""
    (x,) = f.inputs
    # From |x| = 10 on, t is 1 or -1 in every dtype: x is cut there, lest x^2 overflow and meet 1 - t^2 = 0.
    z = F.minimum_scalar(F.maximum_scalar(x, val=-10.0), val=10.0)
    t = F.tanh(GELU_SCALE * (z + GELU_CUBIC * z**3))
    slope = GELU_SCALE * (1 + 3 * GELU_CUBIC * z**2)
    return gy * (0.5 * (1 + t) + 0.5 * z * ((1 - t * t) * slope))


@backward(F.mish)
def mish_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = t + x (1 - t^2) sigmoid(x) with t = tanh(softplus(x))"""
    (x,) = f.inputs
    # From x = 50 on, t is 1 in every dtype: x is cut there, lest a multiple of it overflow and meet 1 - t^2 = 0.
    z = F.minimum_scalar(x, val=50.0)
    t = F.tanh(F.softplus(z))
    return gy * (t + z * ((1 - t * t) * F.sigmoid(z)))


# ---------------------------------------------------------------- along an axis


@backward(F.softmax)
def softmax_backward(f: Function, gy: Variable) -> Variable:
    """dy_i/dx_j = y_i (1[i = j] - y_j) along the axis"""
    (y,) = f.outputs
    axis = f.args["axis"]
    gyy = gy * y
    return gyy - y * F.sum(gyy, axis=-1 if axis is None else axis, keepdims=True)


gradients(
    F.log_softmax, "dy_i/dx_j = 1[i = j] - exp(y_j) along the axis",
    lambda gy, y, axis: gy - F.exp(y) * F.sum(gy, axis=-1 if axis is None else axis, keepdims=True),
)  # fmt: skip
