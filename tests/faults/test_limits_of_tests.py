"""A test that does not end is ended and named, and signals reach those that send them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("workers", [0, 1])
def test_a_test_that_does_not_end_is_named(tmp_path: Path, workers: int) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    done = run("-m", "pytest", "-p", "tests.conftest", "--limit=0.5", f"-n{workers}", "--rootdir", str(tmp_path),
               "-o", "addopts=", str(tmp_path / "test_hangs.py"))  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_hangs.py::test_that_waits[1] takes longer than 0.5 s" in done.stderr
    assert "in test_that_waits" in done.stderr
    if workers:
        assert "crashed while running 'test_hangs.py::test_that_waits[1]'" in done.stdout


def test_children_hear_interrupts_where_a_shell_lets_them_be_ignored() -> None:
    assert [run("-c", IGNORED.format(mended=mended)).stdout.strip() for mended in (False, True)] == ["False", "True"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
