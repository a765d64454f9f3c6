"""Which of many cases are slow tests: all but some that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`, of which those in `quick` are run by the README's command too."""
    rows = [(case, case if isinstance(case, tuple) else (case,)) for case in cases]
    return [case if case in quick else pytest.param(*row, marks=pytest.mark.slow) for case, row in rows]


def slow_but_one(cases: Iterable[Any], kind: Callable[[Any], Any], *, n: int = 1) -> list[Any]:
    """The cases for `parametrize`, of which the README's command runs the first of each `n`-th kind."""
    cases = list(cases)
    firsts = {kind(case): case for case in reversed(cases)}
    quick = {id(firsts[k]) for k in list(dict.fromkeys(map(kind, cases)))[::n]}
    return [pytest.param(case, marks=[] if id(case) in quick else pytest.mark.slow) for case in cases]


def slow_but_every(n: int, cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`, of which the README's command runs the first of each `n`."""
    cases = list(cases)
    return slow_but(cases[::n], cases)
