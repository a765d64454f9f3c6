"""Collective communication as differentiable functions; each process has its own graph and arrays.

Process r has its own x_r, and gets y_r. Each process differentiates one term of a sum over all processes, and gradients
are those of the sum. So the gradient of each function here is its transpose, as a matrix on the arrays of all
processes: the gradient of `all_reduce` is an `all_reduce`, that of `bcast` a sum, and that of `all_gather` a
`reduce_scatter`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, op
from ..graph.arguments import Ints, as_ints
from ..graph.placement import AXIS, Processes


def _processes_of(arguments: tuple[Any, ...]) -> Processes | None:
    """The processes, which are the first static argument; None for a single process."""
    processes: Processes = arguments[0]
    return processes if len(processes) > 1 else None


def _exchanged(name: str, ranks: Ints, exchange: Callable[[], jax.Array], alone: Callable[[], jax.Array]) -> jax.Array:
    """The result of `exchange` along an axis of the given processes, or `alone` if there is only one."""
    processes = as_ints(ranks)
    if not processes or len(set(processes)) < len(processes) or min(processes) < 0:
        raise ValueError(f"processes must be one or more distinct process numbers, got {processes}")
    if len(processes) == 1:
        return alone()
    try:
        size = lax.axis_size(AXIS)
    except NameError:
        size = 1
    if size != len(processes):
        raise ValueError(
            f"{name} needs the processes {processes}, but runs in {size} here. Start them, as docs/hosts.md says, and "
            "use forward(), backward() or nn.compile. With nn.to_jax and nn.train_step, use nn.mesh instead"
        )
    return exchange()


def _checked_root(processes: Ints, root: int, argument: str) -> int:
    """`root`, checked to be the position of one of the processes."""
    count = len(as_ints(processes))
    if not 0 <= root < count:
        raise ValueError(f"{argument} must be between 0 and {count - 1}, a position among the processes, got {root}")
    return root


@op(linear=True, exchanges=_processes_of)
def all_reduce(x: Array, /, processes: Ints) -> jax.Array:
    """The sum over processes, y_r = sum_s x_s, on every process.

    Args:
        x: An array of the same shape and dtype in all processes.
        processes: The numbers of the processes, as `comm.find_group("world")` gives them.

    Raises:
        ValueError: A process is named twice or is negative, or there is none.
    """
    return _exchanged("all_reduce", processes, lambda: lax.psum(x, AXIS).astype(x.dtype), lambda: x)


@op(linear=True, exchanges=_processes_of)
def all_gather(x: Array, /, processes: Ints) -> jax.Array:
    """The arrays of all processes, y_r[s] = x_s, stacked along a new first axis, on every process.

    Args:
        processes: As in `all_reduce`; the arrays are stacked in this order.
        ...: As in `all_reduce`.
    """
    return _exchanged("all_gather", processes, lambda: lax.all_gather(x, AXIS), lambda: x[None])


@op(linear=True, exchanges=_processes_of)
def reduce_scatter(x: Array, /, processes: Ints) -> jax.Array:
    """Sums over processes, y_r = sum_s x_s[r], of which process r gets entry r.

    Args:
        x: As in `all_reduce`; the size of its first axis is the number of processes.
        processes: As in `all_reduce`; the first gets the sum of x[0].

    Raises:
        ValueError: As in `all_reduce`, or the first axis has another size.
    """
    count = len(as_ints(processes))
    if x.ndim < 1 or x.shape[0] != count:
        raise ValueError(f"x must have size {count} along its first axis, one slice per process, got shape {x.shape}")
    scattered = lambda: lax.psum_scatter(x, AXIS).astype(x.dtype)  # noqa: E731
    return _exchanged("reduce_scatter", processes, scattered, lambda: x[0])


@op(linear=True, exchanges=_processes_of)
def bcast(x: Array, /, processes: Ints, src: int = 0) -> jax.Array:
    """The array of one process, y_r = x_src, on every process.

    Args:
        src: The position in `processes` of the sender.
        ...: As in `all_reduce`.

    Raises:
        ValueError: As in `all_reduce`, or `src` is out of range.
    """
    root = _checked_root(processes, src, "src")
    return _exchanged("bcast", processes, lambda: from_process(x, root), lambda: x)


@op(linear=True, exchanges=_processes_of)
def reduce_to_process(x: Array, /, processes: Ints, dst: int = 0) -> jax.Array:
    """The sum over processes, y_dst = sum_s x_s, on one process; the others get zeros.

    Args:
        dst: The position in `processes` of the receiver.
        ...: As in `all_reduce`.

    Raises:
        ValueError: As in `all_reduce`, or `dst` is out of range.
    """
    root = _checked_root(processes, dst, "dst")

    def summed() -> jax.Array:
        total = lax.psum(x, AXIS).astype(x.dtype)
        return jnp.where(lax.axis_index(AXIS) == root, total, jnp.zeros_like(total))

    return _exchanged("reduce_to_process", processes, summed, lambda: x)


def from_process(x: jax.Array, root: int) -> jax.Array:
    """The array of process `root` along the axis, bit by bit, including signed zeros and NaN."""
    if x.dtype == bool:
        return from_process(x.astype(jnp.uint8), root).astype(bool)
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
    sent = jnp.where(lax.axis_index(AXIS) == root, bits, jnp.zeros_like(bits))
    return lax.bitcast_convert_type(lax.psum(sent, AXIS), x.dtype)
