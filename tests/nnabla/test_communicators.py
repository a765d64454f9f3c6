"""nnabla's communicators, and functions that exchange arrays between processes: two real processes, and one.

`NNGRAD_TEST_PROCESSES=4` has four of them do the same.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.nnabla.communicators as C
import nngrad.parametric_functions as PF
from nngrad.graph.placement import AXIS
from nngrad.parallel.hosts import joining
from tests.nnabla.communicating import ROWS
from tests.oracle import by_jax
from tests.refusals import refused

COUNT = 3
EVERY = tuple(range(COUNT))
"""Processes that JAX's axis stands for."""
REAL = int(os.environ.get("NNGRAD_TEST_PROCESSES", "2"))
ALL = list(range(REAL))
"""Those that run."""
ROOT = Path(__file__).parents[2]


# ---------------------------------------------------------------- gradients, by JAX's axis in place of processes


def stacked(x: Any) -> Any:
    return jnp.broadcast_to(x[None], (COUNT, *x.shape))


EXCHANGES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "all_reduce": (lambda x: F.all_reduce(x, processes=EVERY), lambda xs: stacked(xs.sum(0))),
    "all_gather": (lambda x: F.all_gather(x, processes=EVERY), stacked),
    "reduce_scatter": (lambda x: F.reduce_scatter(x, processes=EVERY), lambda xs: xs.sum(0)),
    "bcast": (lambda x: F.bcast(x, processes=EVERY, src=1), lambda xs: stacked(xs[1])),
    "reduce_to_process": (lambda x: F.reduce_to_process(x, processes=EVERY, dst=2),
                          lambda xs: jnp.zeros_like(xs).at[2].set(xs.sum(0))),
    "in a loop": (lambda x: F.scan(lambda c, _: (F.all_reduce(F.sin(c), processes=EVERY), c), x, length=2)[0],
                  lambda xs: stacked(jnp.sin(stacked(jnp.sin(xs).sum(0))).sum(0))),
    "in a checkpoint": (lambda x: nn.checkpoint(lambda v: F.all_reduce(F.sin(v), processes=EVERY))(x),
                        lambda xs: stacked(jnp.sin(xs).sum(0))),
    "mapped": (lambda x: nn.vmap(lambda v: F.all_gather(v * v, processes=EVERY))(x),
               lambda xs: stacked(jnp.swapaxes(xs * xs, 0, 1))),
}
"""Each with the same on the arrays of all processes, stacked along a first axis."""


@pytest.mark.slow
def test_gradients_are_those_of_the_sum_over_processes() -> None:
    """Of orders 1 to 3, of each exchange; all in one program."""
    rng = np.random.default_rng(3)
    arrays = rng.standard_normal((COUNT, COUNT, 2))
    x, weight = nn.Variable((COUNT, 2), dtype="float64"), nn.Variable(dtype="float64")
    orders: dict[tuple[str, int], nn.Variable] = {}
    expected: dict[tuple[str, int], Callable[..., Any]] = {}
    for name, (exchange, reference) in EXCHANGES.items():

        def total(xs: Any, reference: Callable[[Any], Any] = reference) -> Any:
            """Process r adds (r + 1) times a sum of what it gets."""
            ys = reference(jnp.tanh(xs))
            return sum([(r + 1) * jnp.sum(jnp.sin(ys[r])) for r in range(COUNT)])

        g, of = F.sum(F.sin(exchange(F.tanh(x)))) * weight, total
        for order in (1, 2, 3):
            (g,) = nn.grad(g, x)
            orders[name, order], expected[name, order] = g, jax.grad(of)
            g, of = F.sum(g * g), lambda xs, of=expected[name, order]: jnp.sum(of(xs) ** 2)
    ours = nn.to_jax(list(orders.values()), [x, weight])
    found = by_jax(jax.vmap(ours, axis_name=AXIS), arrays, np.arange(1.0, COUNT + 1))
    others = by_jax(lambda xs: [f(xs) for f in expected.values()], arrays)
    for which, one, other in zip(orders, found, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max(), err_msg=f"{which}")


def test_tangents_go_through_exchanges() -> None:
    x, t = nn.Variable((2,), dtype="float64"), nn.Variable((2,), dtype="float64")
    y = F.all_reduce(F.sin(x), processes=EVERY)
    arrays, along = np.random.default_rng(1).standard_normal((2, COUNT, 2))
    found = by_jax(jax.vmap(nn.to_jax(nn.jvp([y], [x], [t])[0], [x, t]), axis_name=AXIS), arrays, along)
    np.testing.assert_allclose(found, [(np.cos(arrays) * along).sum(0)] * COUNT, rtol=1e-12)


test_what_cannot_be_exchanged_is_refused = refused([
    ("processes must be one or more distinct process", lambda x: F.all_reduce(x, processes=(0, 0))),
    ("processes must be one or more distinct process", lambda x: F.all_gather(x, processes=())),
    ("processes must be one or more distinct process", lambda x: F.bcast(x, processes=(-1,))),
    ("x must have size 3 along its first axis", lambda x: F.reduce_scatter(x, processes=EVERY)),
    ("src must be between 0 and 2, a position among.*got 3", lambda x: F.bcast(x, processes=EVERY, src=3)),
    ("dst must be between 0 and 2, a position.*got -1", lambda x: F.reduce_to_process(x, processes=EVERY, dst=-1)),
    (r"all_reduce needs the processes \(0, 1, 2\), but runs in 1",
     lambda x: F.all_reduce(x, processes=EVERY).d),
], given=lambda: nn.Variable.from_numpy_array(np.ones(2, np.float32)))


# ---------------------------------------------------------------- one process


def communicator() -> C.Communicator:
    comm = C.DataParallelCommunicator(nn.get_extension_context("cpu"))
    comm.init()
    return comm


def test_contexts_of_one_process_sum_their_gradients() -> None:
    comm = communicator()
    assert [comm.size, comm.rank, comm.name] == [1, 0, "DataParallelCommunicator"]
    parameters = [{n: nn.Variable((2,), need_grad=True) for n in "ab"} for _ in range(2)]
    for i, each in enumerate(parameters):
        comm.add_context_and_parameters((nn.get_extension_context("cpu"), each))
        each["a"].g, each["b"].g = [1, i], [i, 3]
    comm.allreduce(division=True)
    assert [[x.g.tolist() for x in each.values()] for each in parameters] == [[[1, 0.5], [0.5, 3]]] * 2
    assert comm.size == 2
    comm.clear_context_parameters()
    comm.allreduce()  # nothing any more
    assert comm.size == 1


def test_contexts_wait_until_processes_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no device '7' of backend 'cpu'"):
        nn.get_extension_context("cpu", device_id=7)
    for name, value in ((joining.COORDINATOR, "127.0.0.1:1"), (joining.COUNT, "2"), (joining.INDEX, "0")):
        monkeypatch.setenv(name, value)
    context = nn.get_extension_context("cpu", device_id=7)  # JAX is not asked: it could not be joined to others then
    with pytest.raises(ValueError, match="no device '7' of backend 'cpu'"):
        nn.set_default_context(context)
    monkeypatch.undo()
    context.device_id = 0
    with nn.context_scope(context):
        with pytest.raises(ValueError, match="no device '7'"):
            context.device_id = 7
        assert context.device_id == nn.get_current_context().device_id == "0"


CELL, INTS = nn.NdArray((2,)), nn.NdArray((2,), "int32")


test_what_is_wrong_is_named = refused([
    (TypeError, "ctx: expected None or a Context", lambda comm: C.MultiProcessCommunicator("cpu")),
    (RuntimeError, r"call init\(\) first", lambda comm: C.Comm().all_reduce([CELL])),
    (RuntimeError, r"call init\(\) first", lambda comm: C.Dist().rank),
    (TypeError, "data: expected an NdArray.*its .data or its .grad", lambda comm: comm.bcast(nn.Variable((1,)), 0)),
    (TypeError, "data: expected an NdArray", lambda comm: comm.bcast([1.0], 0)),
    (TypeError, "division: cannot divide integers", lambda comm: comm.all_reduce([CELL, INTS], division=True)),
    (ValueError, "group: expected one of 'world', got 'a'", lambda comm: comm.all_reduce(CELL, group="a")),
    (ValueError, "dst: expected a rank in group 'world', from 0 to 0, got 1", lambda comm: comm.reduce(CELL, 1)),
    (ValueError, "src: expected a rank", lambda comm: comm.bcast(CELL, -1)),
    (ValueError, r"ndarray_list: expected 1 NdArrays of float32\[2\]", lambda comm: comm.all_gather(CELL, [INTS])),
    (ValueError, "ndarray_list: expected 1 NdArrays", lambda comm: comm.reduce_scatter([CELL, CELL], CELL)),
    (ValueError, "pack_size: expected a positive number", lambda comm: comm.all_reduce_callback([CELL], 0)),
    (TypeError, "name_ranks: expected a pair", lambda comm: comm.new_group("node0")),
    (TypeError, "name_ranks: the name must be a str", lambda comm: comm.new_group((1, [0]))),
    (ValueError, "name_ranks: expected different ranks from 0 to 0", lambda comm: comm.new_group(("a", [1]))),
    (TypeError, "ctx_param_dict: expected a pair", lambda comm: comm.add_context_and_parameters({})),
    (TypeError, "communicator_callbacks: expected a result of",
     lambda comm: F.sum(nn.Variable((2,), need_grad=True)).backward(communicator_callbacks=[CELL])),
    (ValueError, "comm has no group named 'x'", lambda comm: F.sync_batch_normalization(
        nn.Variable((2, 3)), comm=comm, group="x")),
], given=lambda: communicator())


# ---------------------------------------------------------------- several processes

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "NNGRAD_EXECUTABLES": "off"}


def run(*command: str) -> None:
    """Run a command in a group of its own, which is gone afterwards; it has five minutes."""
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=ENVIRONMENT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    assert process.returncode == 0, output[-8000:]


def findings(folder: Path, count: int) -> list[dict[str, Any]]:
    found = [json.loads((folder / f"{i}.json").read_text()) for i in range(count)]
    for each in found:
        for part, values in each.items():
            assert "error" not in values, f"{part}: {values['error']}"
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the processes found, each for itself."""
    folder = tmp_path_factory.mktemp("communicators")
    parts = ("collectives", "graphs", "refusals", "example")
    script = str(ROOT / "tests" / "nnabla" / "communicating.py")
    run("tests.several_hosts.launching", str(REAL), script, str(folder), *parts)
    return findings(folder, REAL)


@pytest.fixture(scope="module")
def by_itself(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process found, that nobody launched."""
    folder = tmp_path_factory.mktemp("communicators")
    run("tests.nnabla.communicating", str(folder), "alone", "example")
    return findings(folder, 1)[0]


@pytest.mark.slow
def test_collectives(found: list[dict[str, Any]]) -> None:
    each = [one["collectives"] for one in found]
    assert [one["who"] for one in each] == [[i, REAL, i, "MultiProcessDataParallelCommunicator"] for i in ALL]
    ranks = sum(ALL)
    first = ranks + REAL
    summed = [["float32", [2], [first, 2 * first]], ["float32", [], [ranks]], ["float16", [2, 2], [first] * 4],
              ["int32", [2], [ranks, 7 * REAL]], ["float64", [1], [ranks + 0.25 * REAL]], ["float32", [0, 3], []]]
    given = [["float32", [2], [2, 4]], ["float32", [], [1]], ["float16", [2, 2], [2] * 4], ["int32", [2], [1, 7]],
             ["float64", [1], [1.25]], ["float32", [0, 3], []]]
    for i, one in enumerate(each):
        assert one["sum packed"] == one["sum in place"] == summed
        assert one["bcast packed"] == one["bcast in place"] == given
        assert one["mean"] == [["float32", [2], [first / REAL, 2 * first / REAL]], ["float32", [], [ranks / REAL]]]
        assert one["bits"] == np.array([-0.0, np.nan, np.inf], np.float32).tobytes().hex()
        own = [["float32", [2], [i + 1, 2 * i + 2]], ["float32", [], [i]]]
        assert one["reduced"] == (one["mean"] if i == 1 else own)
        assert one["gathered"] == [["float32", [2], [r, 1]] for r in ALL]
        assert one["scattered"] == [["float32", [2], [i, ranks / REAL]]]
        assert one["parameters"] == [ranks, REAL]
        assert one["waited"]
        assert one["all-reduces of six arrays"] == 1


@pytest.mark.slow
def test_groups(found: list[dict[str, Any]]) -> None:
    pair = [2, 0] if REAL > 2 else [1, 0]
    for i, one in enumerate(found):
        groups, ranks, none, (summed, given, alone) = one["collectives"]["groups"]
        assert groups == {"world": ALL, "pair": pair, "last": [REAL - 1]}
        assert (ranks, none) == (pair, [])
        assert summed == ["float32", [1], [sum(pair) + 2 if i in pair else i + 1]]
        assert given == ["float32", [1], [pair[0] if i in pair else i]]  # from the first of the group
        assert alone == ["float32", [1], [i + 1]]


@pytest.mark.slow
def test_graphs_exchange_at_orders_1_and_2(found: list[dict[str, Any]]) -> None:
    """All as in one process with the rows of all: its mean over rows is a mean of the processes' means."""
    rows = np.random.RandomState(0).randn(REAL * ROWS, 3).astype(np.float32)
    with nn.parameter_scope("whole", scope=OrderedDict()):
        x = nn.Variable.from_numpy_array(rows, need_grad=True)
        h = PF.batch_normalization(F.tanh(x))
        y = REAL * F.mean(F.sin(3 * h))
        y.forward()
        y.backward()
        parameters = list(nn.get_parameters().values())
        gradients = [x.g, *[p.g.ravel() / REAL for p in parameters]]
        (gx,) = nn.grad(y, x)
        (hx,) = nn.grad(F.sum(gx * gx), x)
        second = hx.d
        running = [p.d.ravel() for p in nn.get_parameters(grad_only=False).values()]
        for p in parameters:
            p.g = 0
        F.sum(gx * gx).backward()
        penalty = [p.g.ravel() for p in parameters]
    each = [one["graphs"] for one in found]

    def near(one: Any, other: Any) -> None:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())

    near(np.concatenate([one["values"] for one in each]), h.d)
    near(np.concatenate([one["gradient"] for one in each]), gradients[0])
    near(np.concatenate([one["second"] for one in each]), second)
    total = REAL * np.sin(0.5) + np.sin(ALL).sum()
    for rank, one in enumerate(each):
        near(one["hooked"][0], REAL * np.cos([0.5, rank]))
        assert one["hooked"][1:] == [pytest.approx(total) if rank == 0 else None, True]
        for i in range(2):
            near(one["parameters"][i], gradients[1 + i])
            near(one["penalty"][i], penalty[i])
        for i, value in enumerate(one["running"]):
            near(value, running[i])
        assert one["at once"] == ALL
        assert one["scaled"] == [1]
        near(one["compiled"], each[0]["compiled"])
    read = each[0]["read by one"]
    assert read[1] == each[0]["values"][0]
    near(read[2], np.sin(3 * h.d[0]))


REFUSED = {
    "shapes": r"ValueError: the processes \[.*\] run a different program from process",
    "numbers": r"ValueError: the processes \[.*\] run a different program",
    "lists": r"ValueError: the processes \[.*\] run a different program",
    "two groups": r"among the processes \(0, 1.*\) and among \(.*1, 0\), but a graph supports one group only",
    "stranger": r"processes: must be between 0 and .*, got \[",
    "loop": "while_of_bodies: .* each process may run it a different number of times",
    "branch": "switch_of_bodies: .* each process may run it a different number of times",
    "train_step": "loss: its graph exchanges arrays with other processes",
    "to_jax": "all_reduce needs the processes .* With nn.to_jax and nn.train_step, use nn.mesh instead",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_hang_or_be_wrong_is_refused_everywhere(name: str, found: list[dict[str, Any]]) -> None:
    for one in found:
        with pytest.raises(AssertionError, match=REFUSED[name]):
            raise AssertionError(one["refusals"][name])
        assert one["refusals"]["after"] == 2 * REAL**3  # and they go on together


@pytest.mark.slow
def test_one_process_needs_no_launcher(by_itself: dict[str, Any]) -> None:
    alone = by_itself["alone"]
    assert alone["who"] == [0, 1, 0]
    assert alone["values"] == [[1, 2], [3], [1, 2], [1, 2]]
    assert alone["gradient"] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["after", "callback"])
def test_the_example_is_that_of_one_process(way: str, found: list[dict[str, Any]], by_itself: dict[str, Any]) -> None:
    one, several = by_itself["example"][way], found[0]["example"][way]
    np.testing.assert_allclose(several["losses"], one["losses"], atol=1e-6)
    assert one["losses"][-1][0] < one["losses"][0][0]
    assert several["parameters"].keys() == one["parameters"].keys()
    for name, value in one["parameters"].items():
        np.testing.assert_allclose(several["parameters"][name], value, atol=1e-6, err_msg=name)
