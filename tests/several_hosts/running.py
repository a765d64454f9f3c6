"""Starting several processes from a test: with limits, and with nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 120.0
"""Seconds, on a busy machine."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of this process, for one that uses the CPU and compiles what it runs; without what launchers have set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "XLA_FLAGS"))}
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    return {**kept, **own, **(extra or {})}


@contextmanager
def started(command: list[str], extra: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, which is killed with all of its group at the end."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def launched(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Two processes that run Python with these arguments, to their end, which must come within `LIMIT` seconds."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.several_hosts.launching", "2", *map(str, arguments)]
    with started(command) as process:
        out, err = process.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
