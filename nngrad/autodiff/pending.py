"""Backwards that are put off: until a gradient is read, or a value of the forward, or a solver moves parameters along
the gradients, which it does in the same executable where it can."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..execution.forward import DeferredRun
from ..execution.program import Program
from ..execution.tiers import Settings, settings_of_now, under
from ..graph import NdArray, build_options
from ..graph.process import check_process
from ..graph.value import Deferred, Value
from .accumulation import put_where_empty


class PendingBackward:
    """A run of forward and gradients, put off until the first of its results is read.

    Args:
        executable: What computes the results of the forward, and after them the gradients.
        program: The same as a program.
        arrays: Its arguments.
        forward: The run of the forward, which waits as well.
        count: How many results that has.
    """

    __slots__ = ("_count", "_forward", "_places", "_waiting", "arrays", "executable", "program", "settings")

    settings: Settings
    """JAX's settings when it was asked for: it runs under them, whoever wants its results."""

    def __init__(
        self,
        executable: Callable[..., tuple[Any, ...]],
        program: Program,
        arrays: tuple[Any, ...],
        forward: DeferredRun,
        count: int,
    ) -> None:
        self.executable = executable
        self.program = program
        self.arrays = arrays
        self._forward = forward
        self._count = count
        self._waiting: list[weakref.ref[Deferred]] | None = []
        self._places: dict[int, int] = {}
        self.settings = settings_of_now()

    def hold(self, cells: Sequence[NdArray], retained: Sequence[NdArray]) -> bool:
        """Let `cells` hold the gradients of leaves, and `retained` those of Variables in the middle, when they are
        computed; returns False, and does nothing, where they would have to be added to what is there, or JAX looks for
        NaN, which is to be found where the backward is asked for."""
        config: Any = jax.config
        if config.jax_debug_nans or config.jax_debug_infs or build_options().deterministic:
            return False
        values = [Deferred(self) for _ in (*cells, *retained)]
        self._waiting = [weakref.ref(value) for value in values]
        self._places = {id(value): self._count + i for i, value in enumerate(values)}
        if not put_where_empty(cells, retained, values):
            self._waiting = None
            return False
        self._forward.instead = self
        return True

    def places_of(self, gradients: Sequence[Value]) -> tuple[int, ...] | None:
        """Which results gradients are; None if one of them is something else."""
        if self._waiting is None:
            return None
        found = [self._places.get(id(v), -1) if getattr(v, "source", None) is self else -1 for v in gradients]
        return None if -1 in found else tuple(found)

    def run(self) -> None:
        """Compute the results."""
        if self._waiting is not None:
            check_process()
            if self.settings == settings_of_now():
                self.keep(self.executable(*self.arrays))
            else:
                with under(self.settings):
                    self.keep(self.executable(*self.arrays))

    def keep(self, results: Sequence[Any]) -> None:
        """Hand the results, computed here or elsewhere, to the values that still wait for them."""
        count = self._count
        self._forward.keep(results[:count])
        for ref, result in zip(self._waiting or (), results[count:], strict=False):
            value = ref()
            if value is not None:
                value.fill(result)
        self._waiting = None  # at the end: what an interrupt leaves waiting is computed again


def pending_of(gradients: Sequence[Value]) -> PendingBackward | None:
    """The backward that the first of some gradients waits for, if there is one."""
    first = gradients[0]
    source = first.source if first.__class__ is Deferred else None
    return source if source.__class__ is PendingBackward else None
