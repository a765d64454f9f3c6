"""`NnpLoader`: load networks in nnabla's files ('.nnp', '.nntxt') as graphs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...extend import Variable
from ...files.parameter_files import load_parameters
from ...parameter import get_parameters, parameter_scope, set_parameter
from ..formats.networks import build_network, read_networks

EXTENSIONS = (".nnp", ".nntxt", ".prototxt")


class NnpNetwork:
    """The graph of a network.

    Args:
        variables: Its Variables by their names in the file.
        parameters: The names of parameters.
        read: The names of inputs of functions.
        given: The names of outputs of functions.
    """

    def __init__(self, variables: dict[str, Variable], parameters: set[str], read: set[str], given: set[str]) -> None:
        self.variables = variables
        """All Variables by name, including parameters."""
        self.inputs = {name: x for name, x in variables.items() if name not in given | parameters}
        """The inputs for data, by name."""
        self.outputs = {name: x for name, x in variables.items() if name in given - read}
        """The outputs of functions that no other function reads, by name."""


class NnpNetworkPass:
    """Changes that an `NnpLoader` makes to networks before building their graphs, in the order of the calls.

    Args:
        verbose: Ignored.
    """

    def __init__(self, verbose: int = 0) -> None:
        self._changes: list[Callable[[Any, str], None]] = []
        self.variables: dict[str, Variable] = {}
        """Replacements of Variables, by name."""
        self.fixes_parameters = False
        """True if parameters get `need_grad` False."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"NnpNetworkPass has no {name!r}: it does not call functions on the messages in files; "
                             "change the graph that get_network returns, for example with y.rewire_on(x)")

    def remove_and_rewire(self, name: str, i: int = 0, o: int = 0) -> None:
        """Remove the function `name`: readers of its output `o` read its input `i` instead."""

        def change(network: Any, where: str) -> None:
            f = _function(network, name, where)
            before, after = f.output[o], f.input[i]
            network.function.remove(f)
            for function in network.function:
                function.input[:] = [after if x == before else x for x in function.input]

        self._changes.append(change)

    def use_up_to(self, *names: str) -> None:
        """Make the Variables `names` the outputs, and keep only what they depend on."""

        def change(network: Any, where: str) -> None:
            needed = set(names)
            unknown = needed - {variable.name for variable in network.variable}
            if unknown:
                raise ValueError(f"{where}: use_up_to: no Variable {min(unknown)!r}")
            for f in reversed(list(network.function)):
                if needed.isdisjoint(f.output):
                    network.function.remove(f)
                else:
                    needed.update(f.input)

        self._changes.append(change)

    def drop_function(self, *names: str) -> None:
        """Remove functions; their outputs become inputs of the network."""

        def change(network: Any, where: str) -> None:
            for name in names:
                network.function.remove(_function(network, name, where))

        self._changes.append(change)

    def set_batch_normalization_batch_stat_all(self, batch_stat: bool) -> None:
        """Set whether all batch normalisations use batch statistics or running ones."""

        def change(network: Any, where: str) -> None:
            for f in network.function:
                if f.type == "BatchNormalization":
                    f.batch_normalization_param.batch_stat = batch_stat

        self._changes.append(change)

    def fix_parameters(self) -> None:
        """Freeze all parameters."""
        self.fixes_parameters = True

    def set_variable(self, name: str, input_var: Variable) -> None:
        """Replace the Variable `name` by `input_var`, which may have another shape."""
        self.variables[name] = input_var

    def changed(self, network: Any, where: str) -> Any:
        """A copy of a network's message with all changes applied."""
        copied = type(network)()
        copied.CopyFrom(network)
        for change in self._changes:
            change(copied, where)
        used = {x for f in copied.function for x in (*f.input, *f.output)}
        for variable in [variable for variable in copied.variable if variable.name not in used]:
            copied.variable.remove(variable)
        unknown = self.variables.keys() - {variable.name for variable in copied.variable}
        if unknown:
            raise ValueError(f"{where}: set_variable: no Variable {min(unknown)!r}")
        return copied


def _function(network: Any, name: str, where: str) -> Any:
    by_name = {f.name: f for f in network.function}
    if name not in by_name:
        raise ValueError(f"{where}: no function {name!r}; it has {', '.join(by_name)}")
    return by_name[name]


class NnpLoader:
    """Reads a file of networks.

    Args:
        filepath: An archive of networks and parameters ('.nnp'), or networks and parameters as text ('.nntxt').
        scope: The scope for parameters; by default one of the loader's own.
        extension: The format of the file, for a `filepath` with another ending.

    Raises:
        ImportError: A package that reads such files is not installed.
        OSError: The file cannot be read.
        ValueError: The file has another format or is damaged.
    """

    def __init__(
        self, filepath: str | Path, scope: OrderedDict[str, Any] | None = None, extension: str = ".nntxt"
    ) -> None:
        suffix = Path(filepath).suffix
        extension = suffix if suffix in EXTENSIONS else extension
        self._where = str(filepath)
        self._message = read_networks(filepath, extension)
        around = get_parameters(grad_only=False)
        with parameter_scope("", OrderedDict() if scope is None else scope):
            load_parameters(filepath, extension)
            self._parameters = {**around, **get_parameters(grad_only=False)}

    @property
    def executors(self) -> list[Any]:
        """The executors in the file: their names, and the data names of their Variables."""
        return list(self._message.executor)

    def get_network_names(self) -> list[str]:
        """The names of the networks in the file."""
        return [network.name for network in self._message.network]

    def get_network(
        self, name: str, batch_size: int | None = None, callback: NnpNetworkPass | None = None
    ) -> NnpNetwork:
        """Build the graph of a network, and put its parameters into the current scope.

        Args:
            name: The name of the network.
            batch_size: The number of examples in a batch; by default the one in the file.
            callback: Changes to the network.

        Raises:
            TypeError: `callback` is not an `NnpNetworkPass`.
            ValueError: There is no network of that name, it has something unsupported, or it lacks something that
                `callback` changes; the message names it.
        """
        if not isinstance(callback, NnpNetworkPass | None):
            raise TypeError(f"callback: expected an NnpNetworkPass, got {type(callback).__name__}")
        network = next((message for message in self._message.network if message.name == name), None)
        if network is None:
            known = ", ".join(self.get_network_names())
            raise ValueError(f"name: {self._where} has no network {name!r}; it has {known}")
        changes = NnpNetworkPass() if callback is None else callback
        where, leaves = f"{self._where}: {name}", self._parameters
        if changes.fixes_parameters:
            leaves = {key: p.get_unlinked_variable(need_grad=False) for key, p in leaves.items()}
        network = changes.changed(network, where)
        variables = build_network(network, leaves, batch_size, where, changes.variables)
        parameters = [message.name for message in network.variable if message.type == "Parameter"]
        for parameter in parameters:
            set_parameter(parameter, variables[parameter])
        read = {x for f in network.function for x in f.input}
        return NnpNetwork(variables, {*parameters}, read, {y for f in network.function for y in f.output})
