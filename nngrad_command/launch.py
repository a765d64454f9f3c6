"""`nngrad launch`: run a script in several processes on this machine, which JAX joins over loopback.

It imports neither JAX nor nngrad; only the processes do.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import IO

from .arguments import positive, seconds
from .launched import BIND, COORDINATOR, COUNT, INDEX, LAUNCHED, LOCAL_DEVICES
from .outcome import complain

GRACE = 10.0
"""Seconds that processes have to end by themselves."""
POLL = 0.05
DRAIN = 2.0
"""Seconds within which the remaining output of ended processes must arrive."""
LONGEST = 1 << 16
"""The number of bytes after which a line is passed on before its end."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DESCRIPTION = "Run a script as several processes on this machine, each with devices of its own, joined by JAX."
EPILOG = f"""\
The script joins the processes with nn.hosts.initialize(), before it computes
anything; the same script runs under SLURM and MPI. Each line that a process
writes has its number before it. The processes get in their environment:
  {COUNT}, {INDEX}   how many there are, and which of them this is
  {COORDINATOR}                      where process 0 listens, on loopback
  {LOCAL_DEVICES}                         its share of the GPUs, if there are any
When a process fails or is killed, the others are ended, and so are all at
Ctrl-C and SIGTERM, which they are sent. The exit code is that of the process
that failed first: 128 and the number of the signal if one killed it."""

Process = subprocess.Popen[bytes]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad launch`."""
    parser.add_argument("-n", "--processes", type=positive, required=True, metavar="N", help="how many processes")
    parser.add_argument("--devices-per-process", type=positive, metavar="K",
                        help="devices of each process: so many GPUs, or virtual devices of the CPU (default: 1)")
    parser.add_argument("--grace", type=seconds, default=GRACE, metavar="S",
                        help="how long processes may take to end, when another has failed or at a signal, before they "
                        f"are killed (default: {GRACE:g})")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help="the script, a file of Python")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")


def run(given: argparse.Namespace) -> int:
    """Start the processes, wait until they have ended, and return the exit code."""
    if not given.module and not os.path.isfile(given.script):
        complain(f"nngrad launch: there is no file {given.script!r}" + (
            "" if given.script.endswith(".py") else "; give -m before it if it is the name of a module"))
        return 2
    command = [sys.executable, *(["-m"] if given.module else []), given.script, *given.arguments]
    processes: list[Process] = []
    readers: list[threading.Thread] = []
    ended: list[Process] = []
    with _signals_noted() as signals:
        try:
            for environment in environments(given):
                process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
                for pipe, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                    label = f"[{len(processes)}] "
                    readers.append(threading.Thread(target=_pass_on, args=(label, pipe, out, signals), daemon=True))
                    readers[-1].start()
                processes.append(process)
            _wait(processes, ended, signals, given.grace)
        finally:
            for process in processes:
                if process not in ended:
                    _send(process, signal.SIGKILL)
                    process.wait()
            deadline = time.monotonic() + DRAIN
            for reader in readers:
                reader.join(max(0.0, deadline - time.monotonic()))
    return _outcome(processes, ended, signals, given.grace)


def environments(given: argparse.Namespace) -> Iterator[dict[str, str]]:
    """The environment variables of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    each = given.devices_per_process or 1
    for index in range(given.processes):
        environment = {
            **os.environ, COUNT: str(given.processes), INDEX: str(index), COORDINATOR: address, BIND: address,
            LOCAL_DEVICES: ",".join(map(str, range(index * each, (index + 1) * each))), LAUNCHED: "1",
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        if given.devices_per_process is not None:
            flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={each}"
            environment["XLA_FLAGS"] = flags.strip()
        yield environment


def _pass_on(label: str, pipe: IO[bytes], out: IO[str], signals: list[int]) -> None:
    """Write the lines of a process, each with its number; where nobody reads them any more, end all, as by SIGTERM."""
    while line := pipe.readline(LONGEST):
        try:
            out.write(f"{label}{line.decode(errors='backslashreplace').rstrip()}\n")  # in one piece: lines do not mix
            out.flush()
        except (OSError, ValueError, AttributeError):
            if not signals:
                signals.append(signal.SIGTERM)
            return


def _wait(processes: list[Process], ended: list[Process], signals: list[int], grace: float) -> None:
    """Wait until all processes have ended, or the time is over that they have after a signal or a failure. Those that
    have ended by themselves are added to `ended`, in order."""
    deadline, sent = float("inf"), 0
    while len(ended) < len(processes):
        new = signals[sent:]
        sent += len(new)
        for process in processes:
            if process in ended:
                continue
            if process.poll() is None:
                for number in new:
                    _send(process, number)
            else:
                ended.append(process)
                _send(process, signal.SIGKILL)  # to what it has started
        if (signals or any([process.returncode for process in ended])) and deadline == float("inf"):
            deadline = time.monotonic() + grace
        if len(signals) > 1 or time.monotonic() >= deadline:  # at a second signal at once
            return
        time.sleep(POLL)


def _send(process: Process, number: int) -> None:
    """Send a signal to a process, and to what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _outcome(processes: list[Process], ended: list[Process], signals: list[int], grace: float) -> int:
    """Report how the processes ended, and return the exit code."""
    killed = ", ".join([str(index) for index, process in enumerate(processes) if process not in ended])
    also = f"; not ended after {grace:g} s, and killed: {killed}" if killed else ""
    # An abort comes last: JAX aborts a process when another one has died.
    failed = sorted([process for process in ended if process.returncode],
                    key=lambda process: process.returncode == -signal.SIGABRT)
    code = failed[0].returncode if failed else -signal.SIGKILL if killed else 0
    if signals:
        complain(f"nngrad launch: {signal.Signals(signals[0]).name}, sent to all processes{also}")
    elif failed:
        how = f"failed with exit code {code}" if code > 0 else f"was killed by signal {-code} ({_name_of(-code)})"
        complain(f"nngrad launch: process {processes.index(failed[0])} (pid {failed[0].pid}) {how}"
                 f"{'; the others were ended' if len(processes) > 1 else ''}{also}")
    return code if code >= 0 else 128 - code


def _name_of(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else "unnamed"


@contextlib.contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """The signals that this process gets within the block, which do not end it."""
    signals: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        signals.append(number)

    before = {number: signal.getsignal(number) for number in FORWARDED}
    try:
        for number in FORWARDED:
            if before[number] is not signal.SIG_IGN:  # ignored signals, as under nohup, stay ignored
                signal.signal(number, note)
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
