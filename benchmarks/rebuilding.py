"""Steps with gradients of gradients whose graph is built anew each time, against the same graph built once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from .critic import nngrad_loss as critic_loss
from .critic import nngrad_mlp
from .peers import dense_parameters
from .physics import EQUATIONS, Equation
from .physics import nngrad_loss as physics_loss
from .tanh_mlp import tanh_parameters
from .timing import Contender, Row, medians, row

Loss = Callable[[list[nn.Variable], list[nn.Variable]], nn.Variable]
GOAL = 1.3


def maml_loss(p: list[nn.Variable], data: list[nn.Variable]) -> nn.Variable:
    """The loss on one set of points after a step of gradient descent on another."""
    x, y, x_after, y_after = data

    def loss(p: list[nn.Variable], x: nn.Variable, y: nn.Variable) -> nn.Variable:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            x = F.relu(F.affine(x, w, b))
        return F.mean(F.squared_error(F.affine(x, p[-2], p[-1]), y))

    gradients = nn.grad(loss(p, x, y), p)
    return loss([w - 0.01 * g for w, g in zip(p, gradients, strict=True)], x_after, y_after)


def transformer_loss(p: list[nn.Variable], data: list[nn.Variable]) -> nn.Variable:
    """A block of four heads, with a penalty on the gradient with respect to its input."""
    (x,) = data
    query, key, value, out, w1, b1, w2, b2 = p
    batch, length, width = x.shape
    heads = 4

    def normalized(z: nn.Variable) -> nn.Variable:
        centred = z - F.mean(z, axis=2, keepdims=True)
        return centred / (F.mean(centred * centred, axis=2, keepdims=True) + 1e-5) ** 0.5

    def split(z: nn.Variable) -> nn.Variable:
        return F.transpose(F.reshape(z, (batch, length, heads, width // heads)), (0, 2, 1, 3))

    z = normalized(x)
    q, k, v = (split(F.affine(z, w, base_axis=2)) for w in (query, key, value))
    attention = F.softmax(F.batch_matmul(q, k, transpose_b=True) * (width // heads) ** -0.5, axis=3)
    z = F.reshape(F.transpose(F.batch_matmul(attention, v), (0, 2, 1, 3)), x.shape)
    y = x + F.affine(z, out, base_axis=2)
    y = y + F.affine(F.gelu(F.affine(normalized(y), w1, b1, base_axis=2)), w2, b2, base_axis=2)
    (slope,) = nn.grad([F.sum(y)], [x])
    return F.mean(y * y) + F.mean((F.sum(slope * slope, axis=(1, 2)) ** 0.5 - 1) ** 2)


def residual_of(equation: Equation) -> Loss:
    """The loss of a network that is to solve an equation."""
    return lambda p, data: physics_loss(equation, p, *data)


def step_of(build: Loss, parameters: list[np.ndarray], data: list[np.ndarray], anew: bool) -> Contender:
    """A step in nnabla's style, of a graph that is built once or `anew` each time."""
    p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
    leaves = [nn.Variable.from_numpy_array(a) for a in data]
    solver = S.Adam(alpha=1e-4)
    solver.set_parameters({str(i): w for i, w in enumerate(p)})
    built = build(p, leaves)

    def step() -> Any:
        loss = build(p, leaves) if anew else built
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        return [loss.data.array, *[w.data.array for w in p]]

    return step


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * shape[0] ** -0.5).astype("f")

    n, widths = (16, (2, 8, 8, 8, 1)) if smoke else (2048, (2, 64, 64, 64, 1))
    width, length = (8, 4) if smoke else (64, 32)
    points = [rng.uniform(0, 1, (n, 1)).astype("f") for _ in range(2)]
    images = [normal(64, 64), normal(64, 64), rng.random((64, 1), "f")]
    weights = [normal(*shape) for shape in [(width, width)] * 4]
    weights += [normal(width, 4 * width), np.zeros(4 * width, "f"), normal(4 * width, width), np.zeros(width, "f")]
    cases: list[tuple[str, Loss, list[np.ndarray], list[np.ndarray]]] = [
        ("critic", lambda p, data: critic_loss(nngrad_mlp, p, *data), dense_parameters(rng, 64, 256, 256, 1), images),
        ("MAML", maml_loss, dense_parameters(rng, 1, 40, 40, 1), [normal(10, 1) for _ in range(4)]),
        ("transformer block with penalty", transformer_loss, weights, [normal(8, length, width)]),
    ]
    cases += [(each.name, residual_of(each), tanh_parameters(rng, *widths), points) for each in EQUATIONS]
    rows = []
    for name, loss, parameters, data in cases:
        contenders = {
            "built anew": step_of(loss, parameters, data, True),
            "built once": step_of(loss, parameters, data, False),
        }
        times = medians(contenders, 2 if smoke else 25, 1 if smoke else 4)
        rows.append(row(f"{name} step", times, "built anew", "built once", GOAL))
    return rows
