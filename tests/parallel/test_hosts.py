"""Several processes: joining, what they compute together, and how they end together."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
from nngrad.parallel.hosts import joining
from nngrad.parallel.hosts.joining import launched_by
from tests.several_hosts import programs, resuming
from tests.several_hosts.equality import differences
from tests.several_hosts.running import LIMIT, launched, started
from tests.several_hosts.trouble import HEARTBEAT_TIMEOUT

SECONDS = 20.0
"""In which a run must end on a busy machine that ends in a second or two on a quiet one."""


# ---------------------------------------------------------------- joining


def test_a_single_process_joins_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_membership", None)
    for name in [name for name in os.environ if name.startswith(("SLURM", "OMPI", "PMI", "NNGRAD_PROCESS"))]:
        monkeypatch.delenv(name)
    joined = nn.hosts.initialize()
    assert joined == nn.hosts.initialize()
    assert (joined.index, joined.count, str(joined)) == (0, 1, "a single process")
    assert nn.hosts.is_first()
    assert nn.hosts.part_of([1, 2, 3]) == [1, 2, 3]


def test_joining_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    jax.devices()  # which starts them
    monkeypatch.setattr(joining, "_membership", None)
    for name, value in {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:9", "NNGRAD_PROCESS_COUNT": "2",
                        "NNGRAD_PROCESS_INDEX": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="comes too late: JAX has already started its devices"):
        nn.hosts.initialize()
    with pytest.raises(ValueError, match="heartbeat_timeout: must be a positive number of seconds, got 0"):
        nn.hosts.initialize(heartbeat_timeout=0)


def test_launchers_are_known_by_their_variables() -> None:
    ours = {"JAX_COORDINATOR_ADDRESS": "a:1", "NNGRAD_PROCESS_COUNT": "4", "NNGRAD_PROCESS_INDEX": "3"}
    launched_here = launched_by(ours)
    assert launched_here is not None
    assert (launched_here.count, launched_here.arguments["process_id"]) == (4, 3)
    assert launched_by({}) is None
    assert launched_by({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2"}) is None  # within an allocation, by hand
    assert launched_by({"PMI_SIZE": "1"}) is None
    for wrong, said in (
        ({"NNGRAD_PROCESS_COUNT": "2"}, "JAX_COORDINATOR_ADDRESS and NNGRAD_PROCESS_INDEX: missing from"),
        ({**ours, "NNGRAD_PROCESS_INDEX": "4"}, "must be from 0 to 3"),
        ({**ours, "NNGRAD_PROCESS_COUNT": "two"}, "must be an integer in the environment, got 'two'"),
        ({"PMI_SIZE": "8"}, r"MPI started 8 processes \(PMI_SIZE\).*Install mpi4py"),
    ):
        with pytest.raises(ValueError, match=said):
            launched_by(wrong)


def test_parts_are_equal_and_cover_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def part(data: Any, index: int, remainder: str = "refuse") -> Any:
        monkeypatch.setattr(jax, "process_index", lambda: index)
        monkeypatch.setattr(jax, "process_count", lambda: 3)
        return nn.hosts.part_of(data, remainder=remainder)

    data = np.arange(12).reshape(6, 2)
    np.testing.assert_array_equal(np.concatenate([part(data, i) for i in range(3)]), data)
    with pytest.raises(ValueError, match=r"data: cannot divide 7 examples evenly among 3 processes, 1 are left over"):
        part(range(7), 0)
    assert [[*part(range(7), i, "drop")] for i in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError, match="expected at least 3 examples, one for each process, got 2"):
        part([1, 2], 0, "drop")
    with pytest.raises(TypeError, match="data: must have a length"):
        part(iter([1]), 0)


# ---------------------------------------------------------------- together


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path: Path) -> None:
    file = tmp_path / "results.npz"
    done = launched("-m", "tests.several_hosts.programs", 3, file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "process 1 of 2" in done.stdout
    expected = programs.run(3)
    with np.load(file) as found:
        largest = differences(dict(found), expected)
    assert len(largest) == 6
    assert all(difference < 1e-6 for difference in largest.values()), largest


def by_hand(kind: str, which: int, *variables: dict[str, str]) -> list[tuple[int, str, str]]:
    """Exit codes, output and errors of processes that no launcher looks after."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.several_hosts.trouble", kind, str(which)]
    with ExitStack() as stack:
        started_processes = [stack.enter_context(started(command, extra)) for extra in variables]
        found = []
        for process in started_processes:
            try:
                out, err = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(f"it did not end: {out}{err}") from None
            found.append((process.returncode, out, err))
        return found


def seconds_since_it_failed(*outputs: str) -> float:
    found = re.search(r"(\d+\.\d+) it fails", "".join(outputs))
    assert found is not None, outputs
    return time.time() - float(found[1])


@pytest.mark.slow
def test_an_error_under_slurm_ends_all() -> None:
    of_job = {"SLURM_JOB_ID": str(10_000 + os.getpid()), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2",
              "SLURM_STEP_NUM_NODES": "1", "JAX_COORDINATOR_PORT": str(free_port())}
    (code, out, err), (other_code, other_out, other_err) = by_hand(
        "error", 1, *[{**of_job, "SLURM_PROCID": i, "SLURM_LOCALID": i} for i in "01"])
    assert seconds_since_it_failed(other_out) < 2 * HEARTBEAT_TIMEOUT + SECONDS
    assert "process 1 of 2" in other_out
    assert other_code == 1 and "ValueError: a bad batch" in other_err
    assert code != 0, err
    assert "the end" not in out


@pytest.mark.slow
def test_the_death_of_the_coordinator_under_mpi_ends_all() -> None:
    of_job = {"OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://127.0.0.1:34911", "OMPI_COMM_WORLD_SIZE": "2",
              "JAX_COORDINATOR_PORT": str(free_port())}
    (code, out, _), (other_code, other_out, other_err) = by_hand(
        "kill midway", 0, *[{**of_job, "OMPI_COMM_WORLD_RANK": i, "OMPI_COMM_WORLD_LOCAL_RANK": i} for i in "01"])
    assert seconds_since_it_failed(out) < 2 * HEARTBEAT_TIMEOUT + SECONDS
    assert "process 1 of 2" in other_out
    assert code == -signal.SIGKILL
    assert other_code in (-signal.SIGABRT, 1), other_err


@pytest.mark.slow
def test_a_killed_process_ends_all_and_the_run_goes_on(tmp_path: Path) -> None:
    run = "-m", "tests.several_hosts.resuming", tmp_path / "checkpoints"
    done = launched(*run, 100_000, "--kill", 0.5, 1)
    assert seconds_since_it_failed(done.stdout) < SECONDS
    assert done.returncode == 137
    last = max(map(int, re.findall(r"step (\d+)", done.stdout)))
    again = launched(*run, last + 2, "--compare")
    assert again.returncode == 0, again.stdout + again.stderr
    found = re.search(r"goes on after step (\d+)", again.stdout)
    assert found is not None
    assert last - 2 * resuming.EVERY <= int(found[1]) <= last + 1
    for i in range(2):
        assert f"[{i}] the same bit by bit: 6 of 6 parameters" in again.stdout.splitlines()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
