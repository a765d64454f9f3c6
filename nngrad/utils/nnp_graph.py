"""Networks in files of nnabla's ('.nnp', '.nntxt'), made as graphs."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from ..files.nnabla_networks import build_network, read_networks
from ..files.parameter_files import load_parameters
from ..graph import Variable
from ..parameter import get_parameters, parameter_scope, set_parameter

EXTENSIONS = (".nnp", ".nntxt", ".prototxt")


class NnpNetwork:
    """The graph of a network.

    Args:
        variables: Its Variables by their names in the file.
        parameters: Which of them are parameters.
        read: Which of them functions read.
        given: Which of them functions give.
    """

    def __init__(self, variables: dict[str, Variable], parameters: set[str], read: set[str], given: set[str]) -> None:
        self.variables = variables
        """All Variables, parameters too, by their names."""
        self.inputs = {name: x for name, x in variables.items() if name not in given | parameters}
        """What data goes into."""
        self.outputs = {name: x for name, x in variables.items() if name in given - read}
        """What no function of the network reads."""


class NnpLoader:
    """Reads a file of networks.

    Args:
        filepath: An archive of networks and parameters ('.nnp'), or networks and parameters as text ('.nntxt').
        scope: The scope that parameters are kept in; by default one of the loader's own.
        extension: What the file is, for a `filepath` that ends in something else.

    Raises:
        ImportError: A package is not installed that reads such files.
        OSError: The file cannot be read.
        ValueError: It is no such file, or damaged.
    """

    def __init__(
        self, filepath: str | Path, scope: OrderedDict[str, Any] | None = None, extension: str = ".nntxt"
    ) -> None:
        suffix = Path(filepath).suffix
        extension = suffix if suffix in EXTENSIONS else extension
        self._where = str(filepath)
        self._message = read_networks(filepath, extension)
        with parameter_scope("", OrderedDict() if scope is None else scope):
            load_parameters(filepath, extension)
            self._parameters = get_parameters(grad_only=False)

    @property
    def executors(self) -> list[Any]:
        """What the file says of how networks are run: their names, and the names of data for their Variables."""
        return list(self._message.executor)

    def get_network_names(self) -> list[str]:
        """The names of the networks in the file."""
        return [network.name for network in self._message.network]

    def get_network(self, name: str, batch_size: int | None = None, callback: None = None) -> NnpNetwork:
        """Make the graph of a network, and put its parameters into the present scope.

        Args:
            name: Its name.
            batch_size: The number of examples in a batch; by default the one in the file.
            callback: None: nnabla's passes over networks are not there; `y.rewire_on(x)` changes the graph.

        Raises:
            ValueError: There is no network of that name, or it has what cannot be here; the message names it.
        """
        if callback is not None:
            raise ValueError("callback: passes over networks are not supported; change the graph by `y.rewire_on(x)`")
        found = next((each for each in self._message.network if each.name == name), None)
        if found is None:
            known = ", ".join(self.get_network_names())
            raise ValueError(f"name: {self._where} has no network {name!r}; it has {known}")
        variables = build_network(found, self._parameters, batch_size, f"{self._where}: {name}")
        parameters = [each.name for each in found.variable if each.type == "Parameter"]
        for parameter in parameters:
            set_parameter(parameter, variables[parameter])
        read = {x for f in found.function for x in f.input}
        return NnpNetwork(variables, {*parameters}, read, {y for f in found.function for y in f.output})
