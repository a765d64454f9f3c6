"""What training is made of says what each of its arguments is: PF's functions, initializers and solvers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nngrad.initializer as initializer
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from tests.functions.test_docstrings import badly_described, without_a_sentence


def public(module: Any) -> dict[str, Any]:
    """The functions and classes that `module` defines for its users."""
    defined = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    home = module.__name__
    return {n: value for n, value in defined.items() if f"{getattr(value, '__module__', '')}.".startswith(f"{home}.")}


LAYERS = {name: f for name, f in public(PF).items() if hasattr(f, "__wrapped__")}  # with parameters of their own
INITIALIZERS = {name: value for name, value in public(initializer).items() if name != "host_generator"}
SOLVERS = {name: getattr(S, name) for name in S.__all__}
DOCUMENTED = {
    f"{room}.{name}": value
    for room, values in (("PF", LAYERS), ("initializer", INITIALIZERS), ("S", SOLVERS))
    for name, value in values.items()
}


def test_a_first_line_says_what_it_is() -> None:
    assert without_a_sentence(DOCUMENTED) == []


def test_every_argument_is_described_in_its_order() -> None:
    assert badly_described(DOCUMENTED) == []


def test_every_layer_is_in_the_table_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "layers.md").read_text()
    listed = {name for line in page.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    missing = sorted(LAYERS.keys() - listed)
    assert not missing, f"the table of docs/layers.md needs a line for {', '.join(missing)}"


def test_nothing_is_left_out() -> None:
    assert {"affine", "convolution", "batch_normalization", "embed", "prelu", "lstm", "lstm_cell"} <= LAYERS.keys()
    assert {"UniformInitializer", "calc_uniform_lim_glorot"} <= INITIALIZERS.keys()
    assert {"Sgd", "Adam", "Solver", "DynamicLossScale"} <= SOLVERS.keys()
