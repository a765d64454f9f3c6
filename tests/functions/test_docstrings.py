"""Every function of F says what it computes, and what each of its arguments is."""

from __future__ import annotations

import inspect
import itertools
import re
from typing import Any

import numpy as np
import pytest

import nngrad.functions as F
from nngrad.functions.docstrings import USUAL
from nngrad.graph import Op, Variable


def described(docstring: str) -> list[str]:
    """The names that have an entry under `Args:`, in their order."""
    section = inspect.cleandoc(docstring).partition("\nArgs:\n")[2].splitlines()
    entries = itertools.takewhile(lambda line: line.startswith("    "), section)
    return [found[1] for line in entries if (found := re.match(r" {4}(\w+): \S", line))]


def without_a_sentence(documented: dict[str, Any]) -> list[str]:
    """Those whose docstring does not begin with a sentence in a line of its own."""
    lines = {name: inspect.cleandoc(value.__doc__ or "").splitlines() or [""] for name, value in documented.items()}
    return [name for name, (first, *rest) in lines.items() if not first or first.endswith(":") or (rest and rest[0])]


def badly_described(documented: dict[str, Any]) -> list[str]:
    """Those whose arguments have not each an entry, in their order."""
    return [name for name, value in documented.items()
            if described(value.__doc__ or "") != list(inspect.signature(value).parameters)]  # fmt: skip


FUNCTIONS = {name: getattr(F, name) for name in F.names()}


def test_a_first_line_says_what_it_computes() -> None:
    assert without_a_sentence(FUNCTIONS) == []


def test_each_argument_is_described() -> None:
    assert badly_described(FUNCTIONS) == []


def takes_x_alone(function: Any) -> bool:
    return isinstance(function, Op) and function.least_inputs == 1 and inspect.Parameter.empty not in function.defaults


FLOATING = [name for name, f in FUNCTIONS.items() if takes_x_alone(f) and f"    x: {USUAL['x']}" in f.__doc__]


@pytest.mark.parametrize("name", FLOATING)
def test_what_is_usually_said_of_x_is_true(name: str) -> None:
    result = FUNCTIONS[name](Variable.from_numpy_array(np.ones((2, 3, 4, 4), np.int32)))
    assert [y.dtype for y in (result if isinstance(result, tuple) else (result,))] == [np.float32]
