"""How long forward and backward take in an iteration, each with its preparation on the host."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import jax

from ..extend import (
    Switched,
    Variable,
    arrays_of,
    checked_count,
    device_of,
    executables,
    grad,
    leaves_of,
    linearize,
)
from .shown import aligned

__all__ = ["Milliseconds", "Timing", "measure"]


class Milliseconds(NamedTuple):
    """The times of an iteration, in milliseconds."""

    forward_preparation: float
    """To build the graph of the loss, to list it as a program and to find its executable, on the host."""
    forward: float
    """To run that executable, until the loss is ready."""
    backward_preparation: float
    """To build the graph of the gradients, to list it with that of the loss and to find its executable, on the host. A
    loop that calls `loss.backward()` spends this time only at its first iteration: then the structure is cached."""
    backward: float
    """To run the executable of loss and gradients together, less the time of `forward`."""
    iteration: float
    """A whole iteration of a training loop: build the graph, `loss.forward()`, `loss.backward()` from zero gradients,
    and wait for loss and gradients. Without a solver."""


@dataclass(slots=True, eq=False, repr=False)
class Timing:
    """The result of `measure`."""

    samples: list[Milliseconds]
    """The times of each iteration."""
    first: float
    """Milliseconds of the first iteration, which compiles."""
    device: jax.Device
    """JAX's default device, which ran it."""

    def _each(self, function: Callable[[list[float]], float]) -> Milliseconds:
        return Milliseconds(*[function(list(column)) for column in zip(*self.samples, strict=True)])

    @property
    def average(self) -> Milliseconds:
        """The mean over the iterations."""
        return self._each(statistics.fmean)

    @property
    def minimum(self) -> Milliseconds:
        """The minimum over the iterations, separately for each time."""
        return self._each(min)

    @property
    def deviation(self) -> Milliseconds:
        """The standard deviation of a single iteration; 0 if there is only one."""
        return self._each(lambda column: statistics.stdev(column) if len(column) > 1 else 0.0)

    def caption(self) -> str:
        """The number of iterations, the device and the time of the first iteration, in words."""
        count = len(self.samples)
        kind = self.device.device_kind
        where = f"{self.device.platform}:{self.device.id}" + (f" ({kind})" if kind != self.device.platform else "")
        return (f"{count} iteration{'s' * (count > 1)} on {where}; the first one before them, which compiles, took "
                f"{self.first / 1e3:.2f} s")

    def __str__(self) -> str:
        names = "average", "minimum", "deviation"
        rows = [(name, *[f"{value:.3f}" for value in getattr(self, name)]) for name in names]
        head = "ms", *[name.replace("_", " ") for name in Milliseconds._fields]
        table = aligned([head, *rows], range(1, len(head)))
        return "\n".join([*table, self.caption()])

    def __repr__(self) -> str:
        return f"<Timing of {len(self.samples)} iterations, {self.average.iteration:.3g} ms each>"


def measure(loss: Variable | Callable[[], Variable], iterations: int = 10, warm_up: int = 1) -> Timing:
    """Measure the times of a model's forward and backward.

    Each iteration is run twice: phase by phase, waiting for the device after each, and then as a whole, like in a
    training loop. The gradients are those of the leaves with `need_grad`, whose `.grad` is zero afterwards. Running
    statistics are updated, as by any forward.

    Args:
        loss: A function without arguments that builds the graph of a loss and returns the loss; or an existing loss,
            for which nothing is built, and hardly any preparation is left for forward.
        iterations: The number of measured iterations.
        warm_up: The number of iterations before them, at least 1, since the first one compiles.

    Returns:
        A Timing; print it to see the table.

    Raises:
        TypeError: `loss` is neither a Variable nor a function that returns one, its dtype is not floating, or a number
            is not an int.
        ValueError: A number is too small, the loss is a leaf, or no leaf above it has `need_grad`.

    Warns:
        RuntimeWarning: Something was compiled after the warm-up, so the times include a compilation: the structure of
            the graph changes between iterations, for example because a number in it changes.
    """
    build = _builder(loss)
    checked_count(iterations, "iterations")
    checked_count(warm_up, "warm_up")
    with Switched(auto_forward=False, deterministic=True):  # with one tier
        first = _iteration(build)
        _phases(build)  # compiles everything
        for _ in range(warm_up - 1):
            _phases(build)
            _iteration(build)
        compiled = executables.info().misses
        samples = [Milliseconds(*_phases(build), _iteration(build)) for _ in range(iterations)]
        if executables.info().misses > compiled:
            warnings.warn("measure: the timings include a compilation after the warm-up; does the structure of the "
                          "graph change from call to call?", RuntimeWarning, stacklevel=2)
    (device,) = jax.numpy.zeros(()).devices()
    return Timing(samples, first, device)


def _phases(build: Callable[[], Variable]) -> tuple[float, float, float, float]:
    """The times of the phases of an iteration in milliseconds, waiting for the device after each."""
    start = perf_counter()
    loss = build()
    loss.forward()
    prepared = perf_counter()
    jax.block_until_ready(loss.data.array)
    computed = perf_counter()
    program, leaves, *_ = linearize([loss], device=device_of([loss]))
    gradients = grad([loss], _differentiated(loss))
    # In the order in which `backward()` lists it, so that both share an executable.
    both = linearize([loss, *gradients], first=leaves, device=program.device)
    executable, arrays = executables.of(both.program), arrays_of(both.leaves)
    prepared_again = perf_counter()
    jax.block_until_ready(executable(*arrays))
    done = perf_counter()
    forward = computed - prepared
    return (
        1e3 * (prepared - start), 1e3 * forward, 1e3 * (prepared_again - computed),
        1e3 * (done - prepared_again - forward),
    )


def _iteration(build: Callable[[], Variable]) -> float:
    """The time of an iteration in milliseconds, as in a training loop."""
    start = perf_counter()
    loss = build()
    leaves = _differentiated(loss)
    loss.forward()
    loss.backward()
    jax.block_until_ready([loss.data.array, *[x.grad.array for x in leaves]])
    took = 1e3 * (perf_counter() - start)
    for x in leaves:
        x.grad.zero()
    return took


def _differentiated(loss: Variable) -> list[Variable]:
    """The leaves that the gradient is taken with respect to."""
    leaves = [x for x in leaves_of([loss]) if x.need_grad and x.spec.differentiable]
    if not leaves:
        raise ValueError("loss: depends on no leaf with need_grad, so there is nothing to differentiate")
    return leaves


def _builder(loss: Any) -> Callable[[], Variable]:
    """`loss` as a function that returns a loss, with its result checked."""
    if not isinstance(loss, Variable) and not callable(loss):
        raise TypeError(f"loss: expected a Variable, or a function that builds one, got {type(loss).__name__}")

    def build() -> Variable:
        y = loss if isinstance(loss, Variable) else loss()
        if not isinstance(y, Variable):
            raise TypeError(f"loss: the function must return a Variable, got {type(y).__name__}")
        if not y.spec.differentiable:
            raise TypeError(f"loss: must have a floating dtype to be differentiated, got {y.dtype.name}")
        if y.parent is None:
            raise ValueError("loss: must be the output of a function, got a leaf, so there is nothing to compute")
        return y

    return build
