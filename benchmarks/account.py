"""A training step as the compiler accounts for it, on devices that need not be there: nothing is put on them or run."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding

from nngrad.parallel.devices.grid import Mesh
from nngrad.solvers.in_place import placed_on
from nngrad.training.step import TrainStep

KINDS = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
_COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\(")
_ARRAY = re.compile(r"([a-z]+)(\d+)?\[([\d,]*)\]")


_OPTIONS: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
"""Nothing is run, so machine code need not be good; the program that it is made of is the same."""


class Collective(NamedTuple):
    """One exchange between devices, and what it leaves on each of them."""

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    size: int
    """Bytes."""


class Account(NamedTuple):
    """What one device computes and sends in a step."""

    flops: float
    accessed: float
    """Bytes that are read and written."""
    temporaries: int
    """Bytes."""
    arguments: int
    """Bytes of parameters, state and its part of the batch."""
    collectives: list[Collective]

    def number_of(self, kind: str) -> int:
        """How many exchanges there are of a kind."""
        return sum(each.kind == kind for each in self.collectives)

    @property
    def sent(self) -> int:
        """Bytes of all exchanges."""
        return sum(each.size for each in self.collectives)


def collectives(text: str) -> list[Collective]:
    """Those in the text of a compiled program."""
    found = []
    for shapes, kind in _COLLECTIVE.findall(text):
        arrays = [(int(bits or 8), tuple(map(int, filter(None, sizes.split(","))))) for _, bits, sizes
                  in _ARRAY.findall(shapes)]
        size = sum(bits // 8 * math.prod(shape) for bits, shape in arrays)
        found.append(Collective(kind, tuple(shape for _, shape in arrays), size))
    return found


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
    return jitted.lower(placed, state, (solver._rate, tuple(inputs), keys_and_others)).compile(_OPTIONS)


def account_of(executable: jax.stages.Compiled) -> Account:
    """What the compiler says of an executable."""
    costs = executable.cost_analysis()
    memory: Any = executable.memory_analysis()
    assert costs is not None and memory is not None
    return Account(
        costs["flops"], costs["bytes accessed"], memory.temp_size_in_bytes, memory.argument_size_in_bytes,
        collectives(executable.as_text() or ""),
    )
