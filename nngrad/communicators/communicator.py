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

from ..context import Context
from ..distributed import hosts
from ..execution.across import gathered
from ..graph import NdArray, Variable
from ..graph.leaf import arrays_in
from ..graph.processes import Processes, several_processes
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

    Every process of a group calls the same method, with arrays of the same shapes and dtypes, in the same order: a call
    waits for the others. A process that is not in the group does nothing. Results are written into the cells that were
    given, all at one moment.

    Made by `MultiProcessCommunicator` and the others.

    Args:
        ctx: A Context, or None. Arrays are exchanged by the first device of each process.
        several: Whether it joins the processes of the run; else it is of this process alone.
    """

    def __init__(self, ctx: Context | None = None, several: bool = True) -> None:
        if ctx is not None and not isinstance(ctx, Context):
            raise TypeError(f"ctx: expected a Context, as nn.get_extension_context gives it, or None, got {ctx!r}")
        self._several = several
        self._parameters: list[dict[str, Variable]] = []
        self._groups: dict[str, Processes] = {}
        self._local_rank = 0

    @property
    def name(self) -> str:
        """The kind of this communicator."""
        return "MultiProcessDataParallelCommunicator" if self._several else "DataParallelCommunicator"

    def init(self) -> None:
        """Join the processes of the run, unless done already, and determine rank and size.

        Every process calls it, before it computes anything. It joins them as `nn.hosts.initialize` does, with what that
        takes for itself. Where nothing says that there are several, this process is all there is. Calling it again does
        nothing.

        Raises:
            RuntimeError: JAX has computed something already, so that it is too late.
            HostError: Not all processes have come.
        """
        if self._groups:
            return
        if self._several:
            hosts.initialize()
        several = self._several and several_processes()
        world = tuple(range(jax.process_count())) if several else (jax.process_index(),)
        if several:
            machines = gathered(_this_machine(), world)
            rank = jax.process_index()
            self._local_rank = sum([bytes(machine) == bytes(machines[rank]) for machine in machines[:rank]])
        self._groups = {WORLD: world}

    # ---------------------------------------------------------------- who is there

    @property
    def rank(self) -> int:
        """The number of this process among all, from 0 on."""
        return self._world.index(jax.process_index())

    @property
    def size(self) -> int:
        """The number of processes; in a communicator of one process, that of added contexts, if any."""
        return len(self._world) if self._several else max(len(self._parameters), 1)

    @property
    def local_rank(self) -> int:
        """The number of this process among those of this machine, from 0 on."""
        return self._local_rank if self._world else 0

    @property
    def _world(self) -> Processes:
        if not self._groups:
            raise RuntimeError(f"{self.name}: call its init() first, which joins the processes")
        return self._groups[WORLD]

    def new_group(self, name_ranks: tuple[str, Iterable[int]]) -> str:
        """Define a named group of processes, for collectives among them.

        Args:
            name_ranks: The name, and the ranks of the processes, in the order that they have in the group.

        Returns:
            The name.

        Raises:
            TypeError: `name_ranks` is no pair of a name and ranks.
            ValueError: A rank is there twice or is none, or another group has the name.
        """
        world = self._world
        try:
            name, given = name_ranks
            ranks = tuple([rank.__index__() for rank in given])
        except (TypeError, ValueError, AttributeError):
            raise TypeError(f"name_ranks: expected a pair of a name and a list of ranks, got {name_ranks!r}") from None
        if not isinstance(name, str):
            raise TypeError(f"name_ranks: the name must be a str, got {name!r}")
        if not ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(len(world))):
            raise ValueError(f"name_ranks: expected different ranks from 0 to {len(world) - 1}, got {list(ranks)}")
        processes = tuple([world[rank] for rank in ranks])
        if self._groups.setdefault(name, processes) != processes:
            raise ValueError(f"name_ranks: there is a group {name!r} already, of the ranks {self.find_group(name)}")
        return name

    def list_groups(self) -> dict[str, list[int]]:
        """The ranks of each group, by name."""
        world = self._world
        return {name: [world.index(p) for p in processes] for name, processes in self._groups.items()}

    def find_group(self, group: str) -> list[int]:
        """The ranks of a group; none if there is no such group. `F.all_reduce` and the like take these."""
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
            TypeError: `data` holds something else than NdArrays, or `division` is asked for arrays of integers.
            ValueError: There is no such group, or the processes do not call the same.
        """
        self._sum(cells_in(data, "data"), group, division, None if inplace else packs_of)

    def reduce(
        self, data: Any, dst: int, division: bool = False, inplace: bool = False, group: str = WORLD
    ) -> None:
        """Replace arrays of one process by their sums over the processes; those of the others stay unchanged.

        Args:
            data: As for `all_reduce`.
            dst: The place in the group of the process that gets the sums.
            division: As for `all_reduce`.
            inplace: As for `all_reduce`.
            group: As for `all_reduce`.

        Raises:
            TypeError: As for `all_reduce`.
            ValueError: As for `all_reduce`, or `dst` is out of range.
        """
        root = self._place(dst, group, "dst")
        self._sum(cells_in(data, "data"), group, division, None if inplace else packs_of, root)

    def bcast(self, data: Any, src: int, inplace: bool = False, group: str = WORLD) -> None:
        """Replace arrays by copies of those of one process.

        Args:
            data: As for `all_reduce`.
            src: The place in the group of the process whose arrays all get.
            inplace: As for `all_reduce`.
            group: As for `all_reduce`.

        Raises:
            TypeError: As for `all_reduce`.
            ValueError: As for `all_reduce`, or `src` is out of range.
        """
        cells, processes = cells_in(data, "data"), self._processes(group)
        root = self._place(src, group, "src")
        if cells and jax.process_index() in processes:
            specs = tuple([cell.spec for cell in cells])
            packs = one_by_one(specs) if inplace else packs_of(specs)
            write_to(cells, Exchange("from one", processes, specs, packs, root=root)(arrays_in(cells)))

    def all_gather(self, ndarray: NdArray, ndarray_list: Iterable[NdArray], group: str = WORLD) -> None:
        """Gather the arrays of all processes, in the order of the group, into the cells of a list.

        Args:
            ndarray: The array of this process.
            ndarray_list: A cell for each process, of the shape and dtype of `ndarray`.
            group: As for `all_reduce`.

        Raises:
            TypeError: Something is no NdArray.
            ValueError: As for `all_reduce`, or the list does not fit.
        """
        (given,), cells = cells_in(ndarray, "ndarray"), cells_in(ndarray_list, "ndarray_list")
        processes = self._processes(group)
        check_list(cells, given, processes)
        if jax.process_index() in processes:
            write_to(cells, Exchange("gather", processes, (given.spec,))(arrays_in([given])))

    def reduce_scatter(
        self, ndarray_list: Iterable[NdArray], ndarray: NdArray, division: bool = False, group: str = WORLD
    ) -> None:
        """Sum lists of arrays over the processes; each process gets the sum at its own place in the group.

        Args:
            ndarray_list: An array for each process.
            ndarray: The cell that is written to, of their shape and dtype.
            division: As for `all_reduce`.
            group: As for `all_reduce`.

        Raises:
            TypeError: As for `all_reduce`.
            ValueError: As for `all_reduce`, or the list does not fit.
        """
        cells, (got,) = cells_in(ndarray_list, "ndarray_list"), cells_in(ndarray, "ndarray")
        processes = self._processes(group)
        check_list(cells, got, processes)
        check_division(cells, division)
        if jax.process_index() in processes:
            specs = tuple([cell.spec for cell in cells])
            exchange = Exchange("sum and scatter", processes, specs, divisor=len(processes) if division else 1)
            write_to([got], exchange(arrays_in(cells)))

    def all_reduce_callback(
        self,
        data: Any,
        pack_size: int,
        division: bool = False,
        group: str = WORLD,
        scale_grad: float = 1.0,
        keep_dtype: bool = True,
    ) -> AllReduceCallback:
        """A callback for backward that sums gradients over the processes:

            loss.backward(communicator_callbacks=comm.all_reduce_callback([x.grad for x in parameters], 1 << 21))

        Forward and gradients are one executable, so the sums begin when it has run. Cells keep their dtype.

        Args:
            data: As for `all_reduce`: the gradients' cells.
            pack_size: The most elements to sum together.
            division: As for `all_reduce`.
            group: As for `all_reduce`.
            scale_grad: A factor that each process applies to its gradients first.
            keep_dtype: Accepted for nnabla's sake: cells always do.

        Raises:
            TypeError: As for `all_reduce`.
            ValueError: As for `all_reduce`, or `pack_size` is not positive.
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
        """End this process at once, without saving. The supervisor of the run (`nngrad launch`) ends the others."""
        sys.stdout.flush()
        sys.stderr.write(f"process {jax.process_index()}: ended by abort() of a communicator\n")
        sys.stderr.flush()
        os._exit(1)

    # ---------------------------------------------------------------- parameters that it knows

    def add_context_and_parameters(self, ctx_param_dict: tuple[Any, Mapping[str, Variable]]) -> None:
        """Let `allreduce` sum the gradients of these parameters too.

        Args:
            ctx_param_dict: A Context, and parameters by name, as `nn.get_parameters()` gives them. Several contexts
                have parameters of the same names and shapes.

        Raises:
            TypeError: It is no pair of these.
            ValueError: The parameters are not like those that were added before.
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
            division: Whether to divide by the number of contexts times that of processes.
            inplace: As for `all_reduce`.

        Raises:
            TypeError: As for `all_reduce`.
        """
        if not self._parameters:
            return
        cells = [each[name].grad for name in self._parameters[0] for each in self._parameters]
        self._sum(cells, WORLD, division, None if inplace else packs_of, terms=len(self._parameters))

    # ---------------------------------------------------------------- what they have in common

    def _processes(self, group: str) -> Processes:
        groups = {WORLD: self._world, **self._groups}
        if group not in groups:
            raise ValueError(f"group: there is none called {group!r}; there are {', '.join(map(repr, groups))}")
        return groups[group]

    def _place(self, place: int, group: str, argument: str) -> int:
        count = len(self._processes(group))
        if not isinstance(place, int | np.integer) or not 0 <= place < count:
            raise ValueError(f"{argument}: expected a place in group {group!r}, from 0 to {count - 1}, got {place!r}")
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
        results = Exchange("sum", processes, specs, packs, terms, divisor, scale)(arrays_in(cells))
        if root is None or processes[root] == jax.process_index():
            write_to(cells, [result for result in results for _ in range(terms)])


def _this_machine() -> np.ndarray[Any, Any]:
    """An identifier of this machine."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = ""
    return np.frombuffer(hashlib.sha256(f"{platform.node()} {boot}".encode()).digest(), np.uint8)
