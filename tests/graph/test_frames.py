"""A call of an executable that has been called before is at most two frames of Python above JAX's own."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.execution import executable as module
from nngrad.execution.executable import Executable

OWN = module.__file__


@contextmanager
def chains() -> Iterator[list[list[str]]]:
    """Within, each call of an executable that is there appends the frames above JAX's own, innermost first, to a
    list."""
    found: list[list[str]] = []

    def spy(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arrays: Any) -> Any:
            frame, chain = sys._getframe(1), []
            while frame is not None and frame.f_code.co_filename != __file__:
                chain.append(frame.f_code.co_filename)
                frame = frame.f_back  # type: ignore[assignment]
            found.append(chain)
            return function(*arrays)

        return run

    executables = [each for each in gc.get_objects() if isinstance(each, Executable)]
    names = "function", "_decided", "_call"
    before = [(each, name, getattr(each, name)) for each in executables for name in names]
    for each, name, function in before:
        if function is not None:
            setattr(each, name, spy(function))
    try:
        yield found
    finally:
        for each, name, function in before:
            setattr(each, name, function)


def frames_of(run: Callable[[], object]) -> list[int]:
    """How many frames of its own each executable puts between its caller and JAX, once it is warm."""
    for _ in range(4):
        run()
    with chains() as found:
        run()
    assert found
    lengths = []
    for chain in found:
        own = [name == OWN for name in chain]
        lengths.append(own.index(False) if False in own else len(own))
        assert Path(OWN).parent.parent in Path(chain[-1]).parents  # down to the line of the test
    return lengths


def values(dtype: str) -> nn.Variable:
    """A leaf that needs a gradient."""
    return nn.Variable.from_numpy_array(np.linspace(0, 1, 6, dtype=dtype).reshape(2, 3), need_grad=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_at_most_two_frames_lie_between_the_caller_and_jax(dtype: str) -> None:
    most = 1 if dtype == "float32" else 2  # 64-bit types are a setting of JAX's
    x, w = values(dtype), values(dtype)
    loss = F.sum(F.tanh(x * w) ** 2)

    def read() -> None:
        loss.forward()
        loss.d  # noqa: B018

    assert max(frames_of(read)) == most
    assert max(frames_of(loss.backward)) == most
    function = nn.compile(loss, [x])
    assert max(frames_of(lambda: function(x.d))) == most
    solver = S.Adam(1e-3)
    solver.set_parameters({"w": w})
    assert max(frames_of(solver.update)) == 0  # which calls JAX itself, with what is to be taken over
    step = nn.train_step(loss, {"w": w}, S.Sgd(1e-3), inputs=[x])
    assert max(frames_of(lambda: step(x.d))) == 0


def test_one_frame_is_all_for_a_program_with_hoisted_literals() -> None:
    x = values("float32")
    y = F.sum(F.sin(x * 0.37) * 1.9)

    def read() -> None:
        y.forward()
        y.d  # noqa: B018

    assert frames_of(read) == [1]
