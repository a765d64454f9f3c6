"""Loss scaling: training in float16 and bfloat16 without underflow or overflow of gradients.

The loss, and hence every gradient, is multiplied by a number, and the solver divides the gradients by it again. The
number is a power of two, so that it changes only the exponents of gradients. Micikevicius et al., "Mixed precision
training", ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ..extend import checked_count, explained
from .gradients import widened_array
from .rates import as_power_of_two


class DynamicLossScale:
    """A loss scale that adapts itself: as large as gradients allow without overflow.

    After `interval` consecutive updates with finite gradients the scale is multiplied by `factor`. If a gradient is
    infinite or NaN, that update is skipped: parameters and solver state stay unchanged, and the scale is divided by
    `factor`. Pass it to a solver by `solver.loss_scaling(nn.DynamicLossScale())`.

    Scales and factor are powers of two.

    Args:
        scale: The first scale; by default 2^15, the largest that float16 holds.
        interval: The number of consecutive good updates after which it grows.
        factor: The factor by which it grows and shrinks, 2 or more.
        minimum: The scale never goes below this; by default 2^-14, the smallest normal number of float16.
        maximum: The scale never goes above this.

    Raises:
        TypeError: An argument is not a number, or `interval` is not an int.
        ValueError: An argument is out of range, or minimum <= scale <= maximum does not hold.
    """

    __slots__ = ("factor", "interval", "maximum", "minimum", "scale")

    @explained
    def __init__(
        self,
        scale: float = 2.0**15,
        interval: int = 2000,
        factor: float = 2.0,
        minimum: float = 2.0**-14,
        maximum: float = 2.0**24,
    ) -> None:
        self.minimum = as_power_of_two(minimum, "minimum")
        self.maximum = as_power_of_two(maximum, "maximum")
        self.factor = as_power_of_two(factor, "factor")
        if self.factor <= 1:
            raise ValueError(f"factor: must be above 1, got {factor!r}")
        self.interval = checked_count(interval, "interval")
        self.scale = self.checked_scale(scale, "scale")

    def __repr__(self) -> str:
        return f"DynamicLossScale(scale={self.scale:g}, interval={self.interval}, factor={self.factor:g})"

    def start(self) -> DynamicState:
        """The state before the first update."""
        return DynamicState(jnp.float32(self.scale), jnp.int32(0), jnp.int32(0))

    def checked_scale(self, scale: Any, name: str) -> float:
        """`scale` as a float, if the scale can become that.

        Raises:
            ValueError: It cannot.
        """
        power = as_power_of_two(scale, name)
        if not self.minimum <= power <= self.maximum:
            raise ValueError(f"{name}: must be between minimum {self.minimum:g} and maximum {self.maximum:g}, "
                             f"got {power:g}")
        return power

    def adjusted(self, state: DynamicState, finite: Any) -> DynamicState:
        """The state after an update; `finite`, a traced bool, says whether all its gradients were."""
        good = jnp.where(finite, state.good_steps + 1, 0)
        grows = good >= self.interval
        grown = jnp.minimum(state.scale * self.factor, self.maximum)
        shrunk = jnp.maximum(state.scale / self.factor, self.minimum)
        return DynamicState(
            scale=jnp.where(finite, jnp.where(grows, grown, state.scale), shrunk).astype(jnp.float32),
            good_steps=jnp.where(grows, 0, good).astype(jnp.int32),
            skipped=state.skipped + jnp.where(finite, 0, 1).astype(jnp.int32),
        )


class DynamicState(NamedTuple):
    """The state of a dynamic loss scale."""

    scale: Any
    """The scale of the next loss, float32[]."""
    good_steps: Any
    """Updates with finite gradients since the scale last changed, int32[]."""
    skipped: Any
    """Updates that were skipped, int32[]."""


LossScale: TypeAlias = float | DynamicLossScale


class ScaledState(NamedTuple):
    """The state of a solver whose gradients are scaled."""

    loss_scale: Any
    """A DynamicState; () if the scale is fixed."""
    inner: Any
    """The state of the transformation."""


def as_loss_scale(value: Any, name: str) -> LossScale | None:
    """`value` as a power of two, a DynamicLossScale or None."""
    return value if value is None or isinstance(value, DynamicLossScale) else as_power_of_two(value, name)


def scaled_init(init: Callable[[Any], Any], scale: LossScale) -> Callable[[Any], ScaledState]:
    """`init` of a transformation, for a solver whose gradients are scaled.

    The transformation keeps its state in at least float32: values too small or large for float16 would be lost again.
    """
    start = scale.start if isinstance(scale, DynamicLossScale) else tuple
    return lambda params: ScaledState(start(), init(jax.tree.map(widened_array, params)))


def scaled_update(
    move: Callable[[Any, Any, Any], tuple[Any, Any]],
    scale: LossScale,
    params: Any,
    grads: Any,
    state: ScaledState,
    finite: Any = None,
) -> tuple[Any, ScaledState]:
    """A solver's step with the gradients of a loss that was multiplied by `scale`: new parameters and new state.

    With a dynamic scale only the scale changes if a gradient is infinite or NaN.

    Args:
        move: The step with parameters and gradients in at least float32, and the state of the transformation.
        finite: Whether to do the step, a traced bool; by default a dynamic scale checks the gradients, a fixed one
            nothing.
    """
    dynamic = scale if isinstance(scale, DynamicLossScale) else None
    if dynamic is not None and finite is None:
        finite = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)]).all()

    def moved() -> tuple[Any, Any]:
        new, inner = move(jax.tree.map(widened_array, params), unscaled(grads, scale, state), state.inner)
        return jax.tree.map(like, new, params), inner

    new, inner = moved() if finite is None else done_if(finite, moved, (params, state.inner))
    return new, ScaledState(() if dynamic is None else dynamic.adjusted(state.loss_scale, finite), inner)


def unscaled(grads: Any, scale: LossScale | None, state: Any) -> Any:
    """The gradients of the loss itself, in at least float32, from those of the loss that was multiplied by `scale`, in
    a solver's state; the same gradients if there is no scale."""
    if scale is None:
        return grads
    divisor = state.loss_scale.scale if isinstance(scale, DynamicLossScale) else scale
    return jax.tree.map(lambda g: g / jnp.asarray(divisor, g.dtype), jax.tree.map(widened_array, grads))


def done_if(condition: Any, step: Callable[[], Any], before: Any) -> Any:
    """Returns the result of `step` if the traced bool `condition` holds, else `before`.

    On the CPU this branches, as selecting each element would double the time of a step. Elsewhere it selects, which
    costs nothing beside the memory traffic, while a branch would make the host wait for the device.
    """

    def branch(before: Any) -> Any:
        return jax.lax.cond(condition, step, lambda: before)

    def choice(before: Any) -> Any:
        return jax.tree.map(lambda after, old: jnp.where(condition, after, old), step(), before)

    return jax.lax.platform_dependent(before, cpu=branch, default=choice)


def like(new: Any, old: Any) -> Any:
    """`new` in the dtype of `old`: parameters and state must keep their dtypes from step to step."""
    return new.astype(old.dtype) if new.dtype != old.dtype else new
