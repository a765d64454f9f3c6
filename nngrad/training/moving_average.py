"""Exponential moving averages of parameters."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..extend import (
    NdArray,
    Value,
    Variable,
    check_process,
    explained,
    interrupt_safe,
    leaf_of,
    spec_of,
    x64_if,
)
from ..solvers.gradients import Arrays
from ..solvers.loss_scale import like
from ..solvers.rates import as_decay
from ..solvers.state import fitting_states
from .modules import named_parameters


class MovingAverage:
    """Exponential moving average of parameters: `average <- decay * average + (1 - decay) * parameter` at each step.

    A training step with it in `averages=` updates it within its own executable; in a loop with `solver.update()` call
    `average.update()` after it. Averages are kept at least in float32.

        average = nn.MovingAverage(nn.get_parameters(), decay=0.999)
        step = nn.train_step(loss, nn.get_parameters(), S.Adam(), inputs=[x, t], averages=average)
        ...
        with average.applied():
            loss.forward()          # with the averages in place of the parameters

    The parameters may include running statistics of the graph, which are then averaged too.

    Args:
        parameters: Variables by name, or in a list: leaves of floating dtypes.
        decay: The weight of the old average at each step, at least 0 and below 1.
        bias_correction: Whether to average only over the steps so far, so that the first average equals the parameters
            after the first step: at step t the decay is then (decay - decay^t) / (1 - decay^t). If not, the average
            starts with the current parameters, whose weight is decay^t after t steps.

    Raises:
        TypeError: A parameter is not a Variable, or has no floating dtype.
        ValueError: A parameter is not a leaf, there are no parameters, or `decay` is out of range.
    """

    @explained
    def __init__(
        self,
        parameters: Mapping[str, Variable] | Iterable[Variable],
        decay: float = 0.999,
        bias_correction: bool = True,
    ) -> None:
        named = named_parameters(parameters)
        for name, p in named.items():
            if not p.spec.differentiable:
                raise TypeError(f"parameters: {name!r} must have a floating dtype to be averaged, got {p.dtype.name}")
        self.decay = as_decay(decay, "decay")
        self.bias_correction = bool(bias_correction)
        self._params = OrderedDict(named)
        self._needs_x64 = any([p.spec.needs_x64 for p in named.values()])
        self._count = leaf_of(NdArray.of_spec(spec_of((), np.dtype(np.int32))), "count")
        self._averages = OrderedDict((name, _average_of(name, p)) for name, p in named.items())

    @property
    def leaves(self) -> list[Variable]:
        """The leaves that a step writes: the count of steps, and the averages."""
        return [self._count, *self._averages.values()]

    @property
    def named(self) -> OrderedDict[str, Variable]:
        """The averaged parameters by name."""
        return self._params.copy()

    @property
    def count(self) -> int:
        """The number of steps averaged."""
        return int(self._count.data.raw())

    def get_parameters(self) -> OrderedDict[str, Variable]:
        """The averages by the names of the parameters: leaves without gradient, at least in float32."""
        return self._averages.copy()

    def moved(self, before: Arrays, params: Arrays) -> Arrays:
        """The count and the averages after another step, whose result is `params`: a pure function of arrays."""
        return _moved(before, params, self.decay, self.bias_correction)

    def update(self) -> None:
        """Update the averages with the current parameters, as after another step."""
        check_process()
        cells = [x.cell for x in self.leaves]
        with x64_if(self._needs_x64):
            arrays = Value.read([*cells, *[p.cell for p in self._params.values()]])
            split = len(cells)
            before, params = tuple(arrays[:split]), tuple(arrays[split:])
            Value.write(cells, _jitted(before, params, self.decay, self.bias_correction))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the block, parameters have the values of their averages; afterwards they get their own values back,
        also after an error.

        Values written to parameters within the block are lost, so train outside. All threads see the averages.

        Raises:
            RuntimeError: Parameters were replaced within the block, by a training step or by loading. They have been
                reset to their values from before the block.
        """
        cells = [p.cell for p in self._params.values()]
        with x64_if(self._needs_x64):
            averages = Value.read([x.cell for x in self._averages.values()])
            values = [Value(like(a, cell.spec)) for a, cell in zip(averages, cells, strict=True)]
        before = Value.held_by(cells)
        try:
            Value.put_in(cells, values)
            yield
            now = Value.held_by(cells)
        finally:
            Value.put_in(cells, before)
        written = [name for name, value, average in zip(self._params, now, values, strict=True) if value is not average]
        if written:
            raise RuntimeError(f"applied: {', '.join(map(repr, written))} was written to within the block, where it "
                               "has the average as its value; it now has its value from before. Train and load "
                               "parameters outside the block")

    def get_states(self) -> OrderedDict[str, np.ndarray[Any, Any]]:
        """A copy of the count of steps and of the averages, as 'count', 'average:conv/W', ..."""
        arrays = Value.read([x.cell for x in self.leaves])
        return OrderedDict((name, np.array(array)) for name, array in zip(self._names(), arrays, strict=True))

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Load the result of `get_states` of an average of these parameters, atomically.

        Raises:
            TypeError: `states` is not a mapping of names to arrays.
            ValueError: Names, shapes or dtypes differ, or the count is negative.
        """
        if not isinstance(states, Mapping):
            raise TypeError(f"set_states: expected arrays by name, got {type(states).__name__}")
        by_name = dict(zip(self._names(), self.leaves, strict=True))
        arrays = fitting_states(states, by_name, None)
        with Value.writing:
            Value.write([x.cell for x in by_name.values()], [np.array(arrays[name]) for name in by_name])

    def _names(self) -> list[str]:
        return ["count", *[f"average:{name}" for name in self._averages]]

    def __repr__(self) -> str:
        return f"<moving average of {len(self._params)} parameters, decay {self.decay:g}, {self.count} steps>"


def _average_of(name: str, p: Variable) -> Variable:
    """The leaf of a parameter's average, which starts with the parameter's value."""
    with x64_if(p.spec.needs_x64):
        dtype = np.dtype(jnp.promote_types(p.dtype, jnp.float32))
        cell = NdArray.of_host_array(np.array(p.data.raw()).astype(dtype))
    return leaf_of(cell, f"average/{name}")


def _moved(before: Arrays, params: Arrays, decay: float, bias_correction: bool) -> Arrays:
    """The count and the averages after another step."""
    count = before[0] + 1

    def move(average: Any, p: Any) -> Any:
        share: Any = 1 - decay
        if bias_correction and decay:
            # (1 - decay) / (1 - decay^t), accurate to all digits even for a decay close to 1.
            share = share / -jnp.expm1(count.astype(average.dtype) * math.log(decay))
        return like(average + share * (p.astype(average.dtype) - average), average)

    return count, *[move(average, p) for average, p in zip(before[1:], params, strict=True)]


_jitted = interrupt_safe(jax.jit(_moved, static_argnums=(2, 3)))
