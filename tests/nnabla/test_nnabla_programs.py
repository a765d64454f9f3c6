"""Programs of nnabla's kind, of which only the import lines differ, give the figures that nnabla itself gave.

`examples/nnabla/record.py` made those figures, in float32 too: the two differ by rounding, which training amplifies.
"""

from __future__ import annotations

import ast
import importlib
import json
import runpy
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.nnabla
from nngrad.extend import Switched
from tests.slow import slow_but

PROGRAMS = Path(__file__).parents[2] / "examples" / "nnabla"
FIGURES: dict[str, Any] = json.loads((PROGRAMS / "losses.json").read_text())
NAMES = [name for name in FIGURES if name != "how"]

pytestmark = pytest.mark.filterwarnings("ignore:update. the loss depends on leaves with need_grad")
"""What nnabla's `nn.grad` asks for, need_grad of its inputs, says here that they are to be trained."""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each program has parameters, a context and a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with nn.parameter_scope("program", scope=OrderedDict()), Switched(context=None):
        yield


def test_every_program_has_figures() -> None:
    assert len(NAMES) >= 12 and "nnabla 1.36.0" in FIGURES["how"]
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {*NAMES, "record"}


@pytest.mark.parametrize("name", NAMES)
def test_programs_import_what_nnabla_has(name: str) -> None:
    """Beside the standard library and NumPy, by names that nnabla has when `nngrad.nnabla` is replaced."""
    modules = (
        "ext_utils", "functions", "initializer", "logger", "monitor", "parameter", "parametric_functions", "solvers",
        "utils.data_iterator", "utils.learning_rate_scheduler",
    )  # fmt: skip
    of_nnabla = {"nngrad.nnabla", *[f"nngrad.nnabla.{module}" for module in modules]}
    for node in ast.walk(ast.parse((PROGRAMS / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= {*of_nnabla, "numpy", "os"}
        if isinstance(node, ast.ImportFrom):
            assert node.module in of_nnabla


@pytest.mark.parametrize("name", slow_but(["igr", "vae", "vat", "lenet"], NAMES))
def test_losses_are_those_of_nnabla(name: str) -> None:
    history = copy_context().run(runpy.run_path, str(PROGRAMS / f"{name}.py"))["history"]
    assert set(history) == set(FIGURES[name])
    for key, expected in FIGURES[name].items():
        assert len(expected) > 0
        np.testing.assert_allclose(history[key], expected, rtol=1e-4, err_msg=key)


def test_nnabla_has_the_names_of_nngrad_and_modules_that_are_the_same() -> None:
    for name in ("functions", "parametric_functions", "solvers", "initializer", "parameter", "random"):
        assert importlib.import_module(f"nngrad.nnabla.{name}") is getattr(nngrad.nnabla, name) is getattr(nn, name)
    assert nngrad.nnabla.Variable is nn.Variable and set(nn.__all__) <= set(dir(nngrad.nnabla))
    assert nngrad.nnabla.logger.name == "nngrad" and nngrad.nnabla.solver.Solver is nn.solvers.Solver
    with pytest.raises(AttributeError, match=r"nngrad has no 'logger'; nnabla.logger is nngrad.nnabla.logger here"):
        nn.logger  # noqa: B018
    with pytest.raises(ImportError, match=r"nnabla.monitor is nngrad.nnabla.monitor here"):
        importlib.import_module("nngrad.monitor")
