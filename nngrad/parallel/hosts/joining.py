"""`nn.hosts.initialize`: join this process to the others of its run."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import jax

from nngrad_command.launched import COORDINATOR, COUNT, INDEX, LAUNCHED

from .store import global_state

HEARTBEAT_TIMEOUT, INITIALIZATION_TIMEOUT = 100.0, 300.0


@dataclass(frozen=True, slots=True)
class Membership:
    """The index of this process, and the number of processes."""

    index: int
    count: int
    launcher: str | None
    """The launcher that started them; None if unknown."""

    def __str__(self) -> str:
        if self.count > 1:
            return f"process {self.index} of {self.count}, started by {self.launcher}"
        return "a single process" + (f", started by {self.launcher}" if self.launcher else ": no launcher was found")


_membership: Membership | None = None


def initialize(
    *, heartbeat_timeout: float = HEARTBEAT_TIMEOUT, initialization_timeout: float = INITIALIZATION_TIMEOUT
) -> Membership:
    """Join the processes that a launcher has started, so that they compute together; call it before anything else.

    It detects `nngrad launch`, SLURM, Open MPI and whatever else `jax.distributed.initialize` knows, other MPIs if
    `mpi4py` is installed, and the environment variables `JAX_COORDINATOR_ADDRESS`, `NNGRAD_PROCESS_COUNT` and
    `NNGRAD_PROCESS_INDEX`. Afterwards `jax.devices()` lists the devices of all processes, and `nn.mesh` uses them. In a
    single process it does nothing, and neither does a second call.

        print(nn.hosts.initialize())
        with nn.mesh(data=-1):
            ...

    JAX's coordination service, which process 0 runs, watches the processes: where one dies, it aborts the others. A
    process whose script raises an error ends at once, with the exit code 1. At the end of the script each process waits
    for the others.

    Args:
        heartbeat_timeout: Seconds without a heartbeat after which JAX counts a process as dead.
        initialization_timeout: Seconds within which all processes must call this.

    Returns:
        The index of this process, the number of processes, and their launcher.

    Raises:
        ValueError: A timeout is not positive, or environment variables are missing or invalid.
        RuntimeError: Too late: JAX has already computed something.
        Exception: JAX's error if not all processes have called this within `initialization_timeout`; JAX may abort the
            process instead.
    """
    global _membership
    if _membership is not None:
        return _membership
    for name, seconds in (("heartbeat_timeout", heartbeat_timeout), ("initialization_timeout", initialization_timeout)):
        if not seconds > 0:
            raise ValueError(f"{name}: must be a positive number of seconds, got {seconds!r}")
    launcher = launcher_of(os.environ)
    if not jax.distributed.is_initialized() and not _join(launcher, heartbeat_timeout, initialization_timeout):
        _membership = Membership(0, 1, None if launcher is None else launcher.name)
        return _membership
    index, count = global_state.process_id, global_state.num_processes  # without starting devices
    if count > 1:
        _end_at_once_on_errors()
    _membership = Membership(index, count, "the script itself" if launcher is None else launcher.name)
    return _membership


def _join(launcher: Launcher | None, heartbeat_timeout: float, initialization_timeout: float) -> bool:
    """Join the other processes, and return whether there are any."""
    if launcher is not None and launcher.count == 1:
        return False
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            **({} if launcher is None else launcher.arguments), heartbeat_timeout_seconds=math.ceil(heartbeat_timeout),
            initialization_timeout=math.ceil(initialization_timeout),
        )  # fmt: skip
    except Exception as error:
        return _explained(error, launcher)
    return True


def _end_at_once_on_errors() -> None:
    """Let an error of the script end this process at once. When Python exits, JAX waits for the other processes, which
    may wait for this one. What is registered with `atexit` after `initialize` still runs."""
    codes: list[int] = []
    process, hook = os.getpid(), sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        hook(kind, error, trace)
        codes.append(130 if issubclass(kind, KeyboardInterrupt) else 1)

    def leave() -> None:
        if codes and os.getpid() == process:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(codes[0])

    sys.excepthook = note
    atexit.register(leave)


def _explained(error: BaseException, launcher: Launcher | None) -> bool:
    """Return False if `error` means that JAX has found no other processes.

    Raises:
        RuntimeError: JAX has already computed something.
        BaseException: Any other `error`.
    """
    if launcher is None and COORDINATOR not in os.environ and global_state.client is None:
        return False
    if isinstance(error, RuntimeError) and global_state.client is None:
        raise RuntimeError("nn.hosts.initialize() comes too late: JAX has already started its devices. Call it before "
                           "you compute anything or call jax.devices(), jax.device_count() and the like") from error
    raise error


NAMED = {
    "Open MPI": ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE"),
    "SLURM": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"),
}
"""Environment variables by which JAX detects a launcher."""
COUNTS = {"Open MPI": "OMPI_COMM_WORLD_SIZE", "SLURM": "SLURM_NTASKS"}
MPI_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Set by Open MPI, and by MPICH and its derivatives."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """The launcher of this process, and the arguments with which JAX joins its processes."""

    name: str
    count: int
    """The number of processes that it started."""
    arguments: Mapping[str, Any]
    """The arguments for `jax.distributed.initialize`."""


def launcher_of(environment: Mapping[str, str]) -> Launcher | None:
    """The launcher that `environment` indicates; None if none is known.

    Raises:
        ValueError: Variables are missing or invalid, or JAX cannot detect the coordinator by itself.
    """
    if COUNT in environment or INDEX in environment:
        return _by_variables(environment)
    for name, variables in NAMED.items():
        if all(variable in environment for variable in variables):
            return Launcher(name, _whole(environment, COUNTS[name]), {})
    for variable in MPI_COUNTS:
        if environment.get(variable, "1") != "1":
            if importlib.util.find_spec("mpi4py") is None:
                raise ValueError(
                    f"MPI started {environment[variable]} processes ({variable}), but does not say where process 0 is. "
                    f"Install mpi4py, which finds out, or set {COORDINATOR} to its address and a free port, and "
                    f"{COUNT} and {INDEX} in each process")
            return Launcher("MPI", _whole(environment, variable), {"cluster_detection_method": "mpi4py"})
    return None


def _by_variables(environment: Mapping[str, str]) -> Launcher:
    """The launcher described by the variables that `nngrad launch`, or the user, has set."""
    missing = [name for name in (COORDINATOR, COUNT, INDEX) if name not in environment]
    if missing:
        raise ValueError(f"{' and '.join(missing)}: missing from the environment; set all of {COORDINATOR}, {COUNT} "
                         f"and {INDEX}, or none")
    count, index = _whole(environment, COUNT), _whole(environment, INDEX)
    if not 0 <= index < count:
        raise ValueError(f"{INDEX}: must be from 0 to {count - 1}, because {COUNT} is {count}, got {index}")
    found = "nngrad launch" if LAUNCHED in environment else "environment variables"
    arguments = {
        "coordinator_address": environment[COORDINATOR], "num_processes": count, "process_id": index,
        "cluster_detection_method": "deactivate",
    }  # fmt: skip
    return Launcher(found, count, arguments)


def _whole(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise ValueError(f"{name}: must be an integer in the environment, got {environment[name]!r}") from None
