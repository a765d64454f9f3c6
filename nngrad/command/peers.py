"""How often each function of F can be differentiated, here and in other libraries."""

from __future__ import annotations

import nngrad.functions as F
from backward_registry import registry

from ..graph import Composite, Op
from ..graph.elsewhere import peers

PEERS = {"nnabla": "nnabla", "chainer": "Chainer", "pytorch": "PyTorch", "jax": "JAX"}
"""The libraries: the columns of graph/peers.csv, and their names."""


def peers_of(function: str) -> dict[str, str]:
    """The entry of each library for a function of F; empty where the library has no such function."""
    line = peers().get(function, {})
    return {peer: line.get(peer, "") for peer in PEERS}


def capability(entry: str) -> str:
    """What a library can do for a function, by its entry: 'yes' for gradients of gradients, 'once', 'no', or '' where
    it has no such function."""
    _, _, limit = entry.partition(":")
    return {"": "yes", "1": "once", "0": "no"}[limit] if entry else ""


def functions_of_family(family: str) -> list[str]:
    """The names of the functions of a family, sorted. Functions that take functions, and have files of their own, count
    as control."""
    return sorted([name for name in (*F.plain_names(), *F.names()) if _family_of(name) == family])


def _family_of(name: str) -> str:
    function = getattr(F, name)
    module: str = function.module if isinstance(function, Op | Composite) else function.__module__
    family = module.removeprefix(f"{F.__name__}.").partition(".")[0]
    return family if family in F.FAMILIES else "control"


def order_of(name: str) -> str:
    """How often a function can be differentiated: 'any', 'estimate', 'none', or 'by its parts'."""
    function = getattr(F, name)
    if not isinstance(function, Op) or isinstance(function, Composite):
        return "by its parts"
    rule = registry.find(function)
    if rule is None:
        return "no rule"
    return "none" if rule.kind == "non-differentiable" else "any" if rule.exact else "estimate"
