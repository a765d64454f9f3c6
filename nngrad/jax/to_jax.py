"""Graphs as functions of arrays: plain JAX functions (`nn.to_jax`), and executables for hot loops (`nn.compile`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from typing import Any, Generic, NamedTuple, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from ..extend import (
    BoundedCache,
    Executable,
    NdArray,
    Program,
    Spec,
    Switched,
    Value,
    Variable,
    array_of,
    arrays_of,
    build_options,
    check_not_traced,
    device_of,
    executables,
    host_array,
    linearize,
    lower,
    placeholder,
    placement,
    spec_of,
    x64_if,
)

T = TypeVar("T")
R = TypeVar("R")

MOST_GRAPHS = 64
"""For how many combinations of shapes and dtypes a function keeps graphs."""


class ByShape(Generic[T]):
    """Builds and caches a graph, or an object made from it, for each combination of input shapes and dtypes.

    A graph has fixed shapes. Numbers derived from them when it was built, such as a factor of 1/8 for eight rows, look
    like any other numbers. So the graph is rebuilt for other shapes, never adapted.

    The function is called in the scopes in force when this object was made: all shapes share their parameters.

    Args:
        function: Takes Variables, and returns Variables computed from them.
        make: Takes the result of `function`, and the Variables that were passed to it.
    """

    def __init__(self, function: Callable[..., Any], make: Callable[[Any, list[Variable]], T]) -> None:
        self._function = function
        self._make = make
        self._context = copy_context()
        self._mesh = build_options().running.mesh
        self._made = BoundedCache(MOST_GRAPHS)
        self._building = threading.RLock()

    def called_with(self, values: Sequence[Any]) -> tuple[T, list[Any]]:
        """What was made for values like these, one for each Variable that the function takes, and these as arrays."""
        names = [f"array {i}" for i, _ in enumerate(values)]
        arrays = [_array(value, name) for value, name in zip(values, names, strict=True)]
        if self._mesh is not None:
            arrays = [self._mesh.argument(array, name) for array, name in zip(arrays, names, strict=True)]
        specs = tuple([spec_of(tuple(array.shape), array.dtype) for array in arrays])
        graph: T | None = self._made.find(specs)
        if graph is None:
            with self._building:  # else two graphs of one shape would make parameters twice
                graph = self._made.get(specs, lambda: self._built(specs))
        return graph, arrays

    def _built(self, specs: Sequence[Spec]) -> T:
        inputs = [placeholder(spec, "a compiled function") for spec in specs]
        outputs = self.in_its_scopes(lambda: self._outputs(inputs))
        for x in inputs:
            x.cell.zero()
        return self.in_its_scopes(lambda: self._make(outputs, inputs))

    def in_its_scopes(self, run: Callable[[], R]) -> R:
        """Call `run` in the scopes that were in force when this object was made."""
        return self._context.copy().run(run)  # a copy, since only one thread at a time can enter a context

    def _outputs(self, arguments: Sequence[Any]) -> Any:
        # Parameters made here are concrete arrays, even while JAX traces the caller.
        with Switched(auto_forward=False), jax.ensure_compile_time_eval():
            return self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a function compiled by shape cannot be pickled or copied: it holds executables of this "
                        "process. Compile it in the process that runs it")


def _array(value: Any, name: str) -> Any:
    """An argument as an array: numbers and lists get the dtype that a leaf made of them would have."""
    held = _held(value)
    return held if held is not value or isinstance(held, jax.core.Tracer) else host_array(value, None, name)


def _held(value: Any) -> Any:
    """The array of a Variable or of a cell; anything else as it is."""
    cell = value.data if isinstance(value, Variable) else value
    return cell.raw() if isinstance(cell, NdArray) else value


Variables = Variable | Sequence[Variable]

SHAPES_ARE_FIXED = (
    "as the graph was built; for any shape, pass a function of Variables that builds the graph to nn.compile or "
    "nn.train_step"
)
"""The advice for an array of another shape."""


def to_jax(outputs: Any, inputs: Any) -> Callable[..., Any]:
    """Convert a graph to a plain JAX function: `f(*arrays)`, one array for each of `inputs`.

    Inputs and outputs may be pytrees: if an entry of `inputs` is a dict of Variables, that argument is a dict of
    arrays, and the function returns arrays arranged like `outputs`:

        loss_and_gradients = nn.to_jax({"loss": loss, "gradients": nn.grad(loss, list(params.values()))}, [params, x])
        loss_and_gradients({"W": w, "b": b}, images)["loss"]

    It is pure, so `jax.jit`, `jax.vmap`, `jax.grad` and shardings apply to it. Leaves that are not among `inputs`, such
    as parameters, are frozen at their current values. Effects (running statistics) are left out. A float64 graph is
    computed in float64 when the function is called by itself; under JAX's own transformations, JAX's setting of x64
    applies.

    The function raises a ValueError if an array does not have the shape of its input, or does not fit its dtype:
    integer dtypes take no fractions and nothing out of range; and a TypeError if arrays are not arranged like the
    inputs. Both name the argument, and the path within it.

    Args:
        outputs: A Variable, or a pytree of them; the function returns arrays arranged in the same way.
        inputs: Variables that become arguments: leaves, or intermediate Variables. Each entry of a list
            or a tuple is an argument, a Variable or a pytree of Variables; anything else is the only argument. The
            outputs need not depend on all of them: a gradient may be constant in one.

    Returns:
        The function. If the graph has random functions, it takes a JAX random key as `key=`.

    Raises:
        TypeError: Something in `outputs` or `inputs` is not a Variable.
        ValueError: A Variable occurs twice among `inputs`.
    """
    (results, structure), arguments = filled_results(outputs), arguments_of(inputs)
    variables = arguments.variables
    linear = linearize(results, first=variables, effects=False)
    others = linear.leaves[len(variables) :]
    keys = [x for x in others if x.key_source is not None]
    frozen = {id(x): x.cell.raw() for x in others if x.key_source is None}
    mesh = linear.program.mesh
    if mesh is not None:
        frozen = {id(x): mesh.put(frozen[id(x)], mesh.sharding(mesh.axes_of(x, i)), f"leaf {x.name or i}")
                  for i, x in enumerate(others) if id(x) in frozen}  # fmt: skip
    needs_x64 = linear.program.block.needs_x64
    # A mesh needs a single program: CPUs must not run parts in turn without waiting for each.
    run = lower(linear.program) if mesh is None else Executable.on(mesh, lower(linear.program))

    def function(*arrays: Any, key: Any = None) -> Any:
        flat = arguments.flattened(arrays)
        checked = _checked(flat, variables, arguments.places) if mesh is None else _placed(flat, variables, mesh)
        if keys and key is None:
            raise ValueError("key: the graph has random functions, so it needs one; pass key=jax.random.key(...)")
        # Under jit, vmap or grad, JAX's own setting decides whether there are 64-bit types.
        with x64_if(needs_x64 and not any(isinstance(a, jax.core.Tracer) for a in checked)):
            return compute(checked, key)

    def compute(arrays: Sequence[Any], key: Any) -> Any:
        drawn = dict(zip(map(id, keys), jax.random.split(key, len(keys)), strict=True)) if keys else {}
        rest = [_canonical(frozen[id(x)]) if id(x) in frozen else jax.random.key_data(drawn[id(x)]) for x in others]
        return jax.tree.unflatten(structure, run(*arrays, *rest))

    return function


def compiled_as_equal_graphs(outputs: Sequence[Variable], inputs: Sequence[Variable]) -> Callable[..., Any] | None:
    """A graph as a compiled function of concrete arrays, whose executable equal graphs share: they may differ in the
    values of leaves that are not inputs, which are frozen as in `to_jax`, and in numbers. None if it has functions that
    draw, exchange or contain user code, which the executable would outlive, or leaves that are placed on one of several
    devices.
    """
    linear = linearize(outputs, first=inputs, effects=False)
    program, rest = linear.program, linear.leaves[len(inputs) :]
    draws = any([x.key_source is not None for x in rest])
    if draws or program.mesh is not None or program.block.opaque or program.block.groups:
        return None
    values = [x.cell.raw() for x in rest]
    is_placed = jax.device_count() > 1 and any([getattr(a, "committed", False) for a in values])
    if is_placed or any([isinstance(a, jax.core.Tracer) for a in values]):
        return None
    run = executables.jitted(program)
    frozen: dict[bool, list[Any]] = {}

    def function(*arrays: Any) -> Any:
        x64 = jax.config.jax_enable_x64  # type: ignore[attr-defined]
        if x64 not in frozen:
            frozen[x64] = [*map(_canonical, values)]
        return run(*arrays, *frozen[x64])

    return function


class CompiledFunction:
    """A graph compiled for a hot loop: call it with the inputs' arrays to get the outputs' arrays.

    Leaves that are not inputs are read from their cells at every call, random functions draw again, and effects are
    applied. Made by `compile`. JAX can trace it if it neither draws nor has effects; its other leaves are then frozen.
    """

    __slots__ = (
        "__weakref__", "_count", "_executable", "_given", "_is_pure", "_mesh", "_rest", "_single", "_updated",
    )  # fmt: skip

    def __init__(self, outputs: Variables, inputs: Variables) -> None:
        listed, variables = _listed(outputs, "outputs"), _listed(inputs, "inputs")
        linear = linearize(listed, first=variables, device=device_of(listed))
        self._mesh = linear.program.mesh
        check_read(linear.program, variables)
        self._updated = linear.updated
        self._executable = executables.of(linear.program, at_its_best=True)
        self._given = variables
        self._rest = linear.leaves[len(variables) :]
        self._is_pure = not self._updated and all([x.key_source is None for x in self._rest])
        self._count = len(listed)
        self._single = isinstance(outputs, Variable)

    def __call__(self, *arrays: Any) -> Any:
        mesh = self._mesh
        if not self._is_pure:
            check_not_traced("a compiled graph that draws random numbers or updates leaves", "nn.to_jax")
        arguments = _checked(arrays, self._given) if mesh is None else _placed(arrays, self._given, mesh)
        everything = [*arguments, *arrays_of(self._rest, often=True, mesh=mesh)]
        results = self._executable(*everything)
        if self._updated:
            Value.write([leaf.cell for leaf in self._updated], results[self._count :])
        return results[0] if self._single else list(results[: self._count])

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a compiled function cannot be pickled or copied: it is an executable of this process. "
                        "Call nn.compile in the process that runs it")


class CompiledByShape:
    """A function that builds graphs, compiled for a hot loop: call it with arrays of any shapes to get arrays.

    A graph is built and compiled for each combination of shapes and dtypes of the arrays. Made by `compile`.
    """

    __slots__ = ("__weakref__", "_graphs")

    def __init__(self, function: Callable[..., Variables]) -> None:
        self._graphs = ByShape(function, CompiledFunction)

    def __call__(self, *arrays: Any) -> Any:
        run, arguments = self._graphs.called_with(arrays)
        return run(*arguments)


@overload
def compile(outputs: Variables, inputs: Variables = ()) -> CompiledFunction: ...


@overload
def compile(outputs: Callable[..., Variables]) -> CompiledByShape: ...


def compile(
    outputs: Variables | Callable[..., Variables], inputs: Variables = ()
) -> CompiledFunction | CompiledByShape:
    """Compile a graph to an executable that is called with arrays, without looking at the graph again.

    The shapes of a graph are fixed. A function that builds one is called with Variables of the arrays' shapes and
    dtypes, once for each combination of these, in the scopes in which `compile` was called:

        run = nn.compile(lambda x: PF.affine(x, 10))
        for images in batches:      # the last one may be shorter
            scores = run(images)

    Args:
        outputs: A Variable, or several; a call returns one array, or a list. Or a function of Variables that returns
            these.
        inputs: Variables whose arrays are passed at each call; all other leaves are read from their cells. Omit it if
            `outputs` is a function.

    Raises:
        TypeError: `inputs` are given together with a function.
        ValueError: No output depends on one of `inputs`. A call raises the same errors as that of `to_jax`.
    """
    if callable(outputs):
        if inputs is not None and not (isinstance(inputs, tuple) and not inputs):
            raise TypeError("inputs: must be left out for a function that builds the graph; it gets them at each call")
        return CompiledByShape(outputs)
    return CompiledFunction(outputs, inputs)


def _listed(variables: Any, name: str) -> list[Variable]:
    listed = [variables] if isinstance(variables, Variable) else variables
    if not isinstance(listed, list | tuple) or not all(isinstance(x, Variable) for x in listed):
        raise TypeError(f"{name}: expected a Variable or a list of them, got {variables!r}")
    if len({id(x) for x in listed}) != len(listed) and name == "inputs":
        raise ValueError("inputs: the same Variable is given twice")
    return list(listed)


def _canonical(value: Any) -> Any:
    """`value` in a dtype that JAX's present setting of x64 allows. A NumPy array is copied, since JAX caches constants
    by identity, and would keep using the float32 version of one that it first met in float32."""
    dtype = jax.dtypes.canonicalize_dtype(value.dtype)
    return jnp.asarray(value.astype(dtype)) if isinstance(value, np.ndarray) or value.dtype != dtype else value


def _checked(arrays: Sequence[Any], variables: Sequence[Variable], places: Sequence[str] | None = None) -> list[Any]:
    """`arrays` in the dtypes of `variables`, whose shapes they must have; `places` names them in messages."""
    if len(arrays) != len(variables):
        raise TypeError(f"expected {len(variables)} arrays, one for each input, got {len(arrays)}")
    named: Iterable[int | str] = range(len(variables)) if places is None else places
    return [_fitted(array, x, place) for array, x, place in zip(arrays, variables, named, strict=True)]


def _placed(arrays: Sequence[Any], variables: Sequence[Variable], mesh: placement.Mesh) -> list[Any]:
    """As `_checked`, on a mesh. With several processes `arrays` are this one's parts; their global shape is checked."""
    if mesh.spans_processes:
        names = [f"array {i}" for i, _ in enumerate(arrays)]
        parts = [*map(_held, arrays)]
        arrays = [
            mesh.argument(array_of(part, name), name, x)
            for part, name, x in zip(parts, names, variables, strict=False)
        ] if len(parts) == len(variables) else arrays
    checked = _checked(arrays, variables)
    return [
        mesh.constrained_batch(array) if isinstance(array, jax.core.Tracer) else mesh.argument(array, f"array {i}", x)
        for i, (array, x) in enumerate(zip(checked, variables, strict=True))
    ]


def check_read(program: Program, inputs: Sequence[Variable], start: int = 0) -> None:
    """Raise a ValueError that names those of `inputs`, the program's leaves from index `start` on, on which no result
    depends: values for them would have no effect."""
    idle = program.unread(range(start, start + len(inputs)))
    if idle:
        shown = ", ".join([f"inputs[{i - start}] ({inputs[i - start]!r:.80})" for i in idle])
        raise ValueError(
            f"{shown}: no output depends on it, so a value for it would have no effect; pass the Variable that "
            "the graph was built from, or leave it out"
        )


def _fitted(array: Any, x: Variable, i: int | str) -> Any:
    if (array.__class__ is np.ndarray or isinstance(array, jax.Array)) and (
        array.dtype == x.spec.dtype and array.shape == x.spec.shape
    ):
        return array
    name = f"array {i}"
    array = _held(array)
    if not isinstance(array, jax.core.Tracer):
        array = array_of(array, name)
    if array.shape != x.spec.shape:
        shapes = f"{name} has shape {tuple(array.shape)}, but input {x.name or i} has {x.spec.shape}"
        raise ValueError(f"{shapes}, {SHAPES_ARE_FIXED}")
    if not isinstance(array, jax.core.Tracer):
        return array_of(array, name, x.dtype)
    if array.dtype == x.dtype:
        return array
    if jnp.issubdtype(array.dtype, jnp.floating) and not x.spec.differentiable:
        raise TypeError(f"{name} is {array.dtype.name}, but input {x.name or i} is {x.dtype.name}")
    return array.astype(jax.dtypes.canonicalize_dtype(x.dtype))


# ---------------------------------------------------------------- pytrees of Variables and arrays


class TreeArguments(NamedTuple):
    """The Variables that are the arguments of a function, in a flat list."""

    variables: list[Variable]
    places: list[str]
    """The place of each: the index of its argument and the path within that, such as "1['w']"."""
    structures: list[Any]
    """The pytree of each argument."""

    def flattened(self, values: Sequence[Any]) -> Sequence[Any]:
        """The arrays in `values`, one for each of the Variables.

        Raises:
            TypeError: There are too many or too few arguments, or one is not arranged like the Variables.
        """
        count = len(self.structures)
        if len(values) != count:
            kind = "arrays" if all(map(jax.tree_util.treedef_is_leaf, self.structures)) else "arguments"
            raise TypeError(f"expected {count} {kind}, one for each input, got {len(values)}")
        flat: list[Any] = []
        for i, (structure, argument) in enumerate(zip(self.structures, values, strict=True)):
            try:
                flat += structure.flatten_up_to(argument)
            except (TypeError, ValueError) as error:
                raise TypeError(f"argument {i}: expected arrays in the structure {_shown(structure)}, got "
                                f"{_shown(jax.tree.structure(argument))}") from error
        return flat


def arguments_of(inputs: Any) -> TreeArguments:
    """`inputs` as arguments: each entry of a list or a tuple is one, anything else is a single one.

    Raises:
        TypeError: Something in it is not a Variable.
        ValueError: A Variable occurs twice.
    """
    entries = list(inputs) if type(inputs) in (list, tuple) else [inputs]
    paths = [jax.tree_util.tree_flatten_with_path(entry) for entry in entries]
    places = [f"{i}{jax.tree_util.keystr(path)}" for i, (leaves, _) in enumerate(paths) for path, _ in leaves]
    variables = [x for leaves, _ in paths for _, x in leaves]
    for place, x in zip(places, variables, strict=True):
        if not isinstance(x, Variable):
            raise TypeError(f"inputs: expected a Variable, or a pytree of them, got {x!r:.200} as input {place}")
    if len({id(x) for x in variables}) != len(variables):
        raise ValueError("inputs: the same Variable is given twice")
    return TreeArguments(variables, places, [structure for _, structure in paths])


def filled_results(outputs: Any) -> tuple[list[Variable], Any]:
    """The Variables that are the results of a function, and their pytree.

    Raises:
        TypeError: Something in it is not a Variable, or it is None.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(outputs)
    for path, y in [*leaves, *([((), None)] if outputs is None else [])]:
        if not isinstance(y, Variable):
            place = jax.tree_util.keystr(path)
            raise TypeError(f"outputs: expected a Variable or a list of them, or another pytree, got {y!r:.200}"
                            f"{place and f' at {place}'}")
    return [y for _, y in leaves], structure


def _shown(structure: Any) -> str:
    text = str(structure).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 200 else f"{text[:197]}..."
