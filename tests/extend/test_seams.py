"""What `nngrad.extend` has: all of it is on the page, and says what it does."""

import inspect
import re
from pathlib import Path

import pytest

import nngrad.extend

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def test_the_page_lists_every_name_once() -> None:
    _, table = PAGE.read_text().split("## All names\n")
    assert sorted(re.findall(r"`(\w+)`[,\s]", table)) == sorted(nngrad.extend.__all__)


@pytest.mark.parametrize("name", nngrad.extend.__all__)
def test_functions_and_classes_say_what_they_do(name: str) -> None:
    value = getattr(nngrad.extend, name)
    if inspect.isfunction(value) or inspect.isclass(value) or inspect.ismodule(value):
        assert (inspect.getdoc(value) or "").strip()
