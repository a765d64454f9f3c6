"""What users ask of a training step besides the loss, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..graph.arguments import checked_count
from ..solvers.gradients import Arrays, norm_of, with_decay, within_bounds, within_norm
from ..solvers.rates import as_rate, as_real
from .moving_average import MovingAverage

OnNan: TypeAlias = Literal["skip", "raise"] | None
Decay: TypeAlias = float | Callable[[str], float]


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The options of `train_step`, with their meaning there."""

    recompute: Any = None
    wait_for_best: bool = False
    accumulate: int = 1
    clip_grad_by_value: float | None = None
    clip_grad_by_norm: float | None = None
    clip_grad_by_global_norm: float | None = None
    weight_decay: Decay | None = None
    on_nan: OnNan = None
    averages: tuple[MovingAverage, ...] = ()

    def decays(self, names: Iterable[str]) -> tuple[float, ...] | None:
        """The decay of each of the parameters of these names; None if there is none.

        Raises:
            TypeError: It is no number.
            ValueError: It is negative or not finite.
        """
        given = self.weight_decay
        if given is None:
            return None
        return tuple([
            as_rate(given(name), f"weight_decay: of {name!r}") if callable(given) else given for name in names
        ])


def checked_options(given: Mapping[str, Any]) -> StepOptions:
    """The options by name, checked.

    Raises:
        TypeError: One is of the wrong kind.
        ValueError: One is out of its range.
    """
    options = dict(given)
    options["accumulate"] = checked_count(options["accumulate"], "accumulate")
    for name in ("clip_grad_by_value", "clip_grad_by_norm", "clip_grad_by_global_norm"):
        if options[name] is not None:
            limit = options[name] = as_real(options[name], name)
            if not limit > 0:
                raise ValueError(f"{name}: must be above 0, got {limit!r}; leave it out for no clipping")
    decay = options["weight_decay"]
    if decay is not None and not callable(decay):
        options["weight_decay"] = as_rate(decay, "weight_decay")
    if options["on_nan"] not in (None, "skip", "raise"):
        raise ValueError(f"on_nan: must be 'skip', 'raise' or None, got {options['on_nan']!r}")
    averages = options["averages"]
    averages = options["averages"] = (averages,) if isinstance(averages, MovingAverage) else tuple(averages)
    for i, average in enumerate(averages):
        if not isinstance(average, MovingAverage):
            raise TypeError(f"averages[{i}]: expected an nn.MovingAverage, got {type(average).__name__}")
    if len({id(average) for average in averages}) != len(averages):
        raise ValueError("averages: the same one is given twice")
    return StepOptions(**options)


class GradientChange:
    """What is done with gradients before parameters are moved along them, in this order: each element is brought within
    bounds, then each gradient within a norm, then all together within one, and weight decay is added.

    Args:
        options: Which of these.
        names: The names of the parameters.
    """

    def __init__(self, options: StepOptions, names: Iterable[str]) -> None:
        self._value = options.clip_grad_by_value
        self._norm = options.clip_grad_by_norm
        self._global_norm = options.clip_grad_by_global_norm
        self._decays = options.decays(names)

    @property
    def is_none(self) -> bool:
        """Whether gradients stay as they are."""
        return self.described == (None, None, None, None)

    @property
    def described(self) -> tuple[Any, ...]:
        """What it does, in numbers."""
        return self._value, self._norm, self._global_norm, self._decays

    def __call__(self, params: Arrays, grads: Arrays) -> Arrays:
        """The gradients that parameters are moved along."""
        changed = list(grads)
        if self._value is not None:
            changed = [within_bounds(g, self._value) for g in changed]
        if self._norm is not None:
            changed = [within_norm(g, norm_of([g]), self._norm) for g in changed]
        if self._global_norm is not None and self._global_norm < math.inf:
            length = norm_of(changed)
            changed = [within_norm(g, length, self._global_norm) for g in changed]
        if self._decays is not None:
            changed = [with_decay(p, g, rate) for p, g, rate in zip(params, changed, self._decays, strict=True)]
        return tuple(changed)
