"""Names shared by `nngrad launch` and the processes that it starts."""

COUNT, INDEX = "NNGRAD_PROCESS_COUNT", "NNGRAD_PROCESS_INDEX"
"""Environment variables: the number of processes, and the index of this one."""
LAUNCHED = "NNGRAD_LAUNCHED"
"""The environment variable by which a process knows that `nngrad launch` has started it."""
COORDINATOR, BIND, LOCAL_DEVICES = "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_BIND_ADDRESS", "JAX_LOCAL_DEVICE_IDS"
"""JAX's own variables."""
