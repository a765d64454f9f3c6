"""The options of a training step, checked; and its auxiliary results: Variables of the graph, and measures such as
gradient norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from ..extend import Variable, did_you_mean
from ..solvers.gradients import Arrays, norm_of, with_decay, within_bounds, within_norm
from ..solvers.rates import as_rate, as_real
from .moving_average import MovingAverage

OnNan: TypeAlias = Literal["skip", "raise"] | None
Decay: TypeAlias = float | Callable[[str], float]


@dataclass
class StepOptions:
    """The options of `train_step`, checked.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range.
    """

    recompute: Any
    clip_grad_by_value: float | None
    clip_grad_by_norm: float | None
    clip_grad_by_global_norm: float | None
    weight_decay: Decay | None
    on_nan: OnNan
    averages: Any
    """A tuple of averages; the user gives a single one, or several in an iterable."""

    def __post_init__(self) -> None:
        for name in ("clip_grad_by_value", "clip_grad_by_norm", "clip_grad_by_global_norm"):
            if getattr(self, name) is not None:
                limit = as_real(getattr(self, name), name)
                if not limit > 0:
                    raise ValueError(f"{name}: must be positive, got {limit!r}; for no clipping leave it out")
                setattr(self, name, limit)
        if self.weight_decay is not None and not callable(self.weight_decay):
            self.weight_decay = as_rate(self.weight_decay, "weight_decay")
        if self.on_nan not in (None, "skip", "raise"):
            raise ValueError(f"on_nan: must be 'skip', 'raise' or None, got {self.on_nan!r}")
        self.averages = (self.averages,) if isinstance(self.averages, MovingAverage) else tuple(self.averages)
        for i, average in enumerate(self.averages):
            if not isinstance(average, MovingAverage):
                raise TypeError(f"averages[{i}]: expected an nn.MovingAverage, got {type(average).__name__}")
        if len(set(map(id, self.averages))) != len(self.averages):
            raise ValueError("averages: the same average is given twice")


def gradient_change(options: StepOptions, names: Iterable[str]) -> Callable[[Arrays, Arrays], Arrays] | None:
    """A function of the arrays of parameters and their gradients that clips the gradients by value, by each gradient's
    norm, and by the global norm, and then adds weight decay; None if they stay as they are. `names` are those of the
    parameters.
    """
    value, norm, global_norm = options.clip_grad_by_value, options.clip_grad_by_norm, options.clip_grad_by_global_norm
    decay = options.weight_decay
    decays = None if decay is None else [
        as_rate(decay(name), f"weight_decay of {name!r}") if callable(decay) else decay for name in names
    ]
    if (value, norm, global_norm, decays) == (None, None, None, None):
        return None

    def changed(params: Arrays, grads: Arrays) -> Arrays:
        if value is not None:
            grads = tuple([within_bounds(g, value) for g in grads])
        if norm is not None:
            grads = tuple([within_norm(g, norm_of([g]), norm) for g in grads])
        if global_norm is not None and global_norm < math.inf:
            length = norm_of(grads)
            grads = tuple([within_norm(g, length, global_norm) for g in grads])
        if decays is not None:
            grads = tuple([with_decay(p, g, rate) for p, g, rate in zip(params, grads, decays, strict=True)])
        return grads

    return changed

# ---------------------------------------------------------------- auxiliary results


MEASURES = ("gradient_norm", "gradient_norms", "parameter_norm", "finite")
"""The measures that a step can return by name."""


class Auxiliary:
    """Auxiliary results in the user's structure: Variables and names of `MEASURES`.

    Raises:
        TypeError: `aux` contains anything else.
        ValueError: A name is unknown.
    """

    def __init__(self, aux: Any) -> None:
        paths, self._structure = jax.tree_util.tree_flatten_with_path(aux)
        self._given = [leaf for _, leaf in paths]
        for path, leaf in paths:
            name = f"aux{jax.tree_util.keystr(path)}"
            if isinstance(leaf, str):
                if leaf not in MEASURES:
                    known = ", ".join(map(repr, MEASURES))
                    raise ValueError(f"{name}: must be a Variable or one of {known}, got {leaf!r}"
                                     f"{did_you_mean(leaf, MEASURES)}")
            elif not isinstance(leaf, Variable):
                raise TypeError(f"{name}: expected a Variable or the name of a measure, got {type(leaf).__name__}")
        self.variables = [leaf for leaf in self._given if isinstance(leaf, Variable)]
        """The Variables, which the graph computes."""
        self.measures = frozenset([leaf for leaf in self._given if isinstance(leaf, str)])
        """The requested measures."""
        self._given = [x if isinstance(x, str) else None for x in self._given]  # releases the graph

    def arranged(self, values: Sequence[Any], measured: dict[str, Any]) -> Any:
        """The results in the user's structure, from the graph's `values` and the `measured` values by name."""
        left = iter(values)
        return jax.tree.unflatten(self._structure, [next(left) if m is None else measured[m] for m in self._given])


def measures(wanted: frozenset[str], names: tuple[str, ...], params: Arrays, grads: Sequence[Any], finite: Any) -> Any:
    """The requested measures by name, from the parameters before the step and the gradients without the loss scale.
    `finite` is None if it was not requested."""
    functions: dict[str, Callable[[], Any]] = {
        "gradient_norm": lambda: norm_of(grads),
        "gradient_norms": lambda: {name: norm_of([g]) for name, g in zip(names, grads, strict=True)},
        "parameter_norm": lambda: norm_of(params),
        "finite": lambda: jnp.asarray(finite),
    }
    return {name: functions[name]() for name in MEASURES if name in wanted}
