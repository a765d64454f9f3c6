"""Every function in every floating dtype, and in the body of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.functions as F
from nngrad.autodiff.walk import Grad
from nngrad.execution.lower import linearize
from nngrad.graph import Op, Variable
from tests.oracle import Arrays, as_tuple, is_floating
from tests.references import drawn
from tests.samples import Sample, all_samples
from tests.slow import slow_but_every
from tests.together import Check, Wanted, together

HALF = {"float16": 1e-2, "bfloat16": 6e-2}
"""How far results may be off, relative to the largest: a few dozen roundings."""


class Applied(NamedTuple):
    """A function, and the gradients of the sum of all its outputs with respect to the floating inputs, where there are
    any."""

    inputs: list[Variable]
    outputs: tuple[Variable, ...]
    gradients: list[Variable]

    def wanted(self, *rows: Arrays) -> Wanted:
        """All of it, for each row of inputs."""
        return Wanted([[*self.outputs, *self.gradients]], self.inputs, rows or [[x.data.data for x in self.inputs]])


def applied(sample: Sample, arrays: Sequence[Any], looped: bool = False) -> Applied:
    """The sample's function of arrays, or in the body of a loop over them."""
    inputs = list(map(Variable.from_numpy_array, arrays))

    def function(xs: Sequence[Variable]) -> tuple[Variable, ...]:
        return as_tuple(getattr(F, sample.name)(*xs, **sample.arguments))

    outputs = F.scan(lambda _, xs: (None, function(xs)), None, inputs)[1] if looped else function(inputs)
    moved = [y for y in outputs if y.spec.differentiable and sample.orders]
    floating = [x for x in inputs if is_floating(x)]
    gradients = Grad()(moved, floating, [None] * len(moved)) if moved and floating else []
    return Applied(inputs, outputs, gradients)


def near(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    """Compare, with a tolerance relative to the largest."""
    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    size = float(np.max(np.abs(b), initial=1, where=np.isfinite(b)))
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * size, err_msg=what)


LAST = {s.name: s for s in reversed(all_samples())}
"""One sample of each function."""


@pytest.mark.parametrize("sample", slow_but_every(12, LAST.values()), ids=lambda s: s.id)
@together
def test_dtypes_and_loops(sample: Sample) -> Check:
    """A function of one floating dtype gives that dtype, or the one that it gives for float64 too; so do gradients.
    Values and gradients of 16-bit numbers are those of 64-bit ones, but for rounding; and in the body of a loop of two
    steps they are those of each step by itself."""
    arrays = drawn(sample)
    usual = applied(sample, arrays)
    by_dtype, rounded = {}, {}
    for name in (*HALF, "float32"):
        dtype = jnp.dtype(name)
        given = [a.astype(dtype) if is_floating(a) else a for a in arrays]
        by_dtype[name] = found = applied(sample, given)
        for y, whatever in zip(found.outputs, usual.outputs, strict=True):
            # Statistics of 16-bit numbers are float32.
            assert y.dtype in (dtype, whatever.dtype, np.float32), f"of {name} gives {y.dtype}"
        assert [g.dtype for g in found.gradients] in ([x.dtype for x in given if is_floating(x)], []), f"of {name}"
        rounded[name] = [x.astype(a.dtype) for x, a in zip(given, arrays, strict=True)]
    if not arrays or random(usual):
        return
    steps = [arrays, [second(a, sample) for a in arrays]]
    rows, loops = [rounded[name] for name in HALF], []
    if isinstance(getattr(F, sample.name), Op):  # and is not made of some
        loops.append(applied(sample, [np.stack(pair) for pair in zip(*steps, strict=True)], looped=True))
    wide, *others = yield [
        usual.wanted(*rows, *steps), *[by_dtype[name].wanted() for name in HALF], *[loop.wanted() for loop in loops],
    ]  # fmt: skip
    (float16, bfloat16, *singly), found = [level for (level,) in wide], [level for ((level,),) in others]
    for name, ours, theirs in zip(HALF, found, (float16, bfloat16), strict=False):
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            near(a, b, HALF[name], f"{name}, result {k}")
    for looped in found[len(HALF) :]:
        for k, (a, *b) in enumerate(zip(looped, *singly, strict=True)):
            assert a.dtype == b[0].dtype, f"in a loop, result {k}"
            near(a, b, 1e-10, f"in a loop, result {k}")


def second(a: Any, sample: Sample) -> Any:
    """Another array of the same kind."""
    return a * 1.01 if is_floating(a) and sample.name != "recomputed" else a


def random(found: Applied) -> bool:
    """Whether it draws keys of its own, so that no two applications give the same."""
    leaves = linearize(found.outputs, first=found.inputs).leaves
    return any([x.dtype == np.uint32 for x in leaves[len(found.inputs) :]])
