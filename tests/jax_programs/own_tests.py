"""JAX's own tests with nngrad's transformations in the place of JAX's.

    python -m tests.jax_programs.own_tests FOLDER custom_api_test:CustomJVPTest lax_autodiff_test [--only WORD]

FOLDER is the `tests` folder of a copy of JAX's repository, of the version that is installed. Each test runs as it is
first, and counts only if it passes. Then it runs with `jax.grad` and the like replaced in its file, and in JAX's
`check_grads`. The table says what came of it, and of each test that failed the last line of its error.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import traceback
import types
import unittest
from collections import Counter
from typing import Any

import jax

import nngrad.jax as nj

INSTEAD = {
    name: getattr(nj, name, nj.jacobian)
    for name in ("grad", "value_and_grad", "jvp", "vjp", "linearize", "hessian", "jacfwd", "jacrev")
}


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


class TooLong(Exception):
    """A test has run for longer than it may."""


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
            if given.only not in test.id():
                continue
            word, said = outcome(test, given.seconds)
            if word == "passes":
                for place, _, names in places:
                    vars(place).update(names)
                try:
                    word, said = outcome(test, given.seconds)
                except Exception:
                    word, said = "crashes", traceback.format_exc().splitlines()[-1]
                finally:
                    for place, before, names in places:
                        vars(place).update({name: before[name] for name in names})
            else:
                word = "not run"
            counts[word] += 1
            if word not in ("passes", "not run"):
                print(f"{test.id().split('.', 1)[1]}: {said[:200]}", flush=True)
        print(chosen, dict(counts.most_common()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
