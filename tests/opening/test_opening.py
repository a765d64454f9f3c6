"""Each function of the table, opened: value, gradient, second and third derivative along a direction, against JAX."""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable

from ..oracle import compiled_cheaply
from ..slow import slow_but
from .rows import Row, is_there

FAMILIES = [
    "activations", "special", "elementwise", "reductions", "indexing", "shapes", "matrices", "spectra", "layers",
]  # fmt: skip
TOGETHER = 12
"""How many functions are in one jaxpr: one compilation for all."""

ROWS: dict[str, list[Row]] = {
    family: [r for r in importlib.import_module(f".{family}", __package__).ROWS if is_there(r)] for family in FAMILIES
}


COSTLY = {"special": 3, "matrices": 2}
"""Families whose derivatives take long to compile: as many times fewer rows of them are tried where not all are."""


def groups(step: int) -> list[tuple[str, list[Row], int]]:
    """The rows, but for those between each `step`-th one, a few of a family and of the same order together."""
    return [
        (family, rows[start : start + TOGETHER], orders)
        for family, all_rows in ROWS.items()
        for orders in (0, 1, 2, 3)
        for rows in [[r for r in all_rows[:: step * (COSTLY.get(family, 1) if step > 1 else 1)] if r.orders == orders]]
        for start in range(0, len(rows), TOGETHER)
    ]


SOME = 8
"""The suite tries one row of so many; `python -m tests.opening` tries all."""


def numbers(rows: list[Row]) -> Callable[..., Any]:
    """For each function what it returns as one number, in which nothing cancels; `t[i]` moves its inputs."""

    def run(t: Any, *arrays: Any) -> Any:
        given = iter(arrays)
        results = []
        for i, r in enumerate(rows):
            inputs = [next(given) + t[i] * d for d in directions_of(r)]
            leaves = [y for y in jax.tree.leaves(r.function(*inputs)) if jnp.issubdtype(y.dtype, jnp.floating)]
            weights = [np.cos(np.arange(y.size)).reshape(y.shape) + 0.5 for y in leaves]
            parts = [jnp.sum(jnp.sin(0.3 * y) * w) for y, w in zip(leaves, weights, strict=True)]
            results.append(sum(parts, 0 * t[i]))
        return jnp.stack(results)

    return run


def directions_of(r: Row) -> list[np.ndarray]:
    """A direction for each input."""
    rng = np.random.default_rng(len(r.name))
    found = [rng.standard_normal(np.shape(x)) / 2 for x in r.inputs]
    symmetric = [np.ndim(x) == 2 and np.array_equal(x, np.transpose(x)) for x in r.inputs]
    return [d + d.T if s else d for d, s in zip(found, symmetric, strict=True)]


@pytest.mark.parametrize(
    ("rows", "orders"),
    [
        pytest.param(rows, orders, id=f"{family}, {orders}, {rows[0].name}",
                     marks=[pytest.mark.slow] * (family == "special" or i % 3 > 0))
        for i, (family, rows, orders) in enumerate(groups(SOME))
    ],
)
def test_values_and_derivatives(rows: list[Row], orders: int) -> None:
    check(rows, orders)


def check(rows: list[Row], orders: int) -> None:
    """Compare functions with JAX's, and what stays opaque with what the table says."""
    run, count = numbers(rows), len(rows)
    arrays = [np.asarray(x) for r in rows for x in r.inputs]
    at = np.zeros(count)

    def theirs(*given: Any) -> list[Any]:
        places = tuple(range(len(given)))
        gradients = jax.grad(lambda *a: run(at, *a).sum(), places)(*given) if orders else []
        derivative: Any = functools.partial(lambda a, t: run(t, *a), given)
        found = [derivative(at)]
        for _ in range(orders):
            derivative = functools.partial(lambda f, t: jax.jvp(f, (t,), (jnp.ones(count),))[1], derivative)
            found.append(derivative(at))
        return [*found, *gradients]

    with jax.enable_x64(True):
        t = Variable.from_numpy_array(at, need_grad=True)
        inputs = [Variable.from_numpy_array(a, need_grad=True) for a in arrays]
        opened = nn.from_jax(run)
        y = opened(t, *inputs)
        gradients = nn.grad(F.sum(y), inputs) if orders else []
        found = [y]
        for _ in range(orders):
            found.append(nn.grad(F.sum(found[-1]), t)[0])
        ours = compiled_cheaply(nn.to_jax([*found, *gradients], [t, *inputs]))(at, *arrays)
        expected = compiled_cheaply(theirs)(*arrays)
    for order, (a, b) in enumerate(zip(ours[: orders + 1], expected[: orders + 1], strict=True)):
        for r, one, other in zip(rows, np.asarray(a), np.asarray(b), strict=True):
            rtol = 1e-5 if r.single else [1e-11, 1e-9, 1e-7, 1e-6][order]
            np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-9 * 10**order, err_msg=f"{r.name}: {order}")
    owners = [r for r in rows for _ in r.inputs if orders]
    for r, a, b in zip(owners, ours[orders + 1 :], expected[orders + 1 :], strict=True):
        np.testing.assert_allclose(
            a, b, rtol=1e-5 if r.single else 1e-9, atol=1e-9, err_msg=f"{r.name}: gradient"
        )
    report = opened.report()
    assert opaque_in(report) == sum([r.opaque for r in rows]), str(report)


def opaque_in(report: Any) -> int:
    """How many equations that gradients pass stay opaque."""
    return sum([n for kept, n in report.opaque.items() if kept.differentiable])


def opened(r: Row) -> Any:
    """What became of the equations of a function."""
    with jax.enable_x64(True):
        function = nn.from_jax(r.function)
        function(*[Variable.from_numpy_array(np.asarray(x), need_grad=True) for x in r.inputs])
    return function.report()


@pytest.mark.parametrize("family", slow_but([f for f in FAMILIES if f != "special"], FAMILIES))
def test_what_is_opened(family: str) -> None:
    total = Counter[str]()
    for r in ROWS[family]:
        report = opened(r)
        assert opaque_in(report) == r.opaque, f"{r.name}: {report}"
        total["opened"] += report.opened.total()
        total["opaque"] += r.opaque
    assert total["opened"] >= 0.95 * (total["opened"] + total["opaque"])
