"""The nth derivative of a tanh MLP 1-64-64-64-1 at 1,024 points, orders 1 to 12: first result and run time.

Nested `jax.grad` stops at order 8 and nested `jax.jvp` at 10: each further order takes three to seven times as long to
compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

import nngrad as nn

from .harness import Case, Step, in_jax, in_nngrad
from .models import Field, Parameters, jax_mlp, jet_last, nested_grad, nested_jvp, nngrad_mlp, tanh_parameters

HIGHEST = 12
LAST = {"nested jax.grad": 8, "nested jax.jvp": 10}


def nested(y: nn.Variable, x: nn.Variable, order: int) -> nn.Variable:
    """`nn.grad` of `nn.grad`, as a user of nnabla writes it."""
    for _ in range(order):
        (y,) = nn.grad([y], [x])
    return y


def by_nngrad(derive: Callable[..., nn.Variable], parameters: Parameters, points: np.ndarray, order: int) -> Step:
    """`derive(y, x, order)`."""
    x = nn.Variable.from_numpy_array(points, need_grad=True)
    return in_nngrad(derive(nngrad_mlp([nn.Variable.from_numpy_array(a) for a in parameters], x), x, order), [x])


def by_jax(derive: Callable[[Field, int], Field], parameters: Parameters, points: np.ndarray, order: int) -> Step:
    """The same of a function, in JAX."""
    return in_jax(lambda p, x: derive(lambda x: jax_mlp(p, x), order)(x), parameters, points)


def arrays(smoke: bool) -> tuple[Parameters, np.ndarray]:
    """The network and its points."""
    batch, widths = (16, (1, 8, 8, 8, 1)) if smoke else (1024, (1, 64, 64, 64, 1))
    return tanh_parameters(np.random.default_rng(0), *widths), np.linspace(-1, 1, batch, dtype="f")[:, None]


def cases(smoke: bool) -> Iterable[Case]:
    """The orders. Those that compile longest come last."""
    makers = {
        "nn.nth_derivative": partial(by_nngrad, lambda y, x, order: nn.nth_derivative(y, x, order)[-1]),
        "nested nn.grad": partial(by_nngrad, nested), "jet": partial(by_jax, jet_last),
        "nested jax.jvp": partial(by_jax, nested_jvp), "nested jax.grad": partial(by_jax, nested_grad),
    }  # fmt: skip
    for order in range(1, 3 if smoke else HIGHEST + 1):
        ways = {n: partial(make, *arrays(smoke), order) for n, make in makers.items() if order <= LAST.get(n, HIGHEST)}
        yield Case(f"derivative of order {order}", ways, measures=("time", "first result"), tolerance=1e-2)
