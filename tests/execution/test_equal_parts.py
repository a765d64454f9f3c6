"""The quick tier compiles equal parts of a program once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution import executable, partitions
from nngrad.execution.lower import linearize
from nngrad.execution.partitions import cut, equal_parts
from nngrad.execution.passes import prepared
from nngrad.graph.bounded_cache import BoundedCache
from tests.costs import compilations

V = nn.Variable


@pytest.fixture(autouse=True)
def none_called(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No executables are kept, and no program was called before."""
    monkeypatch.setattr(executable, "_called", BoundedCache(100))
    nn.executables.clear()
    yield
    nn.executables.clear()


def adapted(tasks: int = 5, steps: int = 2, rate: float = 0.1, width: int = 4) -> tuple[V, list[V]]:
    """The mean loss of several tasks after some steps of descent on each, and the weights before."""
    rng = np.random.default_rng(0)

    def leaf(*shape: int) -> V:
        return V.from_numpy_array(rng.normal(size=shape).astype("f"), need_grad=True)

    weights = [leaf(width, width), leaf(width, width)]
    losses = []
    for _ in range(tasks):
        x, y, own = leaf(3, width), leaf(3, width), weights
        for _ in range(steps):
            grads = nn.grad(F.mean((F.tanh(x @ own[0]) @ own[1] - y) ** 2), own)
            own = [w - rate * g for w, g in zip(own, grads, strict=True)]
        losses.append(F.mean((F.tanh(x @ own[0]) @ own[1] - y) ** 2))
    return sum(losses) / tasks, weights  # type: ignore[return-value]


def gradients(rate: float = 0.1) -> list[np.ndarray]:
    loss, weights = adapted(rate=rate)
    return [np.asarray(g.d) for g in nn.grad(loss, weights)]


def test_equal_parts_are_found_and_give_the_whole() -> None:
    loss, weights = adapted()
    block = prepared(linearize(nn.grad(loss, weights)).program).block
    found = equal_parts(block)
    assert found is not None and sum([len(part.block.steps) for part in found]) <= len(block.steps)
    different = {part.block for part in found}
    assert sum([len(part.steps) for part in different]) < len(block.steps) / 3
    for parts in found, cut(block):
        there = set(range(len(block.inputs)))
        for part in parts:
            assert there.union(part.starts).issuperset(part.takes) and there.isdisjoint(part.gives)
            there = there.union(part.gives).difference(part.done_with)
        assert there.issuperset(block.outputs)


def test_values_are_those_of_one_piece() -> None:
    with compilations() as seconds:
        found = gradients()
    assert len(seconds) > 2 and nn.executables.info().quick == 1
    for each, other in zip(found, gradients(), strict=True):  # the second call, in one piece
        np.testing.assert_allclose(each, other, rtol=2e-5, atol=1e-6)
    assert nn.executables.info().optimised == 1


@pytest.mark.parametrize("count", [1, 2, 7, 300])
@pytest.mark.parametrize("window", [2, 8])
def test_parts_cover_all_calls_however_few(count: int, window: int) -> None:
    ends = partitions._ends([k % 5 for k in range(count)], [1] * count, window, 8, 8)
    assert ends == sorted(set(ends)) and ends[-1] == count
