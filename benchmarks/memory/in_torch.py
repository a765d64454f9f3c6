"""The models in eager PyTorch: plain, and with its checkpoint by segments. It is imported only when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arrays import Arrays, residual_blocks
from .steps import Step

Model = Callable[..., Any]


def step_of(model: Model, arrays: Arrays) -> Step:
    """Loss and gradients of `model(weights, x)`."""
    import torch

    x, weights = torch.tensor(arrays.x), [torch.tensor(w, requires_grad=True) for w in arrays.weights]

    def run() -> list[Any]:
        loss = model(weights, x)
        return [loss.detach(), *torch.autograd.grad(loss, weights)]

    return Step(run, peak(run))


def peak(run: Callable[[], Any]) -> int:
    """The highest sum of allocations in a call of `run`, by PyTorch's account, less what the results take."""
    import torch

    run()
    if torch.get_default_device().type != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        results = run()
        return int(torch.cuda.max_memory_allocated()) - before - sum(a.nbytes for a in results)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        results = run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest - sum(a.nbytes for a in results)


def checkpointed(part: Model) -> Model:
    """`part` with its inside computed again by the backward pass."""
    from torch.utils.checkpoint import checkpoint

    def again(*args: Any) -> Any:
        return checkpoint(part, *args, use_reentrant=False, preserve_rng_state=False)

    return again


def in_segments(part: Model, segment: int) -> Model:
    """`part(h, *weights)` on `segment` weights at a time, each checkpointed."""

    def whole(h: Any, *weights: Any) -> Any:
        for i in range(0, len(weights), segment):
            h = checkpointed(part)(h, *weights[i : i + segment])
        return h

    return whole


# ---------------------------------------------------------------- dense layers


def dense_layers(h: Any, *weights: Any) -> Any:
    """Dense layers with tanh."""
    for w in weights:
        h = (h @ w).tanh()
    return h


def dense_peers(arrays: Arrays, segment: int) -> dict[str, Step]:
    """Plain and checkpointed."""

    def loss(layers: Model) -> Model:
        return lambda weights, x: (layers(x, *weights) ** 2).sum()

    return {
        "PyTorch": step_of(loss(dense_layers), arrays),
        "PyTorch checkpoint": step_of(loss(in_segments(dense_layers, segment)), arrays),
    }


# ---------------------------------------------------------------- residual network


def normalised(x: Any, w: Any, gamma: Any, beta: Any, stride: int = 1) -> Any:
    """A convolution and batch normalization."""
    from torch.nn import functional

    y = functional.conv2d(x, w, stride=stride, padding=w.shape[2] // 2)
    return functional.batch_norm(y, None, None, gamma.flatten(), beta.flatten(), training=True)


def residual_block(x: Any, *weights: Any) -> Any:
    """A residual block of ResNet-18, with what torchvision's does in place."""
    stride = 2 if len(weights) == 9 else 1
    y = normalised(normalised(x, *weights[:3], stride=stride).relu_(), *weights[3:6])
    y += x if stride == 1 else normalised(x, *weights[6:], stride=stride)
    return y.relu_()


def residual_peers(arrays: Arrays) -> dict[str, Step]:
    """Plain, and with each block checkpointed."""

    def loss(block: Model) -> Model:
        def of(weights: Any, x: Any) -> Any:
            x = normalised(x, *weights[:3]).relu_()
            for part in residual_blocks(weights):
                x = block(x, *part)
            return ((x.mean((2, 3)) @ weights[-1]) ** 2).mean()

        return of

    return {
        "PyTorch": step_of(loss(residual_block), arrays),
        "PyTorch checkpoint": step_of(loss(checkpointed(residual_block)), arrays),
    }


# ---------------------------------------------------------------- LSTM


def steps(h: Any, c: Any, xs: Any, w: Any, b: Any) -> Any:
    """Steps of an LSTM."""
    import torch

    width = h.shape[1]
    for x in xs:
        z = torch.addmm(b, torch.cat([x, h], 1), w)
        i, f, o = z[:, : 3 * width].sigmoid().chunk(3, 1)
        c = f * c + i * z[:, 3 * width :].tanh()
        h = o * c.tanh()
    return h, c


def recurrent_peers(arrays: Arrays, segment: int) -> dict[str, Step]:
    """Plain, and with segments checkpointed."""

    def loss(part: Model, length: int) -> Model:
        def of(weights: Any, x: Any) -> Any:
            h = c = x.new_zeros(x.shape[1:])
            for xs in x.split(length):
                h, c = part(h, c, xs, *weights)
            return (h**2).sum()

        return of

    return {
        "PyTorch": step_of(loss(steps, len(arrays.x)), arrays),
        "PyTorch checkpoint": step_of(loss(checkpointed(steps), segment), arrays),
    }


# ---------------------------------------------------------------- critic


def critic_layers(h: Any, *weights: Any) -> Any:
    """Convolutions with leaky relu."""
    from torch.nn import functional

    for w in weights:
        h = functional.leaky_relu(functional.conv2d(h, w, padding=1), 0.2)
    return h


def critic_slope(layers: Model) -> Model:
    """What the critic thinks, and its gradient for the input, by the autograd that differentiates twice."""
    import torch

    def both(x: Any, weights: Any) -> Any:
        x = x.detach().requires_grad_()
        h = layers(x, *weights)
        return h, torch.autograd.grad(h.sum(), x, create_graph=True)[0]

    return both


def segment_slope(g: Any, h: Any, *weights: Any) -> Any:
    """The gradient that leaves a segment of the critic at its input `h`, where `g` comes in at its output."""
    import torch

    with torch.enable_grad():
        return torch.autograd.grad(critic_layers(h, *weights), h, g, create_graph=True)[0]


def critic_slope_in_segments(segment: int) -> Model:
    """The same as `critic_slope`, with the segments of both passes checkpointed: what the first gradient keeps too."""
    import torch

    def both(x: Any, weights: Any) -> Any:
        parts = [weights[i : i + segment] for i in range(0, len(weights), segment)]
        hs = [x.detach().requires_grad_()]
        for part in parts:
            hs.append(checkpointed(critic_layers)(hs[-1], *part))
        g = torch.ones_like(hs[-1])
        for part, h in zip(parts[::-1], hs[-2::-1], strict=True):
            g = checkpointed(segment_slope)(g, h, *part)
        return hs[-1], g

    return both


def critic_peers(arrays: Arrays, segment: int) -> dict[str, Step]:
    """Plain, with segments of the forward pass checkpointed, and with those of both passes."""

    def loss(both: Model) -> Model:
        def of(weights: Any, x: Any) -> Any:
            h, slope = both(x, weights)
            norm = (slope**2).sum((1, 2, 3)).sqrt()
            return ((norm - 1) ** 2).mean() + h.mean()

        return of

    return {
        "PyTorch": step_of(loss(critic_slope(critic_layers)), arrays),
        "PyTorch checkpoint": step_of(loss(critic_slope(in_segments(critic_layers, segment))), arrays),
        "PyTorch checkpoint of both passes": step_of(loss(critic_slope_in_segments(segment)), arrays),
    }
