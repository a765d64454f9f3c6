"""`python -m nngrad.parallel.launch -n 4 script.py`: run a script in several processes on this machine.

The script joins the processes by `nn.hosts.initialize()`, before it computes anything; the same script runs under SLURM
and MPI. Each line that a process writes has its number before it. Each process gets its share of the GPUs, if there are
any. When a process fails or is killed, the others are ended, and so are all at Ctrl-C and SIGTERM, which they are sent.
The exit code is that of the process that failed first: 128 and the number of the signal if one killed it.
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
from collections.abc import Iterator, Sequence
from typing import IO

from .hosts.joining import COORDINATOR, COUNT, INDEX

Process = subprocess.Popen[bytes]


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the processes, wait until they have ended, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m nngrad.parallel.launch", description=__doc__)
    parser.add_argument("-n", "--processes", type=int, required=True, metavar="N", help="the number of processes")
    parser.add_argument("--devices-per-process", type=int, metavar="K",
                        help="GPUs, or virtual devices of the CPU, of each process (default: 1)")
    parser.add_argument("--grace", type=float, default=10.0, metavar="S",
                        help="seconds to end in before they are killed, after a failure or signal (default: 10)")
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help="the script, a file of Python")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    options = parser.parse_args(arguments)
    if options.processes < 1:
        parser.error(f"-n: must be at least 1, got {options.processes}")
    if not options.is_module and not os.path.isfile(options.script):
        parser.error(f"there is no file {options.script!r}; for the name of a module put -m before it")
    command = [sys.executable, *(["-m"] if options.is_module else []), options.script, *options.arguments]
    processes: list[Process] = []
    readers: list[threading.Thread] = []
    ended: list[Process] = []
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored signals, as under nohup, stay ignored
            signal.signal(number, lambda number, _: signals.append(number))
    try:
        for environment in environments(options.processes, options.devices_per_process):
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
            for pipe, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                label = f"[{len(processes)}] "
                readers.append(threading.Thread(target=_pass_on, args=(label, pipe, out, signals), daemon=True))
                readers[-1].start()
            processes.append(process)
        _wait(processes, ended, signals, options.grace)
    finally:
        for process in processes:
            if process not in ended:
                _send(process, signal.SIGKILL)
                process.wait()
        for reader in readers:
            reader.join(2.0)  # what they started may hold their output open
    return _outcome(processes, ended, signals, options.grace)


def environments(count: int, devices: int | None) -> Iterator[dict[str, str]]:
    """The environment variables of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    share = devices or 1
    for index in range(count):
        environment = {
            **os.environ, COUNT: str(count), INDEX: str(index), COORDINATOR: address,
            "JAX_COORDINATOR_BIND_ADDRESS": address, "PYTHONUNBUFFERED": "1",
            "JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(index * share, (index + 1) * share))),
        }  # fmt: skip
        if devices is not None:
            flags = os.environ.get("XLA_FLAGS", "")
            environment["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={share}".strip()
        yield environment


def _pass_on(label: str, pipe: IO[bytes], out: IO[str], signals: list[int]) -> None:
    """Write the lines of a process, each with its number; where nobody reads them any more, end all, as by SIGTERM."""
    for line in pipe:
        try:
            out.write(f"{label}{line.decode(errors='backslashreplace').rstrip()}\n")  # in one piece: lines do not mix
            out.flush()
        except (OSError, ValueError):
            if not signals:
                signals.append(signal.SIGTERM)
            return


def _wait(processes: list[Process], ended: list[Process], signals: list[int], grace: float) -> None:
    """Wait until all processes have ended, or the time is over that they have after a signal or a failure. Those that
    have ended by themselves are added to `ended`, in order."""
    deadline, sent = float("inf"), 0
    while len(ended) < len(processes) and time.monotonic() < deadline:
        new = signals[sent:]
        sent += len(new)
        for process in [process for process in processes if process not in ended]:
            has_ended = process.poll() is not None
            if has_ended:
                ended.append(process)
            for number in [signal.SIGKILL] if has_ended else new:  # to what it has started, too
                _send(process, number)
        if (signals or any([process.returncode for process in ended])) and deadline == float("inf"):
            deadline = time.monotonic() + grace
        if sent > 1:  # at a second signal at once
            return
        time.sleep(0.05)


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
        how = f"{signal.Signals(signals[0]).name}, sent to all processes"
    elif failed:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else "unnamed"
        how = f"process {processes.index(failed[0])} (pid {failed[0].pid}) " + (
            f"failed with exit code {code}" if code > 0 else f"was killed by signal {-code} ({name})")
        how += "; the others were ended" if len(processes) > 1 else ""
    else:
        return 0
    print(f"nngrad.parallel.launch: {how}{also}", file=sys.stderr, flush=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
