"""One figure, in a process of its own.

`python -m benchmarks.first_result.worker CASE PEER [--tiny]` prints it as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import jax
import numpy as np

import nngrad as nn

from ..timing import torch_beside_jax
from .cases import CASES

STEADY = 1.0
"""For so many seconds the steady state is measured."""


def waited_for(result: Any) -> Any:
    """Arrays of NumPy."""
    return jax.tree.map(lambda a: np.asarray(a, np.float64), result)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("peer", choices=["nngrad", "jax", "torch"])
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if options.peer == "torch":
        import torch

        torch_beside_jax()
        torch.zeros(1)
    else:
        jax.block_until_ready(jax.numpy.zeros(1))  # the backend is there
    start = time.perf_counter()
    step = CASES[options.case].starts[options.peer](options.tiny)
    results = waited_for(step())
    first = time.perf_counter() - start
    compilations = nn.executables.info().misses

    others = []
    for _ in range(3):
        start = time.perf_counter()
        waited_for(step())
        others.append(time.perf_counter() - start)
    steady, until = [], time.perf_counter() + (0 if options.tiny else STEADY)
    while not steady or time.perf_counter() < until:
        start = time.perf_counter()
        jax.block_until_ready(step())
        steady.append(time.perf_counter() - start)
    norms = [float(np.linalg.norm(a)) for a in jax.tree.leaves(results)]
    print(json.dumps({
        "first": first, "second": max(others), "steady": statistics.median(steady), "compilations": compilations,
        "norms": norms,
    }))


if __name__ == "__main__":
    main()
