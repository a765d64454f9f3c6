"""Models whose gradients compute forward values again, policies for that, and what their compiled programs take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Function, Variable, engine, executables, interpret, linearize, lower
from nngrad.memory import timeline
from tests.costs import compilations
from tests.oracle import compiled_cheaply

LAYERS, BATCH, WIDTH = 12, 64, 16


def is_product(f: Function) -> bool:
    """A predicate, as MXNet's mirror function: whether `f` is a matrix product."""
    return f.name == "batch_matmul"


POLICIES: dict[str, Any] = {
    "sqrt": "sqrt",
    "auto": "auto",
    "two levels": nn.Segments(2),
    "five levels": nn.Segments(5),
    "a tenth more": nn.LeastMemory(0.1),
    "all but products": lambda f: not is_product(f),
    "everything": lambda f: True,
    "half a budget": nn.MemoryBudget(40_000),
}


def chain(
    layers: int = LAYERS,
    batch: int = BATCH,
    width: int = WIDTH,
    mark: Callable[[int], bool] = lambda i: False,
    dtype: str = "f",
) -> tuple[Variable, list[Variable]]:
    """The loss of a chain of dense layers, and its weights."""
    rng = np.random.default_rng(3)
    x = Variable.from_numpy_array(rng.normal(size=(batch, width)).astype(dtype))
    weights = [
        Variable.from_numpy_array(rng.normal(0, width**-0.5, (width, width)).astype(dtype), need_grad=True)
        for _ in range(layers)
    ]
    h = x
    for i, w in enumerate(weights):
        with nn.recompute(mark(i)):
            h = F.tanh(F.affine(h, w))
    return F.sum(h**2), weights


def predicted(outputs: Sequence[Variable]) -> int:
    """Bytes of temporaries of the graph of `outputs`, estimated from its structure."""
    return timeline(linearize(outputs).program).peak


def allotted(outputs: Sequence[Variable]) -> int:
    """Bytes of temporaries that the compiler allots for the graph of `outputs`, by its own account."""
    nbytes = executables.temporary_bytes(linearize(outputs).program)
    assert nbytes is not None
    return nbytes


def structure_alone() -> Any:
    """A context where compilers tell nothing of memory, so that structure alone decides, and nothing is compiled."""
    return patch("nngrad.execution.compiled.Executables.temporary_bytes", lambda self, program: None)


@contextmanager
def in_chunks() -> Iterator[None]:
    """A context where directions are computed in chunks if that is asked for, whether or not it saves memory."""
    peak_bytes = engine.peak_bytes
    engine.peak_bytes = lambda outputs: -len(linearize(outputs).program.block.steps)  # the longest first
    try:
        yield
    finally:
        engine.peak_bytes = peak_bytes


@contextmanager
def counted_compilations() -> Iterator[Callable[[], int]]:
    """A function that says how often XLA has compiled something within."""
    with compilations() as seconds:
        yield lambda: len(seconds)


def compiled(outputs: Sequence[Variable]) -> Any:
    """The graph of `outputs` compiled by XLA, from shapes alone."""
    program = linearize(outputs).program
    return compiled_cheaply(lower(program)).lower(*[s.abstract() for s in program.block.inputs]).compile()


def temporaries(executable: Any) -> int:
    """Bytes of temporaries, by the compiler's own account."""
    return int(executable.memory_analysis().temp_size_in_bytes)


def products(executable: Any) -> int:
    """Matrix products in the compiled program."""
    return int(executable.as_text().count(" dot("))


def values_of(variables: Sequence[Variable]) -> list[np.ndarray[Any, Any]]:
    """The values, computed op by op."""
    return [np.asarray(a) for a in interpret(variables, {})]


def agree_as_one(ours: Sequence[Any], theirs: Sequence[Any], rtol: float) -> None:
    """Compare gradients of one loss, with a tolerance relative to the largest entry of all of them.

    That is the precision with which each can be known: one that is a sum of terms that cancel, such as that of a bias
    in front of a normalisation, is zero but for the rounding of the others.
    """
    arrays = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True)]
    scale = max(float(np.max(np.abs(b), initial=0)) for _, b in arrays)
    for a, b in arrays:
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * scale)
