"""Collapsed Taylor mode: Laplacians, weighted Laplacians and bilaplacians of a network, exact and estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.jax as nj

from .. import operators, order_four
from ..experiment import QUANTITIES, Experiment, Measured, Point, Quantity, Table
from ..harness import Way, in_jax
from ..models import jax_mlp, tanh_parameters

OURS, NESTED, STANDARD, COLLAPSED = "nngrad", "nested", "standard Taylor", "collapsed Taylor"
DIMENSIONS, WIDTHS, FEW = 50, (96, 96, 64, 64, 1), 5
Operator = Callable[[Any, Any, Any], Any]
"""What is computed of parameters, points and directions."""

# ---------------------------------------------------------------- order two: sums of v . H v over directions


def second_by_nngrad(p: Any, x: Any, v: Any) -> Any:
    """The Laplacian by z of u(x + v z)."""
    if v is None:
        return nj.laplacian(lambda x: jax_mlp(p, x)[:, 0], batched=True)(x)
    z = jnp.zeros((len(x), len(v)), x.dtype)
    return nj.laplacian(lambda z: jax_mlp(p, x + z @ v)[:, 0], batched=True)(z)


def second_nested(p: Any, x: Any, v: Any) -> Any:
    """Products of the Hessian and a vector, forward over reverse."""
    u = operators.field(p)
    vectors = jnp.eye(x.shape[1], dtype=x.dtype) if v is None else v

    def along(x: Any, v: Any) -> Any:
        return v @ jax.jvp(jax.grad(u), (x,), (v,))[1]

    return jax.vmap(lambda x: jnp.sum(jax.vmap(along, (None, 0))(x, vectors)))(x)


SECOND: dict[str, Operator] = {
    OURS: second_by_nngrad, NESTED: second_nested, STANDARD: operators.summed_jet,
    COLLAPSED: operators.forward_laplacian,
}  # fmt: skip

# ---------------------------------------------------------------- order four


def fourth_by_nngrad(p: Any, x: Any, v: Any) -> Any:
    """`nj.bilaplacian`; directions are its own."""
    directions = {} if v is None else {"directions": len(v[0]), "kind": "gaussian"}
    key = () if v is None else (jax.random.key(1),)
    return nj.bilaplacian(lambda x: jax_mlp(p, x)[:, 0], batched=True, **directions)(*key, x)


def fourth_nested(p: Any, x: Any, v: Any) -> Any:
    """The Laplacian of the Laplacian, each by `jax.hessian`; along directions, forward mode nested four times."""
    if v is None:
        return order_four.nested_laplacians(p, x)
    u, (vectors, weights) = operators.field(p), v

    def along(f: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
        return lambda x: jax.jvp(f, (x,), (v,))[1]

    def fourth(x: Any, v: Any) -> Any:
        return along(along(along(along(u, v), v), v), v)(x)

    return jax.vmap(lambda x: weights @ jax.vmap(fourth, (None, 0))(x, vectors))(x)


FOURTH: dict[str, Operator] = {
    OURS: fourth_by_nngrad, NESTED: fourth_nested, STANDARD: order_four.summed_jet,
    COLLAPSED: order_four.collapsed_by_hand,
}  # fmt: skip

# ---------------------------------------------------------------- the grid


def point(
    axis: float, operators_of: dict[str, Operator], dimensions: int, batch: int, directions: Any, smoke: bool,
    compared: bool = True,
) -> Point:  # fmt: skip
    """All methods on one batch."""
    rng = np.random.default_rng(0)
    parameters = [jnp.asarray(a) for a in tanh_parameters(rng, dimensions, *((6, 6, 1) if smoke else WIDTHS))]
    x = jnp.asarray(rng.normal(size=(batch, dimensions)), "f")
    ways: dict[str, Way] = {
        name: partial(in_jax, lambda p, x, o=operator: jnp.ravel(o(p, x, directions)), parameters, x)
        for name, operator in operators_of.items()
    }
    return Point(axis, ways, 1e-3 if compared else None)


def drawn(count: int, dimensions: int) -> Any:
    """Directions, of a normal distribution."""
    return jnp.asarray(np.random.default_rng(1).normal(size=(count, dimensions)), "f")


def tables(smoke: bool) -> Iterable[Table]:
    """Over the batch where the operator is exact, over the directions where it is estimated."""
    many, few = (4, 2) if smoke else (DIMENSIONS, FEW)
    batches, counts, batch = ((2,), (2,), 2) if smoke else ((32, 128, 512), (4, 16, 32), 128)
    weights = drawn(many, many) / many
    yield Table("Laplacian", "points", [point(n, SECOND, many, n, None, smoke) for n in batches])
    if smoke:
        return
    yield Table("Weighted Laplacian", "points", [point(n, SECOND, many, n, weights, smoke) for n in batches])
    yield Table("Laplacian, estimated", "directions", [
        point(n, SECOND, many, batch, drawn(n, many) / n**0.5, smoke) for n in counts
    ])
    yield Table("Bilaplacian", "points", [point(n, FOURTH, few, n, None, smoke) for n in batches])
    yield Table("Bilaplacian, estimated", "directions", [
        point(n, FOURTH, few, batch, (drawn(n, few), jnp.full(n, 1 / (3 * n), "f")), smoke, False) for n in counts
    ])  # fmt: skip


def slopes(rows: list[Measured]) -> Iterable[Measured]:
    """What one more point, or direction, adds to time and memory: of the line through the figures."""
    for table, quantity, name in (
        (table, quantity, name)
        for table in dict.fromkeys([m.table for m in rows])
        for quantity, name in (("time", "time slope"), ("temporaries", "memory slope"))
    ):
        for method in dict.fromkeys([m.method for m in rows]):
            line = [(m.x, m.value) for m in rows if (m.table, m.quantity, m.method) == (table, quantity, method)]
            if len(line) > 1:
                yield Measured("Slopes", "operator", table, method, name, float(np.polyfit(*np.transpose(line), 1)[0]))


EXPERIMENT = Experiment(
    title="Collapsed Taylor mode", ours=OURS, tables=tables, derived=slopes,
    measured=("time", "temporaries", "time slope", "memory slope"),
    quantities=QUANTITIES | {
        "time slope": Quantity("time of one more", 1e6, "µs"),
        "memory slope": Quantity("memory of one more", 1e-3, "kB"),
    },
)  # fmt: skip
