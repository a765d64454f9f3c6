"""Read networks in nnabla's formats: protocol-buffer text, alone or in an archive with the parameters.

`functions.csv` has a line for each function type that nnabla 1.36 writes: its name in F, and the names and kinds
of its arguments in the file. Arguments have the same names in F, except for those in `RENAMED`.
"""

from __future__ import annotations

import csv
import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ...extend import Variable
from ...files.replacing import read_whole
from .. import functions as F
from .parameters import MESSAGES, members_of_archive, message_class, message_of_text

RENAMED = {"axes": "axis", "keep_dims": "keepdims"}
"""Names in F of arguments that files name differently."""
_KINDS = {"int": "INT64", "float": "FLOAT", "double": "DOUBLE", "bool": "BOOL", "str": "STRING"}
_NAMED_INPUTS = ("beta", "gamma", "mean", "variance")
"""The inputs of normalisation functions after x; `no_bias` and `no_scale` leave some out."""


class FunctionType(NamedTuple):
    """A function type of nnabla, and the corresponding function in F."""

    type: str
    function: str
    """Its name in F."""
    fields: dict[str, str]
    """The kinds of its arguments by name."""


@functools.cache
def function_types() -> dict[str, FunctionType]:
    """All function types by their names in files."""
    with Path(__file__).with_name("functions.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    pairs = {line["type"]: [field.partition(":")[::2] for field in line["fields"].split()] for line in lines}
    return {line["type"]: FunctionType(line["type"], line["function"], dict(pairs[line["type"]])) for line in lines}


def _field(number: int, kind: str) -> tuple[int, str, bool]:
    repeated = kind.endswith("s") and kind[:-1] in _KINDS
    return number, _KINDS.get(kind[:-1] if repeated else kind, kind), repeated


@functools.lru_cache(maxsize=1)
def network_message() -> Any:
    """The class `NNablaProtoBuf` with networks and executors. The text format identifies fields by name, so the field
    numbers need not be nnabla's."""
    with_fields = [listed for listed in function_types().values() if listed.fields]
    arguments = {
        f"{listed.type}Parameter": {name: _field(i + 1, kind) for i, (name, kind) in enumerate(listed.fields.items())}
        for listed in with_fields
    }
    params = {
        f"{listed.function}_param": (100 + i, f"{listed.type}Parameter", False) for i, listed in enumerate(with_fields)
    }
    text, texts, shape = (1, "STRING", False), "STRING", (20, "Shape", False)
    return message_class({
        **MESSAGES, **arguments,
        "Variable": {"name": text, "type": (2, texts, False), "repeat_id": (3, texts, True), "shape": shape},
        "Function": {
            "name": text, "type": (2, texts, False), "repeat_id": (3, texts, True),
            "input": (20, texts, True), "output": (30, texts, True),
            **params,
        },
        "Network": {
            "name": text, "batch_size": (10, "INT64", False), "variable": (100, "Variable", True),
            "function": (200, "Function", True),
        },
        "Data": {"variable_name": text, "data_name": (2, texts, False)},
        "Executor": {
            "name": text, "network_name": (10, texts, False), "data_variable": (50, "Data", True),
            "output_variable": (80, "Data", True), "parameter_variable": (90, "Data", True),
        },
        "NNablaProtoBuf": {
            "network": (100, "Network", True), "parameter": (200, "Parameter", True),
            "executor": (600, "Executor", True),
        },
    })  # fmt: skip


def read_networks(path: str | Path, extension: str) -> Any:
    """Parse a file of networks into a message.

    Args:
        path: The file.
        extension: Its format: '.nnp', '.nntxt' or '.prototxt'.

    Raises:
        ImportError: The package protobuf is not installed.
        OSError: The file cannot be read.
        ValueError: The file has another format or is damaged; the message names it.
    """
    content, where = read_whole(path), str(path)
    if extension == ".nnp":
        members = members_of_archive(content, where)
        content = b"\n".join([member for name, member in members.items() if name.endswith((".nntxt", ".prototxt"))])
    return message_of_text(content, network_message, where, "nnabla networks")


def build_network(
    network: Any, parameters: Mapping[str, Variable], batch_size: int | None, where: str,
    replacing: Mapping[str, Variable] = MappingProxyType({}),
) -> dict[str, Variable]:  # fmt: skip
    """Build the graph of a network.

    Args:
        network: The message of the network.
        parameters: The leaves by parameter name.
        batch_size: The size for axes that the file leaves open; None for the file's own batch size.
        where: The name of the file and the network, for messages.
        replacing: Variables that replace those of the same name.

    Returns:
        All Variables by their names in the file.

    Raises:
        ValueError: Something in the network is not supported; the message names the function.
    """
    size = network.batch_size if batch_size is None else batch_size
    shapes = {variable.name: tuple([size if n < 0 else n for n in variable.shape.dim]) for variable in network.variable}
    computed = {name for f in network.function for name in f.output}
    variables: dict[str, Variable] = {}
    for variable in network.variable:
        if variable.type == "Parameter":
            if variable.name not in parameters:
                raise ValueError(f"{where}: the parameter {variable.name!r} is neither in the file nor in the current "
                                 "scope; call nn.load_parameters first")
            variables[variable.name] = parameters[variable.name]
        elif variable.name in replacing:
            variables[variable.name] = replacing[variable.name]
        elif variable.name not in computed:
            variables[variable.name] = Variable(shapes[variable.name])
            variables[variable.name].name = variable.name
    for f in network.function:
        outputs = _apply(f, variables, size, where)
        for name, y in zip(f.output, outputs, strict=False):
            variables[name] = replacing.get(name, y)
            if not replacing and y.shape != shapes.get(name, y.shape):
                raise ValueError(f"{where}: {f.name} ({f.type}) computes {name!r} with shape {y.shape}, but the file "
                                 f"says {shapes[name]}" + "; give another batch_size" * (batch_size is not None))
    return variables


def _apply(f: Any, variables: Mapping[str, Variable], size: int, where: str) -> list[Variable]:
    """Apply the function in F that corresponds to a function in a file."""
    kind = function_types().get(f.type)
    if kind is None or f.repeat_id:
        loop = ", in a loop," if f.repeat_id else ""
        raise ValueError(f"{where}: the function {f.name!r} of type {f.type}{loop} is not supported")
    unknown = [name for name in f.input if name not in variables]
    if unknown:
        raise ValueError(f"{where}: {f.name} ({f.type}) reads {unknown[0]!r}, which no earlier function computes")
    function = getattr(F, kind.function)
    inputs = [variables[name] for name in f.input]
    arguments = _arguments(f, kind, inspect.signature(function).parameters, size, where)
    if "no_scale" in kind.fields:
        message = getattr(f, f"{kind.function}_param")
        left_out = ["beta"] * message.no_bias + ["gamma"] * message.no_scale
        arguments |= zip([name for name in _NAMED_INPUTS if name not in left_out], inputs[1:], strict=False)
        inputs = inputs[:1]
    try:
        result = function(*inputs, **arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {f.name} ({f.type}): {error}") from error
    return [result] if isinstance(result, Variable) else list(result)


def _arguments(f: Any, kind: FunctionType, known: Mapping[str, Any], size: int, where: str) -> dict[str, Any]:
    """The arguments for the function in F, by name."""
    arguments: dict[str, Any] = {}
    for field, what in kind.fields.items():
        value = getattr(getattr(f, f"{kind.function}_param"), field)
        value = tuple(value.dim) if what == "Shape" else tuple(value) if what.endswith("s") else value
        if what == "Shape" and kind.type != "Reshape":
            value = tuple([size if n < 0 else n for n in value])
        name = field if field in known else RENAMED.get(field, field)
        if name in known:
            arguments[name] = value
        elif value and field not in ("inplace", "no_scale", "no_bias"):
            raise ValueError(f"{where}: {f.name} ({f.type}) has {field}={value!r}, which F.{kind.function} lacks")
    return arguments
