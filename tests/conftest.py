"""What holds for all tests: they compile what they run, whatever the disk has, and leave JAX's settings alone."""

import os
from collections.abc import Iterator

os.environ.setdefault("NNGRAD_DISK_CACHE", "off")

import jax
import pytest


@pytest.fixture(autouse=True)
def settings_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves 64-bit types switched on is the one that fails, and not those that come after it.

    But for interrupts: one that comes just as `jax.enable_x64` leaves finds it still in force, in JAX by itself too.
    """
    yield
    left = jax.config.jax_enable_x64
    if left:
        jax.enable_x64(False).__enter__()  # for those that come after it
    assert not left or "interrupted" in request.module.__name__, "jax_enable_x64 was left on"
