"""Every sample of every op on several devices, against one device: `python -m tests.sharded_samples [FAMILY ...]`.

Values and gradients of orders 1 and 2 in float64, with the inputs in parts along their first axes: once all of them,
also where an axis is not divisible; once the first input alone, as a batch is; and where its axis is not divisible,
once more with twice as many rows. What is not as on one device is listed, and for each sample the collectives of its
program, by which one sees what is gathered without need.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import nngrad.functions as F
from nngrad.execution.lower import linearize, lower
from nngrad.graph import Variable

from .oracle import as_tuple, is_floating, nngrad_graph, projections
from .samples import FAMILIES, Sample, all_samples

DEVICES = 2
TOLERANCE = 1e-9
"""How far results may be off, relative to the largest; float64."""
COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def collectives(text: str) -> dict[str, int]:
    """How often a compiled program has each kind of collective."""
    return dict(collections.Counter(COLLECTIVE.findall(text)))


def parts(shape: tuple[int, ...], axis: int = 0) -> PartitionSpec:
    """The spec that divides an axis, where there are two indices at least."""
    return PartitionSpec(*[None] * axis, "data") if len(shape) > axis and shape[axis] > 1 else PartitionSpec()


class Case:
    """One sample as a program of arrays."""

    def __init__(self, sample: Sample, doubled: bool = False) -> None:
        rng = np.random.default_rng(7)
        self.arrays = [draw(rng) for draw in sample.inputs]
        if doubled:
            rows = len(self.arrays[0])
            self.arrays = [np.concatenate([a, a]) if a.ndim and len(a) == rows else a for a in self.arrays]
        self.leaves = [Variable.from_numpy_array(a) for a in self.arrays]
        outputs = as_tuple(getattr(F, sample.name)(*self.leaves, **sample.arguments))
        orders = min(sample.orders, 2) if any(map(is_floating, self.arrays)) else 0
        orders = orders if any(map(is_floating, outputs)) else 0
        directions = projections(rng, outputs, self.arrays, orders) if orders else []
        levels = nngrad_graph(lambda *_: outputs, self.leaves, directions, orders)
        self.results = [y for level in levels for y in level]
        linear = linearize(self.results, first=self.leaves)
        self.run = lower(linear.program)
        self.constants = [x.cell.raw() for x in linear.leaves[len(self.leaves) :]]

    def against_one_device(self, specs: list[PartitionSpec]) -> dict[str, Any]:
        """How far results are off that come of inputs in parts, and the collectives of the program."""
        expected, _ = self.compiled(None)
        results, text = self.compiled(specs)
        return {"off": max(differences(results, expected), default=0.0), **collectives(text)}

    def compiled(self, specs: list[PartitionSpec] | None) -> tuple[list[np.ndarray], str]:
        """The results, and the program's text, with the inputs placed so; None for one device."""
        places: list[Any]
        if specs is None:
            places = [jax.devices()[0]] * len(self.arrays)
        else:
            mesh = Mesh(np.array(jax.devices()), ("data",))
            places = [NamedSharding(mesh, spec) for spec in specs]
        # What is not divisible is put whole, and divided in the program, which pads it.
        whole = [
            place if specs is None or spec == PartitionSpec() or a.shape[len(spec) - 1] % DEVICES == 0
            else NamedSharding(place.mesh, PartitionSpec())
            for a, place, spec in zip(self.arrays, places, specs or places, strict=True)
        ]
        def run(*arrays: Any) -> Any:
            given = arrays[: len(places)]
            if specs is not None:
                given = [jax.lax.with_sharding_constraint(a, p) for a, p in zip(given, places, strict=True)]
            return self.run(*given, *arrays[len(places) :])

        with jax.enable_x64(True):
            placed = [jax.device_put(a, p) for a, p in zip(self.arrays, whole, strict=True)]
            executable = jax.jit(run).lower(*placed, *self.constants).compile()
            results = [np.asarray(a) for a in executable(*placed, *self.constants)]
        return results, executable.as_text()


def differences(ours: Iterable[np.ndarray], theirs: Iterable[np.ndarray]) -> Iterator[float]:
    """For each result how far it is off, relative to the largest; infinite where one is not finite."""
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
        finite = np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            yield np.inf
            continue
        off = np.abs(a - b, where=finite, out=np.zeros(a.shape))
        yield float(np.max(off, initial=0) / np.max(np.abs(b), initial=1, where=finite))


def compared(sample: Sample) -> dict[str, Any]:
    """What one sample gives in each of the placings."""
    case = Case(sample)
    found: dict[str, Any] = {"id": sample.id, "shapes": [a.shape for a in case.arrays]}
    if not any(a.ndim and a.shape[0] > 1 for a in case.arrays):
        return {**found, "skipped": True}
    every = [parts(a.shape) for a in case.arrays]
    found["all"] = case.against_one_device(every)
    if len(every) > 1 and every[0] != PartitionSpec():
        found["first"] = case.against_one_device([every[0], *[PartitionSpec()] * (len(every) - 1)])
    if every[0] != PartitionSpec() and len(case.arrays[0]) % DEVICES:
        try:
            case = Case(sample, doubled=True)
        except (ValueError, TypeError):  # a static argument says how many rows there are
            return found
        rows = len(case.arrays[0])
        found["doubled"] = case.against_one_device([
            parts(a.shape) if a.ndim and len(a) == rows else PartitionSpec() for a in case.arrays
        ])
    return found


def main() -> None:
    """Go through the samples, and print a line of JSON for each, and those that are wrong at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=FAMILIES, metavar="FAMILY")
    parser.add_argument("--only", help="names of functions, separated by commas")
    parser.add_argument("--least", action="store_true", help="the first sample of each function alone")
    options = parser.parse_args()
    seen: set[str] = set()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"  # JAX's devices are not there yet
    wrong = []
    for family in options.families:
        for sample in all_samples(family):
            if options.only and sample.name not in options.only.split(","):
                continue
            if options.least and sample.name in seen:
                continue
            seen.add(sample.name)
            try:
                found = compared(sample)
            except Exception as e:
                found = {"id": sample.id, "failed": f"{type(e).__name__}: {e}"[:600]}
            print(json.dumps({"family": family, **found}), flush=True)
            off = [found[k]["off"] for k in ("all", "first", "doubled") if k in found]
            if "failed" in found or any(not x <= TOLERANCE for x in off):
                wrong.append(found)
    print(f"{len(wrong)} wrong", *[f"  {found}" for found in wrong], sep="\n")


if __name__ == "__main__":
    main()
