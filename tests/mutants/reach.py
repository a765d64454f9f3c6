"""Which tests reach which lines: a map that is made once, and kept.

Of each test function the first two cases are run, those of one file in one process, and the lines of the product that
they reach are noted by `sys.monitoring`, anew for each case. What a file of tests reaches is kept in `build/reach`, by
a digest of the file; from all of these `reach.json.gz` is made, in which each line of a function, or of a statement at
the top of a file, has the tests that come first: those that reach few other lines, and those of whose lines many are in
the same file; from several files of tests.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest

from .processes import PACKAGES, prepare, run, tested

ROOT = Path(__file__).parents[2]
MAP = Path(__file__).with_name("reach.json.gz")
CASES = 2
SLOW = re.compile(
    "/(browser|jax_models|several_hosts)/|test_(hosts|docs|examples|jax_examples|site|recompute_models|killed_runs|mutants)[.]py$"
)
"""Files of which no test is in the fast tier."""


class Watch:
    """A plugin that notes, for each test, the lines of the product that it reaches, and the seconds that it takes."""

    def __init__(self, root: Path, kept: Path) -> None:
        self.root, self.kept = root, kept
        self.lines: dict[str, set[int]] = {}
        self.tests: dict[str, dict[str, Any]] = {}
        self.ok = True
        sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, "mutants")
        sys.monitoring.register_callback(sys.monitoring.COVERAGE_ID, sys.monitoring.events.LINE, self.line)
        compiled = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
            code = compiled(loader, name)
            if code is not None and name.partition(".")[0] in PACKAGES:
                self.watch(code)
            return code

        SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]

    def watch(self, code: CodeType) -> None:
        """Hear of lines of this code, and of that of functions in it."""
        rest = [code]
        while rest:
            each = rest.pop()
            sys.monitoring.set_local_events(sys.monitoring.COVERAGE_ID, each, sys.monitoring.events.LINE)
            rest += [c for c in each.co_consts if isinstance(c, CodeType)]

    def line(self, code: CodeType, number: int) -> Any:
        self.lines.setdefault(code.co_filename, set()).add(number)
        return sys.monitoring.DISABLE

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        counts: dict[str, int] = {}
        for item in items:
            counts[function_of(item.nodeid)] = counts.get(function_of(item.nodeid), 0) + 1
        seen: dict[str, int] = {}
        kept = []
        for item in items:
            name = function_of(item.nodeid)
            seen[name] = seen.get(name, 0) + 1
            if seen[name] <= CASES and item.get_closest_marker("slow") is None:
                kept.append(item)
        self.counts = counts
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.lines.clear()
        self.ok = True
        sys.monitoring.restart_events()
        start = time.process_time()
        try:
            return (yield)
        finally:
            entry = self.tests.setdefault(function_of(item.nodeid), {"seconds": 0.0, "ok": True, "lines": {}})
            entry["seconds"] = max(entry["seconds"], round(time.process_time() - start, 3))
            entry["ok"] &= self.ok
            entry["cases"] = self.counts[function_of(item.nodeid)]
            for path, lines in list(self.lines.items()):
                if path.startswith(str(self.root)):
                    name = os.path.relpath(path, self.root)
                    entry["lines"][name] = sorted(lines.union(entry["lines"].get(name, ())))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ok &= report.passed

    def pytest_sessionfinish(self) -> None:
        self.kept.write_bytes(gzip.compress(json.dumps(self.tests).encode()))


def function_of(nodeid: str) -> str:
    """The test function of a case."""
    return nodeid.partition("[")[0]


def kept_for(file: Path, root: Path) -> Path:
    """Where it is kept what the tests of a file reach."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    return ROOT / "build" / "reach" / f"{file.stem}-{digest}.json.gz"


def files_of(root: Path) -> list[Path]:
    """The files of the fast tier."""
    return [file for file in sorted((root / "tests").rglob("test_*.py")) if not SLOW.search(str(file))]


def watch(file: Path, root: Path) -> int:
    """Run the tests of one file, here."""
    return tested([str(file)], Watch(root, kept_for(file, root)))


def make(root: Path) -> None:
    """Run the tests of which it is not known what they reach."""
    prepare()
    (ROOT / "build" / "reach").mkdir(parents=True, exist_ok=True)
    for file in files_of(root):
        if not kept_for(file, root).exists():
            start = time.time()
            code = run(partial(watch, file, root), root, ROOT / "build" / "reach" / f"{file.stem}.log", 400)
            print(f"{file.relative_to(root)}: {code}, {time.time() - start:.0f} s", flush=True)
    MAP.write_bytes(gzip.compress(json.dumps(condensed(root), separators=(",", ":")).encode(), mtime=0))



# ---------------------------------------------------------------- the map

MOST, OF_A_FILE, LONGEST = 12, 3, 12.0
"""How many tests are kept for a line, how many of these from one file, and how many seconds each may take."""

Groups = list[tuple[int, list[int]]]
"""Of a function: from which line on, counted from its first, which tests come first."""


class Reaching(NamedTuple):
    """A test that reaches a line."""

    test: str
    lines: int
    """How many lines it reaches in all."""
    share: float
    """The share of these that is in the file of that line."""


def condensed(root: Path) -> dict[str, Any]:
    """The map, from what is kept of each file of tests."""
    tests, lines = dict[str, float](), dict[str, dict[int, list[Reaching]]]()
    for file in files_of(root):
        kept = kept_for(file, root)
        for name, entry in json.loads(gzip.decompress(kept.read_bytes())).items() if kept.exists() else ():
            if entry["ok"] and entry["seconds"] <= LONGEST:
                tests[name] = entry["seconds"]
                reached = sum(map(len, entry["lines"].values()))
                for path, numbers in entry["lines"].items():
                    each = Reaching(name, reached, len(numbers) / reached)
                    for number in numbers:
                        lines.setdefault(path, {}).setdefault(number, []).append(each)
    numbered = {name: i for i, name in enumerate(sorted(tests))}
    found: dict[str, dict[str, Groups]] = {}
    for path in sorted(lines):
        functions = functions_at(root / path)
        for number in sorted(lines[path]):
            if number in functions:
                name, first = functions[number]
                groups = found.setdefault(path, {}).setdefault(name, [])
                few = [numbered[test] for test in focused(lines[path][number])]
                if not groups or groups[-1][1] != few:
                    groups.append((number - first, few))
    return {"tests": [[name, tests[name]] for name in sorted(tests)], "functions": found}


def focused(reaching: list[Reaching]) -> list[str]:
    """Of the tests that reach a line those that reach few others, in turn with those that are most about its file; from
    several files of tests if there are such."""
    few = sorted(reaching, key=lambda each: (each.lines, each.test))
    about = sorted(reaching, key=lambda each: (-each.share, each.test))
    found, more, of_file = list[str](), list[str](), dict[str, int]()
    for test in dict.fromkeys([each.test for both in zip(about, few, strict=True) for each in both]):
        file = test.partition("::")[0]
        of_file[file] = of_file.get(file, 0) + 1
        (found if of_file[file] <= OF_A_FILE else more).append(test)
    return (found + more)[:MOST]


def functions_at(path: Path) -> dict[int, tuple[str, int]]:
    """For each line in a function: the innermost one by name, with those around it, and its first line; for one in
    a statement at the top of the file: what the statement begins with."""
    found: dict[int, tuple[str, int]] = {}
    module = ast.parse(path.read_bytes())
    for each in module.body:
        if isinstance(each, ast.Expr | ast.Assign) and not isinstance(each.value, ast.Constant):
            assert each.end_lineno is not None
            name = re.split(r", (?=['\"]|lambda)", ast.unparse(each), maxsplit=1)[0]
            found.update(dict.fromkeys(range(each.lineno, each.end_lineno + 1), (name[:60], each.lineno)))
    stack: list[tuple[str, ast.AST]] = [("", module)]
    while stack:
        name, node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}" if name else node.name
            assert node.end_lineno is not None
            found.update(dict.fromkeys(range(node.lineno, node.end_lineno + 1), (name, node.lineno)))
        stack += [(name, child) for child in ast.iter_child_nodes(node)]
    return found


class Reach:
    """The map, as it is kept."""

    def __init__(self, root: Path) -> None:
        kept = json.loads(gzip.decompress(MAP.read_bytes()))
        self.root, self.tests, self.functions = root, kept["tests"], kept["functions"]

    def of(self, path: str, line: int, function: str) -> list[str]:
        """The tests that reach a line, the most focused first; those that reach the function, if it is not known of the
        line, or the file."""
        name, first = functions_at(self.root / path).get(line, (function, line))
        file = self.functions.get(path, {})
        groups = file.get(name) or file.get(function) or [each for groups in file.values() for each in groups]
        before = [numbers for start, numbers in groups if start <= line - first]
        reaching = [self.tests[i][0] for i in (before[-1] if before else groups[0][1] if groups else ())]
        return [test for test in reaching if (self.root / test.partition("::")[0]).exists()]
