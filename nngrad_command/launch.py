"""`nngrad launch`: run a script in several processes on this machine, which JAX joins over loopback.

It imports neither JAX nor nngrad; only the processes do.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from .arguments import seconds
from .launched import ANOTHER_FAILED, BIND, COORDINATOR, COUNT, INDEX, JOINED, LOCAL_DEVICES, STEP_TIMEOUT
from .outcome import complain
from .processes import Guardian, Started

GRACE = 10.0
"""Seconds that processes have to end by themselves."""
POLL = 0.05
FOLLOWING = 0.3
"""Seconds after the first failure within which consequential failures may be seen before their cause."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DESCRIPTION = "Run a script as several processes on this machine, each with devices of its own, joined by JAX."
EPILOG = f"""\
The script joins the processes with nn.hosts.initialize(), before it computes
anything; the same script runs under SLURM and MPI. Each line that a process
writes has its number before it. The processes get in their environment:
  {COUNT}, {INDEX}   how many there are, and which of them this is
  {COORDINATOR}                      where process 0 listens, on loopback
  {LOCAL_DEVICES}                         its share of the GPUs, if there are any
When a process fails, is killed, or hangs for as long as --timeout says, the
others are ended, and so are all at Ctrl-C and SIGTERM, which they are sent.
The exit code is that of the process that failed first: 128 and the number of
the signal if one killed it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad launch`."""
    parser.add_argument("-n", "--processes", type=_positive, required=True, metavar="N", help="how many processes")
    parser.add_argument("--devices-per-process", type=_positive, metavar="K",
                        help="devices of each process: so many GPUs, or virtual devices of the CPU (default: 1)")
    parser.add_argument("--timeout", type=seconds, metavar="S",
                        help="how long a process may keep the others waiting in a step before it counts as hung "
                        "(default: what the script says, else 600)")
    parser.add_argument("--grace", type=seconds, default=GRACE, metavar="S",
                        help="how long processes may take to end, when another has failed or at a signal, before they "
                        f"are killed (default: {GRACE:g})")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help="the script, a file of Python")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 4096")
    return int(text)


def run(given: argparse.Namespace) -> int:
    """Start the processes, supervise them until they end, and return the exit code."""
    if not given.module and not os.path.isfile(given.script):
        complain(f"nngrad launch: there is no file {given.script!r}" + (
            "" if given.script.endswith(".py") else "; give -m before it if it is the name of a module"))
        return 2
    command = [sys.executable, *(["-m"] if given.module else []), given.script, *given.arguments]
    return Launch(command, given).run()


def environments(given: argparse.Namespace, joined: int) -> Iterator[dict[str, str]]:
    """The environment variables of each process."""
    address = f"127.0.0.1:{_free_port()}"
    each = given.devices_per_process or 1
    for index in range(given.processes):
        environment = {
            **os.environ, COUNT: str(given.processes), INDEX: str(index), COORDINATOR: address, BIND: address,
            LOCAL_DEVICES: ",".join(map(str, range(index * each, (index + 1) * each))), JOINED: str(joined),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        if given.timeout is not None:
            environment[STEP_TIMEOUT] = str(given.timeout)
        if given.devices_per_process is not None:
            flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={each}"
            environment["XLA_FLAGS"] = flags.strip()
        yield environment


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Launch:
    """The processes of one command."""

    def __init__(self, command: Sequence[str], given: argparse.Namespace) -> None:
        self._command = command
        self._given = given
        self._processes: list[Started] = []
        self._signals: list[int] = []
        self._output_lost = False

    def run(self) -> int:
        """Start the processes, wait for their end, and return the exit code."""
        joined, told = os.pipe()
        try:
            with Guardian() as guardian, self._signals_noted():
                began = time.monotonic()
                try:
                    for index, environment in enumerate(environments(self._given, told)):
                        self._processes.append(Started(index, self._command, environment, guardian, pass_on=(told,)))
                        self._processes[-1].read(self._lose_output)
                        if self._signals:
                            break
                    self._wait_for_all()
                finally:
                    self._kill()
                return self._outcome(began, joined)
        finally:
            os.close(joined)
            os.close(told)

    def _wait_for_all(self) -> None:
        deadline, sent = float("inf"), 0
        while not all([process.poll() for process in self._processes]):
            now = time.monotonic()
            for number in self._signals[sent : sent + 1]:
                self._send(number)
                deadline = min(deadline, now + self._given.grace)
            if len(self._signals) > 1:  # a second signal: end at once
                return
            sent = len(self._signals)
            failed = [process for process in self._processes if process.code]
            if (failed or self._output_lost) and deadline == float("inf"):
                # They get some time to notice the failure by themselves, to report it, and to clean up.
                deadline = (failed[0].ended_at if failed else now) + self._given.grace
            left = [process for process in self._processes if process.code is None]
            if now >= deadline or (failed and all([process.is_stopped() for process in left])):
                return
            time.sleep(POLL)

    def _send(self, number: int) -> None:
        for process in self._processes:
            if not process.poll():
                process.send(number)
                process.send(signal.SIGCONT)

    def _kill(self) -> None:
        self._stopped = [p for p in self._processes if not p.poll() and p.is_stopped()]
        self._killed = [p for p in self._processes if not p.poll()]
        for process in self._killed:
            process.send(signal.SIGKILL)
        while not all([process.poll() for process in self._processes]):
            time.sleep(POLL)
        for process in self._processes:
            process.drain()

    def _outcome(self, began: float, joined: int) -> int:
        """Report how the processes ended, and return the exit code."""
        if self._signals:
            name = signal.Signals(self._signals[0]).name
            complain(f"nngrad launch: {name}, sent to all processes{self._numbers_of(self._killed)}")
            return next((_exit_code(p) for p in self._by_time() if p.code), 0)
        if self._output_lost:
            raise BrokenPipeError
        culprit = self._culprit()
        if culprit is None:
            self._say_who_did_not_join(joined)
            return 0
        after = culprit.ended_at - began
        others = len(self._processes) > 1
        complain(f"nngrad launch: process {culprit.index} (pid {culprit.pid}) {self._described(culprit)}, "
                 f"{after:.1f} s after the start{'; the others were ended' if others else ''}"
                 f"{self._numbers_of([p for p in self._killed if p is not culprit])}")
        if culprit.last:
            complain("the last that it wrote:\n" + "\n".join(f"    {line}" for line in culprit.last))
        else:
            complain("it wrote nothing")
        return _exit_code(culprit)

    def _described(self, process: Started) -> str:
        if process in self._stopped:
            return "was stopped by a signal, and did not go on"
        assert process.code is not None
        if process.code >= 0:
            return f"failed with exit code {process.code}"
        return f"was killed by signal {-process.code} ({_name_of(-process.code)})"

    def _numbers_of(self, killed: list[Started]) -> str:
        if not killed:
            return ""
        which = ", ".join(str(p.index) for p in killed)
        return f"; not ended after {self._given.grace:g} s, and killed: {which}"

    def _by_time(self) -> list[Started]:
        """The processes by the time of their end; those that ended because another did come last."""
        itself = [p.ended_at for p in self._processes if p.code not in (0, ANOTHER_FAILED)]
        together = min(itself, default=0.0) + FOLLOWING

        def rank(process: Started) -> tuple[bool, bool, bool, float]:
            # An abort is a consequence: JAX aborts when its coordinator is gone.
            return (process.code == ANOTHER_FAILED, process.ended_at > together, process.code == -signal.SIGABRT,
                    process.ended_at)

        return sorted(self._processes, key=rank)

    def _culprit(self) -> Started | None:
        """The process that failed first by itself."""
        failed = [p for p in self._by_time() if p.code]
        if self._stopped:
            return self._stopped[0]
        itself = [p for p in failed if p not in self._killed]
        return itself[0] if itself else None

    def _say_who_did_not_join(self, joined: int) -> None:
        """Warn about a script that does not join its processes: each of them computes the same, surely by mistake."""
        count = 0
        while select.select([joined], [], [], 0)[0]:
            count += len(os.read(joined, 4096))
        if count < len(self._processes) and len(self._processes) > 1:
            complain(f"nngrad launch: {len(self._processes) - count} of {len(self._processes)} processes never called "
                     "nn.hosts.initialize(), which joins them: each of them has computed by itself")

    def _lose_output(self) -> None:
        self._output_lost = True

    @contextlib.contextmanager
    def _signals_noted(self) -> Iterator[None]:
        def note(number: int, _: FrameType | None) -> None:
            self._signals.append(number)

        before = {number: signal.getsignal(number) for number in FORWARDED}
        try:
            for number in FORWARDED:
                if before[number] is not signal.SIG_IGN:  # ignored signals, as under nohup, stay ignored
                    signal.signal(number, note)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _exit_code(process: Started) -> int:
    assert process.code is not None
    return process.code if process.code >= 0 else 128 - process.code


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unnamed"
