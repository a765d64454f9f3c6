"""What has started this process, as far as its environment tells."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nngrad_command.launched import COORDINATOR, COUNT, INDEX, JOINED

NAMED = {
    "Open MPI": ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE"),
    "SLURM": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"),
}
"""Launchers that JAX finds by these variables."""
COUNTS = {"Open MPI": "OMPI_COMM_WORLD_SIZE", "SLURM": "SLURM_NTASKS"}
MPI_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Set by Open MPI, and by MPICH and those that are made from it."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """What started this process, and how JAX is told to join it to the others."""

    name: str
    count: int
    """How many processes it has started."""
    arguments: Mapping[str, Any]
    """For `jax.distributed.initialize`."""


def launcher_of(environment: Mapping[str, str]) -> Launcher | None:
    """The launcher that `environment` speaks of; None if it is none that is known here.

    Raises:
        ValueError: Variables are missing or make no sense, or JAX cannot find out by itself what it must know.
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
                    f"MPI has started {environment[variable]} processes ({variable}), but does not say where process 0 "
                    f"is: install mpi4py, which finds out, or set {COORDINATOR} to its address and a free port, and "
                    f"{COUNT} and {INDEX} in each process")
            return Launcher("MPI", _whole(environment, variable), {"cluster_detection_method": "mpi4py"})
    return None


def _by_variables(environment: Mapping[str, str]) -> Launcher:
    """What `nngrad launch` sets, and anybody may."""
    missing = [name for name in (COORDINATOR, COUNT, INDEX) if name not in environment]
    if missing:
        raise ValueError(f"{' and '.join(missing)}: not set in the environment, although others of {COORDINATOR}, "
                         f"{COUNT} and {INDEX} are; set all three, or none")
    count, index = _whole(environment, COUNT), _whole(environment, INDEX)
    if not 0 <= index < count:
        raise ValueError(f"{INDEX}: must be from 0 to {count - 1}, as {COUNT} is {count}; it is {index}")
    found = "nngrad launch" if JOINED in environment else "environment variables"
    arguments = {
        "coordinator_address": environment[COORDINATOR], "num_processes": count, "process_id": index,
        "cluster_detection_method": "deactivate",
    }  # fmt: skip
    return Launcher(found, count, arguments)


def _whole(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise ValueError(f"{name}: must be a whole number, is {environment[name]!r} in the environment") from None
