"""Random programs on rows, of which a selection hides the last: it has no influence, at any order, whatever it holds.

`python -m tests.autodiff.test_hidden_rows 0 1000` tries these seeds, and prints those that fail.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.slow import slow_but

Step = Callable[[Variable], Variable]
ELEMENTWISE: list[Step] = [
    F.sin, F.tanh, F.sqrt, F.log, F.exp, F.sigmoid, F.relu, F.abs, F.atan, F.swish, F.asinh, F.softplus, F.gelu, F.elu,
    F.cos, F.sinc, F.erf, F.lgamma, F.mish, F.cbrt, lambda x: x * x, lambda x: 1 / x, lambda x: x**1.5,
    lambda x: x**3, lambda x: F.maximum_scalar(x, val=0.3),
]  # fmt: skip
OF_ROWS: list[Step] = [
    lambda x: F.softmax(x, axis=-1), lambda x: F.norm(x, axis=-1, keepdims=True), lambda x: F.flip(x),
    lambda x: F.sum(x, axis=-1, keepdims=True), lambda x: F.std(x, axis=-1, keepdims=True),
    lambda x: F.logsumexp(x, axis=-1, keepdims=True), lambda x: F.max(x, axis=-1, keepdims=True),
    lambda x: F.cumsum(x, axis=-1), lambda x: F.prod(x, axis=-1, keepdims=True), lambda x: x[:, :1],
    lambda x: F.concatenate(x, F.sin(x), axis=-1), lambda x: F.exp(F.transpose(F.sqrt(F.transpose(x)))),
    lambda x: F.reshape(F.tanh(F.reshape(x, (-1,))), x.shape), lambda x: F.log_softmax(x, axis=-1),
    lambda x: F.stack(*[x[:, i] * (i + 1) for i in range(x.shape[1])], axis=1), lambda x: x * x[:, :1],
    lambda x: F.stack(*[F.sin(column) for column in F.split(x, axis=1)], axis=1), lambda x: x[:, np.array([0, 0])],
    lambda x: x[:, :1] - np.arange(2.0), lambda x: F.pad(x, (0, 0, 1, 1)), lambda x: F.sort(x, axis=-1),
]  # fmt: skip
CONDITIONS: list[Callable[[np.ndarray[Any, Any], Variable], Any]] = [
    lambda taken, y: taken, lambda taken, y: taken[:, None], lambda taken, y: np.repeat(taken[:, None], y.shape[1], 1),
    lambda taken, y: F.broadcast(Variable.from_numpy_array(taken[:, None]), y.shape),
    lambda taken, y: Variable.from_numpy_array(np.repeat(taken[:, None], y.shape[1], 1).astype(float)),
]  # fmt: skip


def derivatives(seed: int, rows: np.ndarray[Any, Any], taken: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Three derivatives of the program of a seed, which selects once, or twice by different conditions."""
    draw = random.Random(seed)
    steps = [draw.choice(draw.choice([ELEMENTWISE, ELEMENTWISE, OF_ROWS])) for _ in range(draw.randint(1, 4))]
    condition, twice = draw.choice(CONDITIONS), draw.random() < 0.3
    x = y = Variable.from_numpy_array(rows, need_grad=True)
    for step in steps:
        y = step(y)
    g = F.where(condition(taken, y), y, 0)
    if twice:
        g = g + F.where(condition(taken & (np.arange(len(taken)) > 0), y), 2 * y, 0)
    found = []
    for order in range(3):
        (g,) = nn.grad(F.sum(g if order else g * g), x)
        found.append(g.d)
    return found


@pytest.mark.parametrize("seed", slow_but(range(1), range(60)))
def test_hidden_rows_have_no_influence(seed: int) -> None:
    hidden = random.Random(-seed).choice([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0])
    rows = np.array([[0.7, 1.2, 0.4], [1.1, 0.3, 0.9], [hidden, hidden, hidden]])
    found = derivatives(seed, rows, np.array([True, True, False]))
    alone = derivatives(seed, rows[:2], np.array([True, True]))
    for order, (a, b) in enumerate(zip(found, alone, strict=True), start=1):
        np.testing.assert_array_equal(a[2], 0, err_msg=f"order {order}")
        np.testing.assert_allclose(a[:2], b, rtol=1e-6, atol=1e-8, err_msg=f"order {order}")


def main(start: int, stop: int) -> None:
    """Try some seeds."""
    for seed in range(start, stop):
        try:
            test_hidden_rows_have_no_influence(seed)
        except AssertionError as error:
            print(seed, str(error).split("\n")[3:4])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
