"""The faults that `python -m tests.mutants` plants: what they are, where they are, and which tests are run for them."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tests.mutants.__main__ import rotated
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import QUOTAS, Fault, all_faults, spread
from tests.mutants.planting import Chosen, picked
from tests.mutants.reach import ROOT, Reach, Reaching, focused, functions_at
from tests.mutants.swapping import is_swappable, swap

RULES = '''
"""1 + 2 in a docstring."""
from . import backward


def helper(x: "a + b") -> "c - d":
    return -x


@backward(F.product, exact=False)
def product_backward(f, gy):
    """a - b"""
    x0, x1 = f.inputs
    if x0.ndim - 1:
        raise ValueError("of " + x0.name)
    assert x0.ndim + 1
    return F.sum_to(gy * x1, shape=x0.shape), 3 * helper(gy) + F.divide(x0, gy)
'''


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A repository of one file of rules."""
    (tmp_path / "backward_registry").mkdir()
    (tmp_path / "backward_registry" / "some.py").write_text(RULES)
    return tmp_path


def test_what_is_planted_in_rules(rules: Path) -> None:
    found = all_faults(rules, "rule")
    changed = {(fault.kind, fault.old, fault.new) for fault in found}
    assert changed == {
        ("sign", "-x", "(x)"),
        ("sign", "x0.ndim - 1", "(x0.ndim + 1)"),
        ("term", "x0.ndim - 1", "(x0.ndim)"),
        ("swap", "x0, x1", "x1, x0"),
        ("sum_to", "F.sum_to(gy * x1, shape=x0.shape)", "gy * x1"),
        ("factor", "F.sum_to(gy * x1, shape=x0.shape)", "2 * (F.sum_to(gy * x1, shape=x0.shape))"),
        ("factor", "3", "9"),
        ("factor", "3 * helper(gy) + F.divide(x0, gy)", "2 * (3 * helper(gy) + F.divide(x0, gy))"),
        ("sign", "3 * helper(gy) + F.divide(x0, gy)", "(3 * helper(gy) - F.divide(x0, gy))"),
        ("term", "3 * helper(gy) + F.divide(x0, gy)", "(3 * helper(gy))"),
        ("term", "3 * helper(gy) + F.divide(x0, gy)", "(F.divide(x0, gy))"),
        ("swap", "x0, gy", "gy, x0"),
        ("swap", "F.sum_to(gy * x1, shape=x0.shape), 3 * helper(gy) + F.divide(x0, gy)",
         "(3 * helper(gy) + F.divide(x0, gy), F.sum_to(gy * x1, shape=x0.shape))"),
    }  # fmt: skip
    assert all([fault.ops == ("product",) for fault in found]), "helpers are about the ops of those who call them"
    assert [(f.kind, f.new) for f in all_faults(rules, "fact")] == [("exact", "exact=True")]


def test_edits_elsewhere_change_no_names(rules: Path) -> None:
    before = {fault.id for fault in all_faults(rules, "rule")}
    path = rules / "backward_registry" / "some.py"
    path.write_text(path.read_text().replace("def helper", "def other(x):\n    return x + 1\n\n\ndef helper"))
    assert before < {fault.id for fault in all_faults(rules, "rule")}


MADE = """
def made(n):
    def inner(x):
        return (x
                + n)
    return inner

SUM = made(2)
"""


def test_a_function_gets_the_code_of_the_faulty_file(tmp_path: Path) -> None:
    (tmp_path / "nngrad" / "rewrite").mkdir(parents=True)
    path = tmp_path / "nngrad" / "rewrite" / "swapped.py"
    path.write_text(MADE)
    spec = importlib.util.spec_from_file_location("swapped_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (fault,) = [fault for fault in all_faults(tmp_path, "rewriting") if fault.kind == "sign"]
    assert module.SUM(3) == 5 and is_swappable(fault, tmp_path)
    path.write_bytes(fault.planted(path.read_bytes()))
    assert path.read_text().count("\n") == 8
    swap(path)
    assert module.SUM(3) == 1 and module.made(1)(1) == 0
    dropped = [fault for fault in all_faults(tmp_path, "rewriting") if fault.kind == "term"]
    assert not any([is_swappable(fault, tmp_path) for fault in dropped])


@pytest.mark.slow
def test_faults_of_this_repository() -> None:
    there = {group: all_faults(ROOT, group) for group in QUOTAS}
    faults = [fault for group, count in QUOTAS.items() for fault in spread(there[group], count, 0)]
    assert Counter([fault.group for fault in faults]) == QUOTAS and len({fault.id for fault in faults}) >= 150
    assert len({fault.path for fault in faults}) > 100
    for fault in faults:
        source = (ROOT / fault.path).read_bytes()
        assert source[fault.start : fault.stop].decode() == fault.old
        compile(fault.planted(source), fault.path, "exec")
    names = {fault.id for each in there.values() for fault in each}
    assert set(EQUIVALENT) <= names, "these faults are no more: take them off the list"


def fault_at(name: str, path: str, kind: str) -> Fault:
    return Fault(name, "rule", kind, path, "f", 1, 0, 1, "a", "b")


def test_faults_are_of_many_files_and_kinds() -> None:
    faults = [fault_at(f"{path}{kind}{i}", path, kind) for path in "abc" for kind in "xyz" for i in range(9)]
    some = spread(faults, 6, 0)
    assert some == spread(faults[::-1], 6, 0)
    assert Counter([fault.path for fault in some]) == dict.fromkeys("abc", 2)
    assert Counter([fault.kind for fault in some]) == dict.fromkeys("xyz", 2)


def test_all_faults_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [fault_at(f"{i}", "a", "x") for i in range(7)]
    seen = Counter[str]()
    for count in range(7):
        monkeypatch.setattr("subprocess.run", lambda *_, n=count, **__: SimpleNamespace(stdout=f"{n}\n"))
        seen.update([fault.id for fault in rotated(faults, 5)])
    assert seen == {f"{i}": 5 for i in range(7)}


class Item(NamedTuple):
    nodeid: str


def test_which_cases_are_run() -> None:
    items = {
        "of_ops": [Item(f"of_ops[{case}]") for case in ("tan", "tanh", "tan,axis=1")],
        "other": [Item(f"other[{case}]") for case in "abcd"],
        "single": [Item("single")],
    }
    run = picked(items, [Chosen("of_ops", ("tan",)), Chosen("gone"), Chosen("other"), Chosen("single")])
    cases = [item.nodeid for item in run]
    assert cases == ["of_ops[tan]", "of_ops[tan,axis=1]", "other[a]", "other[b]", "single", "other[c]", "other[d]"]


def test_tests_that_are_about_a_file_and_those_that_reach_few_lines_come_first() -> None:
    reaching = [Reaching("a.py::about", 90, 0.5), *[Reaching(f"b.py::{i}", i + 1, 0.1) for i in range(5)]]
    assert focused(reaching) == ["a.py::about", "b.py::0", "b.py::1", "b.py::2", "b.py::3", "b.py::4"]
    reaching = [Reaching("a.py::far", 90, 0.0), *reaching[1:]]
    assert focused(reaching) == ["b.py::0", "b.py::1", "b.py::2", "a.py::far", "b.py::3", "b.py::4"]


def test_a_line_of_a_table_is_found_by_what_its_statement_begins_with(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    lines = ['"""Rules."""', "", 'gradients(F.tanh, "slope",', "          lambda gy: gy)", "", "def f():", "    pass"]
    file.write_text("\n".join(lines))
    assert functions_at(file) == {
        3: ("gradients(F.tanh", 3), 4: ("gradients(F.tanh", 3), 6: ("f", 6), 7: ("f", 6),
    }  # fmt: skip


def test_the_map_knows_this_repository() -> None:
    reach = Reach(ROOT)
    path = ROOT / "nngrad" / "rewrite" / "linear.py"
    line = 1 + next(i for i, text in enumerate(path.read_text().splitlines()) if "same: Variable" in text)
    tests = reach.of("nngrad/rewrite/linear.py", line, "_of_put")
    assert tests and all([(ROOT / test.partition("::")[0]).exists() for test in tests])
