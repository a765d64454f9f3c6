"""Names shared by `nngrad launch` and the processes that it starts."""

COUNT, INDEX = "NNGRAD_PROCESS_COUNT", "NNGRAD_PROCESS_INDEX"
"""Variables of the environment: how many processes there are, and which of them this is."""
STEP_TIMEOUT = "NNGRAD_STEP_TIMEOUT"
"""Seconds that `nn.hosts.initialize` takes for its `step_timeout` where the script gives none."""
JOINED = "NNGRAD_JOINED"
"""The file descriptor to which a process writes a byte when it joins the others."""
COORDINATOR, BIND, LOCAL_DEVICES = "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_BIND_ADDRESS", "JAX_LOCAL_DEVICE_IDS"
"""JAX's own variables."""
ANOTHER_FAILED = 75
"""The exit code of a process that ends because another one has failed, or is waited for in vain."""
