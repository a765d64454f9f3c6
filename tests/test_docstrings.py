"""Every function of F says what it computes, and what each of its arguments is."""

from __future__ import annotations

import inspect
import itertools
import re

import pytest

import nngrad.functions as F


def described(docstring: str) -> list[str]:
    """The names that have an entry under `Args:`, in their order."""
    section = inspect.cleandoc(docstring).partition("\nArgs:\n")[2].splitlines()
    entries = itertools.takewhile(lambda line: line.startswith("    "), section)
    return [found[1] for line in entries if (found := re.match(r" {4}(\w+): \S", line))]


def test_entries_are_found() -> None:
    docstring = """What it computes.

    Args:
        x: An array,
            in two lines: this one is no entry.
        axis: An axis.

    Raises:
        ValueError: It is no argument.
    """
    assert described(docstring) == ["x", "axis"]
    assert described("What it computes, of x: a number.") == []


@pytest.mark.parametrize("name", F.names())
def test_a_first_line_says_what_it_computes(name: str) -> None:
    first, *rest = inspect.cleandoc(getattr(F, name).__doc__ or "").splitlines() or [""]
    assert first and not first.endswith(":"), f"{name} has no docstring"
    assert not rest or not rest[0], f"{name}: the first line should be a sentence, with an empty line after it"


@pytest.mark.parametrize("name", F.names())
def test_each_argument_is_described(name: str) -> None:
    function = getattr(F, name)
    assert described(function.__doc__ or "") == list(inspect.signature(function).parameters), name
