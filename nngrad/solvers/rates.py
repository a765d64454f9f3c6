"""Learning rates and schedules of solvers, and checks of their numeric arguments, which messages name."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol, TypeAlias

import jax

from ..extend import Variable


class Scheduler(Protocol):
    """A schedule in nnabla's form, such as those of `nngrad.nnabla.utils.learning_rate_scheduler`."""

    def get_learning_rate(self, iter: int, /) -> float:  # noqa: A002
        """The learning rate of iteration `iter`, counted from 0."""


Rate: TypeAlias = float | Callable[[int], Any] | Scheduler
"""A learning rate or a schedule: a function of the number of earlier updates, as in optax, or an object of nnabla's."""


def scheduled(schedule: Callable[[int], Any], updates: int, name: str) -> float:
    """The learning rate after this many updates.

    It is evaluated in Python before each update: nnabla's schedules cannot be traced, and a number is not compiled in.

    Raises:
        TypeError: The schedule does not return a number.
        ValueError: The learning rate is negative or not finite.
    """
    platforms = jax.config.values.get("jax_platforms")
    has_cpu = not platforms or "cpu" in platforms.split(",")
    with jax.ensure_compile_time_eval(), jax.default_device("cpu") if has_cpu else nullcontext():
        # An accelerator would first finish the previous step.
        return as_rate(schedule(updates), f"{name}: the schedule at update {updates}")


def schedule_of(rate: Any) -> Callable[[int], Any] | None:
    """`rate` as a function of the number of updates; None if it is a number.

    Schedules of optax are compiled, as in optax: run op by op, JAX would take a millisecond for each update.
    """
    schedule: Any = getattr(rate, "get_learning_rate", rate if callable(rate) else None)
    return jax.jit(schedule) if getattr(schedule, "__module__", "").startswith("optax.") else schedule


def as_real(value: Any, name: str) -> float:
    """`value` as a float."""
    try:
        if not isinstance(value, bool | Variable):  # a Variable would be read only once
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name}: expected a number, got {value!r}")


def as_rate(value: Any, name: str) -> float:
    """`value` as a float that is finite and not negative."""
    rate = as_real(value, name)
    if not 0 <= rate < math.inf:
        raise ValueError(f"{name}: must be finite and not negative, got {value!r}")
    return rate


def as_decay(value: Any, name: str) -> float:
    """`value` as a float at least 0 and below 1: the share of an average that is kept at each step."""
    rate = as_real(value, name)
    if not 0 <= rate < 1:
        raise ValueError(f"{name}: must be at least 0 and less than 1, got {value!r}")
    return rate


def as_power_of_two(value: Any, name: str) -> float:
    """`value` as a float that is a power of two and a normal number in float32."""
    power = as_real(value, name)
    if not _SMALLEST <= power <= _LARGEST or math.frexp(power)[0] != 0.5:
        raise ValueError(f"{name}: must be a power of two from 2^-126 to 2^127, such as 1024, got {value!r}")
    return power


_SMALLEST, _LARGEST = 2.0**-126, 2.0**127
