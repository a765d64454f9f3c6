"""Builds graphs of all kinds, in a process where JAX does not say what devices there are (`no_devices.py`)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from tests.no_devices import check
from tests.oracle import as_tuple, nngrad_graph, projections
from tests.parametric_functions.test_parameter_catalogue import TABLE
from tests.samples import all_samples

READS_VALUES = {"onnx_non_max_suppression"}
"""How many boxes it returns, and so its shape, depends on their values."""


def functions() -> None:
    """All functions, with gradients of the orders that their samples have."""
    for sample in all_samples():
        if sample.name in READS_VALUES:
            continue
        rng = np.random.default_rng(7)
        inputs = [draw(rng) for draw in sample.inputs]
        leaves = [nn.Variable.from_numpy_array(x) for x in inputs]
        function = getattr(F, sample.name)
        outputs = as_tuple(function(*leaves, **sample.arguments))
        directions = projections(rng, outputs, inputs, sample.orders) if sample.orders else []
        nngrad_graph(functools.partial(function, **sample.arguments), leaves, directions, sample.orders)


def to_order_3(outputs: Any, *xs: nn.Variable) -> list[nn.Variable]:
    """Gradients of gradients."""
    gradients = nn.grad([F.sum(y) for y in as_tuple(outputs)], list(xs))
    for _ in range(2):
        gradients = nn.grad([F.sum(F.add_n(*[F.sum(g * g) for g in gradients]))], list(xs))
    return gradients


def layers() -> None:
    """Layers that make parameters, solvers that get them, and training steps."""
    for name, (call, _) in TABLE.items():
        if hasattr(PF, name):
            with nn.parameter_scope(name):
                call(getattr(PF, name))
    nn.clear_parameters()
    x = nn.Variable((4, 3, 8, 8), need_grad=True)
    h = F.dropout(F.tanh(PF.batch_normalization(PF.convolution(x, 4, (3, 3)))), 0.3)
    y = PF.affine(F.max_pooling(h, (2, 2)), 5)
    to_order_3(y, x)
    loss = F.mean(y**2)
    for name in S.__all__:
        made = getattr(S, name)
        if isinstance(made, type) and issubclass(made, S.Solver) and made is not S.Solver:
            made().set_parameters(nn.get_parameters())
    nn.train_step(loss, nn.get_parameters(), S.Adam(), inputs=[x])
    nn.train_step(lambda x: F.mean(PF.affine(x, 2)), nn.get_parameters, S.Adam())
    nn.to_jax([y], [x])


def bodies() -> None:
    """Loops, branches and other functions with bodies."""
    x, ts = nn.Variable((4,), need_grad=True), nn.Variable((10, 4), need_grad=True)
    to_order_3(F.scan(lambda c, t: (F.tanh(c + t), c * t), x, ts)[0], x, ts)
    to_order_3(F.fori_loop(0, 5, lambda i, c: F.sin(c), x), x)
    F.while_loop(lambda c: F.sum(c) < 3, lambda c: c + 1, x)
    to_order_3(F.cond(F.sum(x) > 0, F.sin, F.cos, x), x)
    to_order_3(nn.checkpoint(lambda x: F.tanh(F.sin(x)))(x), x)
    to_order_3(nn.vmap(lambda t: F.tanh(t) * x)(ts), x)
    to_order_3(nn.root(lambda z: z**3 + z - x, np.zeros(4, np.float32))[0], x)
    to_order_3(nn.odeint(lambda y, t: -y * x, x, np.linspace(0, 1, 3), method="rk4", steps=4), x)


def operators() -> None:
    """Derivatives of other kinds, and what is drawn."""
    x = nn.Variable((5, 3), need_grad=True)
    u = F.sum(F.tanh(x) ** 3, axis=1)
    nn.laplacian(u, x)
    nn.bilaplacian(u, x)
    nn.hvp([F.sum(u)], [x], [F.randn(shape=(5, 3))])
    nn.jvp([u], [x], [F.rand(shape=(5, 3))])
    nn.hessian(u, x)
    nn.seed(3)
    nn.show([u])
    nn.count([u])


def main() -> None:
    """Build them, from the import of nngrad on."""
    for part in (functions, layers, bodies, operators):
        part()
    check()
    print("built")
