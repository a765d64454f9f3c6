"""Convolutional networks: how long their gradients take to compile, and a training step to run.

The peer is `jax.grad` under `jax.jit`, of the same network in plain JAX. Both are traced and lowered first: what is
timed is XLA alone, which is in no cache, unless a folder for one is set in JAX.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from .critic import conv_parameters, jax_conv, jax_loss, nngrad_conv, nngrad_loss
from .peers import Parameters, dense_parameters, eager_step, jitted_step
from .timing import Contender, Row, forget, medians, row

Loss = Callable[..., Any]
LAYOUT = ("NCHW", "OIHW", "NCHW")
RATE = 1e-3

# ---------------------------------------------------------------- a residual network of three blocks


def residual_parameters(rng: np.random.Generator) -> Parameters:
    """Two convolutions, each with the scale and offset of its normalisation, for each block; the output layer."""
    result = []
    for m, n in [(3, 4), (4, 4), (4, 8)]:
        for taken in (m, n):
            kernel = rng.normal(0, (9 * taken) ** -0.5, (n, taken, 3, 3))
            result += [kernel.astype("f"), np.ones((1, n, 1, 1), "f"), np.zeros((1, n, 1, 1), "f")]
    return [*result, *dense_parameters(rng, 8, 10)]


def nngrad_residual(p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Its loss, in nngrad."""
    for i in range(0, 18, 6):
        v, scale, offset, w, second_scale, second_offset = p[i : i + 6]
        h = F.batch_normalization(F.convolution(x, v), offset, scale)
        y = F.convolution(h, w)
        x = F.relu(F.batch_normalization(h, second_offset, second_scale)[:, :, 1:-1, 1:-1] + y)
        x = F.max_pooling(x, (2, 2)) if i == 0 else x
    scores = F.affine(F.mean(x, axis=(2, 3)), p[-2], p[-1])
    return F.mean(F.softmax_cross_entropy(scores, t))


def jax_residual(p: list[Any], x: Any, t: Any) -> Any:
    """Its loss, in JAX."""

    def normalised(x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = (f(x, axis=(0, 2, 3), keepdims=True) for f in (jnp.mean, jnp.var))
        return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + offset

    for i in range(0, 18, 6):
        v, scale, offset, w, second_scale, second_offset = p[i : i + 6]
        h = normalised(lax.conv_general_dilated(x, v, (1, 1), "VALID", dimension_numbers=LAYOUT), scale, offset)
        y = lax.conv_general_dilated(h, w, (1, 1), "VALID", dimension_numbers=LAYOUT)
        x = jax.nn.relu(normalised(h, second_scale, second_offset)[:, :, 1:-1, 1:-1] + y)
        x = jax_pooled(x) if i == 0 else x
    return jax_cross_entropy(x.mean((2, 3)) @ p[-2] + p[-1], t)


def jax_pooled(x: Any) -> Any:
    """Maxima over 2x2 windows."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def jax_cross_entropy(scores: Any, t: Any) -> Any:
    """The mean over the batch."""
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), t, 1))


def nngrad_penalised(p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """The loss of the residual network, and its squared gradient with respect to the images."""
    loss = nngrad_residual(p, x, t)
    (slope,) = nn.grad([loss], [x])
    return loss + F.sum(slope**2)


def jax_penalised(p: list[Any], x: Any, t: Any) -> Any:
    """The same in JAX."""
    return jax_residual(p, x, t) + jnp.sum(jax.grad(jax_residual, 1)(p, x, t) ** 2)


# ---------------------------------------------------------------- a classifier of four convolutions


def classifier_parameters(rng: np.random.Generator, width: int, size: int) -> Parameters:
    """Four 3x3 convolutions with biases, and the output layer behind four halvings of images of `size`."""
    result = []
    for m in (3, width, width, width):
        result += [rng.normal(0, (9 * m) ** -0.5, (width, m, 3, 3)).astype("f"), np.zeros(width, "f")]
    return [*result, *dense_parameters(rng, width * (size // 16) ** 2, 10)]


def nngrad_classifier(p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Its loss, in nngrad."""
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = F.max_pooling(F.relu(F.convolution(x, w, b, pad=(1, 1))), (2, 2))
    return F.mean(F.softmax_cross_entropy(F.affine(x, p[-2], p[-1]), t))


def jax_classifier(p: list[Any], x: Any, t: Any) -> Any:
    """Its loss, in JAX."""
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        y = lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)], dimension_numbers=LAYOUT)
        x = jax_pooled(jax.nn.relu(y + b.reshape(1, -1, 1, 1)))
    return jax_cross_entropy(x.reshape(x.shape[0], -1) @ p[-2] + p[-1], t)


def torch_classifier(parameters: Parameters, data: list[np.ndarray]) -> Contender:
    """Its step in eager PyTorch."""
    import torch

    x, t = torch.tensor(data[0]), torch.tensor(data[1][:, 0], dtype=torch.int64)

    def loss_of(p: list[Any]) -> Any:
        h = x
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            h = torch.nn.functional.max_pool2d(torch.relu(torch.nn.functional.conv2d(h, w, b, 1, 1)), 2)
        return torch.nn.functional.cross_entropy(h.flatten(1) @ p[-2] + p[-1], t)

    return eager_step(loss_of, parameters, lr=RATE)


# ---------------------------------------------------------------- compiling and running


def nngrad_gradients(loss_of: Loss, parameters: Parameters, data: list[np.ndarray]) -> Callable[..., Any]:
    """A function of arrays that gives the loss and its gradients with respect to the parameters."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    leaves = [nn.Variable.from_numpy_array(a) for a in data]
    loss = loss_of(p, *leaves)
    return nn.to_jax([loss, *nn.grad([loss], p)], [*p, *leaves])


def jax_gradients(loss_of: Loss, parameters: Parameters, data: list[np.ndarray]) -> Callable[..., Any]:
    """The same with `jax.grad`."""
    count = len(parameters)
    return lambda *arrays: jax.value_and_grad(loss_of)([*arrays[:count]], *arrays[count:])


def seconds_to_compile(function: Callable[..., Any], arrays: list[np.ndarray]) -> float:
    """How long XLA takes for a function of arrays."""
    lowered = jax.jit(function).lower(*arrays)
    start = time.perf_counter()
    lowered.compile()
    return time.perf_counter() - start


def compiling(what: str, losses: tuple[Loss, Loss], arrays: tuple[Parameters, list[np.ndarray]], rounds: int) -> Row:
    """The line on one network."""
    makers = {"nngrad": (nngrad_gradients, losses[0]), "jax.grad": (jax_gradients, losses[1])}
    times: dict[str, list[float]] = {name: [] for name in makers}
    for i in range(rounds):
        for name in list(makers)[:: 1 if i % 2 == 0 else -1]:
            forget()
            make, loss_of = makers[name]
            times[name].append(seconds_to_compile(make(loss_of, *arrays), [*arrays[0], *arrays[1]]))
    middle = {name: statistics.median(values) for name, values in times.items()}
    return row(f"compile, {what}", middle, "nngrad", "jax.grad", 0.7)


def nngrad_step(loss_of: Loss, parameters: Parameters, data: list[np.ndarray]) -> Contender:
    """A training step with Adam."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    leaves = [nn.Variable.from_numpy_array(a) for a in data]
    solver = S.Adam(alpha=RATE)
    step = nn.train_step(loss_of(p, *leaves), {str(i): w for i, w in enumerate(p)}, solver, inputs=leaves)
    arrays = [jnp.asarray(a) for a in data]
    return lambda: step(*arrays)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rng = np.random.default_rng(0)
    rounds = 1 if smoke else 7
    n, size, width = (2, 16, 4) if smoke else (16, 64, 64)

    def labelled(count: int, size: int) -> list[np.ndarray]:
        return [rng.normal(size=(count, 3, size, size)).astype("f"), rng.integers(0, 10, (count, 1)).astype("i")]

    residual = residual_parameters(rng), labelled(4, 32)
    real, fake = (rng.normal(size=(n, 3, 32, 32)).astype("f") for _ in range(2))
    critic = conv_parameters(rng, False), [real, fake, rng.random((n, 1, 1, 1), "f")]
    classifier = classifier_parameters(rng, width, size), labelled(n, size)

    def jax_critic(p: list[Any], *arrays: Any) -> Any:
        return jax_loss(jax_conv(False), p, *arrays)

    def nngrad_critic(p: list[nn.Variable], *leaves: nn.Variable) -> nn.Variable:
        return nngrad_loss(nngrad_conv(False), p, *leaves)

    rows = [
        compiling("residual network, gradient", (nngrad_residual, jax_residual), residual, rounds),
        compiling("residual network, gradient penalty", (nngrad_penalised, jax_penalised), residual, rounds),
        compiling("conv critic with its penalty", (nngrad_critic, jax_critic), critic, rounds),
        compiling("classifier of four convolutions", (nngrad_classifier, jax_classifier), classifier, rounds),
    ]
    contenders = {
        "nngrad": nngrad_step(nngrad_classifier, *classifier),
        "jax.grad": jitted_step(jax_classifier, optax.adam(RATE), *classifier),
    }
    if torch:
        contenders["PyTorch eager"] = torch_classifier(*classifier)
    times = medians(contenders, 2 if smoke else 15, 1 if smoke else 2)
    what = f"step, classifier of four convolutions, {n}x3x{size}x{size}, width {width}"
    goals = {"jax.grad": 1.0, "PyTorch eager": 1.8}
    return rows + [row(what, times, "nngrad", peer, goals[peer]) for peer in contenders if peer != "nngrad"]
