"""Timing of contenders in turn, so that what disturbs the machine disturbs all of them alike."""

from __future__ import annotations

import gc
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import nngrad as nn

Contender = Callable[[], Any]


class Row(NamedTuple):
    """One line of the table of results."""

    what: str
    ours: str
    peer: str
    ratio: float
    goal: float | None
    """The ratio that is wanted at most; None where the line is there for information."""


def medians(
    contenders: dict[str, Contender], rounds: int, calls: int,
    of_rounds: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Seconds per call of each contender: the median (or `of_rounds`) over `rounds` of the mean of `calls` calls.

    Each result is waited for at the end of its round. The order is reversed in every other round.
    """
    for contender in contenders.values():
        for _ in range(3):
            wait_for(contender())
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(rounds):
        names = list(contenders)[:: 1 if i % 2 == 0 else -1]
        for name in names:
            contender = contenders[name]
            start = time.perf_counter()
            for _ in range(calls):
                result = contender()
            wait_for(result)
            times[name].append((time.perf_counter() - start) / calls)
    return {name: of_rounds(values) for name, values in times.items()}


def forget() -> None:
    """Drop what has been traced, compiled and recorded, and what is known of shapes, as in a new process."""
    jax.clear_caches()
    nn.executables.clear()
    for op, _ in nn.registry.ops():
        op._specs.clear()
    gc.collect()


def agreeing(contenders: dict[str, Contender], tolerance: float) -> None:
    """Call each contender once, and raise if the results are not the same within a relative `tolerance`."""
    (name, first), *others = [(name, as_numpy(contender())) for name, contender in contenders.items()]
    for other, result in others:
        difference = np.max(np.abs(result.reshape(first.shape) - first)) / np.max(np.abs(first))
        if not difference <= tolerance:
            raise ValueError(f"the results of {name} and {other} differ by {difference:.1e}, relative to the largest")


def wait_for(result: Any) -> None:
    """Wait for what JAX or PyTorch still computes."""
    jax.block_until_ready(result)
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_default_device().type != "cpu":
        torch.cuda.synchronize()


def as_numpy(array: Any) -> np.ndarray:
    """In float64, from whichever device: NumPy itself does not read what PyTorch has on a GPU."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array, np.float64)


def torch_beside_jax() -> bool:
    """Whether PyTorch is there; it then computes on the GPU where JAX does, in the same precision of products.

    JAX's products of float32 are exact on a CPU; on a GPU they are in TF32, unless `jax_default_matmul_precision` asks
    for more.
    """
    if importlib.util.find_spec("torch") is None:
        return False
    if jax.default_backend() == "gpu":
        import torch

        torch.set_default_device("cuda")
        exact = jax.config.jax_default_matmul_precision in ("highest", "float32")
        torch.set_float32_matmul_precision("highest" if exact else "high")
        torch.backends.cudnn.allow_tf32 = not exact
    return True


def shown(seconds: float) -> str:
    """A time for the table."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def row(what: str, times: dict[str, float], ours: str, peer: str, goal: float | None = None) -> Row:
    """The line that compares two contenders."""
    return Row(what, f"{ours}: {shown(times[ours])}", f"{peer}: {shown(times[peer])}", times[ours] / times[peer], goal)
