"""Which of many cases are slow tests: all but some that stand for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`, of which those in `quick` are run by the README's command too."""
    rows = [(case, case if isinstance(case, tuple) else (case,)) for case in cases]
    return [case if case in quick else pytest.param(*row, marks=pytest.mark.slow) for case, row in rows]
