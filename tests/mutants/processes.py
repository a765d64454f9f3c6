"""Processes that run some tests, from one that has imported JAX and has not started it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGES = ("nngrad", "backward_registry", "nngrad_command")
"""What is tested."""


def prepare() -> None:
    """Import what all tests import, and set what conftest.py would start other processes to find out."""
    from tests.conftest import QUICKLY_COMPILED, known

    os.environ["XLA_FLAGS"] = " ".join([*known(QUICKLY_COMPILED), os.environ.get("XLA_FLAGS", "")]).strip()
    os.environ["JAX_PLATFORMS"] = "cpu"
    import hypothesis
    import jax
    import jax.scipy.special
    import optax
    import pytest
    import scipy.special

    assert (hypothesis, jax, optax, pytest, scipy) and not set(PACKAGES) & set(sys.modules)


def run(work: Callable[[], int], root: Path, log: Path, seconds: float, anew: bool = True) -> int | None:
    """Do some work in a process of its own, in the folder of a checkout, of which it imports all.

    Args:
        work: What is done.
        root: The folder.
        log: A file for what is printed.
        seconds: After how many seconds by the clock the process is ended, with all processes from it.
        anew: Whether it imports the tests anew.

    Returns:
        What the work returns; the negated number of the signal that ended it; or None, where it took longer than
        `seconds`.
    """

    def begin() -> None:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(root)
        for name in [name for name in sys.modules if anew and name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[0] = str(root)
        os.environ["PYTHONPATH"] = str(root)
        code = 70
        try:
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks; its backend is not started here
        process = multiprocessing.get_context("fork").Process(target=begin)
        process.start()
    process.join(seconds)
    code = process.exitcode
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return code


def tested(arguments: list[str], plugin: Any) -> int:
    """Run pytest here."""
    import pytest

    imported = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options = [*imported, "-n", "0", "--optimised", "--hypothesis-seed=0", "-p", "no:cacheprovider", "--tb=short"]
    return int(pytest.main([*options, *arguments], plugins=[plugin]))
