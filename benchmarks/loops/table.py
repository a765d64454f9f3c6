"""The table of loops: each contender builds, compiles and runs anew, and then runs in turn with the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn

from ..memory.steps import temporaries_of
from ..timing import Contender, Row, forget, medians, row, wait_for
from .cases import CASES, Arrays, Case

FIRST, STEP, HIGH = 1.2, 1.0, 0.5
"""What is wanted of JAX's first result and of its step, and of nested gradients at order 4 and above."""
TOLERANCE = 2e-3
"""How far norms of results may lie apart, relative to the largest: float32."""


class Made(NamedTuple):
    """A contender that is ready."""

    run: Contender
    first: float
    """Seconds from nothing to its first result."""
    temporaries: int
    """Bytes that the compiler allots beside arguments and results; 0 where there is no compiler."""


def nngrad_function(case: Case) -> Callable[[Arrays], Callable[..., Any]]:
    """A maker of the case's function of arrays, in nngrad."""

    def make(arrays: Arrays) -> Callable[..., Any]:
        leaves = [nn.Variable.from_numpy_array(a, need_grad=True) for a in arrays]
        return nn.to_jax(case.in_nngrad(*leaves), leaves)

    return make


def compiled(make: Callable[[Arrays], Callable[..., Any]], arrays: Arrays) -> Made:
    """A contender that XLA compiles."""
    forget()
    given = [jnp.asarray(a) for a in arrays]
    wait_for(given)
    start = time.perf_counter()
    executable = jax.jit(make(arrays)).lower(*given).compile()
    wait_for(executable(*given))
    first = time.perf_counter() - start
    return Made(lambda: executable(*given), first, temporaries_of(executable))


def eager(results: Callable[..., list[Any]], arrays: Arrays) -> Made:
    """A contender in PyTorch."""
    import torch

    given = [torch.tensor(a, requires_grad=True) for a in arrays]

    def step() -> Any:
        return [x.detach().cpu().numpy() for x in results(*given)]

    start = time.perf_counter()
    step()
    return Made(step, time.perf_counter() - start, 0)


def check(name: str, contenders: dict[str, Made]) -> None:
    """Raise if a contender computes something else than the first."""
    norms = {who: np.array([np.linalg.norm(np.asarray(a)) for a in made.run()]) for who, made in contenders.items()}
    expected = norms["nngrad"]
    for who, found in norms.items():
        difference = np.max(np.abs(found - expected) / np.max(np.abs(expected)))
        if not difference <= TOLERANCE:
            raise ValueError(f"{name}: the results of {who} and of nngrad differ by {difference:.1e}")


def case_rows(name: str, smoke: bool, torch: bool) -> list[Row]:
    """The lines of a case."""
    case = CASES[name]
    arrays = case.arrays(smoke)
    contenders = {"nngrad": compiled(nngrad_function(case), arrays)}
    contenders |= {peer: compiled(lambda arrays, way=way: way, arrays) for peer, way in case.in_jax.items()}
    if torch and case.in_torch is not None:
        contenders["PyTorch eager"] = eager(case.in_torch, arrays)
    check(name, contenders)
    steps = medians({who: made.run for who, made in contenders.items()}, 2 if smoke else 9, 1 if smoke else 3)
    firsts = {who: made.first for who, made in contenders.items()}
    rows = []
    for peer, made in contenders.items():
        if peer == "nngrad":
            continue
        explodes = case.explodes and peer == "nested jax.grad"
        first_goal, step_goal = (HIGH, HIGH) if explodes else (FIRST, STEP)
        in_jax = peer in case.in_jax
        rows.append(row(f"{case.title}: first result", firsts, "nngrad", peer, first_goal if in_jax else None))
        rows.append(row(f"{case.title}: step", steps, "nngrad", peer, step_goal))
        if in_jax:
            rows.append(memory_row(case.title, contenders["nngrad"], peer, made))
    return rows


def memory_row(title: str, ours: Made, peer: str, theirs: Made) -> Row:
    """The line that compares temporaries."""
    mine, others = max(1, ours.temporaries), max(1, theirs.temporaries)
    name = f"{title}: temporaries"
    return Row(name, f"nngrad: {mine / 1e6:.3f} MB", f"{peer}: {others / 1e6:.3f} MB", mine / others, None)


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    names = [name for name, case in CASES.items() if not (smoke and case.explodes)]
    return [line for name in names for line in case_rows(name, smoke, torch)]
