"""The table of memory: what recomputing saves, and what it costs, beside the plain gradient and the peers.

Temporaries are what the compiler allots beside arguments and results (`memory_analysis().temp_size_in_bytes`); of
PyTorch, the highest sum of what its allocator has handed out and not taken back since the step began, less the
loss and the gradients, which stay.
"""

from __future__ import annotations

from collections.abc import Collection

import nngrad as nn

from ..timing import Row, medians, row
from . import arrays, in_jax, in_nngrad, in_torch
from .steps import Step, same_results

CHECKPOINTED = {"jax.checkpoint", "jax.scan", "PyTorch checkpoint"}
"""Peers that recompute."""

def tolerance(smoke: bool) -> float:
    """How far the results of two steps may lie apart, relative to their norm.

    In the large sizes float32 leaves up to 1e-3 between any of them and the results in float64: rounding decides the
    side of the kink on which some inputs of a (leaky) relu fall, and grows over a thousand layers.
    """
    return 1e-4 if smoke else 5e-3


def megabytes(nbytes: float) -> str:
    """Bytes for the table."""
    return f"{nbytes / 1e6:.1f} MB"


def memory_row(what: str, ours: str, mine: int, peer: str, theirs: int, goal: float | None = None) -> Row:
    """The line that compares temporaries."""
    name = f"{what}: temporaries"
    return Row(name, f"{ours}: {megabytes(mine)}", f"{peer}: {megabytes(theirs)}", mine / theirs, goal)


def prediction_row(what: str, step: Step) -> Row:
    """The line that compares the prediction with the compiler's account; the ratio is that of the larger one."""
    assert step.predicted is not None
    ratio = max(step.predicted, step.temporaries) / max(1, min(step.predicted, step.temporaries))
    predicted, allotted = megabytes(step.predicted), megabytes(step.temporaries)
    return Row(f"{what}: prediction", f"predicted {predicted}", f"compiled {allotted}", ratio, None)


def comparison(
    what: str, plain: Step, again: Step, policy: str, memory: float | None, time: float | None, rounds: int
) -> list[Row]:
    """Memory and time beside the plain gradient, with the goals for both, and the predictions of both."""
    times = medians({policy: again.run, "plain": plain.run}, rounds, 1)
    return [
        memory_row(what, policy, again.temporaries, "plain", plain.temporaries, memory),
        row(f"{what}: time", times, policy, "plain", time),
        prediction_row(f"{what}, plain", plain),
        prediction_row(f"{what}, {policy}", again),
    ]


def peer_rows(
    what: str, policy: str, step: Step, peers: dict[str, Step], rounds: int, goals: Collection[str] = ()
) -> list[Row]:
    """Memory and time beside the peers'; no more memory is wanted than those in `goals` take."""
    rows = [
        memory_row(what, policy, step.temporaries, name, peer.temporaries, 1.0 if name in goals else None)
        for name, peer in peers.items()
    ]
    times = medians({policy: step.run, **{name: peer.run for name, peer in peers.items()}}, rounds, 1)
    return rows + [row(f"{what}: time", times, policy, name) for name in peers]


def wide_rows(smoke: bool, torch: bool) -> list[Row]:
    """64 layers of 256 with a batch of 4096."""
    layers, width, batch, rounds = (16, 16, 64, 2) if smoke else (64, 256, 4096, 7)
    segment = round(layers**0.5)
    what = f"{layers} layers of {width}, batch {batch}"
    a = arrays.of_dense(layers, width, batch)
    plain, again = (in_nngrad.step_of(in_nngrad.dense, a, policy) for policy in (None, "sqrt"))
    rows = comparison(what, plain, again, "sqrt", 0.25, 1.15, rounds)
    peers = in_jax.dense_peers(a, segment) | (in_torch.dense_peers(a, segment) if torch else {})
    same_results(plain, {"sqrt": again, **peers}, tolerance(smoke))
    return rows + peer_rows(what, "sqrt", again, peers, max(2, rounds // 2), CHECKPOINTED)


def deep_rows(smoke: bool, torch: bool) -> list[Row]:
    """1,000 layers: the square root, and a recursive schedule of two levels."""
    layers, width, batch, rounds = (100, 4, 64, 2) if smoke else (1000, 32, 2048, 5)
    segment = 10 if smoke else 25
    what = f"{layers:,} layers of {width}, batch {batch}"
    a = arrays.of_dense(layers, width, batch)
    plain = in_nngrad.step_of(in_nngrad.dense, a)
    peers = in_jax.dense_peers(a, segment) | (in_torch.dense_peers(a, segment) if torch else {})
    same_results(plain, peers, tolerance(smoke))
    theory = int(2 * layers**0.5 * width * batch * 4)
    rows = []
    for policy, name, memory, extra in (("sqrt", "sqrt", None, 1), (nn.Segments(2), "2 levels", 0.1, 2)):
        step = in_nngrad.step_of(in_nngrad.dense, a, policy)
        same_results(plain, {name: step}, tolerance(smoke))
        if name == "sqrt":
            rows.append(memory_row(what, name, step.temporaries, "2 sqrt(N) activations", theory, 1.2))
        # A forward pass is a third of a step.
        rows += comparison(what, plain, step, name, memory, round(1 + extra / 3, 2), rounds)
        again = (step.products - plain.products) / layers
        rows.append(Row(f"{what}: extra forwards", f"{name}: {again:.2f}", f"at most {extra}", again / extra, 1.0))
        rows += peer_rows(what, name, step, peers, rounds, CHECKPOINTED - {"jax.checkpoint"})
    for levels in (4, 9):
        outputs = in_nngrad.outputs_of(in_nngrad.dense, a, nn.Segments(levels))
        predicted = nn.memory_report(outputs, compile=False).peak
        rows.append(memory_row(what, f"{levels} levels (predicted)", predicted, "plain", plain.temporaries))
    return rows


def residual_rows(smoke: bool, torch: bool) -> list[Row]:
    """A residual network."""
    batch, size, channels, rounds = (2, 16, 4, 2) if smoke else (32, 32, 16, 7)
    what = f"ResNet-18-like, {channels} channels, batch {batch}"
    a = arrays.of_residual(batch, size, channels)
    plain, again = (in_nngrad.step_of(in_nngrad.residual, a, policy) for policy in (None, "sqrt"))
    peers = in_jax.residual_peers(a) | (in_torch.residual_peers(a) if torch else {})
    same_results(plain, {"sqrt": again, **peers}, tolerance(smoke))
    rows = comparison(what, plain, again, "sqrt", 0.5, 1.3, rounds)
    return rows + peer_rows(what, "sqrt", again, peers, rounds)


def recurrent_rows(smoke: bool, torch: bool) -> list[Row]:
    """An LSTM."""
    steps, width, batch, rounds = (8, 8, 4, 2) if smoke else (200, 128, 64, 7)
    segment = 4 if smoke else 10
    what = f"LSTM of {width}, {steps} steps, batch {batch}"
    a = arrays.of_recurrent(steps, width, batch)
    plain, again = (in_nngrad.step_of(in_nngrad.recurrent, a, policy) for policy in (None, "sqrt"))
    peers = in_jax.recurrent_peers(a, segment, smoke) | (in_torch.recurrent_peers(a, segment) if torch else {})
    same_results(plain, {"sqrt": again, **peers}, tolerance(smoke))
    rows = comparison(what, plain, again, "sqrt", 0.5, 1.3, rounds)
    return rows + peer_rows(what, "sqrt", again, peers, rounds)


def scanned_rows(smoke: bool, torch: bool) -> list[Row]:
    """The LSTM as a scan."""
    steps, width, batch, rounds = (8, 8, 4, 2) if smoke else (200, 128, 64, 7)
    segment = 4 if smoke else 10
    what = f"LSTM of {width}, scan of {steps} steps, batch {batch}"
    a = arrays.of_recurrent(steps, width, batch)
    peers = in_jax.recurrent_peers(a, segment, False) | (in_torch.recurrent_peers(a, segment) if torch else {})
    plain = in_nngrad.step_of(in_nngrad.scanned, a)
    rows = []
    for policy, name in (("sqrt", "sqrt"), (nn.Segments(2), "2 levels")):
        step = in_nngrad.step_of(in_nngrad.scanned, a, policy)
        same_results(plain, {name: step, **peers}, tolerance(smoke))
        rows += comparison(what, plain, step, name, None, 1.15, rounds)
        best = min(peers, key=lambda peer: peers[peer].temporaries)
        rows.append(memory_row(what, name, step.temporaries, f"best peer ({best})", peers[best].temporaries, 0.8))
        rows += peer_rows(what, name, step, peers, rounds)
    return rows


def critic_rows(smoke: bool, torch: bool) -> list[Row]:
    """A gradient penalty: two derivatives, one of the other."""
    depth, batch, size, channels, rounds = (4, 2, 8, 4, 2) if smoke else (16, 16, 32, 32, 7)
    segment, scanned = (2, 3) if smoke else (4, 5)
    what = f"gradient penalty, conv critic of depth {depth}"
    a = arrays.of_critic(depth, batch, size, channels)
    plain, again = (in_nngrad.step_of(in_nngrad.critic(policy), a, policy) for policy in (None, "sqrt"))
    peers = in_jax.critic_peers(a, segment, scanned) | (in_torch.critic_peers(a, segment) if torch else {})
    same_results(plain, {"sqrt": again, **peers}, tolerance(smoke))
    rows = comparison(what, plain, again, "sqrt", 0.5, None, rounds)
    return rows + peer_rows(what, "sqrt", again, peers, max(2, rounds // 2))


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    parts = (wide_rows, deep_rows, residual_rows, recurrent_rows, scanned_rows, critic_rows)
    return [line for part in parts for line in part(smoke, torch)]
