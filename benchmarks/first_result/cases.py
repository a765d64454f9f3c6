"""What is measured: each case as a function for each of its peers, which builds everything and gives a step.

A step gives numbers that are the same for all peers, but for rounding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad as nn
import nngrad.functions as F

from .. import critic, physics
from ..memory import in_jax, in_nngrad
from ..memory.arrays import of_recurrent
from ..peers import Parameters, dense_parameters
from ..tanh_mlp import along, jax_mlp, mlp, nngrad_mlp, tanh_parameters
from ..timing import Contender

Start = Callable[[bool], Contender]
"""Builds and gives a step; True asks for a tiny size."""


def nngrad_gradients(loss_of: Callable[..., nn.Variable], parameters: Parameters, *data: np.ndarray) -> Contender:
    """Loss and gradients as one has them in nnabla: `nn.grad`, a forward of a sink, and each gradient read."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    loss = loss_of(p, *[nn.Variable.from_numpy_array(a) for a in data])
    gradients = nn.grad([loss], p)
    sink = F.sink(loss, *gradients)

    def step() -> Any:
        sink.forward()
        return [loss.d, *[g.d for g in gradients]]

    return step


def jax_gradients(loss_of: Callable[..., Any], parameters: Parameters, *data: np.ndarray) -> Contender:
    """Loss and gradients by a jitted `jax.value_and_grad`."""
    jitted = jax.jit(jax.value_and_grad(loss_of))
    p, arrays = [jnp.asarray(a) for a in parameters], [jnp.asarray(a) for a in data]
    return lambda: jitted(p, *arrays)


def torch_gradients(loss_of: Callable[..., Any], parameters: Parameters, *data: np.ndarray) -> Contender:
    """Loss and gradients by `torch.autograd.grad`."""
    import torch

    p, arrays = [torch.tensor(a, requires_grad=True) for a in parameters], [torch.tensor(a) for a in data]

    def step() -> Any:
        loss = loss_of(p, *arrays)
        return [loss.item(), *[g.cpu().numpy() for g in torch.autograd.grad(loss, p)]]

    return step


# ---------------------------------------------------------------- critics


def dense_critic(tiny: bool) -> tuple[Parameters, list[np.ndarray]]:
    """Weights and data of the dense critic."""
    rng = np.random.default_rng(0)
    n, width = (4, 8) if tiny else (64, 256)
    data = [rng.normal(size=(n, 64)).astype("f"), rng.normal(size=(n, 64)).astype("f"), rng.random((n, 1), "f")]
    return dense_parameters(rng, 64, width, width, 1), data


def conv_critic(tiny: bool) -> tuple[Parameters, list[np.ndarray]]:
    """Weights and data of the convolutional critic."""
    rng = np.random.default_rng(0)
    n = 1 if tiny else 16
    data = [rng.normal(size=(n, 3, 32, 32)).astype("f") for _ in range(2)] + [rng.random((n, 1, 1, 1), "f")]
    return critic.conv_parameters(rng, False), data


# ---------------------------------------------------------------- a residual network


def residual_arrays(tiny: bool) -> tuple[Parameters, list[np.ndarray]]:
    """Three blocks with 3-4-4-8 channels and a dense layer, 23 arrays; images of 32x32 and their classes."""
    rng = np.random.default_rng(0)
    parameters: Parameters = []
    for m, n in itertools.pairwise((3, 4, 4, 8)):
        for k, bias in ((m, [np.zeros(n, "f")]), (n, [])):
            w = rng.normal(0, 0.1, (n, k, 3, 3)).astype("f")
            parameters += [w, *bias, np.ones((1, n, 1, 1), "f"), np.zeros((1, n, 1, 1), "f")]
    parameters += [rng.normal(0, 0.1, (8, 10)).astype("f"), np.zeros(10, "f")]
    size = 12 if tiny else 32
    return parameters, [rng.normal(size=(4, 3, size, size)).astype("f"), rng.integers(0, 10, (4, 1)).astype(np.int32)]


def nngrad_residual(p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """The loss."""
    for i in range(3):
        w, b, gamma, beta, w2, gamma2, beta2 = p[7 * i : 7 * i + 7]
        h = F.batch_normalization(F.convolution(x, w, b, pad=(1, 1)), beta, gamma)
        x = F.relu(F.batch_normalization(F.convolution(h, w2, pad=(1, 1)), beta2, gamma2) + h)
        x = F.max_pooling(x, (2, 2)) if i == 0 else x
    return F.mean(F.softmax_cross_entropy(F.affine(F.mean(x, axis=(2, 3)), *p[-2:]), t))


def jax_residual(p: list[Any], x: Any, t: Any) -> Any:
    """The same in JAX."""
    for i in range(3):
        w, b, gamma, beta, w2, gamma2, beta2 = p[7 * i : 7 * i + 7]
        h = jax_normalised(in_jax.convolution(x, w) + b.reshape(1, -1, 1, 1), gamma, beta)
        x = jax.nn.relu(jax_normalised(in_jax.convolution(h, w2), gamma2, beta2) + h)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") if i == 0 else x
    scores = jax.nn.log_softmax(jnp.mean(x, (2, 3)) @ p[-2] + p[-1])
    return -jnp.mean(jnp.take_along_axis(scores, t, axis=1))


def jax_normalised(x: Any, gamma: Any, beta: Any) -> Any:
    """Batch normalization."""
    mean, variance = jnp.mean(x, (0, 2, 3), keepdims=True), jnp.var(x, (0, 2, 3), keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gamma + beta


def torch_residual(p: list[Any], x: Any, t: Any) -> Any:
    """The same in PyTorch."""
    from torch.nn import functional

    def normalised(x: Any, gamma: Any, beta: Any) -> Any:
        return functional.batch_norm(x, None, None, gamma.flatten(), beta.flatten(), training=True)

    for i in range(3):
        w, b, gamma, beta, w2, gamma2, beta2 = p[7 * i : 7 * i + 7]
        h = normalised(functional.conv2d(x, w, b, padding=1), gamma, beta)
        x = functional.relu(normalised(functional.conv2d(h, w2, padding=1), gamma2, beta2) + h)
        x = functional.max_pool2d(x, 2) if i == 0 else x
    return functional.cross_entropy(x.mean((2, 3)) @ p[-2] + p[-1], t[:, 0].long())


# ---------------------------------------------------------------- a transformer block


def attention_arrays(tiny: bool) -> tuple[Parameters, list[np.ndarray]]:
    """Weights of queries, keys, values and the output, two dense layers, two scales; a batch of sequences."""
    rng = np.random.default_rng(0)
    batch, length, width = (2, 4, 8) if tiny else (8, 32, 64)
    dense = [rng.normal(0, m**-0.5, (m, n)).astype("f") for m, n in [(width, width)] * 4 + [(width, 4 * width)]]
    dense.append(rng.normal(0, 0.5 * width**-0.5, (4 * width, width)).astype("f"))
    scales = [np.ones(width, "f"), np.ones(width, "f")]
    return [*dense, *scales], [rng.normal(size=(batch, length, width)).astype("f")]


def nngrad_attention(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """A pre-norm block with one head."""
    q, k, v, out, up, down, scale, scale2 = p

    def normalised(x: nn.Variable, gamma: nn.Variable) -> nn.Variable:
        centred = x - F.mean(x, axis=2, keepdims=True)
        return centred * (F.mean(centred**2, axis=2, keepdims=True) + 1e-5) ** -0.5 * gamma

    h = normalised(x, scale)
    weights = F.softmax((h @ q) @ F.transpose(h @ k, (0, 2, 1)) * x.shape[2] ** -0.5, axis=2)
    x = x + weights @ (h @ v) @ out
    return x + F.gelu(normalised(x, scale2) @ up) @ down


def nngrad_attention_loss(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The mean of the block's square, with a penalty on its gradient with respect to the input."""
    score = F.mean(nngrad_attention(p, x) ** 2)
    (slope,) = nn.grad([score], [x])
    return score + F.sum(slope**2)


def attention(numbers: Any, gelu: Callable[[Any], Any], softmax: Callable[[Any], Any], p: list[Any], x: Any) -> Any:
    """The block in JAX (`numbers` is jax.numpy) or PyTorch (torch)."""
    q, k, v, out, up, down, scale, scale2 = p

    def normalised(x: Any, gamma: Any) -> Any:
        centred = x - x.mean(2)[..., None]
        return centred * ((centred**2).mean(2)[..., None] + 1e-5) ** -0.5 * gamma

    h = normalised(x, scale)
    weights = softmax((h @ q) @ numbers.swapaxes(h @ k, 1, 2) * x.shape[2] ** -0.5)
    x = x + weights @ (h @ v) @ out
    return x + gelu(normalised(x, scale2) @ up) @ down


def jax_attention_loss(p: list[Any], x: Any) -> Any:
    """The same loss in JAX."""

    def score(x: Any) -> Any:
        return jnp.mean(attention(jnp, lambda h: jax.nn.gelu(h, approximate=True), jax.nn.softmax, p, x) ** 2)

    value, slope = jax.value_and_grad(score)(x)
    return value + jnp.sum(slope**2)


def torch_attention_loss(p: list[Any], x: Any) -> Any:
    """The same loss in PyTorch."""
    import torch
    from torch.nn import functional

    x = x.requires_grad_()
    value = attention(
        torch, lambda h: functional.gelu(h, approximate="tanh"), lambda h: torch.softmax(h, -1), p, x
    ).pow(2).mean()
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    return value + slope.pow(2).sum()


# ---------------------------------------------------------------- penalties, recurrence, derivatives


def penalised_nngrad(p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """The residual network's loss, with a penalty on its gradient with respect to the images."""
    loss = nngrad_residual(p, x, t)
    (slope,) = nn.grad([loss], [x])
    return loss + F.sum(slope**2)


def penalised_jax(p: list[Any], x: Any, t: Any) -> Any:
    """The same in JAX."""
    loss, slope = jax.value_and_grad(jax_residual, 1)(p, x, t)
    return loss + jnp.sum(slope**2)


def penalised_torch(p: list[Any], x: Any, t: Any) -> Any:
    """The same in PyTorch."""
    import torch

    x = x.requires_grad_()
    loss = torch_residual(p, x, t)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    return loss + slope.pow(2).sum()


def recurrent_arrays(tiny: bool) -> tuple[Parameters, list[np.ndarray]]:
    """An LSTM's weights and its sequence."""
    arrays = of_recurrent(3 if tiny else 50, 8 if tiny else 64, 4 if tiny else 16)
    return arrays.weights, [arrays.x]


def torch_recurrent(p: list[Any], x: Any) -> Any:
    """The LSTM in PyTorch."""
    import torch

    w, b = p
    width = x.shape[2]
    h = c = torch.zeros(x.shape[1:])
    for t in range(len(x)):
        z = torch.cat([x[t], h], 1) @ w + b
        gates = torch.sigmoid(z[:, : 3 * width])
        i, f, o = (gates[:, k * width : (k + 1) * width] for k in range(3))
        c = f * c + i * torch.tanh(z[:, 3 * width :])
        h = o * torch.tanh(c)
    return h.pow(2).sum()


def tanh_arrays(tiny: bool) -> tuple[Parameters, np.ndarray]:
    """The tanh network and its points."""
    rng = np.random.default_rng(0)
    widths, n = ((1, 4, 4, 1), 4) if tiny else ((1, 64, 64, 64, 1), 1024)
    return tanh_parameters(rng, *widths), np.linspace(-1, 1, n, dtype="f")[:, None]


def nngrad_derivative(order: int) -> Start:
    """The derivative of an order by nested `nn.grad`."""

    def start(tiny: bool) -> Contender:
        parameters, points = tanh_arrays(tiny)
        x = nn.Variable.from_numpy_array(points)
        y = nngrad_mlp([nn.Variable.from_numpy_array(a) for a in parameters], x)
        for _ in range(order):
            (y,) = nn.grad([y], [x])

        def step() -> Any:
            y.forward()
            return y.d

        return step

    return start


def jax_derivative(order: int) -> Start:
    """The same by nested forward mode, the quickest of JAX's nested ways to its first result."""

    def start(tiny: bool) -> Contender:
        parameters, points = tanh_arrays(tiny)
        function = functools.partial(jax_mlp, [jnp.asarray(a) for a in parameters])
        for _ in range(order):
            function = along(function)
        jitted, x = jax.jit(function), jnp.asarray(points)
        return lambda: jitted(x)

    return start


def torch_derivative(order: int) -> Start:
    """The same by nested `torch.autograd.grad`."""

    def start(tiny: bool) -> Contender:
        import torch

        parameters, points = tanh_arrays(tiny)
        p, x = [torch.tensor(a) for a in parameters], torch.tensor(points, requires_grad=True)

        def step() -> Any:
            y = mlp(torch.tanh, p, x)
            for _ in range(order):
                (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            return y.detach().cpu().numpy()

        return step

    return start


def physics_arrays(tiny: bool) -> tuple[Parameters, list[np.ndarray]]:
    """A network of two inputs, and points in space and time."""
    rng = np.random.default_rng(0)
    n, widths = (4, (2, 8, 8, 1)) if tiny else (2048, (2, 64, 64, 64, 1))
    return tanh_parameters(rng, *widths), [rng.uniform(0, 1, (n, 1)).astype("f") for _ in range(2)]


# ---------------------------------------------------------------- the list


class Case(NamedTuple):
    """A computation, by each of those who do it."""

    title: str
    starts: dict[str, Start]
    """By 'nngrad', 'jax' and 'torch'."""


def of_gradients(
    title: str, arrays: Callable[[bool], tuple[Parameters, list[np.ndarray]]], ours: Any, jax_loss: Any, torch_loss: Any
) -> Case:
    """A case that gives a loss and its gradients."""
    ways = {
        "nngrad": (nngrad_gradients, ours),
        "jax": (jax_gradients, jax_loss),
        "torch": (torch_gradients, torch_loss),
    }

    def start_of(gradients: Any, loss: Any) -> Start:
        def start(tiny: bool) -> Contender:
            parameters, data = arrays(tiny)
            return gradients(loss, parameters, *data)

        return start

    return Case(title, {name: start_of(*way) for name, way in ways.items()})


def of_step(title: str, arrays: Any, ours: Any, in_jax: Any, in_torch: Any) -> Case:
    """A case that is a training step of `parameters` and `data`."""
    makers = {"nngrad": ours, "jax": in_jax, "torch": in_torch}
    return Case(title, {name: (lambda tiny, make=make: make(*arrays(tiny))) for name, make in makers.items()})


CASES = {
    "mlp critic": of_step(
        "critic step, MLP 64-256-256-1", dense_critic,
        functools.partial(critic.nngrad_step, critic.nngrad_mlp),
        functools.partial(critic.jax_step, critic.jax_mlp), critic.torch_step,
    ),
    "conv critic": of_step(
        "critic step, conv on 3x32x32", conv_critic,
        functools.partial(critic.nngrad_step, critic.nngrad_conv(False)),
        functools.partial(critic.jax_step, critic.jax_conv(False)), critic.torch_step,
    ),
    "resnet": of_gradients(
        "ResNet of three blocks: loss and 23 gradients, read one by one",
        residual_arrays, nngrad_residual, jax_residual, torch_residual,
    ),
    "resnet penalty": of_gradients(
        "the ResNet with a gradient penalty: loss and 23 gradients",
        residual_arrays, penalised_nngrad, penalised_jax, penalised_torch,
    ),
    "lstm": of_gradients(
        "LSTM of 64, 50 steps unrolled: loss and gradients",
        recurrent_arrays, lambda p, x: in_nngrad.recurrent(x, p), in_jax.recurrent(in_jax.unrolled), torch_recurrent,
    ),
    "transformer": of_gradients(
        "transformer block with a gradient penalty: loss and gradients",
        attention_arrays, nngrad_attention_loss, jax_attention_loss, torch_attention_loss,
    ),
    "order 6": Case(
        "6th derivative of a tanh network",
        {"nngrad": nngrad_derivative(6), "jax": jax_derivative(6), "torch": torch_derivative(6)},
    ),
    "order 10": Case(
        "10th derivative of a tanh network", {"nngrad": nngrad_derivative(10), "jax": jax_derivative(10)},
    ),
    "physics": of_step(
        "step on Korteweg-de Vries' equation", physics_arrays,
        functools.partial(physics.nngrad_step, physics.EQUATIONS[1]),
        functools.partial(physics.jax_step, physics.nested_jvp, physics.EQUATIONS[1]),
        functools.partial(physics.torch_step, physics.EQUATIONS[1]),
    ),
}
"""The cases by name."""
