"""Names shared by `nngrad launch` and the processes that it starts."""

COUNT, INDEX = "NNGRAD_PROCESS_COUNT", "NNGRAD_PROCESS_INDEX"
"""Environment variables: the number of processes, and the index of this one."""
STEP_TIMEOUT = "NNGRAD_STEP_TIMEOUT"
"""The environment variable for the default `step_timeout` of `nn.hosts.initialize`, in seconds."""
LAUNCHED = "NNGRAD_LAUNCHED"
"""The environment variable by which a process knows that `nngrad launch` has started it."""
COORDINATOR, BIND, LOCAL_DEVICES = "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_BIND_ADDRESS", "JAX_LOCAL_DEVICE_IDS"
"""JAX's own variables."""
ANOTHER_FAILED = 75
"""The exit code of a process that ends because another one has failed or did not arrive."""
