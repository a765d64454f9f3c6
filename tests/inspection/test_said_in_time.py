"""What is said of compilations: those that come again and again, and those that take long."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad import compilations
from nngrad.compilations import HANDFUL, RecompilationWarning

V = nn.Variable


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No executables are kept, and compilations are spoken of however short they are."""
    monkeypatch.setattr(compilations, "LEAST_SECONDS", 0.0)
    nn.executables.clear()
    yield
    nn.executables.clear()


def said(compute: Callable[[int], Any], times: int = HANDFUL + 3) -> list[warnings.WarningMessage]:
    """The warnings while `compute` is called with 0, 1, 2, ..."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RecompilationWarning)
        for i in range(times):
            compute(i)
    return caught


def row(n: int = 3) -> V:
    """A row of ones."""
    return V.from_numpy_array(np.ones(n, "f"))


def chain(n: int) -> V:
    """So many functions one after another."""
    x = row()
    for _ in range(n):
        x = F.sin(x)
    return x


DTYPES = ("?", "i1", "i2", "i4", "u1", "u2", "u4", "f4")


@pytest.mark.parametrize(
    ("what", "build", "how"),
    [
        ("a shape", lambda i: F.sum(F.sin(row(i + 1))), r"an array was float32\[5\], and is float32\[6\] now"),
        ("a dtype", lambda i: F.reshape(V.from_numpy_array(np.ones(3, DTYPES[i])), (3, 1)), "and is uint16"),
        ("a Python constant", lambda i: F.sin(F.pad(row(), (i, 0))), r"pad_width of F.pad has changed to \(5, 0\)"),
        ("a Python constant", lambda i: F.scan(lambda h, _: (F.sin(h) ** (i + 2), None), row(), length=2)[0],
         r"val of F.pow_scalar has changed to 7.0, at .*test_said_in_time.py:\d+, in <lambda>"),
        ("a function object", lambda i: F.jax_function(lambda a: a * i)(row()), "gets a new one each time"),
        ("the number of functions", lambda i: chain(i + 1), "there were 5, and are 6 now"),
    ],
)
def test_similar_structures_from_one_line_are_told_once_with_what_differs(
    what: str, build: Callable[[int], V], how: str
) -> None:
    (warning,) = said(lambda i: build(i).d)
    message = str(warning.message)
    assert warning.filename == __file__ and warning.category is RecompilationWarning
    assert message.startswith(f"this line has compiled {HANDFUL + 1} graphs that differ only in {what}")
    assert re.search(how, message) and compilations._ADVICE[what] in message
