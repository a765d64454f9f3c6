"""Composed network units: maxout, swish with a learnable slope, and single LSTM and S-LSTM steps."""

from __future__ import annotations

from ..graph import Array, Variable, WithAxis, composite
from .activation import sigmoid, tanh
from .axes import axis_of
from .movement import concatenate, reshape, split
from .reduction import max as maximum


@composite
def maxout(x: WithAxis, /, pool_size: int, axis: int = 1) -> Variable:
    """The maximum of each `pool_size` consecutive entries along an axis (Goodfellow et al., 2013).

    Args:
        pool_size: The number of entries per maximum.

    Raises:
        ValueError: The axis is out of range, or its size is not a multiple of `pool_size`.
    """
    axis = axis_of(axis, x.ndim, "axis")
    if pool_size < 1 or x.shape[axis] % pool_size:
        raise ValueError(f"pool_size must divide the size {x.shape[axis]} of axis {axis}, got {pool_size}")
    shape = (*x.shape[:axis], x.shape[axis] // pool_size, pool_size, *x.shape[axis + 1 :])
    result: Variable = maximum(reshape(x, shape=shape), axis=axis + 1)
    return result


@composite
def scaled_swish(x: Array, beta: Array, /) -> Variable:
    """`x sigmoid(beta x)`, where `beta` can be learned (Ramachandran et al., 2017).

    Args:
        x: (batch, *sample).
        beta: The shape of the first axes of a sample, such as (channels,) for images.

    Raises:
        ValueError: The sizes differ.
    """
    if x.shape[1 : 1 + beta.ndim] != beta.shape:
        raise ValueError(f"beta must have the sizes of x {x.shape} from axis 1 on, got shape {beta.shape}")
    beta = reshape(beta, shape=(*beta.shape, *(1,) * (x.ndim - 1 - beta.ndim)))
    result: Variable = x * sigmoid(beta * x)
    return result


def _gates(c: Variable, x: Variable, names: str) -> tuple[Variable, ...]:
    """The four gates, interleaved in `x`, each in the shape of a state."""
    if c.ndim < 2 or x.ndim != c.ndim or x.shape[1] != 4 * c.shape[1] or x.shape[2:] != c.shape[2:]:
        raise ValueError(f"{names} must be of shape (batch, n, *more) and (batch, 4 n, *more), got {c.shape} "
                         f"and {x.shape}")
    return split(reshape(x, shape=(x.shape[0], c.shape[1], 4, *x.shape[2:])), axis=2)


@composite
def lstm_step(c_prev: Array, x: Array, /) -> tuple[Variable, Variable]:
    """A step of an LSTM: `c = tanh(a) sigmoid(i) + c_prev sigmoid(f)` and `h = tanh(c) sigmoid(o)`.

    This is Chainer's `lstm`; `F.lstm` is nnabla's, which takes whole sequences.

    Args:
        c_prev: The state of the cells before the step, (batch, n, *more).
        x: The inputs a, i, f, o of the gates, interleaved: (rows, 4 n, *more), with element 4 j + k of axis 1 for gate
            k of cell j. There may be fewer rows than in the batch; the other states do not change.

    Returns:
        The state after the step, (batch, n, *more), and the output, (rows, n, *more).
    """
    a, i, f, o = _gates(c_prev, x, "c_prev and x")
    rows = x.shape[0]
    if rows > c_prev.shape[0]:
        raise ValueError(f"x must have at most {c_prev.shape[0]} rows, as c_prev has, got {rows}")
    going = c_prev if rows == c_prev.shape[0] else c_prev[:rows]
    c = tanh(a) * sigmoid(i) + going * sigmoid(f)
    h = tanh(c) * sigmoid(o)
    return c if going is c_prev else concatenate(c, c_prev[rows:], axis=0), h


@composite
def slstm(c_prev1: Array, c_prev2: Array, x1: Array, x2: Array, /) -> tuple[Variable, Variable]:
    """A step of an S-LSTM, which joins two branches of a tree, each with its own state and gate inputs.

    `c = tanh(a1) sigmoid(i1) + tanh(a2) sigmoid(i2) + c_prev1 sigmoid(f1) + c_prev2 sigmoid(f2)` and
    `h = tanh(c) sigmoid(o1 + o2)`: what Chainer's `slstm` computes (its documentation adds up within the functions).

    Args:
        c_prev1: The state of the first branch, (batch, n, *more).
        c_prev2: The state of the second branch, of the same shape.
        x1: The inputs of the first branch's gates, interleaved as in `lstm_step`: (batch, 4 n, *more).
        x2: Those of the second branch's gates.

    Returns:
        The state and the output, both (batch, n, *more).
    """
    if c_prev1.shape != c_prev2.shape or c_prev1.shape[:1] != x1.shape[:1] or x1.shape != x2.shape:
        raise ValueError("c_prev1 and c_prev2 must have the same shape, x1 and x2 too, and all the same batch size, "
                         f"got {c_prev1.shape}, {c_prev2.shape}, {x1.shape} and {x2.shape}")
    a1, i1, f1, o1 = _gates(c_prev1, x1, "c_prev1 and x1")
    a2, i2, f2, o2 = _gates(c_prev2, x2, "c_prev2 and x2")
    c = tanh(a1) * sigmoid(i1) + tanh(a2) * sigmoid(i2) + c_prev1 * sigmoid(f1) + c_prev2 * sigmoid(f2)
    return c, tanh(c) * sigmoid(o1 + o2)
