"""The sample table: for each op, inputs from its domain and a reference to compare it with.

A new op adds one line to the file of its family. `tests/autodiff/test_rules.py` checks every sample in
float64 at orders 0 to 3; `tests/project/test_structure.py` checks that no op is without one.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

Draw = Callable[[np.random.Generator], Any]


@dataclasses.dataclass(frozen=True)
class Sample:
    """One op with inputs, arguments, and what its result should be."""

    name: str
    """The function's name in F."""
    inputs: tuple[Draw, ...]
    """Drawn anew from a seeded generator; each gives a NumPy array."""
    reference: Callable[..., Any]
    """The same function of JAX arrays, written without nngrad; JAX can differentiate it. It gets the
    inputs only, and returns one array or a tuple of them."""
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    orders: int = 3
    """Up to which order it is differentiated; 0 for what has no gradient."""
    surrogate: bool = False
    """Whether the op's rule is not its derivative on purpose; then only the forward is compared."""
    numeric: bool = True
    """Whether differences of neighbouring points mean something (not at kinks, not across a key)."""
    note: str = ""

    @property
    def id(self) -> str:
        """A name for the test report."""
        parts = [self.name, *(f"{k}={v}" for k, v in self.arguments.items())]
        return ",".join([*parts, self.note] if self.note else parts).replace(" ", "")


def sample(name: str, *inputs: Draw, ref: Callable[..., Any], note: str = "", orders: int = 3,
           surrogate: bool = False, numeric: bool = True, **arguments: Any) -> Sample:
    """A line of the table."""
    return Sample(name, inputs, ref, arguments, orders, surrogate, numeric, note)


def real(*shape: int) -> Draw:
    """Standard normal numbers, no two of them close and none near 0, 1 or -1, where kinks are."""
    def draw(rng: np.random.Generator) -> Any:
        size = int(np.prod(shape))
        steps = rng.permutation(size) - size // 2 + 0.5
        x = steps * (3.0 / max(size, 1)) + rng.uniform(-0.2, 0.2, size) * (3.0 / max(size, 1))
        near = np.min(np.abs(x[:, None] - np.array([-1.0, 0.0, 1.0])), axis=1) < 0.02
        return (x + 0.05 * near).reshape(shape)
    return draw


def between(low: float, high: float, *shape: int) -> Draw:
    """Numbers between `low` and `high`, away from both ends."""
    margin = 0.05 * (high - low)
    return lambda rng: rng.uniform(low + margin, high - margin, shape)


def positive(*shape: int) -> Draw:
    """Numbers from 0.3 to 2.5."""
    return between(0.2, 2.6, *shape)


def integers(low: int, high: int, *shape: int) -> Draw:
    """Whole numbers, `high` left out, as int32."""
    return lambda rng: rng.integers(low, high, shape).astype(np.int32)


def fixed(*values: Any, dtype: Any = np.float64) -> Draw:
    """Just these values."""
    return lambda rng: np.array(values, dtype)


def whole(*values: Any) -> Draw:
    """Just these whole numbers, as int32."""
    return fixed(*values, dtype=np.int32)


def matrix(*shape: int) -> Draw:
    """Well-conditioned square matrices: normal numbers with 3 added on the diagonal."""
    return lambda rng: rng.standard_normal(shape) + 3.0 * np.eye(shape[-1])


FAMILIES = ("arithmetic", "polynomial", "comparison", "elementwise", "rounding", "special", "bessel",
            "incomplete", "activation", "reduction",
            "cumulative", "array", "movement", "shaping", "selection", "slicing", "indexing", "numbers", "bits",
            "clipping", "sets", "validation", "control", "linear", "solves", "decompositions", "contractions",
            "weighting",
            "units", "convolution", "deformable", "separable", "pooling", "patches", "fourier", "resampling",
            "weighted_points", "warping", "regions", "detection", "batch_statistics", "normalization", "fused",
            "attention", "quantization", "recurrent", "packed_sequences", "loss", "distances",
            "likelihoods", "stochastic", "noise", "distributions", "augmentation", "images", "collectives")


def all_samples(*families: str) -> list[Sample]:
    """Every line of the tables of some families; by default, of all."""
    return [s for family in families or FAMILIES for s in importlib.import_module(f"tests.samples.{family}").SAMPLES]
