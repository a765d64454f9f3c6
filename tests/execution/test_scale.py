"""Long graphs, many graphs, several threads, and pickling."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.interpret import interpret
from nngrad.graph import Function, Variable, functions_of, leaves_of

DEPTH = 30_000


@pytest.fixture
def collector_off() -> Iterator[None]:
    """No cyclic garbage collection: what goes, goes because nothing refers to it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def chain(x: Variable, depth: int) -> Variable:
    """`depth` functions one upon the other."""
    for _ in range(depth // 2):
        x = F.tanh(x * 1.01)
    return x


def live_nodes() -> int:
    """How many Variables and Functions there are."""
    return sum(1 for x in gc.get_objects() if type(x) in (Variable, Function))


@pytest.mark.slow
def test_a_long_chain_is_built_differentiated_twice_and_deleted(collector_off: None) -> None:
    before = live_nodes()
    limit = sys.getrecursionlimit()
    x = Variable((2,), need_grad=True)
    y = chain(x, DEPTH)
    assert y.rank == DEPTH and y.need_grad
    (gx,) = nn.grad(y, x)
    first = len(functions_of([gx]))
    assert DEPTH * 1.5 < first < DEPTH * 6
    assert leaves_of([gx]) == [x]
    (ggx,) = nn.grad(gx, x)
    assert first < len(functions_of([ggx])) < DEPTH * 30
    assert sys.getrecursionlimit() == limit
    del y, gx, ggx
    assert live_nodes() == before + 1


def test_a_graph_of_exponentially_many_paths() -> None:
    x = Variable.from_numpy_array(np.array([1.0]))
    y = x
    for _ in range(200):
        y = (y + y * 0.5) * 0.5
    (gx,) = nn.grad(y, x)
    assert interpret([gx], {})[0] == pytest.approx(0.75**200)
    (ggx,) = nn.grad(gx * y, x)
    assert interpret([ggx], {})[0] == pytest.approx(0.75**400)


def test_gradient_penalty_steps_leave_nothing_behind(collector_off: None) -> None:
    w = Variable.from_numpy_array(np.ones(3, np.float32), need_grad=True)
    data = np.full(3, 0.5, np.float32)

    def step() -> float:
        x = Variable.from_numpy_array(data)
        y = F.sum(F.sin(x * w))
        (gx,) = nn.grad(y, x)
        loss = y + F.sum(gx * gx)
        w.grad.zero()
        loss.forward()
        loss.backward()
        return float(gx.d[0])

    step()
    step()
    before = live_nodes()
    misses = nn.executables.info().misses
    for _ in range(50):
        step()
    assert live_nodes() == before
    assert nn.executables.info().misses == misses


def test_threads_build_and_differentiate_independently() -> None:
    ready = threading.Barrier(4)

    def work(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        ready.wait()
        results = []
        for i in range(25):
            with nn.simplify(bool((seed + i) % 2)), nn.no_grad(False), nn.auto_forward(i % 5 == 4):
                x = Variable.from_numpy_array(rng.uniform(0.1, 1, 3), need_grad=True)
                y = F.sum(F.tanh(x * 1.5) * F.exp(x))
                (gx,) = nn.grad(y, x)
                (ggx,) = nn.grad(gx, x)
                y.forward()
                y.backward()
                t, e = np.tanh(1.5 * x.d), np.exp(x.d)
                s = 1.5 * (1 - t * t)
                results.append(np.allclose(gx.d, (s + t) * e) and np.allclose(x.g, (s + t) * e)
                               and np.allclose(ggx.d, (-3 * t * s + s + s + t) * e))
        return results

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(work, range(4)):
            assert results == [True] * 25


def test_switches_belong_to_their_thread() -> None:
    entered, leave = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with nn.no_grad(), nn.auto_forward(), nn.simplify(False), nn.context_scope(nn.Context("cpu")):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        assert entered.wait(10)
        x = Variable.from_numpy_array(np.array([2.0]), need_grad=True)
        y = x * x
        assert y.need_grad and not nn.get_auto_forward()
        assert y.parent is not None and y.parent.context is None
        x.d = 3.0
        assert nn.grad(y, x)[0].d == 6 and y.d == 9
    finally:
        leave.set()
        thread.join()


def test_functions_are_pickled_by_name() -> None:
    for name in F.names():
        thing = getattr(F, name)
        assert pickle.loads(pickle.dumps(thing)) is thing


def test_leaves_are_pickled_with_data_and_gradient() -> None:
    x = Variable.from_numpy_array(np.array([1.0, 2.0]), need_grad=True)
    x.name, x.g = "w", 3.0
    again = pickle.loads(pickle.dumps(x))
    assert again.d.tolist() == [1, 2] and again.g.tolist() == [3, 3] and again.dtype == np.float64
    assert again.need_grad and again.name == "w" and again.is_leaf
    assert pickle.loads(pickle.dumps(x.spec)) is x.spec
    tied = pickle.loads(pickle.dumps([x, x.get_unlinked_variable()]))
    assert tied[0].data is tied[1].data and tied[0].grad is tied[1].grad
    copied = copy.deepcopy(x)
    copied.d = 7.0
    assert x.d.tolist() == [1, 2]


def test_a_graph_is_not_pickled() -> None:
    y = Variable((2,)) * 2
    with pytest.raises(TypeError, match="without its graph"):
        pickle.dumps(y)


@pytest.mark.parametrize("read_first", [False, True])
def test_threads_accumulate_into_the_same_leaf(read_first: bool) -> None:
    for _ in range(20):
        x = Variable.from_numpy_array(np.ones(3, np.float32), need_grad=True)
        y = x * x
        y.forward()
        if read_first:
            assert (y.d == 1).all()
        threads = [threading.Thread(target=y.backward) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(x.g, np.full(3, 16))
        assert (y.d == 1).all()
