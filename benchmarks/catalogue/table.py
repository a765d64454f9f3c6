"""The table of the catalogue: each case forward, and as a sum of weighted results with its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from ..timing import Contender, Row, as_numpy, medians, row
from .attention import multi_head_attention
from .case import Case
from .images import interpolate, roi_align, warp_by_grid
from .windows import average_pooling, deformable_convolution, fft, max_pooling, stft

CASES: tuple[Callable[[bool], Case], ...] = (
    interpolate, warp_by_grid, roi_align, multi_head_attention, deformable_convolution, max_pooling, average_pooling,
    fft, stft,
)  # fmt: skip
"""Each makes a case; True asks for a tiny size."""


def nngrad_ways(case: Case, weights: np.ndarray) -> tuple[Contender, Contender]:
    """Forward, and sum with gradients, in nngrad."""
    leaves = [nn.Variable.from_numpy_array(a, need_grad=True) for a in case.arrays]
    y = case.in_nngrad(*leaves)
    loss = F.sum(y * nn.Variable.from_numpy_array(weights))
    gradients = nn.grad(loss, [leaves[i] for i in case.differentiated])
    forward, both = nn.compile(y, leaves), nn.compile([loss, *gradients], leaves)
    given = [jnp.asarray(a) for a in case.arrays]
    return lambda: forward(*given), lambda: both(*given)


def jax_ways(case: Case, function: Callable[..., Any], weights: np.ndarray) -> tuple[Contender, Contender]:
    """The same in JAX, jitted."""
    given, scale = [jnp.asarray(a) for a in case.arrays], jnp.asarray(weights)
    forward = jax.jit(function)
    both = jax.jit(jax.value_and_grad(lambda *xs: jnp.sum(function(*xs) * scale), case.differentiated))

    def sum_and_gradients() -> Any:
        loss, gradients = both(*given)
        return [loss, *gradients]

    return lambda: forward(*given), sum_and_gradients


def torch_ways(case: Case, weights: np.ndarray) -> tuple[Contender, Contender]:
    """The same in PyTorch, eagerly."""
    import torch

    assert case.in_torch is not None
    given = [torch.tensor(a) for a in case.arrays]
    leaves = [each.clone().requires_grad_() if i in case.differentiated else each for i, each in enumerate(given)]
    scale = torch.tensor(weights)

    def forward() -> Any:
        return case.in_torch(*given)  # type: ignore[misc]

    def both() -> Any:
        loss = (case.in_torch(*leaves) * scale).sum()  # type: ignore[misc]
        return [each.detach() for each in (loss, *torch.autograd.grad(loss, [leaves[i] for i in case.differentiated]))]

    return forward, both


def check(title: str, contenders: dict[str, Contender], tolerance: float) -> None:
    """Raise if a contender computes something else than nngrad."""
    results = {who: [as_numpy(a) for a in _listed(run())] for who, run in contenders.items()}
    for who, found in results.items():
        for ours, theirs in zip(results["nngrad"], found, strict=True):
            difference = np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs))
            if not difference <= tolerance:
                raise ValueError(f"{title}: the results of nngrad and {who} differ by {difference:.1e}")


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]


def case_rows(case: Case, smoke: bool, torch: bool) -> list[Row]:
    """The lines of a case."""
    leaves = [nn.Variable.from_numpy_array(a) for a in case.arrays]
    weights = np.random.default_rng(1).standard_normal(case.in_nngrad(*leaves).shape).astype("f")
    ways = {"nngrad": nngrad_ways(case, weights)}
    ways |= {name: jax_ways(case, function, weights) for name, function in case.in_jax.items()}
    if torch and case.in_torch is not None:
        ways["PyTorch"] = torch_ways(case, weights)
    rows = []
    for i, task in enumerate(("forward", "with gradients")):
        contenders = {who: pair[i] for who, pair in ways.items()}
        check(f"{case.title}, {task}", contenders, case.tolerance)
        times = medians(contenders, 2 if smoke else 21, 1 if smoke else 3)
        rows += [row(f"{case.title}: {task}", times, "nngrad", who, case.goal) for who in contenders if who != "nngrad"]
    return rows


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    return [line for make in CASES for line in case_rows(make(smoke), smoke, torch)]
