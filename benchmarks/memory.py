"""Memory: gradients that recompute instead of keeping, against the plain ones and the peers' ways.

Temporaries are what the compiler allots beside arguments and results (`memory_analysis().temp_size_in_bytes`); of
PyTorch, the highest sum of what its allocator has handed out and not taken back since the step began, less the
gradients that stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.lower import linearize, lower
from nngrad.graph.leaf import arrays_of

from .timing import Contender, Row, medians, row

Graph = tuple[nn.Variable, list[nn.Variable]]


class Compiled(NamedTuple):
    """A step that is compiled, with what is known of its memory."""

    run: Contender
    temporaries: int
    predicted: int | None = None
    products: int = 0
    """Matrix products in the compiled program."""


# ---------------------------------------------------------------- models


def leaf(rng: np.random.Generator, *shape: int, scale: float | None = None) -> nn.Variable:
    """A weight of normal numbers."""
    fan = int(np.prod(shape[1:])) if scale is None else 1
    values = rng.normal(0, scale or fan**-0.5, shape)
    return nn.Variable.from_numpy_array(values.astype("f"), need_grad=True)


def dense(layers: int, width: int, batch: int) -> Graph:
    """Dense layers with tanh."""
    rng = np.random.default_rng(0)
    h = leaf(rng, batch, width, scale=1.0)
    weights = [leaf(rng, width, width) for _ in range(layers)]
    for w in weights:
        h = F.tanh(F.affine(h, w))
    return F.sum(h**2), weights


def residual(batch: int, size: int, channels: int) -> Graph:
    """Four stages of two residual blocks of two normalised convolutions each, as in ResNet-18."""
    rng = np.random.default_rng(0)
    weights: list[nn.Variable] = []

    def normalised(h: nn.Variable, out: int, kernel: int, stride: int) -> nn.Variable:
        w, gamma = leaf(rng, out, h.shape[1], kernel, kernel), leaf(rng, 1, out, 1, 1, scale=1.0)
        beta = leaf(rng, 1, out, 1, 1, scale=0.1)
        weights.extend([w, gamma, beta])
        h = F.convolution(h, w, pad=(kernel // 2,) * 2, stride=(stride, stride))
        return F.batch_normalization(h, beta, gamma)

    h = F.relu(normalised(leaf(rng, batch, 3, size, size, scale=1.0), channels, 3, 1))
    for stage in range(4):
        for block in range(2):
            out, stride = channels * 2**stage, 2 if stage and not block else 1
            y = normalised(F.relu(normalised(h, out, 3, stride)), out, 3, 1)
            h = F.relu(y + (h if stride == 1 else normalised(h, out, 1, stride)))
    weights.append(leaf(rng, h.shape[1], 10))
    return F.mean(F.affine(F.mean(h, axis=(2, 3)), weights[-1]) ** 2), weights


def recurrent(steps: int, width: int, batch: int) -> Graph:
    """An LSTM, unrolled."""
    rng = np.random.default_rng(0)
    w, b = leaf(rng, 2 * width, 4 * width, scale=(2 * width) ** -0.5), leaf(rng, 4 * width, scale=0.1)
    x = leaf(rng, steps, batch, width, scale=1.0)
    h = c = F.constant(0, shape=(batch, width))
    for t in range(steps):
        z = F.affine(F.concatenate(x[t], h, axis=1), w, b)
        gates, new = F.sigmoid(z[:, : 3 * width]), F.tanh(z[:, 3 * width :])
        i, f, o = (gates[:, k * width : (k + 1) * width] for k in range(3))
        c = f * c + i * new
        h = o * F.tanh(c)
    return F.sum(h**2), [w, b]


def critic(policy: Any, depth: int, batch: int, size: int, channels: int) -> Graph:
    """The loss of a convolutional critic with a gradient penalty."""
    rng = np.random.default_rng(0)
    x = h = leaf(rng, batch, 3, size, size, scale=1.0)
    weights = [leaf(rng, channels, channels if i else 3, 3, 3) for i in range(depth)]
    for w in weights:
        h = F.leaky_relu(F.convolution(h, w, pad=(1, 1)), 0.2)
    (slope,) = nn.grad(F.sum(h), [x], recompute=policy)
    norm = F.sum(slope**2, axis=(1, 2, 3)) ** 0.5
    return F.mean((norm - 1) ** 2) + F.mean(h), weights


# ---------------------------------------------------------------- compiled steps


def step_of(graph: Graph, policy: Any = None) -> Compiled:
    """Loss and gradients by nngrad."""
    loss, weights = graph
    outputs = [loss, *nn.grad(loss, weights, recompute=policy)]
    linear = linearize(outputs)
    arrays = [jnp.asarray(a) for a in arrays_of(linear.leaves)]
    executable = jax.jit(lower(linear.program)).lower(*arrays).compile()
    predicted = nn.memory_report(outputs, compile=False).peak
    products = executable.as_text().count(" dot(")
    return Compiled(lambda: executable(*arrays), temporaries_of(executable), predicted, products)


def temporaries_of(executable: Any) -> int:
    """Bytes that the compiler allots."""
    return int(executable.memory_analysis().temp_size_in_bytes)


def jax_dense(layers: int, width: int, batch: int, segment: int, way: str) -> Compiled:
    """The dense layers in JAX with `jax.checkpoint` by segments: one after the other, or in a scan."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(batch, width)).astype("f"))
    weights = jnp.asarray(rng.normal(0, width**-0.5, (layers // segment, segment, width, width)).astype("f"))

    def some(h: Any, ws: Any) -> Any:
        for w in ws:
            h = jnp.tanh(h @ w)
        return h

    def loss(ws: Any) -> Any:
        part = jax.checkpoint(some)
        h = x
        if way == "scan":
            h, _ = jax.lax.scan(lambda h, w: (part(h, w), None), h, ws)
        else:
            for w in ws:
                h = part(h, w)
        return jnp.sum(h**2)

    if way == "scan":
        executable = jax.jit(jax.value_and_grad(loss)).lower(weights).compile()
        return Compiled(lambda: executable(weights), temporaries_of(executable))
    listed = [list(part) for part in weights]
    executable = jax.jit(jax.value_and_grad(loss)).lower(listed).compile()
    return Compiled(lambda: executable(listed), temporaries_of(executable))


def torch_dense(layers: int, width: int, batch: int, segment: int) -> Compiled:
    """The dense layers in eager PyTorch; by segments with its checkpoint where `segment` is not 0."""
    import torch
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(batch, width)
    weights = [(torch.randn(width, width) * width**-0.5).requires_grad_() for _ in range(layers)]

    def some(h: Any, *ws: Any) -> Any:
        for w in ws:
            h = torch.tanh(h @ w)
        return h

    def run() -> Any:
        h = x
        if segment:
            for i in range(0, layers, segment):
                h = checkpoint(some, h, *weights[i : i + segment], use_reentrant=False)
        else:
            h = some(h, *weights)
        return torch.autograd.grad((h**2).sum(), weights)

    return Compiled(lambda: bool(run()), torch_peak(run))


def torch_peak(run: Callable[[], Any]) -> int:
    """The highest sum of allocations in a call of `run`, by PyTorch's profiler, less what the results take."""
    import torch

    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        results = run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak - sum(g.nbytes for g in results)


# ---------------------------------------------------------------- the table


def megabytes(nbytes: float) -> str:
    """Bytes for the table."""
    return f"{nbytes / 1e6:.1f} MB"


def memory_row(what: str, ours: str, mine: int, peer: str, theirs: int, goal: float | None = None) -> Row:
    """The line that compares temporaries."""
    name = f"{what}: temporaries"
    return Row(name, f"{ours}: {megabytes(mine)}", f"{peer}: {megabytes(theirs)}", mine / theirs, goal)


def prediction_row(what: str, step: Compiled) -> Row:
    """The line that compares the prediction with the compiler's account; the ratio is that of the larger one."""
    assert step.predicted is not None
    ratio = max(step.predicted, step.temporaries) / max(1, min(step.predicted, step.temporaries))
    predicted, allotted = megabytes(step.predicted), megabytes(step.temporaries)
    return Row(f"{what}: prediction", f"predicted {predicted}", f"compiled {allotted}", ratio, 1.1)


def comparison(
    what: str, plain: Compiled, again: Compiled, policy: str, memory: float | None, time: float | None, rounds: int
) -> list[Row]:
    """Memory and time beside the plain gradient, with the goals for both, and the predictions of both."""
    times = medians({policy: again.run, "plain": plain.run}, rounds, 1)
    return [
        memory_row(what, policy, again.temporaries, "plain", plain.temporaries, memory),
        row(f"{what}: time", times, policy, "plain", time),
        prediction_row(f"{what}, plain", plain),
        prediction_row(f"{what}, {policy}", again),
    ]


def peer_rows(what: str, policy: str, step: Compiled, peers: dict[str, Compiled], rounds: int) -> list[Row]:
    """Memory and time beside the peers'. No more memory is wanted than the best of those that recompute takes."""
    goals = {name: 1.0 if "checkpoint" in name or "scan" in name else None for name in peers}
    rows = [memory_row(what, policy, step.temporaries, n, p.temporaries, goals[n]) for n, p in peers.items()]
    times = medians({policy: step.run, **{name: peer.run for name, peer in peers.items()}}, rounds, 1)
    return rows + [row(f"{what}: time", times, policy, name) for name in peers]


def wide_rows(smoke: bool, torch: bool) -> list[Row]:
    """64 layers of 256 with a batch of 4096, beside the peers."""
    layers, width, batch, rounds = (16, 16, 64, 2) if smoke else (64, 256, 4096, 7)
    segment = round(layers**0.5)
    sizes = (layers, width, batch)
    what = f"{layers} layers of {width}, batch {batch}"
    plain, again = step_of(dense(*sizes)), step_of(dense(*sizes), "sqrt")
    rows = comparison(what, plain, again, "sqrt", 0.25, 1.15, rounds)
    peers = {f"jax.{way}": jax_dense(*sizes, segment, way) for way in ("checkpoint", "scan")}
    if torch:
        peers |= {"PyTorch": torch_dense(*sizes, 0), "PyTorch checkpoint": torch_dense(*sizes, segment)}
    return rows + peer_rows(what, "sqrt", again, peers, max(2, rounds // 2))


def deep_rows(smoke: bool, torch: bool) -> list[Row]:
    """1,000 layers: the square root, and a recursive schedule of two levels."""
    layers, width, batch, rounds = (100, 4, 64, 2) if smoke else (1000, 32, 2048, 5)
    segment = 10 if smoke else 25
    sizes = (layers, width, batch)
    what = f"{layers:,} layers of {width}, batch {batch}"
    plain = step_of(dense(*sizes))
    peers = {"jax.scan": jax_dense(*sizes, segment, "scan")}
    if torch:
        peers |= {"PyTorch": torch_dense(*sizes, 0), "PyTorch checkpoint": torch_dense(*sizes, segment)}
    theory = int(2 * layers**0.5 * width * batch * 4)
    rows = []
    for policy, name, memory, extra in (("sqrt", "sqrt", None, 1), (nn.Segments(2), "2 levels", 0.1, 2)):
        step = step_of(dense(*sizes), policy)
        if name == "sqrt":
            rows.append(memory_row(what, name, step.temporaries, "2 sqrt(N) activations", theory, 1.2))
        # A forward pass is a third of a step.
        rows += comparison(what, plain, step, name, memory, round(1 + extra / 3, 2), rounds)
        again = (step.products - plain.products) / layers
        rows.append(Row(f"{what}: extra forwards", f"{name}: {again:.2f}", f"at most {extra}", again / extra, 1.0))
        rows += peer_rows(what, name, step, peers, rounds)
    loss, weights = dense(*sizes)
    for levels in (4, 9):
        report = nn.memory_report([loss, *nn.grad(loss, weights, recompute=nn.Segments(levels))], compile=False)
        rows.append(memory_row(what, f"{levels} levels (predicted)", report.peak, "plain", plain.temporaries))
    return rows


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rounds = 2 if smoke else 7
    rows = wide_rows(smoke, torch) + deep_rows(smoke, torch)

    sizes = (2, 16, 4) if smoke else (32, 32, 16)
    what = f"ResNet-18-like, {sizes[2]} channels, batch {sizes[0]}"
    rows += comparison(what, step_of(residual(*sizes)), step_of(residual(*sizes), "sqrt"), "sqrt", 0.5, 1.3, rounds)

    sizes = (8, 8, 4) if smoke else (200, 128, 64)
    what = f"LSTM of {sizes[1]}, {sizes[0]} steps, batch {sizes[2]}"
    rows += comparison(what, step_of(recurrent(*sizes)), step_of(recurrent(*sizes), "sqrt"), "sqrt", 0.5, 1.3, rounds)

    depth, *shape = (4, 2, 8, 4) if smoke else (16, 16, 32, 32)
    what = f"gradient penalty, conv critic of depth {depth}"
    plain, again = step_of(critic(None, depth, *shape)), step_of(critic("sqrt", depth, *shape))
    return rows + comparison(what, plain, again, "sqrt", 0.5, None, rounds)
