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

COORDINATOR, COUNT, INDEX = "JAX_COORDINATOR_ADDRESS", "NNGRAD_PROCESS_COUNT", "NNGRAD_PROCESS_INDEX"
"""Environment variables: where process 0 listens, the number of processes, and the index of this one."""
HEARTBEAT_TIMEOUT, INITIALIZATION_TIMEOUT = 100.0, 300.0


@dataclass(frozen=True, slots=True)
class Membership:
    """The index of this process, and the number of processes."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"process {self.index} of {self.count}" if self.count > 1 else "a single process"


_membership: Membership | None = None


def initialize(
    *, heartbeat_timeout: float = HEARTBEAT_TIMEOUT, initialization_timeout: float = INITIALIZATION_TIMEOUT
) -> Membership:
    """Join the processes that a launcher has started, so that they compute together; call it before anything else.

    It detects SLURM, Open MPI and whatever else `jax.distributed.initialize` knows, other MPIs if `mpi4py` is
    installed, and the environment variables `JAX_COORDINATOR_ADDRESS`, `NNGRAD_PROCESS_COUNT` and
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
        The index of this process, and the number of processes.

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
    joined = jax.distributed.is_initialized() or _join(heartbeat_timeout, initialization_timeout)
    _membership = Membership(jax.process_index(), jax.process_count()) if joined else Membership(0, 1)
    if _membership.count > 1:
        _end_at_once_on_errors()
    return _membership


def _join(heartbeat_timeout: float, initialization_timeout: float) -> bool:
    """Join the other processes; False if there are none.

    Raises:
        RuntimeError: JAX has already computed something.
        Exception: Any other error of JAX's.
    """
    launched = launched_by(os.environ)
    if launched is not None and launched.count == 1:
        return False
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            **({} if launched is None else launched.arguments), heartbeat_timeout_seconds=math.ceil(heartbeat_timeout),
            initialization_timeout=math.ceil(initialization_timeout),
        )  # fmt: skip
    except Exception as error:
        if launched is None and COORDINATOR not in os.environ and not jax.distributed.is_initialized():
            return False
        if isinstance(error, RuntimeError) and not jax.distributed.is_initialized():
            raise RuntimeError("nn.hosts.initialize() comes too late: JAX has already started its devices. Call it "
                               "before you compute anything or call jax.devices(), jax.device_count() and the like"
                               ) from error
        raise
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


MPI_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Set by Open MPI, and by MPICH and its derivatives."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The number of processes that a launcher has started, and the arguments with which JAX joins them."""

    count: int
    arguments: dict[str, Any]


def launched_by(environment: Mapping[str, str]) -> Launched | None:
    """The processes that a launcher has started, according to `environment`; None if no launcher is known.

    Raises:
        ValueError: Variables are missing or invalid, or JAX cannot detect the coordinator by itself.
    """
    if COUNT in environment or INDEX in environment:
        missing = [name for name in (COORDINATOR, COUNT, INDEX) if name not in environment]
        if missing:
            raise ValueError(f"{' and '.join(missing)}: missing from the environment; set all of {COORDINATOR}, "
                             f"{COUNT} and {INDEX}, or none")
        count, index = _whole(environment, COUNT), _whole(environment, INDEX)
        if not 0 <= index < count:
            raise ValueError(f"{INDEX}: must be from 0 to {count - 1}, because {COUNT} is {count}, got {index}")
        return Launched(count, {"coordinator_address": environment[COORDINATOR], "num_processes": count,
                                "process_id": index, "cluster_detection_method": "deactivate"})
    if "SLURM_STEP_NODELIST" in environment and "SLURM_PROCID" in environment:  # not in an allocation, by hand
        return Launched(_whole(environment, "SLURM_NTASKS"), {})
    for variable in MPI_COUNTS:
        if environment.get(variable, "1") != "1":
            count = _whole(environment, variable)
            if "OMPI_MCA_orte_hnp_uri" in environment:  # which is where JAX finds process 0
                return Launched(count, {})
            if importlib.util.find_spec("mpi4py") is None:
                raise ValueError(
                    f"MPI started {count} processes ({variable}), but does not say where process 0 is. Install mpi4py, "
                    f"which finds out, or set {COORDINATOR} to its address and a free port, and {COUNT} and {INDEX} in "
                    "each process")
            return Launched(count, {"cluster_detection_method": "mpi4py"})
    return None


def _whole(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise ValueError(f"{name}: must be an integer in the environment, got {environment[name]!r}") from None
