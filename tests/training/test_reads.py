"""Values that are read one after another: right whatever was written in between, and with little that is compiled."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.executable import quick_options
from nngrad.execution.interpret import single_ops
from tests.rematerialising import counted_compilations
from tests.slow import slow_but

Count = Callable[[], int]


@pytest.fixture
def compilations() -> Iterator[Count]:
    """Counts compilations from a state in which nothing was met before."""
    nn.executables.clear()
    single_ops.clear()
    jax.clear_caches()
    quick_options()  # which are tried by a compilation, once
    with counted_compilations() as count:
        yield count


def chain(length: int, start: Any = 0.5) -> tuple[nn.Variable, list[nn.Variable]]:
    """A leaf, and the steps of a recurrence."""
    h = x = nn.Variable.from_numpy_array(start, need_grad=True)
    steps = []
    for _ in range(length):
        h = F.sin(h)
        steps.append(h)
    return x, steps


def sines(start: Any, length: int) -> list[Any]:
    values = [np.sin(start)]
    for _ in range(length - 1):
        values.append(np.sin(values[-1]))
    return values


ORDERS = {
    "upwards": lambda steps: list(enumerate(steps)),
    "downwards": lambda steps: list(enumerate(steps))[::-1],
    "shuffled": lambda steps: random.Random(0).sample(list(enumerate(steps)), len(steps)),
}


@pytest.mark.parametrize("order", slow_but(["shuffled"], ORDERS))
def test_states_that_are_computed_together_compile_once(order: str, compilations: Count) -> None:
    x, steps = chain(300, np.linspace(-1, 1, 4))
    nn.forward_all(steps)
    for i, y in ORDERS[order](steps):
        np.testing.assert_allclose(y.d, sines(x.d, 300)[i], rtol=1e-12)
    assert compilations() <= 2


def write(x: nn.Variable) -> None:
    x.d = 2.0


def test_what_is_written_to_a_view_counts_and_after_a_forward_it_does_not() -> None:
    x = nn.Variable.from_numpy_array([1.0])
    view = x.d
    y = x + 1
    z, after = y * 10, y * 100
    assert y.d == 2
    view[...] = 4.0
    assert z.d == 50
    view[...] = 5.0
    assert after.d == 600
    x = nn.Variable.from_numpy_array([1.0])
    y = x + 1
    z = y * 10
    after = z + 3
    after.forward()
    assert y.d == 2
    x.d = 7.0
    assert z.d == 20
    z.d = 5.0  # a value of the user's, which goes with the next forward
    y.data.data[...] = 6.0
    assert after.d == 23
    beside = z - 1
    assert beside.d == 79  # built later, so of the leaves' present values
    after.forward()
    assert (y.d, z.d, after.d) == (8, 80, 83)


def test_reads_keep_neither_graphs_nor_arrays_of_leaves() -> None:
    x, steps = chain(30)
    for y in steps:
        _ = y.d
    array = weakref.ref(x.data.array)
    tail, middle = F.sin(steps[-1]), weakref.ref(steps[10].parent)
    assert tail.d < 1
    gc.disable()
    try:
        x.d = 3.0
        assert array() is None
        del y, steps, tail
        assert middle() is None
    finally:
        gc.enable()


def test_what_threads_read_is_not_older_than_what_was_written() -> None:
    x = nn.Variable.from_numpy_array(0.0)
    steps = [x + 1]
    for _ in range(20):
        steps.append(steps[-1] + 1)
    written = [0]
    wrong: list[str] = []
    done = threading.Event()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            k = rng.randrange(20)
            y = steps[k] * 1.5 + 0.5
            before = written[0]
            value = (float(y.d) - 0.5) / 1.5 - (k + 1)
            if not before <= round(value) <= written[0] + 1:
                wrong.append(f"{value} of {before} to {written[0]}")

    def write() -> None:
        while not done.is_set():
            x.d = written[0] + 1
            written[0] += 1
            time.sleep(0.002)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    writer = threading.Thread(target=write)
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    done.set()
    writer.join()
    assert written[0] > 3
    assert not wrong


# ---------------------------------------------------------------- any sequence of reads, writes and forwards


class Model:
    """A value of a graph as NumPy computes it, with what is known of it."""

    def __init__(self, inputs: list[Model], variable: nn.Variable, value: float | None = None) -> None:
        self.inputs = inputs
        self.variable = variable
        self.value = value
        self.snapshot: dict[int, float] | None = None
        self.at: dict[int, float] | None = None

    def above(self) -> list[Model]:
        return [self, *[m for x in self.inputs for m in x.above()]]

    def leaves(self) -> dict[int, float]:
        return {id(m): m.value for m in self.above() if not m.inputs}  # type: ignore[misc]

    def computed(self, leaves: dict[int, float]) -> float:
        if not self.inputs:
            return leaves[id(self)]
        a, b = [x.computed(leaves) for x in self.inputs]
        return (a + 2 * b) / 3

    def forward(self) -> None:
        self.variable.forward()
        leaves = self.leaves()
        for m in self.above():
            m.snapshot = leaves
        self.at, self.value = leaves, self.computed(leaves)

    def read(self) -> None:
        if self.value is None or self.at is not self.snapshot:
            self.at = self.snapshot
            self.value = self.computed(self.leaves() if self.at is None else self.at)
        assert self.variable.d == pytest.approx(self.value, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_reads_writes_and_forwards(seed: int) -> None:
    rng = random.Random(seed)
    leaves = [Model([], nn.Variable.from_numpy_array(np.float64(i)), float(i)) for i in range(3)]
    nodes: list[Model] = []
    for step in range(120):
        kind = rng.choice(["build", "read", "read", "read", "write", "forward"]) if nodes else "build"
        if kind == "build" and step < 60:
            a, b = rng.choices([*leaves, *nodes[-4:]], k=2)
            if max(len(a.above()), len(b.above())) < 300:
                nodes.append(Model([a, b], (a.variable + 2 * b.variable) / 3))
        elif kind == "write" and rng.random() < 0.3:
            leaf = rng.choice(leaves)
            leaf.value = float(rng.randrange(1000))
            if rng.random() < 0.5:
                leaf.variable.d = leaf.value
            else:
                leaf.variable.d[...] = leaf.value
        elif kind == "forward":
            rng.choice(nodes).forward()
        elif kind == "read":
            rng.choice(nodes).read()


# ---------------------------------------------------------------- several results

def two_halves(x: nn.Variable) -> list[nn.Variable]:
    y = 3 * x
    return [y[:2], y[2:], F.reshape(y, (2, 2))[1]]


SEVERAL: dict[str, tuple[Callable[[nn.Variable], Any], Callable[[Any], Any]]] = {
    "scan": (
        lambda x: F.scan(lambda h, _: (2 * h, F.sum(h)), x, length=2),
        lambda x: [4 * x, [x.sum(), 2 * x.sum()]],
    ),
    "cond": (lambda x: F.cond(F.sum(x) > 0, lambda: (x, -x), lambda: (x * 2, x * 3)), lambda x: [x, -x]),
    "vmap": (lambda x: nn.vmap(lambda row: (row * 2, F.sin(row)))(x), lambda x: [2 * x, np.sin(x)]),
    "parts": (two_halves, lambda x: [3 * x[:2], 3 * x[2:], 3 * x[2:]]),
    "sort": (lambda x: F.sort(x, reverse=True, with_index=True), lambda x: [np.sort(x)[::-1], np.argsort(-x)]),
    "linear_solve": (
        lambda x: [(found := nn.linear_solve(lambda v: 2 * v, x, method="cg"))[0], found[1].converged],
        lambda x: [x / 2, True],
    ),
    "root": (
        lambda x: [*(found := nn.root(lambda z: {"a": z["a"] - x, "b": 2 * z["b"] - 1},
                                      {"a": np.zeros(4), "b": np.ones(1)}))[0].values(), found[1].converged],
        lambda x: [x, [0.5], True],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_reading_another_result_runs_nothing_anew(name: str) -> None:
    build, expected = SEVERAL[name]
    runs: list[int] = []

    class Counted(nn.CustomFunction):
        numpy = True

        def forward(self, x: Any) -> Any:
            runs.append(1)
            return x

        def infer(self, x: Any) -> Any:
            return x

        def backward(self, f: Any, gy: Any) -> Any:
            return gy

    given = np.array([0.5, 3.0, -1.0, 2.0])
    x = nn.Variable.from_numpy_array(given)
    for y, value in zip(build(Counted()(x)), expected(given), strict=True):
        np.testing.assert_allclose(y.d, value, rtol=1e-12)
    assert len(runs) == 1
