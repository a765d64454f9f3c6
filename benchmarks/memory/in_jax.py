"""The models in JAX: plain, and with `jax.checkpoint` by segments, unrolled or in scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .arrays import Arrays, residual_blocks
from .steps import Step, temporaries_of

Model = Callable[..., Any]


def step_of(model: Model, arrays: Arrays, stacked: Any = None) -> Step:
    """Loss and gradients of `model(weights, x)`, jitted; the weights `stacked` instead, where a scan wants them so."""
    x, weights = jnp.asarray(arrays.x), jax.tree.map(jnp.asarray, arrays.weights if stacked is None else stacked)
    executable = jax.jit(jax.value_and_grad(model)).lower(weights, x).compile()
    return Step(lambda: executable(weights, x), temporaries_of(executable))


def stack(weights: list[np.ndarray], segment: int) -> np.ndarray:
    """Weights of one shape, [segments, segment, ...], for a scan over segments."""
    return np.stack(weights).reshape(-1, segment, *weights[0].shape)


def in_segments(part: Model, segment: int) -> Model:
    """`part(h, weights)` on `segment` weights at a time, one checkpoint after the other; without one where it is 0."""
    checkpointed = jax.checkpoint(part)

    def whole(h: Any, weights: list[Any]) -> Any:
        if not segment:
            return part(h, weights)
        for i in range(0, len(weights), segment):
            h = checkpointed(h, weights[i : i + segment])
        return h

    return whole


def in_scan(part: Model) -> Model:
    """`part(h, weights)` on stacked weights, a scan over checkpointed segments."""
    checkpointed = jax.checkpoint(part, prevent_cse=False)  # a loop needs no barriers

    def whole(h: Any, weights: Any) -> Any:
        return lax.scan(lambda h, ws: (checkpointed(h, ws), None), h, weights)[0]

    return whole


# ---------------------------------------------------------------- dense layers


def dense_layers(h: Any, weights: Any) -> Any:
    """Dense layers with tanh."""
    for w in weights:
        h = jnp.tanh(h @ w)
    return h


def dense(layers: Model) -> Model:
    """The loss, where `layers` says how they follow each other."""
    return lambda weights, x: jnp.sum(layers(x, weights) ** 2)


def dense_peers(arrays: Arrays, segment: int) -> dict[str, Step]:
    """Plain, checkpointed one after the other, and in a scan."""
    return {
        "jax.grad": step_of(dense(in_segments(dense_layers, 0)), arrays),
        "jax.checkpoint": step_of(dense(in_segments(dense_layers, segment)), arrays),
        "jax.scan": step_of(dense(in_scan(dense_layers)), arrays, stack(arrays.weights, segment)),
    }


# ---------------------------------------------------------------- residual network


def convolution(x: Any, w: Any, stride: int = 1) -> Any:
    """A convolution that keeps the size, but for the stride."""
    pad = (w.shape[2] // 2,) * 2
    return lax.conv_general_dilated(x, w, (stride, stride), [pad, pad], dimension_numbers=("NCHW", "OIHW", "NCHW"))


def normalised(x: Any, w: Any, gamma: Any, beta: Any, stride: int = 1) -> Any:
    """A convolution and batch normalization."""
    y = convolution(x, w, stride)
    mean, variance = jnp.mean(y, (0, 2, 3), keepdims=True), jnp.var(y, (0, 2, 3), keepdims=True)
    return (y - mean) * (gamma * lax.rsqrt(variance + 1e-5)) + beta


def residual_block(x: Any, weights: Any) -> Any:
    """A residual block of ResNet-18."""
    stride = 2 if len(weights) == 9 else 1
    y = normalised(jax.nn.relu(normalised(x, *weights[:3], stride=stride)), *weights[3:6])
    return jax.nn.relu(y + (x if stride == 1 else normalised(x, *weights[6:], stride=stride)))


def residual(block: Model) -> Model:
    """The loss of the residual network."""

    def loss(weights: Any, x: Any) -> Any:
        x = jax.nn.relu(normalised(x, *weights[:3]))
        for part in residual_blocks(weights):
            x = block(x, part)
        return jnp.mean((jnp.mean(x, (2, 3)) @ weights[-1]) ** 2)

    return loss


def residual_peers(arrays: Arrays) -> dict[str, Step]:
    """Plain, and with each block checkpointed."""
    return {
        "jax.grad": step_of(residual(residual_block), arrays),
        "jax.checkpoint": step_of(residual(jax.checkpoint(residual_block)), arrays),
    }


# ---------------------------------------------------------------- LSTM


def cell(state: Any, x: Any, w: Any, b: Any) -> Any:
    """A step of an LSTM."""
    h, c = state
    z = jnp.concatenate([x, h], axis=1) @ w + b
    width = h.shape[1]
    gates = jax.nn.sigmoid(z[:, : 3 * width])
    i, f, o = (gates[:, k * width : (k + 1) * width] for k in range(3))  # with jnp.split XLA takes far longer
    c = f * c + i * jnp.tanh(z[:, 3 * width :])
    return o * jnp.tanh(c), c


def unrolled(state: Any, xs: Any, w: Any, b: Any) -> Any:
    """Steps one after the other."""
    for x in xs:
        state = cell(state, x, w, b)
    return state


def scanned(state: Any, xs: Any, w: Any, b: Any) -> Any:
    """Steps in a scan."""
    return lax.scan(lambda state, x: (cell(state, x, w, b), None), state, xs)[0]


def unrolled_in_segments(segment: int) -> Model:
    """Checkpointed segments, one after the other."""

    def steps(state: Any, xs: Any, w: Any, b: Any) -> Any:
        for i in range(0, len(xs), segment):
            state = jax.checkpoint(unrolled)(state, xs[i : i + segment], w, b)
        return state

    return steps


def scanned_in_segments(segment: int) -> Model:
    """A scan over checkpointed scans."""
    part = jax.checkpoint(scanned, prevent_cse=False)

    def steps(state: Any, xs: Any, w: Any, b: Any) -> Any:
        parts = xs.reshape(-1, segment, *xs.shape[1:])
        return lax.scan(lambda state, some: (part(state, some, w, b), None), state, parts)[0]

    return steps


def recurrent(steps: Model) -> Model:
    """The loss of the LSTM."""

    def loss(weights: Any, x: Any) -> Any:
        zero = jnp.zeros(x.shape[1:], x.dtype)
        h, _ = steps((zero, zero), x, *weights)
        return jnp.sum(h**2)

    return loss


def recurrent_peers(arrays: Arrays, segment: int, unroll: bool) -> dict[str, Step]:
    """Plain and checkpointed, in scans; with `unroll` also unrolled: 200 steps take XLA minutes to compile."""
    ways = {"jax.grad of a scan": scanned, "jax.scan": scanned_in_segments(segment)}
    if unroll:
        ways |= {"jax.grad": unrolled, "jax.checkpoint": unrolled_in_segments(segment)}
    return {name: step_of(recurrent(steps), arrays) for name, steps in ways.items()}


# ---------------------------------------------------------------- critic


def critic_layers(h: Any, weights: Any) -> Any:
    """Convolutions with leaky relu."""
    for w in weights:
        h = jax.nn.leaky_relu(convolution(h, w), 0.2)
    return h


def critic(layers: Model) -> Model:
    """The loss of the critic with a gradient penalty."""

    def loss(weights: Any, x: Any) -> Any:
        def total(x: Any) -> Any:
            h = layers(x, weights)
            return jnp.sum(h), h.size

        (score, size), slope = jax.value_and_grad(total, has_aux=True)(x)
        norm = jnp.sqrt(jnp.sum(slope**2, (1, 2, 3)))
        return jnp.mean((norm - 1) ** 2) + score / size

    return loss


def critic_peers(arrays: Arrays, segment: int, scanned: int) -> dict[str, Step]:
    """Plain, checkpointed one after the other, and in a scan of segments of `scanned` layers after the first layer."""
    first, *others = arrays.weights

    def after_first(h: Any, weights: Any) -> Any:
        return in_scan(critic_layers)(critic_layers(h, weights[0]), weights[1])

    return {
        "jax.grad": step_of(critic(in_segments(critic_layers, 0)), arrays),
        "jax.checkpoint": step_of(critic(in_segments(critic_layers, segment)), arrays),
        "jax.scan": step_of(critic(after_first), arrays, ([first], stack(others, scanned))),
    }
