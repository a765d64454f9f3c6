"""A training step as a plain JAX function, which changes nothing and can be traced, exported and lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..graph import Variable
from ..graph.leaf import arrays_in, arrays_of
from ..solvers.solver import Solver
from .computation import StepComputation

Carried = dict[str, Any]
"""What goes from step to step: `parameters` by name, the solver's `state`, the `leaves` that a step writes (running
statistics, averages) and the `learning_rate`."""
PureStep = Callable[..., tuple[Any, Carried]]


def pure_step(
    computation: StepComputation, solver: Solver, live: Sequence[Variable], written: Sequence[Variable], raises: bool
) -> tuple[PureStep, Carried]:
    """The step as a function, and what it is to be called with first.

    Args:
        computation: What the step computes.
        solver: Whose parameters it moves.
        live: The leaves that it reads.
        written: Those of the leaves that it writes.
        raises: Whether its results come with flags that say whether they are finite.

    Raises:
        ValueError: It writes to one of its inputs, or the solver's learning rate follows a schedule.
    """
    if solver.has_schedule:
        raise ValueError("to_jax: the solver's learning rate follows a schedule, which Python evaluates at each "
                         "step; set a number first, and carried['learning_rate'] in your loop")
    numbers = {id(x.cell): i for i, x in enumerate(live)}
    if not all([id(x.cell) in numbers for x in written]):
        raise ValueError("to_jax: the step writes to one of its inputs, which a function of JAX cannot")
    places = [numbers[id(x.cell)] for x in written]
    keys = [i for i, x in enumerate(live) if x._source is not None]
    names = tuple(solver.get_parameters())
    with solver.updating:
        arrays = arrays_of(live, draw=False)
        parameters = arrays_in([p.cell for p in solver._variables])
        carried = {
            "parameters": dict(zip(names, parameters, strict=True)),
            "state": tuple(solver._flat_state()),
            "leaves": tuple([arrays[i] for i in places]),
            "learning_rate": solver._rate,
        }

    def function(carried: Carried, *inputs: Any, key: Any = None) -> tuple[Any, Carried]:
        now = list(arrays)
        for i, value in zip(places, carried["leaves"], strict=True):
            now[i] = value
        if keys and key is None:
            raise ValueError("key: the step has random functions; pass key=jax.random.key(...)")
        for i, drawn in zip(keys, jax.random.split(key, len(keys)) if keys else (), strict=True):
            now[i] = jax.random.key_data(drawn)
        given = carried["learning_rate"], inputs, now
        before = tuple([carried["parameters"][name] for name in names])  # JAX sorts what is known by name
        own, leaves, new, state = computation(before, carried["state"], given)
        named = dict(zip(names, new, strict=True))
        after = {**carried, "parameters": named, "state": state, "leaves": tuple(leaves)}
        return own[0] if raises else own, after

    return function, carried
