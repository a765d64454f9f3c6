"""What each of several processes does in `test_communicators.py`: `python -m tests.nnabla.communicating PART` joins the
others, and writes what it found to a file, as JSON."""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.nnabla.communicators as C
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.nnabla.communicators.exchanges import Exchange, _executable, packs_of

ROWS = 4
"""Of a batch, in each process."""


def cell(*values: float, dtype: str = "float32") -> nn.NdArray:
    return nn.NdArray.from_numpy_array(np.array(values), dtype=dtype)


def collectives(comm: C.Communicator) -> dict[str, Any]:
    """nnabla's collectives, on arrays that tell processes apart: process r has (r + 1) times some numbers."""
    rank, found = comm.rank, {}

    def own() -> list[nn.NdArray]:
        third = nn.NdArray.from_numpy_array(np.full((2, 2), rank + 1.0, np.float16))
        return [cell(1 * (rank + 1), 2 * (rank + 1)), nn.NdArray.from_numpy_array(np.float32(rank)), third,
                cell(rank, 7, dtype="int32"), cell(rank + 0.25, dtype="float64"), nn.NdArray((0, 3))]

    def shown(cells: list[nn.NdArray]) -> list[Any]:
        return [[str(c.dtype), list(c.shape), np.asarray(c.view, np.float64).ravel().tolist()] for c in cells]

    found["who"] = [rank, comm.size, comm.local_rank, comm.name]
    for name, inplace in (("packed", False), ("in place", True)):
        cells = own()
        comm.all_reduce(cells, inplace=inplace)
        found[f"sum {name}"] = shown(cells)
        cells = own()
        comm.bcast(cells, src=1, inplace=inplace)
        found[f"bcast {name}"] = shown(cells)
    cells = own()[:2]
    comm.all_reduce(cells, division=True)
    found["mean"] = shown(cells)
    special = cell(-0.0, np.nan, np.inf) if rank == 1 else cell(1, 1, 1)
    comm.bcast(special, src=1)
    found["bits"] = special.view.tobytes().hex()
    cells = own()[:2]
    comm.reduce(cells, dst=1, division=True)
    found["reduced"] = shown(cells)
    gathered = [nn.NdArray(2) for _ in range(comm.size)]
    comm.all_gather(cell(rank, 1), gathered)
    found["gathered"] = shown(gathered)
    one = nn.NdArray(2)
    comm.reduce_scatter([cell(place, rank) for place in range(comm.size)], one, division=True)
    found["scattered"] = shown([one])
    group = comm.new_group(("pair", [2, 0])) if comm.size > 2 else comm.new_group(("pair", [1, 0]))
    cells = [cell(rank + 1)]
    comm.all_reduce(cells, group=group)
    comm.bcast(cells[0], src=0, group=group)
    other = nn.NdArray.from_numpy_array([float(rank)])
    comm.bcast(other, src=0, group=group)
    last = cell(rank + 1)
    comm.all_reduce(last, group=comm.new_group(("last", [comm.size - 1])))
    ranks = comm.find_group("pair")
    found["groups"] = [comm.list_groups(), ranks, comm.find_group("none"), shown([*cells, other, last])]
    x = nn.Variable.from_numpy_array([rank + 1.0, 1.0], need_grad=True)
    comm.add_context_and_parameters((None, {"x": x}))
    x.g = [rank, 1.0]
    comm.allreduce(division=True)
    comm.allreduce()
    comm.clear_context_parameters()
    comm.allreduce()
    found["parameters"] = x.g.tolist()
    come = Path(sys.argv[1]) / "the last one has come"
    if rank == comm.size - 1:
        time.sleep(0.5)
        come.touch()
    comm.barrier()
    found["waited"] = come.exists()
    specs = [c.spec for c in own()[:2]] * 3
    exchange = Exchange("sum", tuple(range(comm.size)), tuple(specs), packs_of(specs))
    text = _executable(exchange).lowered(*[c.raw() for c in own()[:2] * 3]).as_text()
    found["all-reduces of six arrays"] = text.count("stablehlo.all_reduce")
    return found


def graphs(comm: C.Communicator) -> dict[str, Any]:
    """Functions that exchange, in graphs: their values and gradients of orders 1 and 2, and who may read them."""
    processes, found = comm.find_group("world"), {}
    rows = np.random.RandomState(0).randn(comm.size * ROWS, 3).astype(np.float32)
    mine = rows[comm.rank * ROWS : (comm.rank + 1) * ROWS]
    x = nn.Variable.from_numpy_array(mine, need_grad=True)
    h = PF.sync_batch_normalization(F.tanh(x), comm)
    middle = F.sin(3 * h)
    y = F.mean(middle)
    y.forward()
    # What one process reads, the others need not.
    found["read by one"] = [float(y.d), h.d[0].tolist(), middle.d[0].tolist()] if comm.rank == 0 else []
    parameters = list(nn.get_parameters().values())
    callback = comm.all_reduce_callback([p.grad for p in parameters], pack_size=4, division=True)
    y.backward(communicator_callbacks=[callback])
    found["values"] = h.d.tolist()
    found["gradient"] = x.g.tolist()
    found["parameters"] = [p.g.ravel().tolist() for p in parameters]
    found["running"] = [p.d.ravel().tolist() for p in nn.get_parameters(grad_only=False).values()]
    (gx,) = nn.grad(y, x)
    (hx,) = nn.grad(F.sum(gx * gx), x)
    F.sink(gx, hx).forward()
    found["second"] = hx.d.tolist()
    penalty = F.sum(gx * gx)
    for p in parameters:
        p.g = 0
    penalty.backward(communicator_callbacks=comm.all_reduce_callback([p.grad for p in parameters], 1 << 20))
    found["penalty"] = [p.g.ravel().tolist() for p in parameters]
    run = nn.compile(F.all_reduce(F.sum(h * h), processes=processes), [x])
    found["compiled"] = float(run(mine * 2))
    with nn.auto_forward():
        found["at once"] = F.all_gather(F.constant(float(comm.rank), (1,)), processes=processes).d.ravel().tolist()
    z = nn.Variable.from_numpy_array([0.5, comm.rank], need_grad=True)
    one_by_one = F.sum(F.all_reduce(F.sin(z), processes=processes))
    ran: list[str] = []
    one_by_one.backward(function_pre_hook=lambda f: ran.append(f.name))
    found["hooked"] = [z.g.tolist(), float(one_by_one.d) if comm.rank == 0 else None, "all_reduce" in ran]
    scaled = nn.Variable.from_numpy_array([1.0 + comm.rank], need_grad=True)
    F.sum(scaled * 2).backward(
        communicator_callbacks=comm.all_reduce_callback([scaled.grad], 1, division=True, scale_grad=0.5)
    )
    found["scaled"] = scaled.g.tolist()
    return found


def refusals(comm: C.Communicator) -> dict[str, Any]:
    """What is refused, in all processes; after each of them they go on together."""
    processes, found = comm.find_group("world"), {}
    x = nn.Variable.from_numpy_array(np.ones(2, np.float32), need_grad=True)

    def refused(name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except (ValueError, TypeError, RuntimeError) as error:
            found[name] = f"{type(error).__name__}: {error}"
        comm.barrier()

    different = nn.Variable.from_numpy_array(np.ones(2 + comm.rank, np.float32))
    refused("shapes", F.all_reduce(different, processes=processes).forward)
    refused("numbers", F.all_reduce(x * (comm.rank + 2.5), processes=processes).forward)
    refused("lists", lambda: comm.all_reduce([x.data] * (comm.rank + 2)))
    refused("two groups", (F.all_reduce(x, processes=processes) + F.all_reduce(x, processes=processes[::-1])).forward)
    refused("stranger", F.all_reduce(x, processes=[comm.size, comm.size + 1]).forward)
    refused("loop", lambda: F.while_loop(
        lambda v: F.sum(v) < 5, lambda v: F.all_reduce(v, processes=processes), x).forward())
    refused("branch", lambda: F.cond(
        F.sum(x) > 5, lambda v: F.all_reduce(v, processes=processes), lambda v: v, x).forward())
    loss = F.sum(F.all_reduce(x, processes=processes))
    refused("train_step", lambda: nn.train_step(loss, {"x": x}, S.Sgd()))
    refused("to_jax", lambda: nn.to_jax(loss, [x])(np.ones(2, np.float32)))
    with nn.context_scope(nn.get_extension_context("cpu", device_id=comm.local_rank)):
        found["after"] = float(F.sum(F.all_reduce(F.scan(
            lambda c, _: (F.all_reduce(c, processes=processes), c), x, length=2)[0], processes=processes)).d)
    return found


def alone(comm: C.Communicator) -> dict[str, Any]:
    """All of it in a single process, where nothing has to be sent."""
    found: dict[str, Any] = {"who": [comm.rank, comm.size, comm.local_rank]}
    cells = [cell(1, 2), cell(3, dtype="int32")]
    comm.all_reduce(cells)
    comm.all_reduce(cells[0], division=True, inplace=True)
    comm.reduce(cells, dst=0)
    comm.bcast(cells, src=0)
    one, got = cell(0, 0), cell(0, 0)
    comm.all_gather(cells[0], [one])
    comm.reduce_scatter([one], got, division=True)
    comm.barrier()
    found["values"] = [c.view.tolist() for c in (*cells, one, got)]
    x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    group = comm.find_group(comm.new_group(("me", [0])))
    y = F.all_gather(F.bcast(F.all_reduce(x * x, processes=group), processes=group), processes=group)
    y = F.reduce_to_process(F.reduce_scatter(y, processes=group), processes=group)
    F.sum(y).backward(communicator_callbacks=comm.all_reduce_callback(x.grad, 10, scale_grad=0.5))
    found["gradient"] = x.g.tolist()
    return found


def example(comm: C.Communicator) -> dict[str, Any]:
    """The example: a few steps with sums after backward, and as many with a callback; and what it writes."""
    found = {}
    script = str(Path(__file__).parents[2] / "examples" / "data_parallel.py")
    for name, options in (("after", []), ("callback", ["--callback"])):
        with tempfile.TemporaryDirectory() as folder, nn.parameter_scope(name, scope=OrderedDict()):
            out = Path(folder) / "out.json"
            sys.argv = [script, "--steps", "12", "--out", str(out), *options]
            runpy.run_path(script)
            found[name] = json.loads(out.read_text()) if comm.rank == 0 else None
    return found


PARTS = {"collectives": collectives, "graphs": graphs, "refusals": refusals, "alone": alone, "example": example}


def main(folder: str, *parts: str) -> None:
    """Join, do the parts, and write what came out into a file of the folder, by the number of the process."""
    comm = C.MultiProcessDataParallelCommunicator(nn.get_extension_context("cpu"))
    comm.init()
    found: dict[str, Any] = {}
    for part in parts:
        try:
            found[part] = PARTS[part](comm)
        except Exception:
            found[part] = {"error": traceback.format_exc()}
            break
    (Path(folder) / f"{jax.process_index()}.json").write_text(json.dumps(found))
    comm.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
