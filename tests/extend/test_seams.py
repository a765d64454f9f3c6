"""What `nngrad.extend` has: all of it is on the page, and says what it does."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nngrad as nn
import nngrad.extend
import nngrad.functions as F
from nngrad.extend import Switched, watch

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def test_the_page_lists_every_name_once() -> None:
    _, table = PAGE.read_text().split("## All names\n")
    assert sorted(re.findall(r"`(\w+)`[,\s]", table)) == sorted(nngrad.extend.__all__)


@pytest.mark.parametrize("name", nngrad.extend.__all__)
def test_functions_and_classes_say_what_they_do(name: str) -> None:
    value = getattr(nngrad.extend, name)
    if inspect.isfunction(value) or inspect.isclass(value) or inspect.ismodule(value):
        assert (inspect.getdoc(value) or "").strip()


def test_a_switch_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="there is no switch 'atuo_forward'; did you mean 'auto_forward'"):
        Switched(atuo_forward=True)


def test_passes_and_compilations_are_events() -> None:
    nn.executables.clear()
    y = F.sum(F.sin(nn.Variable.from_numpy_array(np.ones(7, np.float32))) ** 5)
    passed, compiled = [], []
    with watch(passed.append, "passed"), watch(compiled.append, "compiled"):
        assert y.d == pytest.approx(7 * np.sin(1) ** 5)
    assert [event.name for event in passed][:2] == ["inline", "join_loops"]
    (event,) = compiled
    assert event.seconds > 0 and len(event.program.block.steps) == 3
    assert event.place.file == __file__ and event.place.code.startswith("assert y.d")


UNSET = """
import nngrad
from nngrad.graph.engine import Engine, _providers, engine
for name in Engine.__slots__:
    try:
        object.__getattribute__(engine, name)
    except AttributeError:
        if name not in _providers:
            print(name)
"""


def test_all_that_the_engine_declares_is_there_or_is_imported_on_first_use() -> None:
    """In a process that has imported nngrad and used nothing of it."""
    assert subprocess.run([sys.executable, "-c", UNSET], capture_output=True, text=True, check=True).stdout == ""
