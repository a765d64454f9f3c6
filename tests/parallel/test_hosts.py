"""Several processes: launching, joining, what they compute together, and how they end together."""

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
from nngrad.parallel import launch as launching
from nngrad.parallel.hosts import joining
from nngrad.parallel.hosts.joining import launched_by
from tests.several_hosts import programs, resuming
from tests.several_hosts.equality import differences
from tests.several_hosts.running import LIMIT, ended, launch_command, launched, started
from tests.several_hosts.trouble import HEARTBEAT_TIMEOUT

SCRIPT = """
import os, signal, subprocess, sys, time
index = int(os.environ["NNGRAD_PROCESS_INDEX"])
print("begins", os.getpid(), flush=True)
def others_wait():
    if index != 1:
        child = subprocess.Popen(["sleep", "600"])
        print("child", child.pid, flush=True)
        time.sleep(600)
"""
SECONDS = 20.0
"""In which a run must end on a busy machine that ends in a second or two on a quiet one."""


@pytest.fixture
def launch(tmp_path: Path) -> Any:
    """Runs the launcher with a script that begins as `SCRIPT`."""

    def run(count: int, body: str, *options: object, arguments: tuple[str, ...] = ()) -> Any:
        (tmp_path / "script.py").write_text(SCRIPT + body)
        return launched("-n", count, *options, tmp_path / "script.py", *arguments, limit=LIMIT)

    return run


def children_of(text: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"(?:begins|child) (\d+)", text)]


# ---------------------------------------------------------------- launching


def test_lines_have_the_number_of_their_process(launch: Any) -> None:
    done = launch(3, "print(sys.argv[1:], os.environ['JAX_COORDINATOR_ADDRESS'], os.environ['JAX_LOCAL_DEVICE_IDS'], "
                     "os.environ['XLA_FLAGS'])\nprint('a fault', file=sys.stderr)",
                  "--devices-per-process", 2, arguments=("-n", "--x"))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    ports = set(re.findall(r"127\.0\.0\.1:(\d+)", done.stdout))
    assert len(ports) == 1
    for i in range(3):
        assert f"[{i}] ['-n', '--x'] 127.0.0.1:{min(ports)} {2 * i},{2 * i + 1} " \
               "--xla_force_host_platform_device_count=2" in lines
    assert sorted(done.stderr.splitlines()) == [f"[{i}] a fault" for i in range(3)]


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("sys.exit(3)", 3, "failed with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, r"was killed by signal 9 \(SIGKILL\)"),
    ],
)
def test_a_process_that_fails_ends_all(launch: Any, end: str, code: int, said: str) -> None:
    done = launch(3, f"if index == 1:\n    print('alas'); time.sleep(0.3); {end}\nothers_wait()", "--grace", "0.5")
    assert done.returncode == code
    assert re.search(rf"^nngrad.parallel.launch: process 1 \(pid \d+\) {said}", done.stderr, re.MULTILINE), done.stderr
    assert "[1] alas" in done.stdout.splitlines()
    assert "the others were ended; not ended after 0.5 s, and killed: 0, 2" in done.stderr
    assert len(children_of(done.stdout)) == 5
    assert ended(children_of(done.stdout))


def test_the_one_that_failed_first_by_itself_is_named(launch: Any) -> None:
    done = launch(3, "time.sleep(0.5 * (index == 2)); sys.exit(4) if index == 2 else os.abort()")
    assert done.returncode == 4
    assert "process 2 (pid" in done.stderr


def test_a_process_that_ends_early_and_well_leaves_the_others(launch: Any) -> None:
    done = launch(2, "time.sleep(0.5 * index); print('end of', index)")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[1] end of 1" in done.stdout


@pytest.mark.parametrize(
    ("numbers", "handled", "code"),
    [
        ([signal.SIGTERM], "signal.SIG_DFL", 143), ([signal.SIGINT], "signal.default_int_handler", 130),
        ([signal.SIGTERM], "lambda *_: sys.exit(0)", 0),
        ([signal.SIGTERM, signal.SIGTERM], "signal.SIG_IGN", 137),
    ],
)  # fmt: skip
def test_signals_are_sent_on_and_enforced(tmp_path: Path, numbers: list[int], handled: str, code: int) -> None:
    (tmp_path / "script.py").write_text(
        f"{SCRIPT}\nsignal.signal({int(numbers[0])}, {handled})\nprint('is ready', flush=True)\ntime.sleep(600)")
    grace = 600 if len(numbers) > 1 else 1
    with started(launch_command("-n", 2, "--grace", grace, tmp_path / "script.py")) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert sum("is ready" in line for line in lines) == 2
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.2)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code, err
    assert "sent to all processes" in err
    assert ("and killed: 0, 1" in err) == ("IGN" in handled)
    assert ended(children_of("".join(lines) + out))


def test_an_output_that_nobody_reads_ends_all(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + "for i in range(10000): print(i, flush=True); time.sleep(0.01)")
    with started(launch_command("-n", 2, "--grace", 0.5, tmp_path / "script.py")) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
        process.stdout.close()
        assert process.wait(LIMIT) in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
        assert ended(children_of("".join(lines)))
        process.stdout = None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.py"], "-n/--processes"),
        (["-n", "2", "not/there.py"], "there is no file 'not/there.py'"),
        (["-n", "2", "a.module"], "put -m before it"), (["-n", "0", "x.py"], "must be at least 1"),
    ],
)  # fmt: skip
def test_wrong_usage_is_explained(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        launching.main(arguments)
    assert said in capsys.readouterr().err


# ---------------------------------------------------------------- joining


def test_a_single_process_joins_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_membership", None)
    for name in [name for name in os.environ if name.startswith(("SLURM", "OMPI", "PMI", "NNGRAD_PROCESS"))]:
        monkeypatch.delenv(name)
    joined = nn.hosts.initialize()
    assert joined == nn.hosts.initialize()
    assert (joined.index, joined.count, str(joined)) == (0, 1, "a single process")
    assert nn.hosts.is_first()
    nn.hosts.barrier()
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
    done = launched("-n", 2, "-m", "tests.several_hosts.programs", 3, file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "process 1 of 2" in done.stdout
    expected = programs.run(3)
    with np.load(file) as found:
        largest = differences(dict(found), expected)
    assert len(largest) == 6
    assert all(difference < 1e-6 for difference in largest.values()), largest


def by_hand(kind: str, which: int, *variables: dict[str, str]) -> list[tuple[int, str, str]]:
    """Exit codes, output and errors of processes that no launcher of nngrad's looks after."""
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
    run = "-n", 2, "-m", "tests.several_hosts.resuming", tmp_path / "checkpoints"
    done = launched(*run, 100_000, "--kill", 0.5, 1)
    assert seconds_since_it_failed(done.stdout) < SECONDS
    assert done.returncode == 137
    assert re.search(r"nngrad.parallel.launch: process 1 \(pid \d+\) was killed by signal 9 \(SIGKILL\)", done.stderr)
    last = max(map(int, re.findall(r"step (\d+)", done.stdout)))
    again = launched(*run, last + 2, "--compare")
    assert again.returncode == 0, again.stdout + again.stderr
    found = re.search(r"goes on after step (\d+)", again.stdout)
    assert found is not None
    assert last - 2 * resuming.EVERY <= int(found[1]) <= last + 1
    for i in range(2):
        assert f"[{i}] the same bit by bit: 6 of 6 parameters" in again.stdout.splitlines()


@pytest.mark.slow
def test_one_that_does_not_arrive_is_named() -> None:
    done = launched("-n", 2, "--grace", 1, "-m", "tests.several_hosts.trouble", "late", 1)
    assert done.returncode == 1
    assert re.search(r"nngrad.parallel.launch: process 0 \(pid \d+\) failed with exit code 1", done.stderr), done.stderr
    assert re.search(r"^\[0\] .*Barrier timed out", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"^\[0\] (.*:)?1$", done.stderr, re.MULTILINE), "the name of the task"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
