"""A fault is planted in a copy of the repository, and tests that reach it are run there."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .faults import MUST_BE_FOUND, Fault
from .processes import run, tested
from .reach import CASES, Reach, function_of
from .swapping import swap

BUDGET = 20.0
"""Seconds of a processor that the tests of one fault may take."""
HANGS = 45.0
"""Seconds after which one test hangs."""
STALLS = 120
"""Seconds by the clock, for the same; the processor may be busy otherwise."""

OF_EACH_OP = (
    "tests/autodiff/test_rules.py::test_op",
    "tests/graph/test_facts.py::test_facts", "tests/graph/test_facts.py::test_routes",
    "tests/derivatives/test_vectorize.py::test_op", "tests/autodiff/test_nan_safety.py::test_derivatives",
    "tests/autodiff/test_every_function.py::test_dtypes_and_loops",
    "tests/graph/test_declarations.py::test_rules_that_are_called_exact_are_derivatives",
)  # fmt: skip
"""Tests of which each op has cases."""
OF_WHOLE_GRAPHS = (
    "tests/rewrite/test_rewrites.py::test_numbers_that_would_overflow_together_stay_where_they_are",
    "tests/rewrite/test_rewrites.py::test_which_products_of_numbers_stand_for_their_factors",
    "tests/rewrite/test_rewrites.py::test_sums_are_what_they_are_called",
    "tests/rewrite/test_rewrites.py::test_what_does_not_stand_for_what_is_emitted",
    "tests/autodiff/test_properties.py::test_gradients_are_those_of_jax",
    "tests/autodiff/test_properties.py::test_simplified_gradients_are_those_of_the_plain_walk",
    "tests/rewrite/test_rewrites.py::test_gradients_without_a_rule_or_any_are_the_same",
    "tests/jax/test_from_jax.py::test_value_and_derivatives",
    "tests/autodiff/test_symmetry.py::test_tangents_agree_with_jax",
)  # fmt: skip
"""Tests that reach most of what rewrites and derives, and so are not among the few of a line."""
LEFT_OUT = shutil.ignore_patterns(
    ".git", "build", "dist", "*.egg-info", ".venv*", "*_cache", ".hypothesis", "node_modules", "site",
)  # fmt: skip


class Verdict(NamedTuple):
    """What became of a fault."""

    found: bool
    how: str
    """The test that failed, and how; or what was tried."""
    seconds: float
    tests: int


Said = Callable[[Fault, Verdict], None]


class Copy:
    """A copy of the repository, perhaps with the tests of another."""

    def __init__(self, root: Path, tests: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self.root, self.log, self.results = self.folder / "nngrad", self.folder / "log", self.folder / "results"
        shutil.copytree(root, self.root, ignore=LEFT_OUT)
        if tests is not None:
            shutil.rmtree(self.root / "tests")
            shutil.copytree(tests / "tests" if (tests / "tests").exists() else tests, self.root / "tests")

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    @contextmanager
    def planted(self, fault: Fault | None) -> Iterator[None]:
        """Within this context the fault is in the copy. Its file has another time, so that no old bytecode is taken."""
        if fault is None:
            yield
            return
        path = self.root / fault.path
        kept, times = path.read_bytes(), path.stat()
        path.write_bytes(fault.planted(kept))
        os.utime(path, (times.st_mtime + 7, times.st_mtime + 7))
        try:
            yield
        finally:
            path.write_bytes(kept)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def verdict(self, work: Callable[[], int], budget: float, fault: Fault | None = None, anew: bool = True) -> Verdict:
        """What some work, which runs tests, says of a fault."""
        self.results.write_text("")
        with self.planted(fault):
            code = run(work, self.root, self.log, 10 * (budget + 30), anew)
        told = [json.loads(line) for line in self.results.read_text().splitlines()]
        failed = [each["failed"] for each in told if "failed" in each]
        began = [each["began"] for each in told if "began" in each]
        seconds = max([each["seconds"] for each in told], default=0.0)
        last = began[-1] if began else "collection"
        if code in (4, 70):
            raise RuntimeError(self.log.read_text())
        if failed:
            return Verdict(True, "; ".join(failed), seconds, len(began))
        if code in (0, 5) or seconds > budget:
            return Verdict(False, f"{len(began)} tests pass", seconds, len(began))
        how = {None: "the clock", 1: "stalls", 2: "an error where tests are imported",
               -signal.SIGPROF: "hangs"}.get(code, f"ends with {code}")  # fmt: skip
        return Verdict(True, f"{last}: {how}", seconds, len(began))

    def anew(self, chosen: Sequence[Chosen], budget: float, fault: Fault | None = None) -> Verdict:
        """What chosen tests say of a fault, where nngrad is imported anew."""
        files = list(dict.fromkeys([each.test.partition("::")[0] for each in chosen]))
        files = [file for file in files if (self.root / file).exists()]
        plugin = Runner(budget, self.results, chosen)
        return self.verdict(partial(check, files, plugin, fault is not None, self.root), budget, fault)


class Chosen(NamedTuple):
    """A test function, and those of its cases whose names begin with the name of an op, if not all."""

    test: str
    ops: tuple[str, ...] = ()


class Runner:
    """A plugin that tells which tests are run and fail, and ends when no time is left."""

    def __init__(self, budget: float, results: Path, chosen: Sequence[Chosen] | None = None) -> None:
        self.budget, self.results, self.chosen, self.seconds = budget, results, chosen, 0.0

    def tell(self, **what: Any) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps({**what, "seconds": round(self.seconds, 2)}) + "\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.chosen is not None:
            items[:] = picked(by_function(items), self.chosen)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.tell(began=item.nodeid)
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, HANGS)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.seconds += time.process_time() - start
            self.tell()
            if self.seconds > self.budget:
                item.session.shouldstop = "no time is left"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tell(failed=report.nodeid)


Items = dict[str, list[pytest.Item]]


def by_function(items: Sequence[pytest.Item]) -> Items:
    """The tests of the fast tier by their functions."""
    found: Items = {}
    for item in items:
        if item.get_closest_marker("slow") is None and item.get_closest_marker("gpu") is None:
            found.setdefault(function_of(item.nodeid), []).append(item)
    return found


def picked(known: Items, chosen: Sequence[Chosen]) -> list[pytest.Item]:
    """The cases of chosen tests: of each op all, of the others the first ones, and then the rest."""
    first, rest = list[pytest.Item](), list[pytest.Item]()
    for name, ops in chosen:
        cases = known.get(name, [])
        if ops:
            pattern = re.compile(rf"({'|'.join(ops)})\b")
            first += [item for item in cases if pattern.match(item.nodeid.partition("[")[2])]
        else:
            first += cases[:CASES]
            rest += cases[CASES:]
    return list(dict.fromkeys(first + rest))


def check(files: list[str], plugin: Runner, first: bool, root: Path) -> int:
    """Run the tests of some files, here, to the first that fails."""
    if not files:
        return 5
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    code = tested([*files, *(["-x"] if first else []), "--limit", str(STALLS)], plugin)
    own = [str(module.__file__) for name, module in sys.modules.items() if name in ("nngrad", "backward_registry")]
    assert all([file.startswith(str(root)) for file in own]), own
    return code


def stages(fault: Fault, reach: Reach) -> list[list[Chosen]]:
    """The tests that reach a fault, the likely ones first."""
    of_ops = [Chosen(test, fault.ops) for test in OF_EACH_OP] if fault.ops else []
    if fault.group == "fact":
        of_ops = [*of_ops[1:4], of_ops[0], *of_ops[4:]] if of_ops else []
        of_ops += [Chosen(test) for test in OF_FACTS.get(fault.kind, ())]
    reached = [Chosen(test) for test in reach.of(fault.path, fault.line, fault.function)]
    known = {each.test for each in of_ops}
    of_graphs = [Chosen(test) for test in OF_WHOLE_GRAPHS] if fault.group in MUST_BE_FOUND else []
    of_file = [Chosen(test) for test in OF_FILES.get(fault.path, ())]
    rest = [each for each in (*of_file, *reached, *of_graphs) if each.test not in known]
    return [stage for stage in (of_ops, list(dict.fromkeys(rest))) if stage]


OF_FACTS = {
    "precision": (
        "tests/functions/test_precision.py::test_all_others_compute_in_what_comes_in",
        "tests/functions/test_precision.py::test_no_product_and_no_sum_is_forgotten",
        "tests/graph/test_declarations.py::test_products_alone_are_computed_in_16_bits",
    ),
    "exact": ("tests/graph/test_structure.py::test_surrogate_rules_are_known_as_such",),
    "reads": ("tests/functions/test_solves.py::test_facts_of_solves_by_factors",),
    "fuses": ("tests/graph/test_declarations.py::test_what_is_computed_in_place_moves_no_elements",),
}
"""Tests of facts that are not about each sample."""
_LOOPS = ("tests/functions/test_loops.py::test_scan_to_order_3",)
OF_FILES = {
    **{f"nngrad/functions/bodies/{name}.py": _LOOPS for name in ("scans", "carries", "loop")},
    "nngrad/functions/bodies/scan_back.py": (
        *_LOOPS, "tests/autodiff/test_inner_gradients.py::test_as_reverse_mode_through_all_steps",
    ),
    "nngrad/functions/bodies/alternatives.py": ("tests/functions/test_branches.py::test_branches_to_order_3",),
    "nngrad/functions/bodies/while_loops.py": ("tests/functions/test_while_loops.py::test_forward_to_order_3",),
    "nngrad/functions/bodies/segments.py": ("tests/functions/test_segments.py::test_derivatives_of_order_3",),
    "nngrad/functions/bodies/implicit.py": ("tests/derivatives/test_implicit.py::test_linear_solve_to_every_order",),
    "nngrad/functions/bodies/flows.py": ("tests/derivatives/test_odeint.py::test_dormand_prince_to_order_2",),
    "nngrad/rewrite/numbers.py": (
        "tests/rewrite/test_rewrites.py::test_what_no_float_holds_makes_nothing_exact",
        "tests/rewrite/test_rewrites.py::test_which_products_of_numbers_stand_for_their_factors",
        "tests/rewrite/test_rewrites.py::test_numbers_that_are_not_finite_are_left_as_they_are",
    ),
    "nngrad/rewrite/builder.py": (
        "tests/rewrite/test_rewrites.py::test_a_gradient_reuses_all_outputs_of_an_equal_function",
    ),
    "nngrad/rewrite/sums.py": ("tests/rewrite/test_rewrites.py::test_without_like_terms_other_sums_are_collected",),
    "backward_registry/jax_derivatives.py": ("tests/jax/test_jax_function.py::test_to_order_3",),
    "nngrad/autodiff/request.py": ("tests/autodiff/test_grad.py::test_errors_of_grad_outputs",),
    "nngrad/graph/function.py": ("tests/graph/test_graph.py::test_ranks_are_one_more_than_the_highest_that_is_read",),
}
"""Tests of what all that runs reaches, so that the map has others."""


def judged(fault: Fault, copy: Copy, reach: Reach) -> Verdict:
    """Whether the tests find a fault."""
    seconds, tests = 0.0, 0
    for stage in stages(fault, reach):
        verdict = copy.anew(stage, BUDGET - seconds, fault)
        seconds, tests = seconds + verdict.seconds, tests + verdict.tests
        if verdict.found or seconds >= BUDGET:
            break
    else:
        verdict = Verdict(False, f"{tests} tests pass", seconds, tests)
    return verdict._replace(seconds=seconds, tests=tests)


class Swapped(Runner):
    """A plugin that judges faults which can be planted after nngrad was imported (`swapping.py`): tests are collected
    once, and run in processes from here."""

    def __init__(self, faults: Sequence[Fault], copy: Copy, reach: Reach, said: Said) -> None:
        super().__init__(BUDGET, copy.results)
        self.faults, self.copy, self.reach, self.said = faults, copy, reach, said
        self.left_out: set[str] = set()
        """Files that cannot be imported here."""

    def pytest_sessionstart(self) -> None:
        """JAX must not start here: processes from here would stand still. Files that start it are left out."""
        from jax._src import xla_bridge

        self.starts = xla_bridge.backends

        def starts() -> Any:
            raise RuntimeError("this file starts JAX where it is imported")

        xla_bridge.backends = starts

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.left_out.add(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        known = by_function(session.items)
        for fault in self.faults:
            chosen = [each for stage in stages(fault, self.reach) for each in stage]
            work = partial(self.work, session, picked(known, chosen), fault)
            verdict = self.copy.verdict(work, BUDGET, fault, anew=False)
            untried = not self.left_out.isdisjoint([each.test.partition("::")[0] for each in chosen])
            if verdict.found or not untried or verdict.seconds > BUDGET:
                self.said(fault, verdict)
        return True

    def work(self, session: pytest.Session, items: list[pytest.Item], fault: Fault) -> int:
        """Run some tests, to the first that fails."""
        from jax._src import xla_bridge

        xla_bridge.backends = self.starts
        swap(self.copy.root / fault.path)
        session.items = items
        session.testsfailed = 0
        for item, following in itertools.zip_longest(items, items[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed or session.shouldstop:
                break
        return int(bool(session.testsfailed))


def judged_together(faults: Sequence[Fault], copy: Copy, reach: Reach, said: Said) -> None:
    """Judge faults that can be planted after nngrad was imported, but for those that only other files may find."""
    files = {each.test.partition("::")[0] for fault in faults for stage in stages(fault, reach) for each in stage}
    files = sorted([file for file in files if (copy.root / file).exists()])
    plugin = Swapped(faults, copy, reach, said)
    work = partial(tested, [*files, "-s", "--limit", str(STALLS), "--continue-on-collection-errors"], plugin)
    log = copy.folder / "session"
    run(work, copy.root, log, 1e6)
    if "INTERNALERROR" in log.read_text():
        raise RuntimeError(log.read_text())


def still_fail(found: Sequence[str], copy: Copy) -> str:
    """Which of the tests that found something fail without a fault, too."""
    verdict = copy.anew([Chosen(function_of(test)) for test in found], 600.0)
    return verdict.how if verdict.found else ""
