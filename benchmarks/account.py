"""A training step as the compiler accounts for it, on devices that need not be there: nothing is put on them or run."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding

from nngrad.parallel.devices.grid import Mesh
from nngrad.solvers.in_place import placed_on
from nngrad.training.step import TrainStep

_COLLECTIVE = re.compile(r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")
_ARRAY = re.compile(r"[a-z]+(\d+)?\[([\d,]*)\]")
OPTIONS: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
"""Nothing is run, so machine code need not be good; the program that it is made of is the same."""


class Account(NamedTuple):
    """What one device computes and sends in a step."""

    flops: float
    accessed: float
    """Bytes that are read and written."""
    sent: int
    """Bytes that exchanges between devices leave on it."""
    collectives: dict[str, int]
    """How many exchanges there are of each kind."""


class OnPaper(Mesh):
    """A mesh on which arrays have places and no values."""

    __slots__ = ()

    def put(self, array: Any, sharding: NamedSharding, name: str) -> Any:
        """What JAX compiles for in place of an array that lies there."""
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def compiled(step: TrainStep[Any]) -> jax.stages.Compiled:
    """The executable of a step, as its calls compile it, without arrays."""
    solver, update = step._solver, step._update
    inputs = [jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in step._input_specs]
    keys_and_others = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in step._live]
    parameters = [p.data.raw() for p in step._variables]
    updated = [x.data.raw() for x in update.updated]
    if step._mesh is None:
        state = solver._flat_state()
        jitted = jax.jit(update._function, donate_argnums=(0, 1))
        placed = tuple(parameters)
    else:
        mesh = OnPaper(step._mesh.grid)
        placements, arrays, state = placed_on(mesh, solver, update.updated, parameters + updated)
        placed = arrays[: len(parameters)]
        inputs = list(step._placed(tuple(inputs), mesh))
        keys_and_others = [
            mesh.put(array, mesh.sharding(mesh.axes_of(x)), "") for array, x in
            zip(keys_and_others, step._live, strict=True)
        ]
        jitted = jax.jit(update._function, donate_argnums=(0, 1), out_shardings=placements.of_results)
    return jitted.lower(state, placed, (solver._rate, tuple(inputs), keys_and_others)).compile(OPTIONS)


def account_of(executable: jax.stages.Compiled) -> Account:
    """What the compiler says of an executable."""
    costs = executable.cost_analysis()
    assert costs is not None
    exchanges = _COLLECTIVE.findall(executable.as_text() or "")
    arrays = [array for shapes, _ in exchanges for array in _ARRAY.findall(shapes)]
    sent = sum([int(bits or 8) // 8 * math.prod(map(int, filter(None, sizes.split(",")))) for bits, sizes in arrays])
    return Account(costs["flops"], costs["bytes accessed"], sent, Counter([kind for _, kind in exchanges]))
