"""The models in nngrad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.lower import linearize, lower
from nngrad.graph.leaf import arrays_of

from .arrays import Arrays, residual_blocks
from .steps import Step, temporaries_of

V = nn.Variable
Loss = Callable[[V, list[V]], V]


def dense(x: V, weights: list[V]) -> V:
    """Dense layers with tanh."""
    for w in weights:
        x = F.tanh(F.affine(x, w))
    return F.sum(x**2)


def normalised(x: V, w: V, gamma: V, beta: V, stride: int = 1) -> V:
    """A convolution that keeps the size (but for the stride), and batch normalization."""
    y = F.convolution(x, w, pad=(w.shape[2] // 2,) * 2, stride=(stride, stride))
    return F.batch_normalization(y, beta, gamma)


def residual_block(x: V, weights: Sequence[V]) -> V:
    """A residual block of ResNet-18."""
    stride = 2 if len(weights) == 9 else 1
    y = normalised(F.relu(normalised(x, *weights[:3], stride=stride)), *weights[3:6])
    return F.relu(y + (x if stride == 1 else normalised(x, *weights[6:], stride=stride)))


def residual(x: V, weights: list[V]) -> V:
    """Four stages of two residual blocks of two normalised convolutions each, as in ResNet-18."""
    x = F.relu(normalised(x, *weights[:3]))
    for block in residual_blocks(weights):
        x = residual_block(x, block)
    return F.mean(F.affine(F.mean(x, axis=(2, 3)), weights[-1]) ** 2)


def recurrent(x: V, weights: list[V]) -> V:
    """An LSTM, unrolled."""
    w, b = weights
    steps, batch, width = x.shape
    h = c = F.constant(0, shape=(batch, width))
    for t in range(steps):
        z = F.affine(F.concatenate(x[t], h, axis=1), w, b)
        gates, new = F.sigmoid(z[:, : 3 * width]), F.tanh(z[:, 3 * width :])
        i, f, o = (gates[:, k * width : (k + 1) * width] for k in range(3))
        c = f * c + i * new
        h = o * F.tanh(c)
    return F.sum(h**2)


def scanned(x: V, weights: list[V]) -> V:
    """The same LSTM, in a scan."""
    w, b = weights
    _, batch, width = x.shape
    zero = F.constant(0, shape=(batch, width))

    def cell(state: tuple[V, V], x: V) -> tuple[tuple[V, V], None]:
        h, c = state
        z = F.affine(F.concatenate(x, h, axis=1), w, b)
        gates, new = F.sigmoid(z[:, : 3 * width]), F.tanh(z[:, 3 * width :])
        i, f, o = (gates[:, k * width : (k + 1) * width] for k in range(3))
        c = f * c + i * new
        return (o * F.tanh(c), c), None

    h, _ = F.scan(cell, (zero, zero), x)[0]
    return F.sum(h**2)


def critic(policy: Any) -> Loss:
    """The loss of a convolutional critic with a gradient penalty, the gradient inside by `policy`."""

    def loss(x: V, weights: list[V]) -> V:
        h = x
        for w in weights:
            h = F.leaky_relu(F.convolution(h, w, pad=(1, 1)), 0.2)
        (slope,) = nn.grad(F.sum(h), [x], recompute=policy)
        norm = F.sum(slope**2, axis=(1, 2, 3)) ** 0.5
        return F.mean((norm - 1) ** 2) + F.mean(h)

    return loss


def outputs_of(model: Loss, arrays: Arrays, policy: Any = None) -> list[V]:
    """The loss and the gradients of all weights."""
    x, weights = V.from_numpy_array(arrays.x), [V.from_numpy_array(a, need_grad=True) for a in arrays.weights]
    loss = model(x, weights)
    return [loss, *nn.grad(loss, weights, recompute=policy)]


def step_of(model: Loss, arrays: Arrays, policy: Any = None) -> Step:
    """Loss and gradients by nngrad."""
    outputs = outputs_of(model, arrays, policy)
    linear = linearize(outputs)
    leaves = [jnp.asarray(a) for a in arrays_of(linear.leaves)]
    executable = jax.jit(lower(linear.program)).lower(*leaves).compile()
    predicted = nn.memory_report(outputs, compile=False).peak
    products = executable.as_text().count(" dot(")
    return Step(lambda: executable(*leaves), temporaries_of(executable), predicted, products)
