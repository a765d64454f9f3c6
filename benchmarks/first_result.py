"""The first result: from nothing to numbers on the host, without imports and the start of the backend, each in a
process of its own; and later steps of a network, in turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad as nn
import nngrad.functions as F

from . import critic, derivatives, memory, physics
from .harness import Case, Contender, Step, Way, in_jax, in_torch
from .models import Arrays, Parameters, jax_mlp, nested_jvp, nngrad_mlp, normal, variables

Given = tuple[Parameters, Arrays]


def read(outputs: list[nn.Variable]) -> Contender:
    """Values as one has them in nnabla: a forward of a sink, and each of them read."""
    sink = F.sink(*outputs)

    def step() -> Any:
        sink.forward()
        return [y.d for y in outputs]

    return step


def gradients(loss_of: Callable[..., Any], given: Given) -> Contender:
    """Loss and gradients by `nn.grad`."""
    p, data = variables(given[0]), [nn.Variable.from_numpy_array(a) for a in given[1]]
    loss = loss_of(p, *data)
    return read([loss, *nn.grad([loss], p)])


def torch_gradients(loss_of: Callable[..., Any], given: Given) -> Step:
    """The same by `torch.autograd.grad`."""
    import torch

    p, data = [torch.tensor(a, requires_grad=True) for a in given[0]], [torch.tensor(a) for a in given[1]]

    def step() -> Any:
        loss = loss_of(p, *data)
        return [loss, *torch.autograd.grad(loss, p)]

    return in_torch(step)


# ---------------------------------------------------------------- a residual network of three blocks


def residual_arrays(tiny: bool) -> Given:
    """Three blocks with 3-4-4-8 channels and a dense layer, 23 arrays; images of 32x32 and their classes."""
    rng = np.random.default_rng(0)
    p: Parameters = []
    for m, n in itertools.pairwise((3, 4, 4, 8)):
        for k, bias in ((m, [np.zeros(n, "f")]), (n, [])):
            p += [normal(rng, n, k, 3, 3, scale=0.1), *bias, np.ones((1, n, 1, 1), "f"), np.zeros((1, n, 1, 1), "f")]
    size = 12 if tiny else 32
    data = [normal(rng, 4, 3, size, size), rng.integers(0, 10, (4, 1)).astype(np.int32)]
    return [*p, normal(rng, 8, 10, scale=0.1), np.zeros(10, "f")], data


def residual(convolution: Any, normalised: Any, relu: Any, halved: Any, p: list[Any], x: Any) -> Any:
    """The features of the last block."""
    for i in range(3):
        w, b, gamma, beta, w2, gamma2, beta2 = p[7 * i : 7 * i + 7]
        h = normalised(convolution(x, w) + b.reshape((1, -1, 1, 1)), gamma, beta)
        x = relu(normalised(convolution(h, w2), gamma2, beta2) + h)
        x = halved(x) if i == 0 else x
    return x


def nngrad_residual(p: list[nn.Variable], x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """The loss."""
    h = residual(
        lambda x, w: F.convolution(x, w, pad=(1, 1)), lambda x, gamma, beta: F.batch_normalization(x, beta, gamma),
        F.relu, lambda x: F.max_pooling(x, (2, 2)), p, x,
    )  # fmt: skip
    return F.mean(F.softmax_cross_entropy(F.affine(F.mean(h, axis=(2, 3)), *p[-2:]), t))


def jax_residual(p: list[Any], x: Any, t: Any) -> Any:
    """The same in JAX."""

    def convolution(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))

    def normalised(x: Any, gamma: Any, beta: Any) -> Any:
        mean, variance = jnp.mean(x, (0, 2, 3), keepdims=True), jnp.var(x, (0, 2, 3), keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * gamma + beta

    def halved(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    h = residual(convolution, normalised, jax.nn.relu, halved, p, x)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(jnp.mean(h, (2, 3)) @ p[-2] + p[-1]), t, axis=1))


def torch_residual(p: list[Any], x: Any, t: Any) -> Any:
    """The same in PyTorch."""
    from torch.nn import functional

    h = residual(
        lambda x, w: functional.conv2d(x, w, padding=1),
        lambda x, a, b: functional.batch_norm(x, None, None, a.flatten(), b.flatten(), training=True),
        functional.relu, lambda x: functional.max_pool2d(x, 2), p, x,
    )  # fmt: skip
    return functional.cross_entropy(h.mean((2, 3)) @ p[-2] + p[-1], t[:, 0].long())


# ---------------------------------------------------------------- penalties


def penalised(loss_of: Callable[..., Any], lib: str) -> Callable[..., Any]:
    """A loss with the squared gradient by its first data."""

    def in_nngrad(p: list[nn.Variable], x: nn.Variable, *data: nn.Variable) -> nn.Variable:
        loss = loss_of(p, x, *data)
        return loss + F.sum(nn.grad([loss], [x])[0] ** 2)

    def in_jax(p: list[Any], x: Any, *data: Any) -> Any:
        loss, slope = jax.value_and_grad(loss_of, 1)(p, x, *data)
        return loss + jnp.sum(slope**2)

    def in_torch(p: list[Any], x: Any, *data: Any) -> Any:
        import torch

        x = x.requires_grad_()
        loss = loss_of(p, x, *data)
        return loss + torch.autograd.grad(loss, x, create_graph=True)[0].pow(2).sum()

    return {"nngrad": in_nngrad, "jax": in_jax, "torch": in_torch}[lib]


# ---------------------------------------------------------------- derivatives


def nngrad_derivative(order: int, parameters: Parameters, points: np.ndarray) -> Contender:
    """By nested `nn.grad`."""
    x = nn.Variable.from_numpy_array(points)
    return read([derivatives.nested(nngrad_mlp([nn.Variable.from_numpy_array(a) for a in parameters], x), x, order)])


def jax_derivative(order: int, parameters: Parameters, points: np.ndarray) -> Step:
    """By nested forward mode, the quickest of JAX's nested ways to its first result."""
    return in_jax(nested_jvp(partial(jax_mlp, [jnp.asarray(a) for a in parameters]), order), points)


# ---------------------------------------------------------------- the list


def of_loss(given: Given, ours: Any, in_jax_: Any, in_torch_: Any) -> dict[str, Way]:
    """Loss and gradients, each as an array of NumPy's."""
    return {
        "nngrad": partial(gradients, ours, given),
        "jitted JAX": lambda: read_by_numpy(in_jax(jax.value_and_grad(in_jax_), given[0], *given[1])),
        "PyTorch eager": lambda: read_by_numpy(torch_gradients(in_torch_, given)),
    }


def read_by_numpy(step: Step) -> Step:
    """What a peer computes, read as nngrad's is."""
    return Step(lambda: [np.asarray(a) for a in jax.tree.leaves(step.run())], step.account)


def cases(smoke: bool) -> Iterable[Case]:
    """Two of them where tiny."""
    dense, conv, equation = critic.dense(smoke), critic.convolutional(smoke), physics.arrays(smoke)
    steps = physics.ways(physics.EQUATIONS[1], equation)
    lstm = memory.of_recurrent(*((3, 8, 4) if smoke else (50, 64, 16)))
    jax_lstm = memory.recurrent(partial(memory.unrolled, memory.jax_cell), jnp.zeros_like)
    residuals, libs = (nngrad_residual, jax_residual, torch_residual), ("nngrad", "jax", "torch")
    shown: dict[str, dict[str, Way]] = {
        "critic step, MLP 64-256-256-1": {
            "nngrad": critic.by_nngrad(critic.nngrad_mlp, dense), "jitted JAX": critic.by_jax(critic.jax_mlp, dense),
        },
        "ResNet of three blocks: loss and 23 gradients, read one by one": of_loss(residual_arrays(smoke), *residuals),
        "critic step, conv on 3x32x32": {
            "nngrad": critic.by_nngrad(critic.nngrad_conv(False), conv),
            "jitted JAX": critic.by_jax(critic.jax_conv(False), conv),
        },
        "the ResNet with a gradient penalty: loss and 23 gradients": of_loss(
            residual_arrays(smoke), *map(penalised, residuals, libs)
        ),
        "LSTM of 64, 50 steps unrolled: loss and gradients": of_loss(
            (lstm.weights, [lstm.x]), memory.nngrad_recurrent, jax_lstm, memory.torch_recurrent
        ),
        **{f"{n}th derivative of a tanh network": {
            "nngrad": partial(nngrad_derivative, n, *derivatives.arrays(smoke)),
            "jitted JAX": partial(jax_derivative, n, *derivatives.arrays(smoke)),
        } for n in (6, 10)},
        "step on Korteweg-de Vries' equation": {
            "nngrad": steps["nested nn.grad"], "jitted JAX": steps["nested jax.jvp"],
        },
    }
    for what, ways in list(shown.items())[: 2 if smoke else None]:
        yield Case(what, ways, measures=("first result",), tolerance=5e-3, apart=True)
    of_resnet = list(shown.items())[1]
    yield Case(*of_resnet, tolerance=5e-3)  # steps, in turns in one process
