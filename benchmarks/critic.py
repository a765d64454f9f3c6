"""One step of a WGAN-GP critic: loss, gradient penalty, gradient of both, Adam."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from .harness import EARLY, Case, Way
from .models import Arrays, Parameters, classic_step, dense_parameters, eager_step, jitted_step, mlp, normal, train_step

PENALTY, RATE, BETAS = 10.0, 1e-4, (0.0, 0.9)
Critic = Callable[..., Any]

nngrad_mlp = partial(mlp, lambda x: F.leaky_relu(x, 0.2))
jax_mlp = partial(mlp, lambda x: jax.nn.leaky_relu(x, 0.2))


def dense(smoke: bool, width: int = 256, batch: int = 64, layers: int = 2) -> tuple[Parameters, Arrays]:
    """Weights of the dense critic; real and generated samples, and the shares of the real ones."""
    rng = np.random.default_rng(0)
    batch, width = (4, 8) if smoke else (batch, width)
    data = [normal(rng, batch, 64), normal(rng, batch, 64), rng.random((batch, 1), "f")]
    return dense_parameters(rng, 64, *[width] * layers, 1), data


OIHW, OHWI, HWIO = (0, 1, 2, 3), (0, 2, 3, 1), (2, 3, 1, 0)
"""The axes of kernels: the first with channels first, the others with channels last, for nngrad and for JAX."""


def convolutional(smoke: bool, pooled: bool = False, kernels: tuple[int, ...] = OIHW) -> tuple[Parameters, Arrays]:
    """Weights of three 4x4 convolutions of stride 2, 3-32-64-128, or of two 3x3 ones whose results are pooled, and of
    the output layer; images."""
    rng = np.random.default_rng(0)
    n, k, maps = 2 if smoke else 16, 3 if pooled else 4, (3, 32, 32) if pooled else (3, 32, 64, 128)
    p: Parameters = []
    for m, following in pairwise(maps):
        w = normal(rng, following, m, k, k, scale=(k * k * m) ** -0.5)
        p += [w.transpose(kernels), np.zeros(following, "f")]
    images = [normal(rng, n, 3, 32, 32) for _ in range(2)]
    images = images if kernels == OIHW else [a.transpose(0, 2, 3, 1) for a in images]
    return [*p, *dense_parameters(rng, 2048, 1)], [*images, rng.random((n, 1, 1, 1), "f")]


def nngrad_conv(channel_last: bool, pooled: bool = False) -> Critic:
    """The convolutional critic."""
    stride = (1, 1) if pooled else (2, 2)

    def critic(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            x = F.leaky_relu(F.convolution(x, w, b, pad=(1, 1), stride=stride, channel_last=channel_last), 0.2)
            x = F.average_pooling(x, (2, 2), channel_last=channel_last) if pooled else x
        return F.affine(x, p[-2], p[-1])

    return critic


def jax_conv(channel_last: bool, pooled: bool = False) -> Critic:
    """The convolutional critic, as one writes it with `lax`."""
    layout = ("NHWC", "HWIO", "NHWC") if channel_last else ("NCHW", "OIHW", "NCHW")
    along, window = ((1, 1, 1, -1), (1, 2, 2, 1)) if channel_last else ((1, -1, 1, 1), (1, 1, 2, 2))
    stride = (1, 1) if pooled else (2, 2)

    def critic(p: list[Any], x: Any) -> Any:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            y = lax.conv_general_dilated(x, w, stride, [(1, 1), (1, 1)], dimension_numbers=layout)
            x = jax.nn.leaky_relu(y + b.reshape(along), 0.2)
            x = lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / 4 if pooled else x
        return x.reshape(x.shape[0], -1) @ p[-2] + p[-1]

    return critic


def nngrad_loss(critic: Critic, p: list[nn.Variable], *data: nn.Variable) -> nn.Variable:
    """The loss: what the critic thinks of generated and of real samples, and the penalty on its gradient."""
    real, fake, mix = data
    between = mix * real + (1 - mix) * fake
    (slope,) = nn.grad([critic(p, between)], [between])
    norm = F.sum(slope**2, axis=tuple(range(1, slope.ndim))) ** 0.5
    return F.mean(critic(p, fake)) - F.mean(critic(p, real)) + PENALTY * F.mean((norm - 1) ** 2)


def jax_loss(critic: Critic, p: list[Any], *data: Any) -> Any:
    """The same loss in JAX."""
    real, fake, mix = data
    between = mix * real + (1 - mix) * fake
    slope = jax.grad(lambda x: jnp.sum(critic(p, x)))(between)
    norm = jnp.sqrt(jnp.sum(slope**2, axis=tuple(range(1, slope.ndim))))
    return jnp.mean(critic(p, fake)) - jnp.mean(critic(p, real)) + PENALTY * jnp.mean((norm - 1) ** 2)


def torch_loss(stride: int, p: list[Any], real: Any, fake: Any, mix: Any) -> Any:
    """The same loss in PyTorch, of a dense or a convolutional critic, which is pooled where its stride is 1."""
    import torch
    from torch.nn import functional

    def critic(x: Any) -> Any:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            x = functional.leaky_relu(functional.conv2d(x, w, b, stride, 1) if x.ndim == 4 else x @ w + b, 0.2)
            x = functional.avg_pool2d(x, 2) if stride == 1 and x.ndim == 4 else x
        return x.reshape(x.shape[0], -1) @ p[-2] + p[-1]

    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norm = slope.flatten(1).norm(dim=1)
    return critic(fake).mean() - critic(real).mean() + PENALTY * ((norm - 1) ** 2).mean()


def by_nngrad(critic: Critic, arrays: tuple[Parameters, Arrays], step: Callable[..., Any] = train_step) -> Way:
    """The step as nngrad has it."""
    return lambda: step(partial(nngrad_loss, critic), S.Adam(alpha=RATE, beta1=BETAS[0], beta2=BETAS[1]), *arrays)


def by_jax(critic: Critic, arrays: tuple[Parameters, Arrays]) -> Way:
    """The step with `jax.grad`."""
    return partial(jitted_step, partial(jax_loss, critic), optax.adam(RATE, b1=BETAS[0], b2=BETAS[1]), *arrays)


def by_torch(arrays: tuple[Parameters, Arrays], stride: int = 2) -> Way:
    """The step in eager PyTorch."""
    return partial(eager_step, partial(torch_loss, stride), *arrays, lr=RATE, betas=BETAS)


def ways(given: tuple[Parameters, Arrays]) -> dict[str, Way]:
    """The dense critic's."""
    return {
        "nngrad": by_nngrad(nngrad_mlp, given), "jax.grad": by_jax(jax_mlp, given), "PyTorch eager": by_torch(given),
        "nngrad, classic loop": by_nngrad(nngrad_mlp, given, classic_step),
    }  # fmt: skip


def cases(smoke: bool) -> Iterable[Case]:
    """Dense and convolutional critics; layouts are compared each with its own."""
    pairs = [("nngrad", "jax.grad"), ("nngrad", "PyTorch eager"), ("nngrad, classic loop", "jax.grad")]
    yield Case("critic step, MLP 64-256-256-1, batch 64", ways(dense(smoke)), pairs, ("time", EARLY))
    for pooled, what in ((True, "pooled conv"),) if smoke else ((False, "conv"), (True, "pooled conv")):
        first, last, of_jax = [convolutional(smoke, pooled, kernels) for kernels in (OIHW, OHWI, HWIO)]
        yield Case(f"critic step, {what} on 3x32x32, batch 16", {
            "nngrad NCHW": by_nngrad(nngrad_conv(False, pooled), first),
            "jax.grad NCHW": by_jax(jax_conv(False, pooled), first),
            "nngrad NHWC": by_nngrad(nngrad_conv(True, pooled), last),
            "jax.grad NHWC": by_jax(jax_conv(True, pooled), of_jax),
            "PyTorch eager": by_torch(first, 1 if pooled else 2),
            "nngrad NCHW, classic loop": by_nngrad(nngrad_conv(False, pooled), first, classic_step),
        }, [
            ("nngrad NCHW", "jax.grad NCHW"), ("nngrad NHWC", "jax.grad NHWC"), ("nngrad NCHW", "jax.grad NHWC"),
            ("nngrad NCHW", "PyTorch eager"), ("nngrad NCHW, classic loop", "jax.grad NHWC"),
        ], measures=("time", EARLY), tolerance=None)  # fmt: skip
