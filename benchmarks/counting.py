"""How large graphs are: functions of nngrad's, equations of JAX's, and the matrix products among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params

import nngrad as nn
from nngrad.graph import functions_of


class Size(NamedTuple):
    """What a graph consists of."""

    nodes: int
    """Functions, or equations."""
    products: int
    """Matrix products among them."""


def size_of_graph(outputs: Sequence[nn.Variable]) -> Size:
    """The functions that `outputs` need, constants included, each counted once."""
    return Size(len(functions_of(outputs)), nn.count(outputs).matrix_products)


def size_of_jaxpr(jaxpr: ClosedJaxpr) -> Size:
    """The equations that JAX traced. One that only calls others counts as those that it calls."""
    nodes = products = 0
    pending = [jaxpr_of(jaxpr)]
    while pending:
        for equation in pending.pop().eqns:
            called = [jaxpr_of(j) for j in jaxprs_in_params(equation.params)]
            pending += called
            nodes += not called
            products += equation.primitive.name == "dot_general"
    return Size(nodes, products)


def jaxpr_of(jaxpr: Jaxpr | ClosedJaxpr) -> Jaxpr:
    """A jaxpr without the values of its constants."""
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
