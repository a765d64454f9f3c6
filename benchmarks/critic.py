"""One step of a WGAN-GP critic: loss, gradient penalty, gradient of both, Adam; everything in one executable."""

from __future__ import annotations

import functools
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

from .peers import Parameters, dense_parameters, eager_step, jitted_step
from .timing import Contender, Row, medians, row

PENALTY, RATE, BETAS = 10.0, 1e-4, (0.0, 0.9)


def conv_parameters(rng: np.random.Generator, channel_last: bool) -> Parameters:
    """Weights and biases of three 4x4 convolutions of stride 2, 3-32-64-128, and of the output layer."""
    result = []
    for m, n in [(3, 32), (32, 64), (64, 128)]:
        w = rng.normal(0, (16 * m) ** -0.5, (n, m, 4, 4)).astype("f")
        result += [w.transpose(0, 2, 3, 1) if channel_last else w, np.zeros(n, "f")]
    return [*result, *dense_parameters(rng, 2048, 1)]


def nngrad_mlp(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
    """The dense critic."""
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = F.leaky_relu(F.affine(x, w, b), 0.2)
    return F.affine(x, p[-2], p[-1])


def jax_mlp(p: list[Any], x: Any) -> Any:
    """The dense critic."""
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = jax.nn.leaky_relu(x @ w + b, 0.2)
    return x @ p[-2] + p[-1]


def nngrad_conv(channel_last: bool) -> Callable[..., Any]:
    """The convolutional critic."""

    def critic(p: list[nn.Variable], x: nn.Variable) -> nn.Variable:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            x = F.leaky_relu(F.convolution(x, w, b, pad=(1, 1), stride=(2, 2), channel_last=channel_last), 0.2)
        return F.affine(x, p[-2], p[-1])

    return critic


def jax_conv(channel_last: bool) -> Callable[..., Any]:
    """The convolutional critic, as one writes it with `lax`."""
    layout = ("NHWC", "OHWI", "NHWC") if channel_last else ("NCHW", "OIHW", "NCHW")
    along = (1, 1, 1, -1) if channel_last else (1, -1, 1, 1)

    def critic(p: list[Any], x: Any) -> Any:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            y = lax.conv_general_dilated(x, w, (2, 2), [(1, 1), (1, 1)], dimension_numbers=layout)
            x = jax.nn.leaky_relu(y + b.reshape(along), 0.2)
        return x.reshape(x.shape[0], -1) @ p[-2] + p[-1]

    return critic


def nngrad_loss(critic: Callable[..., Any], p: list[nn.Variable], *data: nn.Variable) -> nn.Variable:
    """The loss: what the critic thinks of generated and of real samples, and the penalty on its gradient."""
    real, fake, mix = data
    between = mix * real + (1 - mix) * fake
    (slope,) = nn.grad([critic(p, between)], [between])
    norm = F.sum(slope**2, axis=tuple(range(1, slope.ndim))) ** 0.5
    return F.mean(critic(p, fake)) - F.mean(critic(p, real)) + PENALTY * F.mean((norm - 1) ** 2)


def jax_loss(critic: Callable[..., Any], p: list[Any], *data: Any) -> Any:
    """The same loss in JAX."""
    real, fake, mix = data
    between = mix * real + (1 - mix) * fake
    slope = jax.grad(lambda x: jnp.sum(critic(p, x)))(between)
    norm = jnp.sqrt(jnp.sum(slope**2, axis=tuple(range(1, slope.ndim))))
    return jnp.mean(critic(p, fake)) - jnp.mean(critic(p, real)) + PENALTY * jnp.mean((norm - 1) ** 2)


def nngrad_step(critic: Callable[..., Any], parameters: Parameters, data: list[np.ndarray]) -> Contender:
    """The step as nngrad has it."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    leaves = [nn.Variable(a.shape) for a in data]
    loss = nngrad_loss(critic, p, *leaves)
    solver = S.Adam(alpha=RATE, beta1=BETAS[0], beta2=BETAS[1])
    step = nn.train_step(loss, {str(i): w for i, w in enumerate(p)}, solver, inputs=leaves)
    arrays = [jnp.asarray(a) for a in data]
    return lambda: step(*arrays)


def jax_step(critic: Callable[..., Any], parameters: Parameters, data: list[np.ndarray]) -> Contender:
    """The step with `jax.grad`."""
    loss_of = functools.partial(jax_loss, critic)
    return jitted_step(loss_of, optax.adam(RATE, b1=BETAS[0], b2=BETAS[1]), parameters, data)


def torch_step(parameters: Parameters, data: list[np.ndarray]) -> Contender:
    """The step in eager PyTorch, dense or (four-dimensional data) convolutional."""
    import torch

    real, fake, mix = (torch.tensor(a) for a in data)

    def critic(p: list[Any], x: Any) -> Any:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            y = torch.nn.functional.conv2d(x, w, b, 2, 1) if x.ndim == 4 else x @ w + b
            x = torch.nn.functional.leaky_relu(y, 0.2)
        return x.reshape(x.shape[0], -1) @ p[-2] + p[-1]

    def loss_of(p: list[Any]) -> Any:
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(p, between).sum(), between, create_graph=True)
        norm = slope.flatten(1).norm(dim=1)
        return critic(p, fake).mean() - critic(p, real).mean() + PENALTY * ((norm - 1) ** 2).mean()

    return eager_step(loss_of, parameters, lr=RATE, betas=BETAS)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rng = np.random.default_rng(0)
    rounds = 2 if smoke else 25
    rows = []

    batch = [rng.normal(size=(64, 64)).astype("f"), rng.normal(size=(64, 64)).astype("f"), rng.random((64, 1), "f")]
    p = dense_parameters(rng, 64, 256, 256, 1)
    contenders = {"nngrad": nngrad_step(nngrad_mlp, p, batch), "jax.grad": jax_step(jax_mlp, p, batch)}
    if torch:
        contenders["PyTorch eager"] = torch_step(p, batch)
    times = medians(contenders, rounds, 2 if smoke else 40)
    what = "critic step, MLP 64-256-256-1, batch 64"
    rows += [row(what, times, "nngrad", peer, 1.0) for peer in contenders if peer != "nngrad"]

    n = 2 if smoke else 16
    images = [rng.normal(size=(n, 3, 32, 32)).astype("f") for _ in range(2)] + [rng.random((n, 1, 1, 1), "f")]
    first, last = conv_parameters(rng, False), conv_parameters(np.random.default_rng(1), True)
    turned = [a.transpose(0, 2, 3, 1) for a in images]
    contenders = {
        "nngrad NCHW": nngrad_step(nngrad_conv(False), first, images),
        "jax.grad NCHW": jax_step(jax_conv(False), first, images),
        "nngrad NHWC": nngrad_step(nngrad_conv(True), last, turned),
        "jax.grad NHWC": jax_step(jax_conv(True), last, turned),
    }
    if torch:
        contenders["PyTorch eager"] = torch_step(first, images)
    times = medians(contenders, rounds, 1 if smoke else 4)
    what = f"critic step, conv on 3x32x32, batch {n}"
    rows += [row(what, times, f"nngrad {c}", f"jax.grad {c}", 1.0) for c in ("NCHW", "NHWC")]
    rows.append(row(what, times, "nngrad NCHW", "jax.grad NHWC"))
    if torch:
        rows.append(row(what, times, "nngrad NCHW", "PyTorch eager", 1.0))
    return rows
