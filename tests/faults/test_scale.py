"""Graphs that are too long or too wide for the compiler, and what executables take."""

from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.execution import partitions
from nngrad.execution.lower import in_partitions, linearize, lower
from nngrad.execution.partitions import MOST_FUSED, cut, is_long
from nngrad.functions.control import with_updates
from nngrad.graph import Variable

LONG = 1500
"""A chain of so many functions is compiled as a whole, and its gradient cannot be."""


@pytest.fixture
def table() -> Any:
    """The table of executables, empty."""
    nn.executables.clear()
    return nn.executables


def leaf(value: Any, dtype: Any = np.float64) -> Variable:
    return Variable.from_numpy_array(np.asarray(value, dtype), need_grad=True)


def chain(x: Variable, length: int) -> Variable:
    for _ in range(length):
        x = F.sin(x)
    return x


def by_hand(x: Any, length: int) -> tuple[Any, Any, Any]:
    """Value, first and second derivative of the chain."""
    y, first, second = np.asarray(x, np.float64), 1.0, 0.0
    for _ in range(length):
        s, c = np.sin(y), np.cos(y)
        y, first, second = s, c * first, c * second - s * first * first
    return y, first, second


POINTS = [0.3, -0.7, 1.2]


def test_gradients_of_a_long_chain() -> None:
    x = leaf(POINTS)
    y = chain(x, LONG)
    (gx,) = nn.grad([y], [x])
    (ggx,) = nn.grad([gx], [x])
    for got, expected in zip((y, gx, ggx), by_hand(POINTS, LONG), strict=True):
        np.testing.assert_allclose(got.d, expected, rtol=1e-11)
    F.sum(y).backward()
    np.testing.assert_array_equal(x.g, gx.d)


def test_a_very_long_chain_takes_a_few_executables(table: Any) -> None:
    x = leaf(POINTS)
    (gx,) = nn.grad([chain(x, 10_000)], [x])
    parts = cut(linearize([gx]).program.block)
    assert len(parts) > 400 and len({part.block for part in parts}) < 30
    np.testing.assert_allclose(gx.d, by_hand(POINTS, 10_000)[1], rtol=1e-10)
    info = table.info()
    assert info.misses == 1 and info.nbytes < 64 << 20


def test_a_long_chain_is_trained() -> None:
    x = leaf(POINTS, np.float32)
    before = x.d.copy()
    y, gx, _ = by_hand(before, LONG)
    step = nn.train_step(F.sum(chain(x, LONG)), [x], S.Sgd(0.5))
    np.testing.assert_allclose(step(), y.sum(), rtol=1e-5)
    np.testing.assert_allclose(x.d, before - 0.5 * gx, rtol=1e-6)


def test_effects_of_a_long_graph() -> None:
    x, count = leaf(POINTS), Variable.from_numpy_array(np.array(2.0))
    y = with_updates(chain(x, MOST_FUSED + 10), {count: count + 1})
    assert is_long(linearize([y]).program.block)
    for n in (3, 4):
        y.forward()
        np.testing.assert_allclose(y.d, by_hand(POINTS, MOST_FUSED + 10)[0], rtol=1e-11)
        assert count.d == n


def test_partitions_do_what_the_whole_does() -> None:
    x, w = leaf(np.linspace(-1, 1, 6).reshape(2, 3)), leaf(np.eye(3) * 0.5)
    y = x
    for i in range(150):
        a, b = F.split(F.tanh(y @ w), axis=0) if i % 50 == 0 else (y[0], F.cos(y[1]))
        y = F.stack(a, b * 1.5, axis=0)
    outputs = [y, x, *nn.grad([y], [x, w])]
    program = linearize(outputs).program
    assert not is_long(program.block)
    parts = cut(program.block)
    assert len(parts) > 5
    arrays = [v.d for v in linearize(outputs).leaves]
    with jax.enable_x64(True):
        whole = jax.jit(lower(program))(*arrays)
        found = in_partitions(program, parts)(*arrays)
    for got, expected in zip(found, whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


def test_many_scalar_leaves() -> None:
    xs = [leaf(1 + i * 1e-6) for i in range(5000)]
    y = xs[0]
    for x in xs[1:]:
        y = y + x
    parts = cut(linearize([y]).program.block)
    assert len({part.block for part in parts}) <= 4
    np.testing.assert_allclose(y.d, sum([x.d for x in xs]), rtol=1e-12)


def test_executables_are_bounded_by_bytes(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(POINTS)
    F.exp(x).d  # noqa: B018
    one = table.info()
    assert one.size == 1 and one.nbytes > 1 << 20
    monkeypatch.setattr(table, "most_bytes", 3 * one.nbytes)
    for f in (F.sin, F.cos, F.tan, F.tanh, F.sinh, F.cosh, F.asinh, F.atan, F.sigmoid, F.relu):
        f(x).d  # noqa: B018
    info = table.info()
    assert info.size == 3 and info.nbytes <= info.most_bytes == 3 * one.nbytes and info.capacity == one.capacity
    monkeypatch.setattr(table, "most_bytes", 1)
    F.log(x).d  # noqa: B018
    assert table.info().size == 1


JOINS: dict[str, tuple[Any, Any]] = {
    "concatenate": (lambda xs: F.concatenate(*xs, axis=-2), lambda xs: np.concatenate(xs, -2)),
    "stack": (lambda xs: F.stack(*xs, axis=-1), lambda xs: np.stack(xs, -1)),
    "dtypes": (lambda xs: F.concatenate(F.cast(xs[0], dtype=np.int32), *xs[1:], axis=0),
               lambda xs: np.concatenate([xs[0].astype(np.int32), *xs[1:]])),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_many_arrays_are_joined_and_parted_in_partitions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA takes minutes to join thousands of leaves, and for thousands of parts as results."""
    ours, theirs = JOINS[name]
    monkeypatch.setattr(partitions, "MOST_PARTS", 20)
    monkeypatch.setattr(partitions, "MOST_OPERANDS", 4)
    monkeypatch.setattr(partitions, "MOST_CALLS", 8)
    arrays = [np.array([[i + 0.25, 0.5 - i]]) for i in range(1, 38)]
    xs = [leaf(a) for a in arrays]
    joined = ours(xs)
    weights = np.cos(np.arange(joined.size)).reshape(joined.shape)
    gradients = nn.grad([F.sum(joined**3 * weights)], xs)
    parts = F.split(joined[..., ::-1], axis=0)
    program = linearize([joined, *gradients, *parts]).program
    assert is_long(program.block)
    divided = cut(program.block)
    assert len(divided) > 4
    assert name == "dtypes" or all([len(piece.takes) <= 2 * 8 + 2 for piece in divided])
    nn.forward_all([joined, *gradients, *parts])
    expected = theirs(arrays)
    np.testing.assert_array_equal(joined.d, expected)
    np.testing.assert_array_equal(np.stack([part.d for part in parts]), expected[..., ::-1])
    slopes = theirs([np.full_like(a, i) for i, a in enumerate(arrays)])  # which input each element is of
    for i, g in enumerate(gradients):
        wanted = (3 * expected**2 * weights)[slopes == i].reshape(1, 2)
        np.testing.assert_allclose(g.d, wanted * (name != "dtypes" or i > 0), rtol=1e-14)
