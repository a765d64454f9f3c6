"""How often other libraries can differentiate their functions, as `nngrad/nnabla/peers.csv` has it."""

from __future__ import annotations

from nngrad.nnabla.names import peers

PEERS = {"nnabla": "nnabla", "chainer": "Chainer", "pytorch": "PyTorch", "jax": "JAX"}
"""The libraries: the columns of the table, and their names."""


def peers_of(function: str) -> dict[str, str]:
    """The entry of each library for a function of F; empty where the library has no such function."""
    line = peers().get(function, {})
    return {peer: line.get(peer, "") for peer in PEERS}


def capability(entry: str) -> str:
    """What a library can do for a function, by its entry: 'yes' for gradients of gradients, 'once', 'no', or '' where
    it has no such function."""
    _, _, limit = entry.partition(":")
    return {"": "yes", "1": "once", "0": "no"}[limit] if entry else ""
