"""The table of Chainer's functions says what is there, and has them all."""

from __future__ import annotations

import re

import nngrad.functions as F
from docs_site.peers import chainer_functions
from tests.resolved import resolve

FUNCTIONS = chainer_functions()


def is_there(expression: str) -> bool:
    """Whether all names of `F` and `nn` in an expression are those of something."""
    return all([resolve(name) for name in re.findall(r"\b(?:F|nn)\.\w+", expression)])


def test_each_function_has_one_line_in_order() -> None:
    keys = [(each.section, each.name) for each in FUNCTIONS]
    assert keys == sorted(keys) and len({each.name for each in FUNCTIONS}) == len(FUNCTIONS) > 190


def test_what_is_said_to_be_here_is_here() -> None:
    for each in FUNCTIONS:
        assert is_there(each.here), each.name
        assert each.here or each.note.startswith("not here"), each.name
    assert not is_there("F.no_such(F.tanh(x))")
    assert sum(bool(each.here) for each in FUNCTIONS) >= 160


def test_what_is_not_here_is_not_there_by_its_own_name() -> None:
    missing = {each.name for each in FUNCTIONS if not each.here}
    assert not {name for name in missing if hasattr(F, name)}
