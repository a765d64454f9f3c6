"""JAX's own tests with nngrad's transformations in the place of JAX's.

    python -m tests.jax_programs.own_tests FOLDER custom_api_test:CustomJVPTest lax_autodiff_test [--only WORD]

FOLDER is the `tests` folder of a copy of JAX's repository, of the version that is installed. Each test runs with
`jax.grad` and the like replaced in its file, and in JAX's `check_grads`. One that calls none of them does not count.
One that fails runs once more as it is, and counts if it passes then. The table says what came of it, and of each test
that failed the last line of its error.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import signal
import sys
import traceback
import types
import unittest
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax

import nngrad.jax as nj

NAMES = ("grad", "value_and_grad", "jvp", "vjp", "linearize", "hessian", "jacfwd", "jacrev")
called: list[str] = []
"""The transformations that a test has called."""


def noted(name: str) -> Callable[..., Any]:
    """nngrad's transformation of that name, which says that it was called."""
    transformation = getattr(nj, name)

    @functools.wraps(transformation)
    def noting(*args: Any, **options: Any) -> Any:
        called.append(name)
        return transformation(*args, **options)

    return noting


INSTEAD = {name: noted(name) for name in NAMES}


class Instead(types.ModuleType):
    """A module with nngrad's transformations in it."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return INSTEAD[name] if name in INSTEAD else getattr(self._module, name)


def replaced(module: types.ModuleType) -> dict[str, Any]:
    """The names of a module that stand for other things where nngrad's transformations are in place."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if isinstance(value, types.ModuleType) and value.__name__ in ("jax", "jax._src.api"):
            found[name] = Instead(value)
        elif name in INSTEAD and getattr(value, "__module__", "").startswith("jax"):
            found[name] = INSTEAD[name]
    return found


def reaches(function: Any, module: types.ModuleType, seen: set[Any]) -> bool:
    """Whether the code of a function, or of what it calls in its module, names a transformation."""
    code = getattr(function, "__code__", None)
    if code is None or code in seen:
        return False
    seen.add(code)
    names, waiting = set(), [code]
    while waiting:
        one = waiting.pop()
        names.update(one.co_names)
        waiting += [const for const in one.co_consts if isinstance(const, types.CodeType)]
    if names & {*NAMES, "check_grads"}:
        return True
    places = [module, *[value for value in vars(module).values() if isinstance(value, type)]]
    within = [getattr(place, name, None) for place in places for name in names if name in vars(place)]
    within += [cell.cell_contents for cell in function.__closure__ or () if callable(cell.cell_contents)]
    return any([reaches(getattr(each, "__wrapped__", each), module, seen) for each in within])


class TooLong(KeyboardInterrupt):
    """A test has run for longer than it may; no `except Exception` on the way may take it for something else."""


def outcome(test: unittest.TestCase, seconds: int) -> tuple[str, str]:
    """In a word what came of a test, and the last line of its error."""

    def stop(*_: Any) -> None:
        raise TooLong(f"{seconds} s")

    result = unittest.TestResult()
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        test.run(result)
    except TooLong as error:
        return "too long", str(error)
    finally:
        signal.alarm(0)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    failed = [*result.errors, *result.failures]
    if not failed:
        return "passes", ""
    lines = [line for line in failed[0][1].splitlines() if line.strip() and not line.startswith((" ", "-", "For sim"))]
    text = " ".join(lines[1:])
    first = next((line for line in lines[1:] if not line.startswith("Traceback")), text)
    return ("wrong" if "Not equal to tolerance" in text or "Mismatched" in text else first.split(":")[0]), first


def main(arguments: list[str]) -> None:
    """Run the classes that are named, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("classes", nargs="+")
    parser.add_argument("--only", default="", help="run the tests that have this in their names")
    parser.add_argument("--seconds", type=int, default=60, help="how long a test may take")
    given = parser.parse_args(arguments)
    sys.path.insert(0, given.folder)
    checking = importlib.import_module("jax._src.public_test_util")
    for chosen in given.classes:
        file, _, wanted = chosen.partition(":")
        module = importlib.import_module(file)
        jax.config.parse_flags_with_absl()
        places = [(place, vars(place).copy(), replaced(place)) for place in (module, checking)]
        counts: Counter[str] = Counter()
        suites = unittest.defaultTestLoader.loadTestsFromModule(module)
        for test in [test for suite in suites for test in suite if not wanted or type(test).__name__ == wanted]:
            method = getattr(type(test), test._testMethodName)
            if given.only not in test.id() or not reaches(method, module, set()):
                continue
            called.clear()
            for place, _, names in places:
                vars(place).update(names)
            try:
                word, said = outcome(test, given.seconds)
            except Exception:
                word, said = "crashes", traceback.format_exc().splitlines()[-1]
            finally:
                for place, before, names in places:
                    vars(place).update({name: before[name] for name in names})
            if not called:
                word = "calls none"
            elif word != "passes" and outcome(test, given.seconds)[0] != "passes":
                word = "does not pass as it is"
            counts[word] += 1
            if word not in ("passes", "calls none", "does not pass as it is"):
                print(f"{test.id().split('.', 1)[1]}: {said[:200]}", flush=True)
        print(chosen, dict(counts.most_common()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
