"""How often other libraries can differentiate their functions.

`peers.csv` has a line for each function of F that another library has as well. The column of a library has its name
there, with `:1` behind it if its gradient cannot be differentiated again, and `:0` if it has none.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path

PEERS = {"nnabla": "nnabla", "chainer": "Chainer", "pytorch": "PyTorch", "jax": "JAX"}
"""The libraries: the columns of `peers.csv`, and their names."""


@functools.cache
def table() -> dict[str, dict[str, str]]:
    """The lines of `peers.csv` by the names of functions."""
    with Path(__file__).with_name("peers.csv").open(encoding="utf-8", newline="") as file:
        return {line["function"]: line for line in csv.DictReader(file)}


def peers_of(function: str) -> dict[str, str]:
    """The entry of each library for a function of F; empty where the library has no such function."""
    line = table().get(function, {})
    return {peer: line.get(peer, "") for peer in PEERS}


def capability(entry: str) -> str:
    """What a library can do for a function, by its entry: 'yes' for gradients of gradients, 'once', 'no', or '' where
    it has no such function."""
    _, _, limit = entry.partition(":")
    return {"": "yes", "1": "once", "0": "no"}[limit] if entry else ""
