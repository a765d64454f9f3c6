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
import re
import signal
import sys
import types
import unittest
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax

import nngrad.jax as nj

NAMES = ("grad", "value_and_grad", "jvp", "vjp", "linearize", "hessian", "jacfwd", "jacrev")
WORDS = ("passes", "refused", "wrong", "raises", "too long")
WORDED = "raises the same class of error, in other words"
INTERNALS = "asks for JAX's internals"
REFUSED: dict[str, tuple[str, ...]] = {
    WORDED: (
        "test_grad_nonscalar_output", "test_grad_tuple_output", "test_grad_unit_output", "test_jvp_error",
        "test_unimplemented_interpreter_rules",
    ),
    INTERNALS: (
        "test_grad_of_jit_compilation_caching2", "test_pmap_global_cache", "test_vjp3_dont_want",
        "test_vjp3_dont_want_bilinear", "testSwitchResidualsMerge", "test_scan_vjp_forwards_extensive_residuals",
        "test_fwd_caching", "test_linearize_caching", "test_name_stack_annotation", "test_no_cse_widget_on_primals",
        "test_no_cse_widget_on_primals_new", "test_no_cse_widget_on_primals_policy", "test_remat_basic",
        "test_remat_basic_policy", "test_remat_checkpoint_dots_inside_cond", "test_remat_checkpoint_dots_inside_scan",
        "test_remat_eval_counter", "test_remat_residual_logging", "test_remat_scan", "test_remat_scan_new",
        "test_remat_checkpoint_dots_outside_cond", "test_remat_checkpoint_dots_outside_scan",
        "test_remat_of_cond_funky_custom_jvp", "test_remat_of_cond_funky_custom_jvp2",
        "test_remat_of_scan_funky_custom_jvp", "test_remat_of_scan_funky_custom_jvp2",
    ),
    "looks for the precision of a product in a jaxpr's text": (
        "testDotGeneralContractAndBatchGrads", "testDotGrad",
    ),
    "asks for NaN where nngrad's derivative is finite": ("testPowSecondDerivative",),
    "asks for a Python number; here results are arrays": (
        "test_symbolic_zero_custom_jvp", "test_symbolic_zero_custom_vjp",
    ),
    "a rule breaks its promise: its value is another one, or depends on tangents": (
        "test_jvp_dataflow_violation", "test_optimize_remat_gh21303",
    ),
    "derivatives of custom_vmap are mapped along an axis that JAX sees not to matter": (
        "test_jvp_extra_batched_primals_with_linear_vmap_rule",
    ),
    "differentiates a solve with symmetric=True in directions in which the matrix does not stay symmetric": (
        "test_custom_linear_solve_symmetric",
    ),
    "computes what JAX refuses": (
        "test_partial_eval_raises", "test_custom_linear_solve_without_transpose_solve",
        "testWhileGradError_loop='fori_inside_cond'", "testWhileGradError_loop='fori_inside_scan'",
        "testWhileGradError_loop='while'",
    ),
}  # fmt: skip
"""What tests ask for that nngrad does not give, and why, by the names of the tests."""

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


class Noting(unittest.TestResult):
    """Keeps the errors of a test themselves, not only how they are printed."""

    def __init__(self) -> None:
        super().__init__()
        self.raised: list[BaseException] = []

    def _exc_info_to_string(self, err: Any, test: unittest.TestCase) -> str:
        self.raised.append(err[1])
        return str(err[1])


def outcome(test: unittest.TestCase, seconds: int) -> tuple[str, str]:
    """In a word what came of a test, and its error in a line."""

    def stop(*_: Any) -> None:
        raise TooLong(f"{seconds} s")

    result = Noting()
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of the processor's time, whatever else runs beside
    try:
        test.run(result)
    except TooLong as error:
        return "too long", str(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    if not result.raised:
        return "passes", ""
    error = result.raised[0]
    said = " ".join(str(error).split())
    wrong = isinstance(error, AssertionError) and ("Not equal to tolerance" in said or "Mismatched" in said)
    return ("wrong" if wrong else "raises"), f"{type(error).__name__}: {said}"


def refusal(name: str, said: str) -> str:
    """Why nngrad does not do what a test asks for, in a few words; nothing where that has no reason."""
    if re.match('AssertionError: ".*" does not match "', said):
        return WORDED
    if re.search(r"^AttributeError: 'LinearFunction'|nngrad_call\[|Regex didn't match: 'optimization_barrier", said):
        return INTERNALS  # it looks into what `vjp` returns, or into a jaxpr
    test = re.sub(r"\d+ \(.*", "", name)  # without the arguments that JAX has drawn
    return next((why for why, names in REFUSED.items() if test in names), "")


def row(name: str, counts: Counter[str], refused: Counter[str]) -> str:
    """A row of the table in Markdown."""
    asked = counts.total() - counts["calls none"] - counts["does not pass as it is"] - counts["skipped"]
    reasons = "; ".join([f"{count} {why}" for why, count in refused.most_common()])
    cells = [name, str(asked), *[str(counts[word]) for word in WORDS], reasons]
    return " | ".join(["", *cells, ""]).strip()


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
    rows = []
    for chosen in given.classes:
        file, _, wanted = chosen.partition(":")
        module = importlib.import_module(file)
        jax.config.parse_flags_with_absl()
        places = [(place, vars(place).copy(), replaced(place)) for place in (module, checking)]
        tests: dict[str, list[Any]] = {}
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            for test in suite:
                tests.setdefault(type(test).__name__, []).append(test)
        for name in tests if not wanted else [wanted]:
            counts: Counter[str] = Counter()
            refused: Counter[str] = Counter()
            for test in tests[name]:
                method = getattr(type(test), test._testMethodName)
                if given.only not in test.id() or not reaches(method, module, set()):
                    continue
                called.clear()
                for place, _, names in places:
                    vars(place).update(names)
                try:
                    word, said = outcome(test, given.seconds)
                finally:
                    for place, before, names in places:
                        vars(place).update({name: before[name] for name in names})
                if not called:
                    word = "calls none"
                elif word not in ("passes", "skipped") and outcome(test, given.seconds)[0] != "passes":
                    word = "does not pass as it is"
                if word in WORDS[1:]:
                    own = test.id().split(".", 1)[1]
                    why = refusal(test._testMethodName, said)
                    if why:
                        word = "refused"
                        refused[why] += 1
                    print(f"{own}: {why or word}: {said[:300]}", flush=True)
                counts[word] += 1
            if counts.total():
                rows.append(row(f"`{name}`", counts, refused))
                print(rows[-1], dict(counts), flush=True)
    print(*rows, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
