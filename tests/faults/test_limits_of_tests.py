"""What the suite does for all tests: one that does not end is named, as is one that leaves an exception being handled;
slow ones are left out; what each costs is counted; signals reach those that send them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_cmdline_main
from tests.slow import slow_but

ROOT = Path(__file__).parents[2]
HANGS = """
import signal
import threading
import pytest

@pytest.mark.parametrize("n", [1])
def test_that_waits(n):
    signal.setitimer(signal.ITIMER_REAL, 600)
    threading.Event().wait()
"""
SEVERAL = """
import sys
import jax, jax.numpy as jnp
import pytest

def test_that_compiles():
    jax.jit(lambda x: x * 3)(jnp.ones(3)).block_until_ready()

@pytest.mark.slow
def test_that_is_slow():
    pass

def handles():
    try:
        raise ValueError
    except ValueError:
        pass

def test_that_leaves_a_handler():
    def trace(frame, event, _):
        if event == "line" and frame.f_lineno == handles.__code__.co_firstlineno + 4:
            raise KeyboardInterrupt  # where no signal can be
        return trace

    sys.settrace(trace)
    try:
        handles()
    except KeyboardInterrupt:
        sys.settrace(None)
"""
IGNORED = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from tests.conftest import hear_interrupts
if {mended}:
    hear_interrupts()
child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout.strip())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120,
                          capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", slow_but([0], [0, 1]))
def test_a_test_that_does_not_end_is_named(tmp_path: Path, workers: int) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    done = run("-m", "pytest", "-p", "tests.conftest", "--limit=0.5", f"-n{workers}", "--rootdir", str(tmp_path),
               "-o", "addopts=", str(tmp_path / "test_hangs.py"))  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_hangs.py::test_that_waits[1] takes longer than 0.5 s" in done.stderr
    assert "in test_that_waits" in done.stderr
    if workers:
        assert "crashed while running 'test_hangs.py::test_that_waits[1]'" in done.stdout


@pytest.mark.slow
def test_a_run_counts_and_leaves_out_what_is_slow_and_names_who_leaves_a_handler(tmp_path: Path) -> None:
    (tmp_path / "test_several.py").write_text(SEVERAL)
    done = run("-m", "pytest", "-p", "tests.conftest", "-n1", "--rootdir", str(tmp_path), "--costs",
               str(tmp_path / "costs"), "-o", "addopts=", "-o", "markers=slow: s", str(tmp_path))  # fmt: skip
    assert "2 passed" in done.stdout and "1 error" in done.stdout, done.stdout + done.stderr
    assert re.search(r"^ERROR .*test_several\.py::test_that_leaves_a_handler", done.stdout, re.MULTILINE)
    assert "an exception is still being handled" in done.stdout
    found = {line.split("\t")[2]: line.split("\t") for line in (tmp_path / "costs").read_text().splitlines()}
    assert set(found) == {f"test_several.py::test_that_{what}" for what in ("compiles", "leaves_a_handler")}
    compiled = int(found["test_several.py::test_that_compiles"][1])
    assert compiled >= 1 and f"\n{compiled} compilations; of " in done.stdout
    assert float(found["test_several.py::test_that_compiles"][0]) > 0


@pytest.mark.parametrize(("given", "left_out"), [
    ({}, True), ({"args": ["tests/faults"]}, True), ({"all": True}, False), ({"markexpr": "slow"}, False),
    ({"keyword": "killed"}, False), ({"args": ["tests/distributed/test_hosts.py"]}, False),
    ({"args": ["tests/a.py::b"]}, False),
])  # fmt: skip
def test_slow_tests_run_where_they_are_named(given: dict[str, Any], left_out: bool) -> None:
    option = SimpleNamespace(**{"all": False, "markexpr": "", "keyword": "", **given})
    args = [str(ROOT / path) for path in given.get("args", ["tests"])]
    pytest_cmdline_main(SimpleNamespace(option=option, args=args))  # type: ignore[arg-type]
    assert option.markexpr == ("not slow" if left_out else given.get("markexpr", ""))


@pytest.mark.slow
def test_children_hear_interrupts_where_a_shell_lets_them_be_ignored() -> None:
    assert [run("-c", IGNORED.format(mended=mended)).stdout.strip() for mended in (False, True)] == ["False", "True"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
