"""`save_graph` and `load_graph`: graphs in files, which can be computed and differentiated after loading."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nngrad_command import __version__

from ...extend import Closing, Variable, contained, functions_of, together
from ...parameter import get_parameters
from ..archives import archive_of, members_of
from ..checked import NotAvailable, integer, list_of, of_type
from ..replacing import read_whole, write_whole
from ..storage import arrays_from, content_of
from .reading import GraphReader
from .static_arguments import NotSerializable
from .writing import GraphWriter

FORMAT, VERSION = "nngrad graph", 3
_GRAPH, _ARRAYS = "graph.json", "arrays.safetensors"

Tensors = Variable | Sequence[Variable] | Mapping[str, Variable]


class KeptGraph(NamedTuple):
    """A loaded graph."""

    outputs: Any
    """The outputs in the structure that was saved: a Variable, a list of them, or a dict by name."""
    inputs: Any
    """The inputs, likewise."""
    parameters: dict[str, Variable]
    """The parameters by name, and other leaves with `need_grad`."""


@contained
def save_graph(
    path: str | Path, outputs: Tensors, inputs: Tensors = (), parameters: Mapping[str, Variable] | None = None
) -> None:
    """Write a graph to a file: all functions that the given Variables depend on, and the values of their leaves.

        loss = F.mean(F.squared_error(network(x), t))
        (slope,) = nn.grad(loss, x)
        nn.save_graph("loss.graph", {"loss": loss, "slope": slope}, {"x": x, "t": t})

    The file holds names of functions, their static arguments, numbers and arrays; no code. Gradients are ordinary
    graphs, and a loaded graph can be differentiated further as if it had just been built. The file is a zip archive of
    `graph.json` and `arrays.safetensors`; it is replaced atomically.

    The file keeps dtypes, names, `need_grad`, `persistent`, which leaves share data, which leaves functions such as
    batch normalisation update, where random functions draw, shardings, and tags. It does not keep gradients in `.g`,
    computed or assigned values of intermediate Variables, hooks, marks of `nn.recompute()`, or devices.

    Args:
        path: The file.
        outputs: The outputs to save: a Variable, a list of them, or a dict by name.
        inputs: Further Variables that `load_graph` shall return, in the same forms.
        parameters: The names of parameters; by default those of all parameters in the current scope. Parameters that
            the graph does not depend on are left out.

    Raises:
        TypeError: Something is not a Variable, or a name is not a string.
        ValueError: A function cannot be stored in a file, such as a JAX function that was not opened; the message names
            it.
        OSError: The file cannot be written; the message names it.
    """
    given = {"outputs": _checked(outputs, "outputs"), "inputs": _checked(inputs, "inputs")}
    chosen = get_parameters(grad_only=False) if parameters is None else _by_name(parameters, "parameters")
    try:
        writer = GraphWriter([x for each in given.values() for x in _listed(each)])
        tables, arrays = writer.written()
    except NotSerializable as error:
        raise ValueError(
            f"{path}: cannot save {error}. Build the graph from nngrad's functions (nn.from_jax opens JAX functions), "
            "or save it as a program with nn.export"
        ) from None
    numbers = {id(x): i for i, x in enumerate(writer.closing.leaves)}
    named = {name: numbers[id(x)] for name, x in chosen.items() if id(x) in numbers}
    for name, each in given.items():
        tables[name] = _each(writer.closing.__getitem__, each)
    tables["parameters"] = list(named.items())
    facts = {"format": FORMAT, "format_version": VERSION, "nngrad": __version__, **tables}
    members = {_GRAPH: json.dumps(facts, separators=(",", ":")).encode(), _ARRAYS: content_of(arrays, {}, str(path))}
    write_whole(path, archive_of(members))


@contained
def load_graph(path: str | Path) -> KeptGraph:
    """Load a graph that `save_graph` has written; it can be computed, trained, and differentiated to any order.

        graph = nn.load_graph("loss.graph")
        graph.inputs["x"].d = images
        graph.outputs["loss"].forward()

    Loading computes nothing and runs no code from the file: functions are looked up by name among the registered ones,
    their arguments are checked, and shapes and dtypes are inferred again. Still, a malicious file may take any amount
    of time and memory. The parameters are in no scope; `nn.set_parameter` puts them into one.

    Args:
        path: The file.

    Returns:
        The outputs and the inputs in the structure that was saved, and the parameters by name. Leaves with `need_grad`
        that are neither inputs nor named parameters are listed by their own names, or as 'leaf_3'.

    Raises:
        ValueError: The file is not a saved graph, is damaged, was made by a newer version of nngrad, or needs a
            function that is unknown here. The message says which.
        OSError: The file cannot be read.
    """
    members = members_of(read_whole(path), {_GRAPH, _ARRAYS}, f"{path}: not a file written by nn.save_graph")
    arrays, _ = arrays_from(members[_ARRAYS], f"{path}: {_ARRAYS}")
    writer = ""
    try:
        tables = json.loads(members[_GRAPH].decode(), object_pairs_hook=_object)
        if tables.get("format") != FORMAT:
            raise ValueError(f"the format is not {FORMAT!r}")
        writer = of_type(tables.get("nngrad"), str)
        if integer(tables.get("format_version"), 1, 2**63 - 1) > VERSION:
            raise NotAvailable(f"it has version {tables['format_version']} of the format, and this nngrad reads "
                               f"versions up to {VERSION}")
        reader = GraphReader(tables, arrays)
        outputs, inputs = [_each(reader.value, tables[name]) for name in ("outputs", "inputs")]
        parameters = _parameters(tables, reader, inputs)
    except NotAvailable as error:
        raise ValueError(f"{path}: cannot be read: {error}. It was written by nngrad {writer:.20}, and this is "
                         f"{__version__}. Upgrade nngrad, or import the module that defines the function") from None
    except Exception as error:  # invalid tables may raise anything
        raise ValueError(f"{path}: damaged ({type(error).__name__}: {error!s:.300})") from error
    results, closing = _listed(outputs), Closing()
    closing.write(functions_of(results))
    together(results, functools.partial(closing.block(closing.numbers(results)).placed, closing.leaves))
    return KeptGraph(outputs, inputs, parameters)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object without duplicate names."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate names")
    return found


def _checked(given: Any, name: str) -> Any:
    if isinstance(given, Variable):
        return given
    if isinstance(given, Mapping):
        return _by_name(given, name)
    if not isinstance(given, list | tuple):
        raise TypeError(f"{name}: expected a Variable, a list of them, or a dict by name, got {type(given).__name__}")
    for i, x in enumerate(given):
        if not isinstance(x, Variable):
            raise TypeError(f"{name}[{i}]: expected a Variable, got {type(x).__name__}")
    return list(given)


def _by_name(given: Any, name: str) -> dict[str, Variable]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}: expected Variables by name, got {type(given).__name__}")
    for key, x in given.items():
        if not isinstance(key, str):
            raise TypeError(f"{name}: names must be strings, got {key!r}")
        if not isinstance(x, Variable):
            raise TypeError(f"{name}[{key!r}]: expected a Variable, got {type(x).__name__}")
    return dict(given)


def _listed(given: Any) -> list[Variable]:
    return [given] if isinstance(given, Variable) else list(given.values() if isinstance(given, dict) else given)


def _each(function: Callable[[Any], Any], given: Any) -> Any:
    """Apply a function to each Variable or number in a structure, and keep the structure."""
    if isinstance(given, dict):
        return {name: function(x) for name, x in given.items()}
    return [function(x) for x in given] if isinstance(given, list) else function(given)


def _parameters(tables: Mapping[str, Any], reader: GraphReader, inputs: Any) -> dict[str, Variable]:
    """The parameters by name, and other leaves with `need_grad`."""
    pairs = [(of_type(name, str), reader.leaf(number)) for name, number in list_of(tables, "parameters")]
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("two parameters have the same name")
    known = {id(x) for x in (*found.values(), *_listed(inputs))}
    for i, x in enumerate(reader.leaves):
        if x.need_grad and id(x) not in known:
            name = x.name if x.name and x.name not in found else f"leaf_{i}"
            while name in found:
                name += "_"
            found[name] = x
    return found
