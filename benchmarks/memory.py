"""Memory: gradients that recompute instead of keeping (`recompute=` of `nn.grad`), beside plain ones and the peers'.

Temporaries are what the compiler allots beside arguments and results; of PyTorch, the highest sum of what its allocator
has handed out, less the loss and the gradients. README.md says what segments the peers get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad as nn
import nngrad.functions as F

from .harness import Case, Step, Way, in_jax, in_nngrad, in_torch
from .models import Parameters, dense_weights, normal, variables

T = TypeVar("T")
V = nn.Variable
Model = Callable[..., Any]


class Arrays(NamedTuple):
    """The input of a model and its weights, float32."""

    x: np.ndarray
    weights: Parameters


def loss_and_gradients(model: Model, arrays: Arrays, policy: Any = None) -> Step:
    """By nngrad, of `model(weights, x)`."""
    x, weights = V.from_numpy_array(arrays.x), variables(arrays.weights)
    loss = model(weights, x)
    return in_nngrad([loss, *nn.grad(loss, weights, recompute=policy)], [x, *weights])


def by_jax(model: Model, arrays: Arrays, stacked: Any = None) -> Way:
    """By JAX; the weights `stacked` instead, where a scan wants them so."""
    return lambda: in_jax(jax.value_and_grad(model), arrays.weights if stacked is None else stacked, arrays.x)


def by_torch(model: Model, arrays: Arrays) -> Way:
    """By PyTorch."""

    def make() -> Step:
        import torch

        x, weights = torch.tensor(arrays.x), [torch.tensor(w, requires_grad=True) for w in arrays.weights]

        def run() -> Any:
            loss = model(weights, x)
            return [loss, *torch.autograd.grad(loss, weights)]

        return in_torch(run)

    return make


def stack(weights: Parameters, segment: int) -> np.ndarray:
    """Weights of one shape, [segments, segment, ...], for a scan over segments."""
    return np.stack(weights).reshape(-1, segment, *weights[0].shape)


def in_segments(part: Model, segment: int, checkpoint: Model) -> Model:
    """`part(h, weights)` on `segment` weights at a time, one checkpoint after the other."""

    def whole(h: Any, weights: list[Any]) -> Any:
        for i in range(0, len(weights), segment):
            h = checkpoint(part)(h, weights[i : i + segment])
        return h

    return whole


def in_scan(part: Model) -> Model:
    """`part(h, weights)` on stacked weights, a scan over checkpointed segments."""
    checkpointed = jax.checkpoint(part, prevent_cse=False)  # a loop needs no barriers
    return lambda h, weights: lax.scan(lambda h, ws: (checkpointed(h, ws), None), h, weights)[0]


def torch_checkpoint(part: Model) -> Model:
    """`part` with its inside computed again by PyTorch's backward pass."""

    def again(*args: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        return checkpoint(part, *args, use_reentrant=False, preserve_rng_state=False)

    return again


# ---------------------------------------------------------------- dense layers


def dense_layers(tanh: Callable[[Any], Any], h: Any, weights: Any) -> Any:
    """Dense layers, in whatever `tanh` takes."""
    for w in weights:
        h = tanh(h @ w)
    return h


def dense(layers: Model) -> Model:
    """The loss, where `layers` says how they follow each other."""
    return lambda weights, x: (layers(x, weights) ** 2).sum()


def nngrad_dense(weights: list[V], x: V) -> V:
    """The same in nngrad."""
    return F.sum(dense_layers(F.tanh, x, weights) ** 2)


def dense_peers(arrays: Arrays, segment: int) -> dict[str, Way]:
    """Plain, checkpointed one after the other, and in a scan."""
    layers, in_torch = partial(dense_layers, jnp.tanh), partial(dense_layers, lambda h: h.tanh())
    return {
        "jax.grad": by_jax(dense(layers), arrays),
        "jax.checkpoint": by_jax(dense(in_segments(layers, segment, jax.checkpoint)), arrays),
        "jax.scan": by_jax(dense(in_scan(layers)), arrays, stack(arrays.weights, segment)),
        "PyTorch": by_torch(dense(in_torch), arrays),
        "PyTorch checkpoint": by_torch(dense(in_segments(in_torch, segment, torch_checkpoint)), arrays),
    }


# ---------------------------------------------------------------- residual network


def of_residual(batch: int, size: int, channels: int, stages: int) -> Arrays:
    """ResNet-18's convolutions, each followed by the scale and the offset of its normalization; a dense layer."""
    rng = np.random.default_rng(0)
    weights: Parameters = []

    def normalised(m: int, n: int, kernel: int) -> None:
        scale, offset = normal(rng, 1, n, 1, 1), normal(rng, 1, n, 1, 1, scale=0.1)
        weights.extend([normal(rng, n, m, kernel, kernel, scale=(m * kernel**2) ** -0.5), scale, offset])

    normalised(3, channels, 3)
    m = channels
    for stage in range(stages):
        for block in range(2):
            n = channels * 2**stage
            normalised(m, n, 3)
            normalised(n, n, 3)
            if stage and not block:
                normalised(m, n, 1)
            m = n
    return Arrays(normal(rng, batch, 3, size, size), [*weights, normal(rng, m, 10, scale=m**-0.5)])


def residual_blocks(weights: Sequence[T]) -> list[list[T]]:
    """The weights of each residual block of `of_residual`; those with nine (three convolutions) have stride 2."""
    blocks, start = [], 3
    for stage in range(len(weights) // 15):
        for block in range(2):
            count = 9 if stage and not block else 6
            blocks.append(list(weights[start : start + count]))
            start += count
    return blocks


class Layers(NamedTuple):
    """What a residual network is written with."""

    normalised: Model
    """A convolution that keeps the size, but for the stride, and batch normalization."""
    relu: Model
    checkpoint: Model = lambda block: block


def residual(of: Layers, weights: list[Any], x: Any) -> Any:
    """The features of stages of two residual blocks of two normalised convolutions each, as in ResNet-18."""

    def block(x: Any, weights: list[Any]) -> Any:
        stride = 2 if len(weights) == 9 else 1
        y = of.normalised(of.relu(of.normalised(x, *weights[:3], stride=stride)), *weights[3:6])
        return of.relu(y + (x if stride == 1 else of.normalised(x, *weights[6:], stride=stride)))

    x = of.relu(of.normalised(x, *weights[:3]))
    for part in residual_blocks(weights):
        x = of.checkpoint(block)(x, part)
    return x


def nngrad_normalised(x: V, w: V, gamma: V, beta: V, stride: int = 1) -> V:
    """In nngrad."""
    y = F.convolution(x, w, pad=(w.shape[2] // 2,) * 2, stride=(stride, stride))
    return F.batch_normalization(y, beta, gamma)


def channels_last(loss: Model) -> Model:
    """`loss(weights, x)` in JAX of images NHWC and kernels HWIO, which its convolutions are fastest with; of others."""
    return lambda weights, x: loss(
        [w.transpose(2, 3, 1, 0) if w.ndim == 4 else w for w in weights], x.transpose(0, 2, 3, 1)
    )


def jax_convolution(x: Any, w: Any, stride: int = 1) -> Any:
    """A convolution of these that keeps the size, but for the stride."""
    pad = (w.shape[0] // 2,) * 2
    return lax.conv_general_dilated(x, w, (stride, stride), [pad, pad], dimension_numbers=("NHWC", "HWIO", "NHWC"))


def jax_normalised(x: Any, w: Any, gamma: Any, beta: Any, stride: int = 1) -> Any:
    """In JAX."""
    y = jax_convolution(x, w, stride)
    mean, variance = jnp.mean(y, (0, 1, 2)), jnp.var(y, (0, 1, 2))
    return (y - mean) * (gamma.ravel() * lax.rsqrt(variance + 1e-5)) + beta.ravel()


def torch_normalised(x: Any, w: Any, gamma: Any, beta: Any, stride: int = 1) -> Any:
    """In PyTorch."""
    from torch.nn import functional

    y = functional.conv2d(x, w, stride=stride, padding=w.shape[2] // 2)
    return functional.batch_norm(y, None, None, gamma.flatten(), beta.flatten(), training=True)


def nngrad_residual(weights: list[V], x: V) -> V:
    """The loss in nngrad."""
    return F.mean((F.mean(residual(Layers(nngrad_normalised, F.relu), weights, x), axis=(2, 3)) @ weights[-1]) ** 2)


def residual_peers(arrays: Arrays) -> dict[str, Way]:
    """Plain, and with each block checkpointed. PyTorch rectifies in place, as torchvision does."""

    def loss(of: Layers, size: tuple[int, int]) -> Model:
        return lambda weights, x: ((residual(of, weights, x).mean(size) @ weights[-1]) ** 2).mean()

    def in_jax(of: Layers) -> Way:
        return by_jax(channels_last(loss(of, (1, 2))), arrays)

    jax_layers, torch_layers = Layers(jax_normalised, jax.nn.relu), Layers(torch_normalised, lambda x: x.relu_())
    return {
        "jax.grad": in_jax(jax_layers), "jax.checkpoint": in_jax(jax_layers._replace(checkpoint=jax.checkpoint)),
        "PyTorch": by_torch(loss(torch_layers, (2, 3)), arrays),
        "PyTorch checkpoint": by_torch(loss(torch_layers._replace(checkpoint=torch_checkpoint), (2, 3)), arrays),
    }


# ---------------------------------------------------------------- LSTM


def of_recurrent(steps: int, width: int, batch: int) -> Arrays:
    """An LSTM's weight, for its input and its state side by side, and its bias."""
    rng = np.random.default_rng(0)
    weights = [normal(rng, 2 * width, 4 * width, scale=(2 * width) ** -0.5), normal(rng, 4 * width, scale=0.1)]
    return Arrays(normal(rng, steps, batch, width), weights)


def cell(joined: Model, sigmoid: Model, tanh: Model, state: Any, x: Any, w: Any, b: Any) -> Any:
    """A step of an LSTM; `joined` puts two arrays side by side."""
    h, c = state
    z = joined(x, h) @ w + b
    width = h.shape[1]
    gates = sigmoid(z[:, : 3 * width])
    i, f, o = (gates[:, k * width : (k + 1) * width] for k in range(3))  # with jnp.split XLA takes far longer
    c = f * c + i * tanh(z[:, 3 * width :])
    return o * tanh(c), c


nngrad_cell = partial(cell, lambda x, h: F.concatenate(x, h, axis=1), F.sigmoid, F.tanh)
jax_cell = partial(cell, lambda x, h: jnp.concatenate([x, h], axis=1), jax.nn.sigmoid, jnp.tanh)


def torch_cell(*given: Any) -> Any:
    """In PyTorch."""
    import torch

    return cell(lambda x, h: torch.cat([x, h], 1), torch.sigmoid, torch.tanh, *given)


def unrolled(cell: Model, state: Any, xs: Any, w: Any, b: Any) -> Any:
    """Steps one after the other."""
    for t in range(len(xs)):
        state = cell(state, xs[t], w, b)
    return state


def scanned(state: Any, xs: Any, w: Any, b: Any) -> Any:
    """Steps in a scan of JAX."""
    return lax.scan(lambda state, x: (jax_cell(state, x, w, b), None), state, xs)[0]


def scanned_in_segments(segment: int) -> Model:
    """A scan over checkpointed scans."""
    part = jax.checkpoint(scanned, prevent_cse=False)

    def steps(state: Any, xs: Any, w: Any, b: Any) -> Any:
        parts = xs.reshape(-1, segment, *xs.shape[1:])
        return lax.scan(lambda state, some: (part(state, some, w, b), None), state, parts)[0]

    return steps


def torch_in_segments(segment: int) -> Model:
    """Checkpointed segments, one after the other."""

    def steps(state: Any, xs: Any, w: Any, b: Any) -> Any:
        for some in xs.split(segment):
            state = torch_checkpoint(partial(unrolled, torch_cell))(state, some, w, b)
        return state

    return steps


def nngrad_recurrent(weights: list[V], x: V, in_scan: bool = False) -> V:
    """The loss of the LSTM, unrolled or in a scan."""
    zero = F.constant(0, shape=x.shape[1:])
    if in_scan:
        (h, _), _ = F.scan(lambda state, x: (nngrad_cell(state, x, *weights), None), (zero, zero), x)
    else:
        h, _ = unrolled(nngrad_cell, (zero, zero), x, *weights)
    return F.sum(h**2)


def recurrent(steps: Model, zeros: Model) -> Model:
    """The same in JAX or PyTorch."""

    def loss(weights: Any, x: Any) -> Any:
        zero = zeros(x[0])
        return (steps((zero, zero), x, *weights)[0] ** 2).sum()

    return loss


def torch_recurrent(weights: Any, x: Any) -> Any:
    """The same in PyTorch, unrolled."""
    import torch

    return recurrent(partial(unrolled, torch_cell), torch.zeros_like)(weights, x)


def recurrent_peers(arrays: Arrays, segment: int) -> dict[str, Way]:
    """In scans, plain and checkpointed; unrolled, 200 steps take XLA minutes to compile."""
    return {
        "jax.grad of a scan": by_jax(recurrent(scanned, jnp.zeros_like), arrays),
        "jax.scan": by_jax(recurrent(scanned_in_segments(segment), jnp.zeros_like), arrays),
        "PyTorch": by_torch(torch_recurrent, arrays),
        "PyTorch checkpoint": by_torch(recurrent(torch_in_segments(segment), lambda x: 0 * x), arrays),
    }


# ---------------------------------------------------------------- critic


def of_critic(depth: int, batch: int, size: int, channels: int) -> Arrays:
    """3x3 convolutions without biases."""
    rng = np.random.default_rng(0)
    maps = [3, *[channels] * depth]
    weights = [normal(rng, n, m, 3, 3, scale=(9 * m) ** -0.5) for m, n in pairwise(maps)]
    return Arrays(normal(rng, batch, 3, size, size), weights)


def nngrad_critic(policy: Any, weights: list[V], x: V) -> V:
    """The loss of a convolutional critic with a gradient penalty, the gradient inside by `policy`."""
    h = x
    for w in weights:
        h = F.leaky_relu(F.convolution(h, w, pad=(1, 1)), 0.2)
    (slope,) = nn.grad(F.sum(h), [x], recompute=policy)
    return F.mean((F.sum(slope**2, axis=(1, 2, 3)) ** 0.5 - 1) ** 2) + F.mean(h)


def jax_layers(h: Any, weights: Any) -> Any:
    """Convolutions with leaky relu."""
    for w in weights:
        h = jax.nn.leaky_relu(jax_convolution(h, w), 0.2)
    return h


def jax_critic(layers: Model, weights: Any, x: Any) -> Any:
    """The same loss in JAX."""

    def total(x: Any) -> Any:
        h = layers(x, weights)
        return jnp.sum(h), h.size

    (score, size), slope = jax.value_and_grad(total, has_aux=True)(x)
    return jnp.mean((jnp.sqrt(jnp.sum(slope**2, (1, 2, 3))) - 1) ** 2) + score / size


def torch_layers(h: Any, weights: Any) -> Any:
    """Convolutions with leaky relu, in PyTorch."""
    from torch.nn import functional

    for w in weights:
        h = functional.leaky_relu(functional.conv2d(h, w, padding=1), 0.2)
    return h


def torch_critic(layers: Model, weights: Any, x: Any) -> Any:
    """The same loss in PyTorch."""
    import torch

    x = x.detach().requires_grad_()
    h = layers(x, weights)
    (slope,) = torch.autograd.grad(h.sum(), x, create_graph=True)
    return (((slope**2).sum((1, 2, 3)).sqrt() - 1) ** 2).mean() + h.mean()


def critic_peers(arrays: Arrays, segment: int) -> dict[str, Way]:
    """Plain, and checkpointed one after the other: in PyTorch, segments of the forward pass."""
    in_jax, in_torch = [
        in_segments(layers, segment, checkpoint)
        for layers, checkpoint in ((jax_layers, jax.checkpoint), (torch_layers, torch_checkpoint))
    ]
    return {
        "jax.grad": by_jax(channels_last(partial(jax_critic, jax_layers)), arrays),
        "jax.checkpoint": by_jax(channels_last(partial(jax_critic, in_jax)), arrays),
        "PyTorch": by_torch(partial(torch_critic, torch_layers), arrays),
        "PyTorch checkpoint": by_torch(partial(torch_critic, in_torch), arrays),
    }


# ---------------------------------------------------------------- the cases


def compared(
    what: str, model: Model, arrays: Arrays, peers: Mapping[str, Way], policies: Mapping[str, Any], smoke: bool
) -> Case:
    """Gradients that recompute, each beside the plain one and the peers; and the plain one beside these.

    In the large sizes float32 leaves up to 1e-3 between any of them and the results in float64: rounding decides the
    side of the kink on which some inputs of a (leaky) relu fall, and grows over a thousand layers.
    """
    ours = {name: partial(loss_and_gradients, model, arrays, p) for name, p in dict(policies, plain=None).items()}
    pairs = [*product(policies, ["plain", *peers]), *product(["plain"], peers)]
    return Case(what, {**ours, **peers}, pairs, ("time", "temporaries"), tolerance=1e-3 if smoke else 1e-2)


def cases(smoke: bool) -> Iterable[Case]:
    """Dense layers, few and many; a residual network; an LSTM, unrolled and in a scan; and a critic."""
    rng, root = np.random.default_rng(0), {"sqrt": "sqrt"}
    both = {**root, "2 levels": nn.Segments(2)}
    for layers, width, batch, policies in ((16, 16, 64, root),) if smoke else (
        (64, 256, 4096, root), (1000, 32, 2048, both),
    ):  # fmt: skip
        given = Arrays(normal(rng, batch, width), dense_weights(rng, "f", *[width] * (layers + 1)))
        what, segment = f"{layers:,} layers of {width}, batch {batch}", 25 if layers == 1000 else round(layers**0.5)
        yield compared(what, nngrad_dense, given, dense_peers(given, segment), policies, smoke)
    batch, size, channels, stages = (2, 8, 4, 2) if smoke else (32, 32, 16, 4)
    given = of_residual(batch, size, channels, stages)
    what = f"ResNet-18-like, {channels} channels, batch {batch}"
    yield compared(what, nngrad_residual, given, residual_peers(given), root, smoke)
    steps, width, batch = (8, 8, 4) if smoke else (200, 128, 64)
    given = of_recurrent(steps, width, batch)
    peers = recurrent_peers(given, 4 if smoke else 10)
    yield compared(f"LSTM of {width}, {steps} steps, batch {batch}", nngrad_recurrent, given, peers, root, smoke)
    what = f"LSTM of {width}, scan of {steps} steps, batch {batch}"
    yield compared(what, partial(nngrad_recurrent, in_scan=True), given, peers, both, smoke)
    depth, batch, size, channels = (4, 2, 8, 4) if smoke else (16, 16, 32, 32)
    given = of_critic(depth, batch, size, channels)
    peers = critic_peers(given, 2 if smoke else 4)
    ways: dict[str, Way] = {
        name: partial(loss_and_gradients, partial(nngrad_critic, policy), given, policy)
        for name, policy in (("sqrt", "sqrt"), ("plain", None))
    }
    what = f"gradient penalty, conv critic of depth {depth}"
    pairs = [("sqrt", "plain"), *product(ways, peers)]
    yield Case(what, ways | peers, pairs, ("time", "temporaries"), tolerance=1e-3 if smoke else 1e-2)
