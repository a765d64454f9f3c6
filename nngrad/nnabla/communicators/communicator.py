"""`Communicator`: collectives between processes, with nnabla's interface."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from ...context import Context
from ...extend import NdArray, Value, Variable, placement
from ...parallel import hosts
from ...parallel.across import gathered
from .exchanges import (
    AllReduceCallback,
    Exchange,
    Packs,
    cells_in,
    check_division,
    check_list,
    one_by_one,
    packs_of,
    write_to,
)

WORLD = "world"
"""The group of all processes."""


class Communicator:
    """Exchanges arrays between the processes of a run, each of which has its own graph and parameters.

    All processes of a group call the same methods in the same order, with arrays of the same shapes and dtypes: a call
    waits for the others. A process outside the group does nothing. Results are written atomically into the given
    NdArrays.

    Made by `MultiProcessCommunicator` and the others.

    Args:
        ctx: A Context, or None. The first device of each process exchanges the arrays.
        several: Whether it joins the processes of the run; else it consists of this process alone.
    """

    def __init__(self, ctx: Context | None = None, several: bool = True) -> None:
        if ctx is not None and not isinstance(ctx, Context):
            raise TypeError(f"ctx: expected None or a Context, such as from nn.get_extension_context, got {ctx!r}")
        self._several = several
        self._parameters: list[dict[str, Variable]] = []
        self._groups: dict[str, placement.Processes] = {}
        self._local_rank = 0

    @property
    def name(self) -> str:
        """The kind of this communicator."""
        return "MultiProcessDataParallelCommunicator" if self._several else "DataParallelCommunicator"

    def init(self) -> None:
        """Join the processes of the run, unless done already, and determine rank and size.

        Every process calls it, before it computes anything. It joins them like `nn.hosts.initialize` with its default
        arguments. If no launcher or environment variable indicates several processes, there is only this one. A second
        call does nothing.

        Raises:
            RuntimeError: Too late: JAX has already computed something.
            Exception: As in `nn.hosts.initialize`, if not all processes have called this.
        """
        if self._groups:
            return
        if self._several:
            hosts.initialize()
        several = self._several and placement.several_processes()
        world = tuple(range(jax.process_count())) if several else (jax.process_index(),)
        if several:
            machines = gathered(_this_machine(), world)
            rank = jax.process_index()
            self._local_rank = sum([bytes(machine) == bytes(machines[rank]) for machine in machines[:rank]])
        self._groups = {WORLD: world}

    # ---------------------------------------------------------------- ranks and groups

    @property
    def rank(self) -> int:
        """The index of this process among all, from 0."""
        return self._world.index(jax.process_index())

    @property
    def size(self) -> int:
        """The number of processes; in a communicator of one process, the number of added contexts, if any."""
        return len(self._world) if self._several else max(len(self._parameters), 1)

    @property
    def local_rank(self) -> int:
        """The index of this process among those of this machine, from 0."""
        return self._local_rank if self._world else 0

    @property
    def _world(self) -> placement.Processes:
        if not self._groups:
            raise RuntimeError(f"{self.name}: call init() first, which joins the processes")
        return self._groups[WORLD]

    def new_group(self, name_ranks: tuple[str, Iterable[int]]) -> str:
        """Define a named group of processes, for collectives among them.

        Args:
            name_ranks: The name of the group, and the ranks of its processes, in order.

        Returns:
            The name.

        Raises:
            TypeError: `name_ranks` is not a pair of a name and ranks.
            ValueError: A rank is duplicate or invalid, or another group has the name.
        """
        world = self._world
        try:
            name, listed = name_ranks
            ranks = tuple([rank.__index__() for rank in listed])
        except (TypeError, ValueError, AttributeError):
            raise TypeError(f"name_ranks: expected a pair of a name and a list of ranks, got {name_ranks!r}") from None
        if not isinstance(name, str):
            raise TypeError(f"name_ranks: the name must be a str, got {name!r}")
        if not ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(len(world))):
            raise ValueError(f"name_ranks: expected different ranks from 0 to {len(world) - 1}, got {list(ranks)}")
        processes = tuple([world[rank] for rank in ranks])
        if self._groups.setdefault(name, processes) != processes:
            raise ValueError(f"name_ranks: the group {name!r} already exists, with the ranks {self.find_group(name)}")
        return name

    def list_groups(self) -> dict[str, list[int]]:
        """The ranks of each group, by name."""
        world = self._world
        return {name: [world.index(p) for p in processes] for name, processes in self._groups.items()}

    def find_group(self, group: str) -> list[int]:
        """The ranks of a group, for functions such as `F.all_reduce`; empty if there is no such group."""
        return self.list_groups().get(group, [])

    # ---------------------------------------------------------------- collectives

    def all_reduce(self, data: Any, division: bool = False, inplace: bool = False, group: str = WORLD) -> None:
        """Replace arrays by their sums over the processes.

        Args:
            data: An NdArray, or a list of them; arrays of one dtype are concatenated and summed together.
            division: Whether to divide by the number of processes.
            inplace: Whether to sum each array by itself, which is slower but needs no memory for concatenation.
            group: The name of a group.

        Raises:
            TypeError: `data` contains something other than NdArrays, or integers with `division`.
            ValueError: There is no such group, or the calls of the processes differ.
        """
        self._sum(cells_in(data, "data"), group, division, None if inplace else packs_of)

    def reduce(
        self, data: Any, dst: int, division: bool = False, inplace: bool = False, group: str = WORLD
    ) -> None:
        """Replace the arrays of one process by their sums over the processes; those of the others stay unchanged.

        Args:
            data: As in `all_reduce`.
            dst: The position in the group of the process that gets the sums.
            division: As in `all_reduce`.
            inplace: As in `all_reduce`.
            group: As in `all_reduce`.

        Raises:
            TypeError: As in `all_reduce`.
            ValueError: As in `all_reduce`, or `dst` is out of range.
        """
        root = self._place(dst, group, "dst")
        self._sum(cells_in(data, "data"), group, division, None if inplace else packs_of, root)

    def bcast(self, data: Any, src: int, inplace: bool = False, group: str = WORLD) -> None:
        """Replace arrays by copies of those of one process.

        Args:
            data: As in `all_reduce`.
            src: The position in the group of the process that sends its arrays.
            inplace: As in `all_reduce`.
            group: As in `all_reduce`.

        Raises:
            TypeError: As in `all_reduce`.
            ValueError: As in `all_reduce`, or `src` is out of range.
        """
        cells, processes = cells_in(data, "data"), self._processes(group)
        root = self._place(src, group, "src")
        if cells and jax.process_index() in processes:
            specs = tuple([cell.spec for cell in cells])
            packs = one_by_one(specs) if inplace else packs_of(specs)
            write_to(cells, Exchange("from one", processes, specs, packs, root=root)(Value.read(cells)))

    def all_gather(self, ndarray: NdArray, ndarray_list: Iterable[NdArray], group: str = WORLD) -> None:
        """Gather the arrays of all processes, in the order of the group, into a list of NdArrays.

        Args:
            ndarray: The array of this process.
            ndarray_list: An NdArray for each process, with the shape and dtype of `ndarray`.
            group: As in `all_reduce`.

        Raises:
            TypeError: Something is not an NdArray.
            ValueError: As in `all_reduce`, or the list does not fit.
        """
        (cell,), cells = cells_in(ndarray, "ndarray"), cells_in(ndarray_list, "ndarray_list")
        processes = self._processes(group)
        check_list(cells, cell, processes)
        if jax.process_index() in processes:
            write_to(cells, Exchange("gather", processes, (cell.spec,))(Value.read([cell])))

    def reduce_scatter(
        self, ndarray_list: Iterable[NdArray], ndarray: NdArray, division: bool = False, group: str = WORLD
    ) -> None:
        """Sum lists of arrays over the processes; each process gets the sum at its own position in the group.

        Args:
            ndarray_list: An array for each process.
            ndarray: The NdArray for the result, with their shape and dtype.
            division: As in `all_reduce`.
            group: As in `all_reduce`.

        Raises:
            TypeError: As in `all_reduce`.
            ValueError: As in `all_reduce`, or the list does not fit.
        """
        cells, (got,) = cells_in(ndarray_list, "ndarray_list"), cells_in(ndarray, "ndarray")
        processes = self._processes(group)
        check_list(cells, got, processes)
        check_division(cells, division)
        if jax.process_index() in processes:
            specs = tuple([cell.spec for cell in cells])
            exchange = Exchange("sum and scatter", processes, specs, divisor=len(processes) if division else 1)
            write_to([got], exchange(Value.read(cells)))

    def all_reduce_callback(
        self,
        data: Any,
        pack_size: int,
        division: bool = False,
        group: str = WORLD,
        scale_grad: float = 1.0,
        keep_dtype: bool = True,
    ) -> AllReduceCallback:
        """Make a callback for backward that sums gradients over the processes:

            loss.backward(communicator_callbacks=comm.all_reduce_callback([x.grad for x in parameters], 1 << 21))

        Forward and backward are one executable, so the sums begin after it has run. NdArrays keep their dtype.

        Args:
            data: The gradients, as in `all_reduce`.
            pack_size: The maximum number of elements to sum together.
            division: As in `all_reduce`.
            group: As in `all_reduce`.
            scale_grad: A factor that each process applies to its gradients first.
            keep_dtype: Accepted for compatibility with nnabla; NdArrays always keep their dtype.

        Raises:
            TypeError: As in `all_reduce`.
            ValueError: As in `all_reduce`, or `pack_size` is not positive.
        """
        cells = cells_in(data, "data")
        if not isinstance(pack_size, int | np.integer) or pack_size < 1:
            raise ValueError(f"pack_size: expected a positive number of array elements, got {pack_size!r}")
        self._processes(group)
        check_division(cells, division or scale_grad != 1)
        packing = functools.partial(packs_of, most=int(pack_size))
        return AllReduceCallback(lambda: self._sum(cells, group, division, packing, scale=float(scale_grad)))

    def barrier(self) -> None:
        """Wait until all processes have called this."""
        if len(self._world) > 1:
            gathered(np.zeros(1, np.uint8), self._world)

    def abort(self) -> NoReturn:
        """End this process at once, without saving. The launcher ends the others."""
        sys.stdout.flush()
        sys.stderr.write(f"process {jax.process_index()}: ended by abort() of a communicator\n")
        sys.stderr.flush()
        os._exit(1)

    # ---------------------------------------------------------------- added parameters

    def add_context_and_parameters(self, ctx_param_dict: tuple[Any, Mapping[str, Variable]]) -> None:
        """Let `allreduce` sum the gradients of these parameters too.

        Args:
            ctx_param_dict: A Context, and parameters by name, as returned by `nn.get_parameters()`. All contexts must
                have parameters of the same names and shapes.

        Raises:
            TypeError: It is not such a pair.
            ValueError: The parameters differ in names or shapes from those added before.
        """
        pair = ctx_param_dict if isinstance(ctx_param_dict, tuple) and len(ctx_param_dict) == 2 else (None, None)
        parameters = pair[1]
        if not isinstance(parameters, Mapping) or not all([isinstance(x, Variable) for x in parameters.values()]):
            raise TypeError(
                f"ctx_param_dict: expected a pair of a Context and parameters by name, got {ctx_param_dict!r}"
            )
        before = self._parameters[0] if self._parameters else parameters
        if [(name, x.spec) for name, x in parameters.items()] != [(name, x.spec) for name, x in before.items()]:
            raise ValueError("ctx_param_dict: the parameters of each context must have the same names and shapes")
        self._parameters.append(dict(parameters))

    def clear_context_parameters(self) -> None:
        """Forget all parameters that were added."""
        self._parameters.clear()

    def allreduce(self, division: bool = False, inplace: bool = False) -> None:
        """Replace the gradients of all added parameters by their sums over their contexts and over the processes.

        Args:
            division: Whether to divide by the number of contexts times the number of processes.
            inplace: As in `all_reduce`.

        Raises:
            TypeError: As in `all_reduce`.
        """
        if not self._parameters:
            return
        cells = [parameters[name].grad for name in self._parameters[0] for parameters in self._parameters]
        self._sum(cells, WORLD, division, None if inplace else packs_of, terms=len(self._parameters))

    # ---------------------------------------------------------------- helpers

    def _processes(self, group: str) -> placement.Processes:
        groups = {WORLD: self._world, **self._groups}
        if group not in groups:
            raise ValueError(f"group: expected one of {', '.join(map(repr, groups))}, got {group!r}")
        return groups[group]

    def _place(self, place: int, group: str, argument: str) -> int:
        count = len(self._processes(group))
        if not isinstance(place, int | np.integer) or not 0 <= place < count:
            raise ValueError(f"{argument}: expected a rank in group {group!r}, from 0 to {count - 1}, got {place!r}")
        return int(place)

    def _sum(
        self,
        cells: list[NdArray],
        group: str,
        division: bool,
        packing: Any,
        root: int | None = None,
        terms: int = 1,
        scale: float = 1.0,
    ) -> None:
        processes = self._processes(group)
        check_division(cells, division)
        if not cells or jax.process_index() not in processes:
            return
        specs = tuple([cell.spec for cell in cells])
        packs: Packs = (packing or one_by_one)(specs[::terms])
        divisor = len(processes) * terms if division else 1
        results = Exchange("sum", processes, specs, packs, terms, divisor, scale)(Value.read(cells))
        if root is None or processes[root] == jax.process_index():
            write_to(cells, [result for result in results for _ in range(terms)])


def _this_machine() -> np.ndarray[Any, Any]:
    """An identifier of this machine."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = ""
    return np.frombuffer(hashlib.sha256(f"{platform.node()} {boot}".encode()).digest(), np.uint8)
