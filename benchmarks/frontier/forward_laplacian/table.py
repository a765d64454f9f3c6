"""The lines of the table: nngrad, one point vmapped and a batch at once, and folx, dense and sparse, in turns.

Where folx is not installed (`pip install 'nngrad[bench]'`) the trace of `jax.hessian` stands beside, without a goal.
"""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.jax as nj

from ...timing import Row, forget, row, shown, wait_for
from .networks import Case, cases

OURS = ("nngrad, vmap", "nngrad, batched")
MOST_DENSE = 64
"""Up to how many directions folx is asked for dense Jacobians: with 400 it would take gigabytes."""
MOST_SPARSE = 6
"""What folx's authors recommend as the threshold of sparsity."""


def kinetic(gradient: Any, laplacian: Any) -> Any:
    """-2 times the kinetic part of a local energy, of the logarithm of a wave function at one point."""
    return laplacian + jnp.sum(gradient**2)


def laplacians(case: Case) -> dict[str, Callable[[Any], Any]]:
    """The contenders."""
    of_point, of_batch = nj.laplacian(case.of_point), nj.laplacian(case.of_batch, batched=True)
    if case.energy:
        point = nj.laplacian(case.of_point, with_gradient=True)
        batch = nj.laplacian(case.of_batch, batched=True, with_gradient=True)
        of_point = lambda x: kinetic(*point(x)[1:])  # noqa: E731
        of_batch = lambda x: jax.vmap(kinetic)(*batch(x)[1:])  # noqa: E731
    found: dict[str, Callable[[Any], Any]] = {OURS[0]: jax.vmap(of_point), OURS[1]: of_batch}
    if importlib.util.find_spec("folx") is None:
        return {**found, "trace of jax.hessian": jax.vmap(functools.partial(by_jax, case))}
    import folx

    def by_folx(threshold: int) -> Callable[[Any], Any]:
        operator = folx.ForwardLaplacianOperator(threshold)(case.of_point)
        return jax.vmap(lambda x: kinetic(*operator(x)[::-1]) if case.energy else operator(x)[0])

    found["folx, sparse"] = by_folx(MOST_SPARSE)
    if case.points[0].size <= MOST_DENSE:
        found["folx, dense"] = by_folx(0)
    return found


def by_jax(case: Case, x: Any) -> Any:
    """The trace of the Hessian at one point, or the kinetic part."""
    laplacian = jnp.trace(flat_hessian(case.of_point, x))
    return kinetic(jax.grad(case.of_point)(x), laplacian) if case.energy else laplacian


def flat_hessian(f: Callable[[Any], Any], x: Any) -> Any:
    """The Hessian of a function of an array, as a matrix."""
    return jax.hessian(lambda flat: f(flat.reshape(x.shape)))(x.ravel())


def compiled(make: Callable[[Any], Any], x: Any) -> tuple[Any, float]:
    """An executable, and seconds to its first result in a process that knows nothing of it."""
    forget()
    start = time.perf_counter()
    executable = jax.jit(make).lower(x).compile()
    wait_for(executable(x))
    return executable, time.perf_counter() - start


def best(executables: dict[str, Any], x: Any, rounds: int) -> dict[str, float]:
    """Seconds of the best of many runs in turns: on a machine that others use that is what the program takes."""
    found = dict.fromkeys(executables, float("inf"))
    for _ in range(rounds):
        for name, executable in executables.items():
            start = time.perf_counter()
            wait_for(executable(x))
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def rows_of(case: Case, smoke: bool) -> list[Row]:
    """The lines of one case, beside the better one of folx's two."""
    made = {name: compiled(make, case.points) for name, make in laplacians(case).items()}
    executables = {name: executable for name, (executable, _) in made.items()}
    results = {name: np.asarray(executable(case.points)) for name, executable in executables.items()}
    peers = [name for name in executables if name not in OURS]
    reference = results[peers[0]]
    for name, result in results.items():
        difference = np.max(np.abs(result - reference)) / np.max(np.abs(reference))
        if not difference <= 1e-3:
            raise ValueError(f"{case.name}: {name} differs by {difference:.1e}, relative to the largest")
    times = best(executables, case.points, 3 if smoke else 40)
    first = {name: seconds for name, (_, seconds) in made.items()}
    peer = min(peers, key=times.__getitem__)
    lines = [row(f"{case.name}: run", times, ours, peer, 1.0 if "folx" in peer else None) for ours in OURS]
    lines += [row(f"{case.name}: first result", first, OURS[0], name, 0.5) for name in peers if name == "folx, sparse"]
    ours = min(OURS, key=times.__getitem__)
    # XLA counts no arithmetic inside of what LAPACK does, which is the same for all.
    flops = {name: executable.cost_analysis().get("flops", 0) / 1e6 for name, executable in executables.items()}
    kept = {name: executable.memory_analysis().temp_size_in_bytes / 1e6 for name, executable in executables.items()}
    for name in peers:
        lines += [
            Row(f"{case.name}: {what}", f"{ours}: {of[ours]:.2f} {unit}", f"{name}: {of[name]:.2f} {unit}",
                of[ours] / max(of[name], 1e-6), None)
            for what, of, unit in (("arithmetic", flops, "Mflop"), ("temporaries", kept, "MB"))
        ]
    print(f"{case.name}: {', '.join([f'{name} {shown(seconds)}' for name, seconds in times.items()])}", flush=True)
    return lines


def run(smoke: bool, torch: bool) -> list[Row]:
    """All cases."""
    return [line for case in cases(smoke) for line in rows_of(case, smoke)]
