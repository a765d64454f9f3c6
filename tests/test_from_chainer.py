"""The table of Chainer's functions says what is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import nngrad.functions as F

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("from_chainer", DOCS / "from_chainer.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_as_it_is(tables: ModuleType) -> None:
    assert tables.PAGE.read_text() == tables.page(), "run `python docs/from_chainer.py`"


def test_what_is_not_here_is_not_there_by_its_own_name(tables: ModuleType) -> None:
    others = {"shift"}  # nnabla's
    for row in tables.rows():
        if row["differs"].startswith("not here") and not row["here"]:
            assert row["function"] in others or not hasattr(F, row["function"]), row["function"]


def test_names_resolve_and_each_function_has_one_row_in_order(tables: ModuleType) -> None:
    rows = tables.rows()
    keys = [(row["section"], row["function"]) for row in rows]
    assert keys == sorted(keys) and len({row["function"] for row in rows}) == len(rows) > 190
    for row in rows:
        name, here, differs = tables.cells(row)
        assert tables.is_there(here), name
        assert here or differs.startswith("not here"), name


def test_most_are_there(tables: ModuleType) -> None:
    assert sum(bool(tables.cells(row)[1]) for row in tables.rows()) >= 160
