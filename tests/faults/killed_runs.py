"""Runs that are killed again and again, and what they come to.

Each process is ended by SIGKILL at a random moment of a step, of a save or of a resumption, and started again; the last
one must come to the same bits as a process that nobody disturbed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

COUNTS = {"resume": (1, 1), "step": (1, 18), "save": (1, 5)}
"""In the how manieth phase of a process it is killed."""
LONGEST = 120.0
"""Seconds after which a process is ended, which is a failure then."""
MOST_DELAY = {"resume": 0.1, "step": 0.02, "save": 0.06}
"""Up to so many seconds after a process was let into a phase it is killed. It waits before its next one, so that a
watcher who comes late still ends it in this one."""


@dataclass
class Report:
    """What was seen."""

    whole: str
    """What the undisturbed process came to."""
    killed: str = ""
    kills: dict[str, int] = field(default_factory=dict)
    """How many processes were killed in each phase."""
    began: list[int] = field(default_factory=list)
    """The steps from which processes went on."""


def started(folder: Path, steps: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": "cpu",
                   "JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-W", "error", "-m", "tests.faults.resumed_run", str(folder), str(steps)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=Path(__file__).parents[2])


def watched(folder: Path, steps: int, phase: str | None, count: int, delay: float) -> tuple[list[str], bool]:
    """What a process says, and whether it was killed: `delay` seconds after it was let into `phase` for the `count`th
    time; None lets it run."""
    process = started(folder, steps)
    limit = time.monotonic() + LONGEST
    said: list[str] = []
    try:
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdout.fileno(), True)
        timer_of_limit = signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(int(LONGEST))
        try:
            for line in process.stdout:
                said.append(line.strip())
                if said[-1] in COUNTS:
                    process.stdin.write("go\n")
                    process.stdin.flush()
                    count -= said[-1] == phase
                if count == 0 and said[-1] == phase:
                    time.sleep(delay)
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(limit - time.monotonic())
                    return said, True
            process.wait(limit - time.monotonic())
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, timer_of_limit)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
    assert process.returncode == 0 and said[-1].startswith("end "), "\n".join(said)
    return said, False


def _too_long(*_: object) -> None:
    raise TimeoutError(f"a process did not end within {LONGEST:g} seconds")


def killed(moments: list[tuple[str, int]], steps: int, seed: int = 0) -> Report:
    """Run without a disturbance, and once more with a kill at each of some moments.

    Args:
        moments: Phases, and in the how manieth of a process's own it is killed.
        steps: How many steps there are in all.
        seed: Of the delays.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        said, _ = watched(Path(folder, "whole"), steps, None, 0, 0.0)
        report = Report(whole=said[-1])
        path = Path(folder, "killed")
        for phase, count in moments:
            said, was_killed = watched(path, steps, phase, count, rng.uniform(0, MOST_DELAY[phase]))
            _note(report, said)
            if not was_killed:
                report.killed = said[-1]
                return report
            report.kills[phase] = report.kills.get(phase, 0) + 1
        said, _ = watched(path, steps, None, 0, 0.0)
        _note(report, said)
        report.killed = said[-1]
    return report


def _note(report: Report, said: list[str]) -> None:
    report.began += [int(line.removeprefix("from ")) for line in said if line.startswith("from ")]
