"""`nn.export`: write a graph to a file, as a program that runs without the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from nngrad_command import __version__

from ...extend import (
    Program,
    Spec,
    Switched,
    Variable,
    contained,
    dtype_of,
    functions_of,
    linearize,
    lower,
    placeholder,
    spec_of,
    x64_if,
)
from ...parameter import get_parameters
from .exported import Described, check_installed, write_exported
from .symbolic import AnySize, NotForAnySize, for_any_size

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""The default platforms of exported programs, by JAX's names."""
Input = Variable | jax.ShapeDtypeStruct | Sequence[int | str]
"""An input: a Variable, or the shape of one to pass to a function, in which a size may be a name."""
Tensors = Variable | Sequence[Variable] | Mapping[str, Variable]


class _Wanted(NamedTuple):
    """An input of the program, as the user described it."""

    name: str
    shape: tuple[int | str, ...]
    dtype: np.dtype[Any]
    variable: Variable | None
    size: Any = None
    """A symbolic size from `jax.export.symbolic_shape`, which may have constraints."""

    def spec(self, size: int) -> Spec:
        """Its shape and dtype, with `size` in place of named sizes."""
        return spec_of(tuple([size if isinstance(n, str) else n for n in self.shape]), self.dtype)


class _Results(NamedTuple):
    """The outputs in the user's structure."""

    variables: list[Variable]
    names: list[str]
    arranged: str


class _ExportedComputation(NamedTuple):
    """A pure function, with descriptions of its arrays."""

    function: Callable[..., list[Any]]
    """Takes the arrays of the inputs, then those of the parameters."""
    results: _Results
    leaves: list[Variable]
    """The leaves that it reads in addition to the inputs."""
    needs_x64: bool


def export(
    outputs: Tensors | Callable[..., Tensors],
    inputs: Input | Sequence[Input] | Mapping[str, Input],
    path: str | Path,
    platforms: str | Iterable[str] = PLATFORMS,
    parameters_inside: bool = False,
    leave_updates_out: bool = False,
) -> None:
    """Write what a graph computes to a file, as a program that runs without the graph, and without nngrad's functions.

        loss = F.mean(F.squared_error(network(x), t))
        nn.export({"loss": loss, "slope": nn.grad(loss, x)[0]}, {"x": x, "t": t}, "loss.nnx")
        run = nn.load_exported("loss.nnx")
        run(x=images, t=wanted)["loss"]

    The program is StableHLO for each of `platforms`, made by `jax.export`. Gradients of any order are ordinary outputs.
    To export for any batch size, pass a function that builds the graph, and shapes of its inputs in which a name stands
    for the size:

        nn.export(lambda x: F.softmax(network(x)), {"x": ("batch", 784)}, "network.nnx")

    The function is called for three sizes, and whatever differs between the graphs is expressed by the size. If that
    fails, an error names the function or the leaf; a program that is right for one size only is never written.

    Leaves that are not among `inputs` are parameters, with their present values. A program with random functions takes
    a `seed` at each call; equal seeds give equal draws. The file is replaced atomically.

    Args:
        outputs: A Variable, a list of them, or a dict of them by name; the program returns the same structure. Or a
            function that returns one of these, given a Variable for each input, in order.
        inputs: Variables, in a list or a dict by name; the names are those of the dict, or the Variables' own. With a
            function also float32 shapes, in which one name may stand for a size, or `jax.ShapeDtypeStruct`s, which may
            have a size from `jax.export.symbolic_shape`, with constraints.
        path: The file; its ending is ".nnx" by custom, and must not be that of another format.
        platforms: The platforms that the program runs on: any of 'cpu', 'cuda', 'rocm', 'tpu'.
        parameters_inside: Whether parameters become constants of the program; else the file stores them beside it, as
            safetensors, and `load_exported` can replace them.
        leave_updates_out: Whether to accept a graph that updates leaves, such as the running statistics of batch
            normalisation. The program does not update them.

    Raises:
        ImportError: The package `flatbuffers` is not installed.
        TypeError: Something in `outputs` or `inputs` has the wrong type.
        ValueError: The graph updates leaves, runs on a mesh, calls Python on the host, or has a function that cannot be
            exported for a platform or for any size; two inputs or two outputs have the same name; or `path` has the
            ending of another format, such as '.onnx'.
        OSError: The file cannot be written; the message names it.
    """
    check_installed("nn.export")
    if Path(path).suffix.lower() in (".mlir", ".onnx", ".pb", ".pt", ".pt2", ".tflite"):
        raise ValueError(f"path: {path} has the ending of another format, but nn.export writes its own. Give a path "
                         "that ends in .nnx. For other formats use nn.to_jax and a converter for JAX functions")
    wanted = _wanted(inputs, callable(outputs))
    names = list(dict.fromkeys([n for entry in wanted for n in entry.shape if isinstance(n, str)]))
    if len(names) > 1:
        raise ValueError(f"inputs: only one size may have a name, got {', '.join(names)}; give numbers for the others")
    known = [entry.size for entry in wanted if entry.size is not None]
    sizes = known[:1] or (jax_export.symbolic_shape(names[0]) if names else ())
    computation = _for_any_size(outputs, wanted, sizes[0], leave_updates_out) if names else _fixed(
        outputs, wanted, leave_updates_out)
    arrays, named = _parameters(computation.leaves)
    platforms = _platforms(platforms)
    draws = any([x.key_source is not None for x in computation.leaves])
    if draws and "seed" in [entry.name for entry in wanted]:
        raise ValueError("inputs: 'seed' is the name under which a graph with random functions takes its seed; "
                         "give that input another name")
    exported = _exported(computation, wanted, sizes, arrays, platforms, parameters_inside, draws)
    beside = {} if parameters_inside else dict(zip(named, arrays, strict=True))
    results = computation.results
    described = Described([entry.name for entry in wanted], results.names, list(beside), results.arranged, draws,
                          computation.needs_x64)  # fmt: skip
    write_exported(path, described, exported, beside, __version__)


def _platforms(platforms: Any) -> tuple[str, ...]:
    names = tuple([platforms] if isinstance(platforms, str) else platforms)
    if not names or not set(names) <= set(PLATFORMS):
        raise ValueError(f"platforms: must be among {', '.join(PLATFORMS)}, got {', '.join(map(repr, names))}")
    return names


# ---------------------------------------------------------------- inputs and outputs


def _wanted(inputs: Any, builds: bool) -> list[_Wanted]:
    """The inputs of the program, with their names."""
    if isinstance(inputs, Mapping):
        named = list(inputs.items())
    elif isinstance(inputs, Variable | jax.ShapeDtypeStruct):
        named = [("", inputs)]
    elif isinstance(inputs, list | tuple) and not any([isinstance(x, int | str) for x in inputs]):
        named = [("", x) for x in inputs]
    else:
        raise TypeError("inputs: expected a list of Variables or a dict of them by name, or, with a function as "
                        f"outputs, shapes such as {{'x': ('batch', 784)}}; got {inputs!r:.80}")
    entries = [_input(name or getattr(x, "name", "") or f"input{i}", x, builds) for i, (name, x) in enumerate(named)]
    _check_names([x.name for x in entries], "inputs")
    variables = [x.variable for x in entries if x.variable is not None]
    if not builds and len({id(x) for x in variables}) != len(variables):
        raise ValueError("inputs: the same Variable is given twice")
    return entries


def _input(name: Any, x: Any, builds: bool) -> _Wanted:
    if not isinstance(name, str):
        raise TypeError(f"inputs: names must be strings, got {name!r:.40}")
    if isinstance(x, Variable):
        return _Wanted(name, x.shape, x.dtype, x)
    if not builds:
        raise TypeError(f"inputs: {name!r} must be a Variable of the graph, got {x!r:.80}; to give shapes instead, "
                        "pass a function that builds the graph as outputs")
    dtype = dtype_of(getattr(x, "dtype", np.float32))
    sizes_or_names = getattr(x, "shape", x)
    if not isinstance(sizes_or_names, list | tuple):
        raise TypeError(f"inputs: the shape of {name!r} must be a list or tuple of sizes, got {sizes_or_names!r:.80}")
    shape = tuple([int(n) if isinstance(n, np.integer) else n for n in sizes_or_names])
    sizes = tuple([n if isinstance(n, int) else str(n) for n in shape])
    unknown = any([n is None for n in shape])
    if unknown or not all([n.isidentifier() if isinstance(n, str) else n >= 0 for n in sizes]):
        raise ValueError(f"inputs: the shape of {name!r} must consist of sizes and at most one name, got {shape!r:.80}")
    named = [n for n in shape if jax_export.is_symbolic_dim(n)]
    return _Wanted(name, sizes, dtype, None, named[0] if named else None)


def _results(outputs: Any) -> _Results:
    if isinstance(outputs, Variable):
        return _Results([outputs], [outputs.name or "output"], "one")
    if isinstance(outputs, Mapping):
        results = _Results(list(outputs.values()), list(outputs), "dict")
    elif isinstance(outputs, list | tuple):
        names = [getattr(y, "name", "") or f"output{i}" for i, y in enumerate(outputs)]
        results = _Results(list(outputs), names, "list")
    else:
        raise TypeError(f"outputs: expected a Variable, a list or a dict of them, got {outputs!r:.80}")
    for name, y in zip(results.names, results.variables, strict=True):
        if not isinstance(y, Variable) or not isinstance(name, str):
            raise TypeError("outputs: expected a Variable, a list or a dict of them by name, got "
                            f"{y!r:.80} as {name!r}")
    _check_names(results.names, "outputs")
    return results


def _check_names(names: list[str], what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{what}: {twice[0]!r} is the name of two; pass a dict with a different name for each")


def _parameters(leaves: Sequence[Variable]) -> tuple[list[Any], list[str]]:
    """The arrays and names of all leaves except random keys."""
    known = {id(x): name for name, x in get_parameters(grad_only=False).items()}
    parameters = [x for x in leaves if x.key_source is None]
    names: list[str] = []
    for i, x in enumerate(parameters):
        name = known.get(id(x), x.name)
        name = name if name and name not in names else f"parameter{i}"
        while name in names:
            name += "_"
        names.append(name)
    return [np.array(x.cell.raw()) for x in parameters], names


# ---------------------------------------------------------------- the program


def _fixed(outputs: Any, wanted: Sequence[_Wanted], leave_updates_out: bool) -> _ExportedComputation:
    if callable(outputs):
        inputs, results = _built(outputs, wanted, 0)
    else:
        inputs, results = [x.variable for x in wanted if x.variable is not None], _results(outputs)
    _check_updates(results.variables, inputs, leave_updates_out)
    linear = linearize(results.variables, first=inputs, effects=False)
    _check_program(linear.program)
    run = lower(linear.program)
    return _ExportedComputation(lambda size, *arrays: list(run(*arrays)), results, linear.leaves[len(inputs) :],
                     linear.program.block.needs_x64)


def _for_any_size(outputs: Any, wanted: Sequence[_Wanted], size: Any, leave_updates_out: bool) -> _ExportedComputation:
    results_of_sizes: list[_Results] = []

    def build(n: int) -> tuple[list[Variable], list[Variable]]:
        inputs, results = _built(outputs, wanted, n)
        _check_updates(results.variables, inputs, leave_updates_out)
        results_of_sizes.append(results)
        return inputs, results.variables

    graph: AnySize = for_any_size(build, size)
    _check_program(graph.program)
    return _ExportedComputation(lambda size, *arrays: graph.run(arrays, size), results_of_sizes[0],
                                graph.leaves[len(wanted) :], graph.needs_x64)


@contained
def _built(function: Callable[..., Any], wanted: Sequence[_Wanted], size: int) -> tuple[list[Variable], _Results]:
    """The inputs and results of a graph that the user's function builds."""
    inputs = [placeholder(entry.spec(size), "what is exported") for entry in wanted]
    with Switched(auto_forward=False):
        return inputs, _results(function(*inputs))


def _check_updates(outputs: Sequence[Variable], inputs: Sequence[Variable], leave_out: bool) -> None:
    if leave_out:
        return
    known = {id(x) for x in inputs}
    for f in functions_of(outputs, through=lambda x: id(x) not in known):
        if f.effects:
            raise ValueError(
                f"cannot export the update of {f.effects[0][0]!r:.80}, which the graph makes at each forward. Build "
                "the graph without it (batch_stat=False), or pass leave_updates_out=True to export the rest"
            )


def _check_program(program: Program) -> None:
    if program.mesh is not None:
        raise ValueError(f"cannot export a graph that runs on {program.mesh!r}; build and export it outside the mesh")


def _exported(
    computation: _ExportedComputation, wanted: Sequence[_Wanted], sizes: Sequence[Any], arrays: Sequence[Any],
    platforms: tuple[str, ...], inside: bool, draws: bool,
) -> jax_export.Exported:  # fmt: skip
    """Export a computation with `jax.export`."""
    count = len(wanted)
    places = {entry.name: (i, axis) for i, entry in enumerate(wanted) for axis, n in enumerate(entry.shape)
              if isinstance(n, str)}  # fmt: skip
    where = next(iter(places.values()), None)

    def function(*arguments: Any) -> list[Any]:
        constants = [jnp.asarray(a) for a in arrays] if inside else list(arguments[count : count + len(arrays)])
        drawn = sum([x.key_source is not None for x in computation.leaves])
        keys = iter(jax.random.split(jax.random.key(arguments[-1]), drawn) if draws else ())
        rest = iter(constants)
        others = [next(rest) if x.key_source is None else jax.random.key_data(next(keys)) for x in computation.leaves]
        size = None if where is None else arguments[where[0]].shape[where[1]]
        return computation.function(size, *arguments[:count], *others)

    specs = [jax.ShapeDtypeStruct(tuple([sizes[0] if isinstance(n, str) else n for n in entry.shape]), entry.dtype)
             for entry in wanted]  # fmt: skip
    specs += [] if inside else [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    specs += [jax.ShapeDtypeStruct((), np.uint32)] if draws else []
    with x64_if(computation.needs_x64):
        try:
            return jax_export.export(jax.jit(function), platforms=platforms)(*specs)
        except NotForAnySize:
            raise
        except (NotImplementedError, ValueError, TypeError) as error:
            raise ValueError(f"cannot export the graph for {', '.join(platforms)}: {error}") from error
