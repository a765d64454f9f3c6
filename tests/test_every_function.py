"""Every function in every floating dtype, and in the body of a loop. One executable for each family: few to compile."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.functions as F
from nngrad.autodiff.walk import Grad
from nngrad.execution.lower import linearize
from nngrad.graph import Op, Variable

from .oracle import Arrays, as_tuple, is_floating, runner
from .samples import FAMILIES, Sample, all_samples

HALF = {"float16": 1e-2, "bfloat16": 6e-2}
"""How far results may be off, relative to the largest: a few dozen roundings."""


@functools.cache
def first_of_each(family: str) -> list[tuple[Sample, Arrays]]:
    """One sample of each function of a family, with its inputs."""
    first: dict[str, Sample] = {}
    for sample in all_samples(family):
        first.setdefault(sample.name, sample)
    rng = np.random.default_rng(7)
    return [(sample, [draw(rng) for draw in sample.inputs]) for sample in first.values()]


def gradients(outputs: Sequence[Variable], inputs: Sequence[Variable]) -> list[Variable]:
    """Of the sum of all outputs with respect to the floating inputs, where there are any."""
    moved = [y for y in outputs if y.spec.differentiable]
    floating = [x for x in inputs if is_floating(x)]
    return Grad()(moved, floating, [None] * len(moved)) if moved and floating else []


def applied(sample: Sample, inputs: Sequence[Variable]) -> tuple[Variable, ...]:
    """The sample's function."""
    return as_tuple(getattr(F, sample.name)(*inputs, **sample.arguments))


def near(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    """Compare, with a tolerance relative to the largest."""
    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    size = float(np.max(np.abs(b), initial=1, where=np.isfinite(b)))
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * size, err_msg=what)


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize("family", FAMILIES)
def test_dtypes_are_kept(family: str) -> None:
    """A function of one floating dtype gives that dtype, or the one that it gives for float64 too; so do gradients."""
    for sample, arrays in first_of_each(family):
        usual = [y.dtype for y in applied(sample, list(map(Variable.from_numpy_array, arrays)))]
        for name in ("float16", "bfloat16", "float32"):
            dtype = jnp.dtype(name)
            leaves = [Variable.from_numpy_array(a.astype(dtype) if is_floating(a) else a) for a in arrays]
            outputs = applied(sample, leaves)
            for y, whatever in zip(outputs, usual, strict=True):
                # Statistics of 16-bit numbers are float32.
                assert y.dtype in (dtype, whatever, np.float32), f"{sample.id} of {name} gives {y.dtype}"
            given = [x.dtype for x in leaves if is_floating(x)]
            found = [g.dtype for g in gradients(outputs, leaves)] if sample.orders else given
            assert found in (given, []), f"gradients of {sample.id} of {name} are {found}"


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision(family: str, dtype: str) -> None:
    """Values and gradients of 16-bit numbers are those of 64-bit ones, but for rounding."""
    chosen = [(sample, arrays) for sample, arrays in first_of_each(family) if sample.inputs and not random(sample)]
    results = []
    for kind in (dtype, "float64"):
        leaves, levels = [], []
        for sample, arrays in chosen:
            # What is rounded to 16 bits is rounded for both.
            inputs = [Variable.from_numpy_array(a.astype(dtype).astype(kind) if is_floating(a) else a) for a in arrays]
            outputs = applied(sample, inputs)
            leaves += inputs
            levels.append([*outputs, *(gradients(outputs, inputs) if sample.orders else [])])
        results.append(runner(levels, leaves)([x.data.data for x in leaves]))
    for (sample, _), ours, theirs in zip(chosen, *results, strict=True):
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            near(a, b, HALF[dtype], f"{sample.id}, result {k}")


# ---------------------------------------------------------------- loops


@pytest.mark.parametrize("family", FAMILIES)
def test_in_a_loop(family: str) -> None:
    """Values and gradients in the body of a loop of two steps are those of each step by itself."""
    chosen = [(s, arrays) for s, arrays in first_of_each(family) if s.inputs and is_op(s) and not random(s)]
    leaves, looped, by_itself = [], [], []
    for sample, arrays in chosen:
        steps = [Variable.from_numpy_array(np.stack([a, second(a, sample)])) for a in arrays]
        _, stacked = F.scan(lambda _, xs, sample=sample: (None, applied(sample, xs)), None, steps)
        looped.append([*stacked, *(gradients(stacked, steps) if sample.orders else [])])
        rows = []
        for k in range(2):
            inputs = [x[k] for x in steps]
            outputs = applied(sample, inputs)
            rows.append([*outputs, *(gradients(outputs, inputs) if sample.orders else [])])
        by_itself.append([F.stack(*pair) for pair in zip(*rows, strict=True)])
        leaves += steps
    given = [x.data.data for x in leaves]
    for (sample, _), ours, theirs in zip(chosen, *[runner(x, leaves)(given) for x in (looped, by_itself)], strict=True):
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a.dtype == b.dtype, f"{sample.id}, result {k}"
            near(a, b, 1e-10, f"{sample.id}, result {k}")


def is_op(sample: Sample) -> bool:
    """Whether it is an op, and not made of some."""
    return isinstance(getattr(F, sample.name), Op)


def second(a: Any, sample: Sample) -> Any:
    """Another array of the same kind."""
    return a * 1.01 if is_floating(a) and sample.name != "recomputed" else a


def random(sample: Sample) -> bool:
    """Whether it draws keys of its own, so that no two applications give the same."""
    inputs = [Variable.from_numpy_array(draw(np.random.default_rng(7))) for draw in sample.inputs]
    leaves = linearize(applied(sample, inputs), first=inputs).leaves
    return any([x.dtype == np.uint32 for x in leaves[len(inputs) :]])
