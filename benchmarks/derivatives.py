"""The nth derivative of a tanh MLP 1-64-64-64-1 at 1,024 points, orders 1 to 12: size, first result and run time.

Nested `jax.grad` stops at order 8 and nested `jax.jvp` at 10: each further order takes three to seven times as long to
compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params

import nngrad as nn
from nngrad.extend import functions_of

from . import pictures
from .harness import Case, Figures, Step, in_jax, in_nngrad
from .models import Field, Parameters, jax_mlp, jet_last, nested_grad, nested_jvp, nngrad_mlp, tanh_parameters

HIGHEST = 12
NESTED, AT_ONCE = "nested nn.grad", "nn.nth_derivative"
GRAD, JVP, JET = "nested jax.grad", "nested jax.jvp", "jet"
LAST = {GRAD: 8, JVP: 10}
"""The highest order that is run. For the peers' next one, compilation alone takes minutes."""


def nested(y: nn.Variable, x: nn.Variable, order: int) -> nn.Variable:
    """`nn.grad` of `nn.grad`, as a user of nnabla writes it."""
    for _ in range(order):
        (y,) = nn.grad([y], [x])
    return y


def at_once(y: nn.Variable, x: nn.Variable, order: int) -> nn.Variable:
    """The last of the derivatives that `nn.nth_derivative` gives."""
    return nn.nth_derivative(y, x, order)[-1]


def by_nngrad(derive: Callable[..., nn.Variable], parameters: Parameters, points: np.ndarray, order: int) -> Step:
    """The graph of `derive(y, x, order)`, with the number of its functions."""
    x = nn.Variable.from_numpy_array(points, need_grad=True)
    y = derive(nngrad_mlp([nn.Variable.from_numpy_array(a) for a in parameters], x), x, order)
    return Step(in_nngrad(y, [x]).run, lambda: {"nodes": float(len(functions_of([y])))})


def by_jax(derive: Callable[[Field, int], Field], parameters: Parameters, points: np.ndarray, order: int) -> Step:
    """The function `derive(f, order)`, with the number of its equations."""

    def function(p: list[Any], x: Any) -> Any:
        return derive(lambda x: jax_mlp(p, x), order)(x)

    given = parameters, jnp.asarray(points)
    return Step(in_jax(function, *given).run, lambda: {"nodes": float(equations(jax.make_jaxpr(function)(*given)))})


def equations(jaxpr: ClosedJaxpr) -> int:
    """The equations that JAX traced. One that only calls others counts as those that it calls."""
    count, pending = 0, [_open(jaxpr)]
    while pending:
        for equation in pending.pop().eqns:
            called = [_open(j) for j in jaxprs_in_params(equation.params)]
            pending += called
            count += not called
    return count


def _open(jaxpr: Jaxpr | ClosedJaxpr) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def arrays(smoke: bool) -> tuple[Parameters, np.ndarray]:
    """The network and its points."""
    batch, widths = (16, (1, 8, 8, 8, 1)) if smoke else (1024, (1, 64, 64, 64, 1))
    return tanh_parameters(np.random.default_rng(0), *widths), np.linspace(-1, 1, batch, dtype="f")[:, None]


def cases(smoke: bool) -> Iterable[Case]:
    """The orders. Those that compile longest come last."""
    makers = {
        AT_ONCE: partial(by_nngrad, at_once), NESTED: partial(by_nngrad, nested),
        JET: partial(by_jax, jet_last), JVP: partial(by_jax, nested_jvp), GRAD: partial(by_jax, nested_grad),
    }  # fmt: skip
    for order in range(1, 3 if smoke else HIGHEST + 1):
        ways = {n: partial(make, *arrays(smoke), order) for n, make in makers.items() if order <= LAST.get(n, HIGHEST)}
        yield Case(f"derivative of order {order}", ways, measures=("time", "first result", "nodes"), tolerance=1e-2)


def save(found: dict[str, Figures]) -> None:
    """Keep and draw what was measured, by order."""
    pictures.save_growth([
        {"order": order, "name": name, "nodes": f["nodes"], "first": f["first result"], "run": f["time"]}
        for order, figures in enumerate(found.values(), 1) for name, f in figures.items()
    ])  # fmt: skip
