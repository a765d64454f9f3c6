"""Graphs computed for many values at once, against the same graph computed for one value after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.derivatives.vectorize import vectorize
from nngrad.execution.interpret import interpret
from nngrad.graph import Op, Variable
from tests.autodiff.test_properties import SETTINGS, Recipe, draw_leaves, follow, recipes
from tests.oracle import Arrays, as_tuple, is_floating, nngrad_graph, projections
from tests.samples import Sample, all_samples
from tests.slow import slow_but_every
from tests.together import Called, Check, Wanted, function_of, side_by_side, together

K = 4


def leaf(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Variable:
    """A leaf with normal numbers."""
    return Variable.from_numpy_array(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def close(ours: Any, expected: Any, rtol: float = 1e-10) -> None:
    """Compare arrays of one dtype, with a tolerance relative to the largest."""
    assert ours.shape == expected.shape and ours.dtype == expected.dtype
    rtol = rtol if ours.dtype.itemsize == 8 else 1e-5
    scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
    np.testing.assert_allclose(ours, expected, rtol=rtol, atol=rtol * scale)


def varied(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """K arrays like `a`: floating ones a little larger each time, others with their elements moved on."""
    if is_floating(a):
        return np.stack([a * (1 + 0.003 * k) for k in range(K)])
    return np.stack([np.roll(a, k, -1) if a.ndim else a for k in range(K)])


def two_of_each() -> list[Sample]:
    """Two samples of each op that has inputs."""
    seen: dict[str, list[Sample]] = {}
    for sample in all_samples():
        if isinstance(getattr(F, sample.name), Op) and sample.inputs:
            seen.setdefault(sample.name, []).append(sample)
    return [sample for several in seen.values() for sample in several[:2]]


def choices(sample: Sample) -> list[tuple[bool, ...]]:
    """Which of its inputs vary: one, the others, and all."""
    count = len(sample.inputs)
    chosen = {(True,) * count}
    if sample.name != "recomputed":  # its inputs have the same value
        chosen |= {(True,) + (False,) * (count - 1), (False,) + (True,) * (count - 1)}
    return [choice for choice in sorted(chosen) if any(choice)]


@pytest.mark.parametrize("sample", slow_but_every(12, two_of_each()), ids=lambda s: s.id)
@together
def test_op(sample: Sample) -> Check:
    """An op and its gradients up to order 2: vectorized, and differentiated after they were vectorized."""
    rng = np.random.default_rng(7)
    inputs = [draw(rng) for draw in sample.inputs]
    leaves = [Variable.from_numpy_array(x) for x in inputs]
    outputs = as_tuple(getattr(F, sample.name)(*leaves, **sample.arguments))
    orders = 0 if sample.surrogate else min(sample.orders, 2)
    directions = projections(rng, outputs, inputs, orders) if orders else []
    levels = nngrad_graph(lambda *xs: outputs, leaves, directions, orders)
    one_by_one = function_of([y for level in levels for y in level], leaves)
    yield from side_by_side([
        vectorized(inputs, leaves, levels, directions, one_by_one, batched) for batched in choices(sample)
    ])  # fmt: skip


def vectorized(
    inputs: Arrays, leaves: list[Variable], levels: list[list[Variable]], directions: list[Arrays], one_by_one: Any,
    batched: tuple[bool, ...],
) -> Check:
    """The same with some of the inputs varied."""
    flat, orders = [y for level in levels for y in level], len(directions)
    many = [varied(a) if b else a for a, b in zip(inputs, batched, strict=True)]
    table = {x: Variable.from_numpy_array(a) for x, a, b in zip(leaves, many, batched, strict=True) if b}
    values = [table.get(x, x) for x in leaves]
    ours, totals = vectorize(flat, table), vectorize(flat, table, collapse=True)
    # The gradient of what varies is each one's own; of what does not vary it is the sum.
    first = vectorize(levels[0], table)
    varies = [b for b, x in zip(batched, inputs, strict=True) if is_floating(x)]
    wide = [
        [r if r is None or not b else np.broadcast_to(r, (K, *r.shape)) for r, b in zip(rs, moved, strict=True)]
        for n, rs in enumerate(directions)
        for moved in [varies if n else [True] * len(rs)]
    ]
    later = nngrad_graph(lambda *xs: first, values, wide, orders)[1:]

    given = [[a[k] if b else a for a, b in zip(many, batched, strict=True)] for k in range(K)]
    ((got_each, got_totals, *got_later),), rows = yield [Wanted([ours, totals, *later]), Called(one_by_one, given)]
    stacked = iter([np.stack(column) for column in zip(*rows, strict=True)])
    each = [[next(stacked) for _ in level] for level in levels]
    for a, b in zip(got_each, [a for level in each for a in level], strict=True):
        close(a, b)
    for a, b in zip(got_totals, [a for level in each for a in level], strict=True):
        close(a, b.sum(0, dtype=np.int32 if b.dtype == bool else b.dtype), 1e-9)
    for level, expected in zip(got_later, each[1:], strict=True):
        for a, b, v in zip(level, expected, varies, strict=True):
            close(a, b if v else b.sum(0), 1e-9)


@settings(SETTINGS, max_examples=12)
@given(recipes(), st.integers(1, 7), st.booleans())
def test_random_graphs(recipe: Recipe, chosen: int, simplified: bool) -> None:
    """Values, gradients and second derivatives of random graphs, with some of their leaves varied."""
    arrays = draw_leaves(recipe)
    leaves = [Variable.from_numpy_array(a) for a in arrays]
    batched = [bool(chosen >> i & 1) for i in range(len(leaves))]
    batched[0] |= not any(batched)
    with nn.simplify(simplified):
        outputs = follow(recipe, leaves, ours=True)
        gradients = nn.grad(outputs, leaves)
        flat = [*outputs, *gradients, *nn.grad([g * g for g in gradients], leaves)]
        many = [varied(a) if b else a for a, b in zip(arrays, batched, strict=True)]
        table = {x: Variable.from_numpy_array(a) for x, a, b in zip(leaves, many, batched, strict=True) if b}
        ours, totals = vectorize(flat, table), vectorize(flat, table, collapse=True)
    rows = []
    for k in range(K):
        for x, a, b in zip(leaves, many, batched, strict=True):
            x.d = a[k] if b else a
        rows.append(interpret(flat, {}))
    for x, a in zip(leaves, arrays, strict=True):
        x.d = a
    for a, total, column in zip(interpret(ours, {}), interpret(totals, {}), zip(*rows, strict=True), strict=True):
        b = np.stack([np.asarray(c) for c in column])
        close(np.asarray(a), b)
        close(np.asarray(total), b.sum(0), 1e-9)


# ---------------------------------------------------------------- what is emitted


THIN = {
    "elementwise": lambda t: F.tanh(t) * leaf(2, 3, seed=1) - t**2,
    "matmul": lambda t: t @ leaf(3, 2, seed=1),
    "matmul, transposed": lambda t: F.batch_matmul(t, leaf(2, 4, seed=1), transpose_a=True),
    "matmul from the left": lambda t: leaf(4, 2, seed=1) @ t,
    "matmul with itself": lambda t: F.batch_matmul(t, t, transpose_b=True),
    "reshape": lambda t: F.reshape(t, shape=(2, 1, 3)) + F.reshape(F.reshape(t, shape=(3, 2)), shape=(1, 2, 3)),
    "transpose": lambda t: F.transpose(t),
    "broadcast": lambda t: F.broadcast(t, shape=(4, 2, 3)),
    "sum": lambda t: F.sum(t, axis=0) + F.mean(t, axis=1, keepdims=True),
    "slices": lambda t: t[:, 1:] * t[:, None, ::-1, ...][:, 0, :2] + t[1, :1],
    "put slices": lambda t: F.put_slices(t, key=((1, 2, 1), (0, 3, 1)), shape=(4, 3)),
    "concatenate": lambda t: F.concatenate(t, leaf(2, 1, seed=1), axis=1),
    "split": lambda t: F.split(t, axis=0)[1],
    "where": lambda t: F.where(F.greater_scalar(t, val=0.1), t, leaf(2, 3, seed=1)),
    "where, by rows": lambda t: F.where(F.greater_scalar(t[:, 0], val=0.1), t, 2 * t),
    "softmax": lambda t: F.softmax(t) + F.prelu(t, leaf(3, seed=1)),
    "points": lambda t: t[[1, 0, 1]] + F.einsum(t, t, equation="ij,ik->j"),
}


@pytest.mark.parametrize("name", slow_but_every(3, sorted(THIN)))
def test_thin_values_stand_for_repeated_ones(name: str) -> None:
    t = leaf(2, 3)
    y = THIN[name](t)
    for shape in ((K, 1, 3), (K, 2, 1), (K, 1, 1)):
        thin = leaf(*shape, seed=3)
        wide = F.broadcast(thin, shape=(K, 2, 3))
        for collapse in (False, True):
            ours, expected = (vectorize([y], {t: v}, collapse)[0] for v in (thin, wide))
            assert ours.shape == (y.shape if collapse else (K, *y.shape))
            np.testing.assert_allclose(*interpret([ours, expected], {}), rtol=1e-11, atol=1e-11)


SHAPES = [
    ((2, 3), (2, 3)), ((2,), (2, 3)), ((3,), (2, 3)), ((), (2, 3)), ((1, 3), (2, 3)), ((K, K), (K, K)), ((K,), (K, K)),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "shape"), SHAPES, ids=str)
def test_conditions_keep_their_alignment(condition: tuple[int, ...], shape: tuple[int, ...]) -> None:
    c, a, b = leaf(*condition), leaf(*shape, seed=1), leaf(*shape, seed=2)
    y = F.where(F.greater_scalar(c, val=0), a, b)
    for chosen in ([c], [a], [a, b], [c, b]):
        factors = {x: (np.arange(K) - 1.5).reshape(K, *(1,) * x.ndim) for x in chosen}
        table = {x: Variable.from_numpy_array(factor * x.d) for x, factor in factors.items()}
        (ours,) = vectorize([y], table)
        rows = [interpret([y], {id(x): v.d[k] for x, v in table.items()})[0] for k in range(K)]
        np.testing.assert_array_equal(interpret([ours], {})[0], np.stack(rows))


# ---------------------------------------------------------------- what stays as it is


def test_noise_is_the_same_for_all() -> None:
    x = leaf(50, dtype=np.float32)
    y = F.dropout(x, p=0.5)
    (ours,) = vectorize([y], {x: Variable.from_numpy_array(np.ones((K, 50), np.float32))})
    assert 0 < (ours.d[0] == 0).sum() < 50
    assert (ours.d == ours.d[0]).all()


def test_where_gradients_stopped_they_still_do() -> None:
    x, c = leaf(3), leaf(3, seed=1)
    h = F.sin(x) * c
    h.need_grad = False
    values = leaf(K, 3)
    for collapse in (False, True):
        (y,) = vectorize([h * h + x], {x: values}, collapse)
        gx, gc = nn.grad(y, [values, c])
        np.testing.assert_allclose(gx.d, np.ones((K, 3)))
        np.testing.assert_allclose(gc.d, np.zeros(3))
