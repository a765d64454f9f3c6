"""Lowering: convert a graph to a program, and a program to a pure JAX function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from ..graph import Function, Op, Spec, Variable, build_options, functions_of, path_between
from ..graph.block import Block, Step, bodies_in
from ..graph.by_jax import along, of_some
from ..graph.closing import Closing
from ..graph.jaxpr import without_unread
from ..graph.spec import spec_of
from ..graph.traverse import updates_by
from .partitions import Partition, apart, taking_literals
from .passes import Lowered, is_too_long, lowered, needs_passes, platforms
from .program import Program as Program
from .program import default_device, in_one, platform_of

Way = Callable[..., tuple[Any, ...]]
"""A function from arrays to arrays."""


class Linearized(NamedTuple):
    """A graph's program, with its links to the graph."""

    program: Program
    leaves: list[Variable]
    """The leaves, in the program's order."""
    functions: list[Function]
    """The functions, in topological order."""
    updated: list[Variable]
    """The leaves whose new values are the program's last results."""


def linearize(
    outputs: Sequence[Variable],
    first: Iterable[Variable] = (),
    device: jax.Device | None = None,
    effects: bool = True,
    functions: list[Function] | None = None,
) -> Linearized:
    """The program that computes `outputs`, followed by the new values of the leaves that it updates.

    If several functions update a leaf, they do so in the order of their calls: each starts from the result of the
    previous one.

    Args:
        outputs: The Variables to compute.
        first: Variables that come first among the leaves; functions above them are left out.
        device: Where it runs.
        effects: Whether to compute the leaves' new values.
        functions: The functions that `outputs` depend on, by ascending rank, if they are known.
    """
    closing = Closing(first)
    if functions is None:
        cut = frozenset(closing)
        functions = functions_of(outputs, through=(lambda x: x not in cut) if cut else None)
    functions = list(closing.write_in_turn(functions))
    results = [closing[y] for y in outputs]
    updates = _updates(closing) if effects else {}
    results += [number for _, number in updates.values()]
    options = build_options()
    mesh = options.running.mesh
    program = Program(closing.block_to_run(results), device, options.running.without_passes)
    if mesh is not None:
        if device is not None:
            raise ValueError(f"the graph was built for one device, {device}, within nn.context_scope, so it cannot run "
                             f"on {mesh!r}; build it without the Context")
        uneven = tuple([i for i, x in enumerate(closing.leaves) if mesh.is_uneven(x)])
        places = tuple([mesh.axes_of(x, i) for i, x in enumerate(closing.leaves)])
        program = program._replace(mesh=mesh, places=places, uneven=uneven)
    return Linearized(program, closing.leaves, functions, [leaf for leaf, _ in updates.values()])


def _updates(closing: Closing) -> dict[int, tuple[Variable, int]]:
    """The leaves that functions update, each with the number of its last new value, by the leaf's id."""
    newest: dict[int, tuple[Variable, int]] = {}
    for leaf, value, in_turn in updates_by(list(closing.functions)):
        before = newest.get(id(leaf))
        number = closing[value] if before is None or in_turn else _again(closing, value, leaf, before[1])
        newest[id(leaf)] = leaf, number
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
    """The program as a pure function from arrays of the leaves to arrays of the results.

    For a program that is too long for the compiler, it calls one jitted function per partition. Called by itself it
    runs these one after another; while JAX traces it, XLA is told to keep them apart.
    """

    def function(result: Lowered) -> Way:
        return in_one(result.program) if result.partitions is None else in_partitions(result.program, result.partitions)

    return _by_platform(program, function, program.block.inputs)


def lowered_whole(
    program: Program, function: Callable[[Program], Way] = in_one, takes: Sequence[Spec] | None = None
) -> Way:
    """The program as one function, whatever its length, after the passes for the platform that it is lowered for.

    Args:
        program: The program.
        function: Makes a function of arrays from the result of the passes.
        takes: Shapes and dtypes of the arrays; by default the leaves'.
    """
    specs = program.block.inputs if takes is None else takes
    return _by_platform(program, lambda result: function(result.program), specs, as_a_whole=True)


def lowered_where_it_runs(program: Program) -> Lowered:
    """If a program may be too long for the compiler, the result of the passes for the platform that it runs on. Other
    programs stay as they are, without asking for the platform: the passes run when they are traced."""
    return lowered(program, platform_of(program)) if is_too_long(program) else Lowered(program)


def by_itself(op: Op, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """An op as a function of arrays, after the passes for the platform that it is lowered for."""

    def run(*arrays: Any) -> Any:
        specs = tuple([spec_of(array.shape, array.dtype) for array in arrays])
        results = op.result_specs(specs, arguments)
        steps: tuple[Step, ...] = ((op, arguments, tuple(range(len(arrays)))),)
        outputs = lowered_whole(Program(Block(specs, steps, (), tuple([~k for k in range(len(results))]))))(*arrays)
        return outputs if op.multiple_results else outputs[0]

    return run if needs_passes(op) or bodies_in(arguments) else op.bind(arguments)


def _by_platform(
    program: Program, function: Callable[[Lowered], Way], takes: Sequence[Spec], as_a_whole: bool = False
) -> Way:
    """A program as a function of the results of the passes for each platform, which take a while, and therefore run
    when it is first called."""

    @functools.cache
    def made() -> Way:
        if program.block.groups:  # JAX cannot choose between collectives, and a process knows its platform
            return function(lowered(program, platform_of(program), as_a_whole))
        other = lowered(program, None, as_a_whole)
        others = {name: result for name in platforms() if (result := lowered(program, name, as_a_whole)) != other}
        if not others:
            return function(other)
        for name in others:
            _lower_for(name)
        gives = [program.block.spec(i) for i in program.block.outputs]
        blocks = [result.program.block for result in (other, *others.values())]
        several = any([op.multiple_results or bodies_in(a) for block in blocks for op, a, _ in block.steps])
        with_unread = several or any([block.opaque or block.rolled_loops for block in blocks])
        named = {name: function(result) for name, result in others.items()}
        return Ways(named, function(other), takes, gives, with_unread)

    return lambda *arrays: made()(*arrays)


def in_partitions(program: Program, partitions: list[Partition]) -> Way:
    """The program as a function that calls a jitted one for each of its partitions; see `lower`."""
    one_of_each = {partition.block: partition for partition in partitions}
    functions = {block: _jitted(program, partition) for block, partition in one_of_each.items()}
    parts = [(functions[partition.block], partition) for partition in partitions]

    def run(*arrays: Any) -> tuple[Any, ...]:
        values: dict[int, Any] = dict(enumerate(arrays))
        with apart(arrays):
            for function, partition in parts:
                inputs = [values[i] for i in partition.takes]
                outputs = function(*inputs) if partition.numbers is None else function(partition.numbers, *inputs)
                values.update(zip(partition.gives, outputs, strict=True))
                for i in partition.done_with:
                    del values[i]
        return tuple([values[i] for i in program.block.outputs])

    return run


def _jitted(whole: Program, partition: Partition) -> Way:
    """A partition as a jitted function."""
    program = Program(partition.block, whole.device, mesh=whole.mesh)
    function = in_one(program) if partition.numbers is None else taking_literals(program)
    return jax.jit(function)


# ---------------------------------------------------------------- by platform

# JAX traces a function once, and may lower it for a platform that is not present, or for several. So nothing may depend
# on the platform when a function is traced. What does is a primitive of its own, whose implementation is traced when it
# is lowered, for the platform at hand: `lax.platform_dependent` would trace all of them.

_Settings = tuple[bool, Any]
"""The settings of JAX that affect tracing: 64 bits, and precision of products."""


class Ways:
    """A function with different implementations by platform, chosen when it is lowered.

    Args:
        named: The implementation for each platform that has one, by JAX's name of the platform.
        other: The implementation for all other platforms.
        takes: Shapes and dtypes of the arrays.
        gives: Shapes and dtypes of the results.
        with_unread: Whether it may compute what nothing reads: it has bodies, or functions with several results.
    """

    def __init__(
        self, named: Mapping[str, Way], other: Way, takes: Sequence[Spec], gives: Sequence[Spec], with_unread: bool
    ) -> None:
        self.named = dict(named)
        self.other = other
        self.with_unread = with_unread
        self._takes = takes
        self._gives = gives
        self._needs_x64 = any([spec.needs_x64 for spec in (*takes, *gives)])

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(_chosen.bind(*arrays, ways=self, settings=_settings_of_now()))

    def on(self, platform: str | None) -> Way:
        """The implementation on a platform; None means one without its own."""
        return self.other if platform is None else self.named.get(platform, self.other)

    def expanded(self, *arrays: Any) -> tuple[Any, ...]:
        """The same function in terms that JAX can transform, for which it traces all implementations."""
        results: tuple[Any, ...] = lax.platform_dependent(*arrays, **self.named, default=self.other)
        return results

    @functools.cached_property
    def jaxpr(self) -> ClosedJaxpr:
        """The jaxpr of the implementation for other platforms."""
        return jax.make_jaxpr(self.other)(*[spec.abstract() for spec in self._takes])

    def results(self, avals: Sequence[Any]) -> list[Any]:
        """The abstract results for arrays like `avals`."""
        plain = [jax.core.ShapedArray(spec.shape, spec.dtype) for spec in self._takes]
        as_declared = all([a.update(weak_type=False) == b for a, b in zip(avals, plain, strict=True)])
        if as_declared and (_settings_of_now()[0] or not self._needs_x64):
            return [jax.core.ShapedArray(spec.shape, spec.dtype) for spec in self._gives]
        # The function's 64 bits may be 32 here; or the arrays, and so the results, are sharded over devices.
        return list(jax.make_jaxpr(self.other)(*avals).out_avals)


_chosen = Primitive("chosen_by_platform")
_chosen.multiple_results = True


def _run(*arrays: Any, ways: Ways, settings: _Settings) -> tuple[Any, ...]:
    places = [array.devices() for array in arrays if isinstance(array, jax.Array) and array.committed]
    device = next(iter(places[0])) if places else default_device()
    return ways.on(device.platform)(*arrays)


def _results(*avals: Any, ways: Ways, settings: _Settings) -> list[Any]:
    return ways.results(avals)


def _differentiated(primals: Sequence[Any], tangents: Sequence[Any], *, ways: Ways, settings: _Settings) -> Any:
    moving = [i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero)]
    return along(ways.expanded, primals, moving, [tangents[i] for i in moving])


def _batched(arrays: Sequence[Any], axes: Sequence[Any], *, ways: Ways, settings: _Settings) -> Any:
    results = jax.vmap(ways.expanded, in_axes=tuple(axes))(*arrays)
    return results, [0] * len(results)


def _transposed(gradients: Sequence[Any], *arrays: Any, ways: Ways, settings: _Settings) -> list[Any]:
    linear = [i for i, array in enumerate(arrays) if ad.is_undefined_primal(array)]
    shapes = [jax.ShapeDtypeStruct(arrays[i].aval.shape, arrays[i].aval.dtype) for i in linear]
    transpose = jax.linear_transpose(of_some(ways.expanded, arrays, linear), *shapes)
    transposed = transpose(tuple(map(ad.instantiate_zeros, gradients)))
    results: list[Any] = [None] * len(arrays)
    for i, gradient in zip(linear, transposed, strict=True):
        results[i] = gradient
    return results


_chosen.def_impl(_run)
_chosen.def_abstract_eval(_results)
ad.primitive_jvps[_chosen] = _differentiated
ad.primitive_transposes[_chosen] = _transposed
batching.primitive_batchers[_chosen] = _batched


def _lowered(platform: str | None, context: Any, *operands: Any, ways: Ways, settings: _Settings) -> Any:
    x64, precision = settings
    way = ways.on(platform)
    with jax.enable_x64(x64), jax.default_matmul_precision(precision):  # a traced function may be lowered elsewhere
        return mlir.lower_fun(without_unread(way) if ways.with_unread else way)(context, *operands)


mlir.register_lowering(_chosen, functools.partial(_lowered, None))


@functools.cache
def _lower_for(platform: str) -> None:
    """Have JAX lower `_chosen` for a platform by the implementation for it."""
    mlir.register_lowering(_chosen, functools.partial(_lowered, platform), platform=platform)


def _settings_of_now() -> _Settings:
    config: Any = jax.config
    return bool(config.jax_enable_x64), config.jax_default_matmul_precision
