"""The computation of a training step as a function of arrays, and checks of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..extend import NdArray, Spec, Variable, host_array, lower
from ..jax.to_jax import SHAPES_ARE_FIXED
from ..solvers.gradients import Arrays
from ..solvers.in_place import Results
from ..solvers.loss_scale import DynamicLossScale, like, unscaled
from ..solvers.solver import Solver
from .moving_average import MovingAverage
from .options import Auxiliary, StepOptions, gradient_change, measures
from .step_graph import LeafSource, Place, StepGraph


def check_count(arrays: Arrays, specs: list[Spec]) -> None:
    """Raise a TypeError unless there is one array for each input."""
    if len(arrays) != len(specs):
        raise TypeError(f"expected {len(specs)} inputs, got {len(arrays)}")


def input_array(value: Any, spec: Spec, name: str) -> Any:
    """The value of an input as an array that an executable accepts."""
    if isinstance(value, Variable):
        return value.data.raw()
    if isinstance(value, NdArray):
        return value.raw()
    try:
        # NumPy converts numbers and lists to 64 bits, which only a 64-bit input needs.
        return host_array(np.asarray(value) if spec.needs_x64 and not hasattr(value, "dtype") else value, None)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: expected an array of {spec}, got {type(value).__name__} ({error})") from None


def fitting(arrays: Arrays, specs: list[Spec], names: list[str]) -> list[Any]:
    """Check the shapes of `arrays`, and cast them to the dtypes of `specs`. Runs only while JAX traces."""
    check_count(arrays, specs)
    fitted = []
    for array, spec, name in zip(arrays, specs, names, strict=True):
        if array.shape != spec.shape:
            raise ValueError(f"{name}: expected shape {spec.shape}, got {array.shape}, {SHAPES_ARE_FIXED}")
        if jnp.issubdtype(array.dtype, jnp.floating) and not spec.differentiable:
            raise TypeError(f"{name}: expected {spec.dtype.name}, got {array.dtype.name}")
        fitted.append(array if array.dtype == spec.dtype else array.astype(spec.dtype))
    return fitted


class StepComputation:
    """A training step as a function of arrays. `inputs` are the specs of its inputs, and `names` their names for
    messages."""

    def __init__(
        self,
        graph: StepGraph,
        loss: Spec,
        auxiliary: Auxiliary | None,
        solver: Solver,
        inputs: Sequence[Spec],
        names: list[str],
        options: StepOptions,
    ) -> None:
        self._program = lower(graph.program)
        self._mesh = graph.program.mesh
        self._loss = loss
        self._auxiliary = auxiliary
        self._solver = solver
        self._names = tuple(solver.get_parameters())
        self._input_names = names
        self._on_nan = options.on_nan
        self._change = gradient_change(options, self._names)
        self._wanted = frozenset() if auxiliary is None else auxiliary.measures
        self.input_specs = list(inputs)
        self._results = [loss, *[x.spec for x in auxiliary.variables]] if auxiliary is not None else [loss]
        self._graph = graph
        self._averages = [(average, _followed(average, graph)) for average in options.averages]

    def __call__(self, state: Arrays, params: Arrays, arguments: tuple[Any, Arrays, list[Any]]) -> Results:
        """Returns the new state, new parameters, new values of leaves, and the loss with auxiliary results."""
        lr, arrays, live = arguments
        solver = self._solver
        scaling = solver.scaling
        tree = jax.tree.unflatten(solver._structure, state)
        number = [tree.loss_scale.scale.astype(self._loss.dtype)] if isinstance(scaling, DynamicLossScale) else []
        number = [tree.damping] if solver.takes_residuals else number
        sources = [params, fitting(arrays, self.input_specs, self._input_names), live, number]
        results = self._run(sources)
        loss, *values = [like(r, spec) for r, spec in zip(results, self._results, strict=False)]
        grads = self._summed(results, params)
        if scaling is None:  # with loss scaling they stay in float32
            grads = [like(g, p) for g, p in zip(grads, params, strict=True)]
        flags = self._flags(loss, grads)
        allowed = self._allowed(flags)
        facts = {"value": loss, "value_fn": self._loss_of(sources, tree)}
        if solver.takes_residuals:
            moves = zip(self._graph.directions, params, strict=True)
            facts["direction"] = tuple([like(results[k], p) for k, p in moves])
        new, after = solver.pure_update(tuple(params), tuple(grads), tree, lr, self._change, allowed, facts)

        updates = list(results[self._graph.updates_from :])
        if self._on_nan is not None:
            before = [sources[k][i] for k, i in self._graph.places_of_updated]
            updates = [jnp.where(allowed, u, b) for u, b in zip(updates, before, strict=True)]
        moved = self._moved_averages(sources, new, updates, allowed)
        result: Any = loss
        if self._auxiliary is not None:
            true = unscaled(grads, scaling, tree)
            finite = None if flags is None else flags.all()
            result = loss, self._auxiliary.arranged(values, measures(self._wanted, self._names, params, true, finite))
        if self._on_nan == "raise":
            if isinstance(scaling, DynamicLossScale):  # the scale shrinks as long as it can
                flags = flags.at[1:].set(flags[1:] | (tree.loss_scale.scale > scaling.minimum))
            if self._mesh is not None:  # every process reads it
                flags = jax.lax.with_sharding_constraint(flags, self._mesh.sharding())
            result = result, flags
        return tuple(jax.tree.leaves(after)), tuple(new), (*updates, *moved), result

    def _summed(self, results: Sequence[Any], params: Arrays) -> list[Any]:
        """The gradient of each parameter, including the loss scale."""
        return [
            sum([results[k] for k in numbers[1:]], results[numbers[0]]) if numbers else jnp.zeros_like(p)
            for numbers, p in zip(self._graph.gradients, params, strict=True)
        ]

    def _loss_of(self, sources: list[Any], state: Any) -> Callable[[Arrays], Any]:
        """The loss as a function of the parameters, for line searches; everything else, including random numbers, is
        fixed. Its derivative is the program's own, since JAX cannot differentiate everything in a program.
        """
        parameters = sources[LeafSource.PARAMETERS]

        def at(params: Arrays) -> Sequence[Any]:
            moved = [*sources]
            moved[LeafSource.PARAMETERS] = tuple([like(p, o) for p, o in zip(params, parameters, strict=True)])
            return self._run(moved)

        @jax.custom_jvp
        def loss(params: Arrays) -> Any:
            return like(at(params)[0], self._loss)

        @loss.defjvp
        def tangent(primals: Any, tangents: Any) -> tuple[Any, Any]:
            (params,), (directions,) = primals, tangents
            results = at(params)
            grads = unscaled(self._summed(results, parameters), self._solver.scaling, state)
            change = sum([jnp.vdot(g.astype(d.dtype), d) for g, d in zip(grads, directions, strict=True)])
            return like(results[0], self._loss), jnp.asarray(change, self._loss.dtype)

        return loss

    def _run(self, sources: list[Any]) -> Sequence[Any]:
        """The results of the program."""
        return self._program(*[sources[k][i] for k, i in self._graph.places])

    def _flags(self, loss: Any, grads: Sequence[Any]) -> Any:
        """Flags that are True where the loss and each gradient are finite; None if not needed."""
        scales = isinstance(self._solver.scaling, DynamicLossScale)
        if self._on_nan is None and "finite" not in self._wanted and not (scales and self._averages):
            return None
        return jnp.stack([jnp.isfinite(loss), *[jnp.isfinite(g).all() for g in grads]])

    def _allowed(self, flags: Any) -> Any:
        """A traced bool, True where the step is to be taken; None if the solver decides."""
        if self._on_nan is not None:
            return flags.all()
        scales = isinstance(self._solver.scaling, DynamicLossScale)
        return flags[1:].all() if scales and self._averages else None

    def _moved_averages(self, sources: list[Any], new: Arrays, updates: Sequence[Any], allowed: Any) -> list[Any]:
        moved: list[Any] = []
        for average, (before, followed) in self._averages:
            old = tuple([sources[k][i] for k, i in before])
            now = tuple([new[i] if k is LeafSource.PARAMETERS else updates[i] for k, i in followed])
            after = average.moved(old, now)
            moved += after if allowed is None else [jnp.where(allowed, a, b) for a, b in zip(after, old, strict=True)]
        return moved


def _followed(average: MovingAverage, graph: StepGraph) -> tuple[list[Place], list[Place]]:
    """The sources of an average's old values, and of the values that it follows after a step: parameters, or new values
    of other leaves.

    This adds the average's leaves to those that the step writes.

    Raises:
        ValueError: The step does not change a value that the average follows, or something else writes the averages.
    """
    updated = {id(x.cell): i for i, x in enumerate(graph.updated[: len(graph.places_of_updated)])}
    followed: list[Place] = []
    for name, p in average.named.items():
        place = graph.place_of_parameter(p)
        if place is None and id(p.cell) not in updated:
            raise ValueError(f"averages: this step neither trains nor updates {name!r}, so its average would not "
                             "change; leave it out")
        followed.append((LeafSource.LEAVES, updated[id(p.cell)]) if place is None else place)
    for x, p in zip(average.get_parameters().values(), average.named.values(), strict=True):
        x.cell.axes = p.cell.axes or ()  # on a mesh they have the same sharding
    before = [graph.place_of(x) for x in average.leaves]
    graph.updated += average.leaves
    return before, followed
