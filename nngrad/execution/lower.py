"""A graph as a program, and a program as a pure JAX function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax

from ..graph import Function, Op, Spec, Variable, build_options, functions_of, path_between
from ..graph.block import Block, Step, bodies_in
from ..graph.closing import Closing
from ..graph.spec import spec_of
from ..graph.traverse import forms_within, seen_through
from .hoisting import taking_literals
from .on_disk import on_disk_by_structure
from .partitions import Partition, apart
from .passes import PLATFORMS, Lowered, is_too_long, lowered, platform_of
from .platforms import Way, Ways
from .program import Program as Program
from .program import digest_of_program, in_one


class Linearized(NamedTuple):
    """A graph's program, with what ties it to the graph."""

    program: Program
    leaves: list[Variable]
    """The leaves, in the program's order."""
    functions: list[Function]
    """The functions, in an order in which they can run."""
    updated: list[Variable]
    """The leaves whose new values are the program's last results."""


def linearize(
    outputs: Sequence[Variable],
    first: Iterable[Variable] = (),
    device: jax.Device | None = None,
    effects: bool = True,
    functions: list[Function] | None = None,
    as_built: bool = False,
) -> Linearized:
    """The program that computes `outputs`, and after them the new values of the leaves it updates.

    A leaf that several functions update is updated by each in turn: what a later one computes from the
    leaf is computed from the earlier one's result.

    Args:
        outputs: What it computes.
        first: Variables that come first among the leaves; functions above them are left out.
        device: Where it runs.
        effects: Whether it computes the leaves' new values.
        functions: What `outputs` depend on, lowest rank first, where the caller has it already.
        as_built: Whether gradients that are there in two forms are computed in both.
    """
    closing = Closing(first)
    partly_known = functions is not None and closing.leaves
    if functions is None:
        cut = frozenset(closing)
        functions = functions_of(outputs, through=(lambda x: x not in cut) if cut else None)
    if not partly_known and not as_built:
        outputs, functions = _in_one_form(closing, outputs, functions)
    closing.write(functions)
    results = [closing[y] for y in outputs]
    updates = _updates(closing) if effects else {}
    results += [number for _, number in updates.values()]
    options = build_options()
    mesh = options.running.mesh
    program = Program(closing.block_to_run(results), device, options.running.without_passes)
    if mesh is not None:
        if device is not None:
            raise ValueError(f"the graph has functions that were made for one device, {device}, within "
                             f"nn.context_scope, so it cannot run on {mesh!r}; build it without the Context")
        uneven = tuple([i for i, x in enumerate(closing.leaves) if mesh.is_uneven(x)])
        places = tuple([mesh.axes_of(x, i) for i, x in enumerate(closing.leaves)])
        program = program._replace(mesh=mesh, places=places, uneven=uneven)
    return Linearized(program, closing.leaves, functions, [leaf for leaf, _ in updates.values()])


def _in_one_form(
    closing: Closing, outputs: Sequence[Variable], functions: list[Function]
) -> tuple[Sequence[Variable], list[Function]]:
    """Let what is there in two forms be computed in one: returns what is then computed in place of `outputs` and
    `functions`."""
    found = forms_within(functions, {id(x) for x in closing}) if any([f.order for f in functions]) else []
    if not found:
        return outputs, functions
    leaves = frozenset(closing)
    updating = [y for f in functions if f.effects for y in f.outputs]
    seen, shorter = seen_through(
        [*outputs, *updating], {id(x): form for x, form in found}, lambda x: x not in leaves
    )
    read = {id(x) for f in functions for x in f.inputs}
    if not all([id(x) in read for f in shorter for x in f.inputs if x.parent is None]):
        return outputs, functions  # values of other leaves would be asked for
    count, starts = 0, {}
    for f in shorter:
        starts[f] = count
        count += len(f._outputs)
    closing.update({x: ~(starts[form.parent] + form.index) for x, form in found if form.parent in starts})
    return seen[: len(outputs)], shorter


def _updates(closing: Closing) -> dict[int, tuple[Variable, int]]:
    """The leaves that functions update, each with the number of its last new value, by the leaf's id."""
    newest: dict[int, tuple[Variable, int]] = {}
    for f in [f for f in closing.functions if f.effects]:
        for leaf, index in f.effects:
            value, before = f.outputs[index], newest.get(id(leaf))
            newest[id(leaf)] = leaf, closing[value] if before is None else _again(closing, value, leaf, before[1])
    return newest


def _again(closing: Closing, value: Variable, leaf: Variable, number: int) -> int:
    """Compute `value` a second time with `number` in place of `leaf`, and return its number."""
    path, _, _ = path_between([value], [leaf], of_values=True)
    others: dict[tuple[Function | None, int], int] = {}
    for f in path:
        ins = tuple([number if x is leaf else others.get((x.parent, x.index), closing[x]) for x in f.inputs])
        start = closing.append(f, ins)
        others |= {(f, i): start - i for i in range(len(f.specs))}
    return others.get((value.parent, value.index), closing[value])


def lower(program: Program) -> Way:
    """The program as a pure function: arrays of the leaves in, arrays of the results out.

    That of a program which is too long for the compiler calls one jitted function for each of its partitions. Called by
    itself it runs them one after another; where JAX traces it, XLA is told to leave them apart.
    """

    def function(found: Lowered) -> Way:
        return in_one(found.program) if found.partitions is None else in_partitions(found.program, found.partitions)

    return _by_platform(program, function, program.block.inputs)


def lowered_whole(
    program: Program, function: Callable[[Program], Way] = in_one, takes: Sequence[Spec] | None = None
) -> Way:
    """The program as one function, whatever its length, after the passes for the platform that it is lowered for.

    Args:
        program: The program.
        function: Makes a function of arrays of what the passes have left.
        takes: Shapes and dtypes of the arrays; those of the leaves by default.
    """
    specs = program.block.inputs if takes is None else takes
    return _by_platform(program, lambda found: function(found.program), specs, as_a_whole=True)


def lowered_where_it_runs(program: Program) -> Lowered:
    """A program that may be too long for the compiler after the passes for the platform that it runs on, which is not
    asked for elsewhere: other programs are as they are, and get their passes when they are traced."""
    return lowered(program, platform_of(program)) if is_too_long(program) else Lowered(program)


def by_itself(op: Op, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """An op as a function of arrays, after the passes for the platform that it is lowered for."""

    def run(*arrays: Any) -> Any:
        specs = tuple([spec_of(array.shape, array.dtype) for array in arrays])
        results = op.result_specs(specs, arguments)
        steps: tuple[Step, ...] = ((op, arguments, tuple(range(len(arrays)))),)
        made = lowered_whole(Program(Block(specs, steps, (), tuple([~k for k in range(len(results))]))))(*arrays)
        return made if op.multiple_results else made[0]

    return run if op.on_cpu is not None or bodies_in(arguments) else op.bind(arguments)


def _by_platform(
    program: Program, function: Callable[[Lowered], Way], takes: Sequence[Spec], as_a_whole: bool = False
) -> Way:
    """A program as a function of what the passes for each platform have made of it; they take a while, and are run when
    it is called first."""

    @functools.cache
    def made() -> Way:
        if program.block.groups:  # JAX cannot choose between collectives, and a process knows its platform
            return function(lowered(program, platform_of(program), as_a_whole))
        other = lowered(program, None, as_a_whole)
        others = {name: found for name in PLATFORMS if (found := lowered(program, name, as_a_whole)) != other}
        if not others:
            return function(other)
        gives = [program.block.spec(i) for i in program.block.outputs]
        return Ways({name: function(found) for name, found in others.items()}, function(other), takes, gives)

    return lambda *arrays: made()(*arrays)


def in_partitions(program: Program, partitions: list[Partition]) -> Way:
    """The program as a function that calls a jitted one for each of its partitions; see `lower`."""
    one_of_each = {partition.block: partition for partition in partitions}
    functions = {block: _remembered(program, partition) for block, partition in one_of_each.items()}
    parts = [(functions[partition.block], partition) for partition in partitions]

    def run(*arrays: Any) -> tuple[Any, ...]:
        values: dict[int, Any] = dict(enumerate(arrays))
        with apart(arrays):
            for function, partition in parts:
                values |= partition.starts
                given = [values[i] for i in partition.takes]
                made = function(*given) if partition.numbers is None else function(partition.numbers, *given)
                values.update(zip(partition.gives, made, strict=True))
                for i in partition.done_with:
                    del values[i]
        return tuple([values[i] for i in program.block.outputs])

    return run


def _remembered(whole: Program, partition: Partition) -> Way:
    """A partition as a jitted function, whose executable is kept on disk where it can be."""
    program, specs = Program(partition.block, whole.device, mesh=whole.mesh), partition.block.inputs
    if partition.numbers is None:
        jitted = jax.jit(in_one(program))
    else:
        jitted = jax.jit(taking_literals(program))
        specs = (spec_of(partition.numbers.shape, partition.numbers.dtype), *specs)
    on_disk = on_disk_by_structure(digest_of_program(program), jitted, specs)
    return jitted if on_disk is None else on_disk.call
