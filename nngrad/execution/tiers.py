"""Executables in two tiers: the first calls run one that is compiled cheaply, those that follow the best one.

XLA's compiler for CPUs takes seconds for a large program. Told to optimise less it takes two fifths to a seventh of
that, by its version, and what it makes runs up to six times slower. So a large program is compiled cheaply at its first
call, and at its best at a later one, there and then: `break_even.py` says at which, from the structure alone.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from ..graph import build_options
from ..graph.half_made import has_met_half_made, unharmed
from ..graph.place import warn_user
from .break_even import Count, count_of
from .fingerprint import digest_of
from .on_disk import OnDisk, Options, on_disk_of_trees
from .platforms import default_device
from .progress import shown
from .spent import spent

_CHEAP: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",  # half the time, and less
    "xla_cpu_use_fusion_emitters": False,  # more than half of what is left; jaxlib 0.11.1 and newer have it no more
    "xla_cpu_parallel_codegen_split_count": "2",  # a fifth of what is left, since parts are not compiled over and over
}
"""XLA's options for the first tier, the most important one first. What they serve, by version: docs/compilation.md."""
_WANTED = tuple(_CHEAP.items())
"""By these an executable is known on disk; which of them XLA has, its version says."""

_PLATFORM = "cpu"
"""Where there are tiers. On other platforms these options mean something else, or nothing."""


@functools.cache
def cheap_options() -> dict[str, str | bool]:
    """Those of the options for the first tier that this version of XLA knows."""
    trivial = jax.jit(lambda x: x).lower(jax.ShapeDtypeStruct((), "float32"))

    def known(options: dict[str, str | bool]) -> bool:
        try:
            trivial.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return _CHEAP if known(_CHEAP) else {name: value for name, value in _CHEAP.items() if known({name: value})}


class Tiers:
    """The executables of a program. See `tiered`.

    Args:
        jitted: The program as a jitted function of arrays, or a function that calls several.
        best: `jitted`, as it is to be called in the end.
        cheap_calls: After how many calls of the structure that is; 0 for a program that has but one tier.
        device: Where it runs; None leaves it to JAX.
        compiled: Called once with the seconds that the first call had to wait for the compiler, if that is wanted.
        on_disk: What is remembered on disk of it; None for nothing.
        structure: Gives a digest of what is computed, by which its calls are counted; None where that is not known, and
            the calls of this object count.
    """

    __slots__ = (
        "__weakref__",
        "_cheap",
        "_cheap_calls",
        "_compiled",
        "_count",
        "_device",
        "_has_best",
        "_jitted",
        "_lock",
        "_on_disk",
        "_seconds",
        "_structure",
        "best",
        "then",
    )

    best: Callable[..., Any] | None
    """What runs from now on; None where that is still to be found out at each call."""
    then: Callable[..., Any]
    """The best executable, as it is called."""

    def __init__(
        self,
        jitted: Any,
        best: Callable[..., Any],
        cheap_calls: int = 0,
        device: jax.Device | None = None,
        compiled: Callable[[float], None] | None = None,
        on_disk: OnDisk | None = None,
        structure: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self.best = None
        self.then = best
        self._cheap: dict[Any, jax.stages.Compiled] = {}
        self._cheap_calls = cheap_calls
        self._compiled = compiled
        self._count: Count | None = None
        self._device = device
        self._has_best = False
        self._jitted = jitted
        self._lock = threading.RLock()  # a signal's handler may come back to it
        self._on_disk = on_disk
        self._seconds = 0.0
        self._structure = structure

    def __call__(self, arrays: tuple[Any, ...]) -> Any:
        """The results for arrays, or pytrees of them, as long as there is no `best`."""
        if self._has_best and build_options().running.deterministic:
            return self.then(*arrays)
        if any([isinstance(array, jax.core.Tracer) for array in jax.tree.leaves(arrays)]):
            return self.then(*arrays)
        with self._lock:
            executable = self._for_this_call(arrays)
        self._tell()
        return executable(*arrays)

    def may_be_cheap(self) -> bool:
        """Whether a call of now may run the cheap executable."""
        return self.best is None and self._cheap_calls > 0 and not build_options().running.deterministic

    @unharmed
    def compile_for(self, given: tuple[Any, ...]) -> jax.stages.Compiled | None:
        """Compile for arrays, or what they will be like, as for the first call."""
        with self._lock:
            cheap = self._cheaply(given) if self._has_cheap() else None
            return self._at_best(given) if cheap is None else cheap

    def compiles(self, arrays: tuple[Any, ...]) -> bool:
        """Whether it was not the compiler that failed, when a call did."""
        if self._cheap:
            return True
        try:
            self._jitted.lower(*arrays).compile()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    def _for_this_call(self, arrays: tuple[Any, ...]) -> Callable[..., Any]:
        """What computes this call. Nothing changes if there is an error."""
        if self._has_cheap():
            count = self._counted(arrays)
            cheap = self._cheaply(arrays) if count.calls < self._cheap_calls else None
            if cheap is not None:
                count.calls += 1
                return cheap
        if not self._has_best:
            try:
                self._at_best(arrays)
            except jax.errors.JaxRuntimeError as error:
                cheap = self._cheap.get(_placement_of(arrays))
                if cheap is None:
                    raise
                self._cheap_calls = sys.maxsize
                warn_user(f"nngrad could not compile the best executable of a graph and goes on with a slower one: "
                          f"{error}", RuntimeWarning)
                return cheap
        if not self._cheap_calls or not build_options().running.deterministic:
            # Else a call outside of it may still be cheap.
            self.best = self.then
            spent.add(best=int(bool(self._cheap)))
            self._cheap = {}
        return self.then

    def _has_cheap(self) -> bool:
        """Whether a call of now runs the cheap executable if it is one of the first."""
        if not self.may_be_cheap():
            return False
        device = default_device() if self._device is None else self._device
        return device.platform == _PLATFORM and bool(cheap_options())

    def _counted(self, arrays: tuple[Any, ...]) -> Count:
        """The calls of the structure."""
        if self._count is None:
            structure = self._structure()
            shapes = str([(a.shape, str(a.dtype)) for a in jax.tree.leaves(arrays)]).encode()
            self._count = Count() if structure is None else count_of(digest_of(structure, shapes))
        return self._count

    def _cheaply(self, arrays: tuple[Any, ...]) -> jax.stages.Compiled | None:
        """The cheap executable, from disk or from the compiler; None where it cannot be compiled, so that it fails in
        the usual way, where that is looked after."""
        placement = _placement_of(arrays)
        if placement not in self._cheap:
            compiled = self._found_or_made(arrays, cheap_options(), _WANTED)
            if compiled is None:
                self._cheap_calls = 0
                return None
            self._cheap[placement] = compiled
        return self._cheap[placement]

    def _at_best(self, arrays: tuple[Any, ...]) -> jax.stages.Compiled | None:
        """The best executable, which JAX keeps for the jitted function; None for several, each of which is compiled as
        it is met."""
        compiled = self._found_or_made(arrays) if hasattr(self._jitted, "trace") else None
        self._has_best = True
        return compiled

    def _found_or_made(
        self, arrays: tuple[Any, ...], options: dict[str, str | bool] | None = None, known_by: Options = ()
    ) -> jax.stages.Compiled | None:
        """An executable by options of the compiler's, if there are any; None where it fails by these.

        Args:
            arrays: What it is to take.
            options: The options.
            known_by: By what of them the disk knows it.
        """
        entry = None if self._on_disk is None else self._on_disk.entry(arrays, known_by)
        known = None if entry is None else entry.load(arrays)
        if known is not None:
            self._compiled = None
            return known
        start = time.perf_counter()
        with shown("a graph"):
            traced = self._trace(arrays)
            at_trace = time.perf_counter()
            lowered = traced.lower()
            at_lower = time.perf_counter()
            try:
                compiled: jax.stages.Compiled = lowered.compile(compiler_options=options)
            except jax.errors.JaxRuntimeError:
                if options is None:
                    raise
                return None
        now = time.perf_counter()
        cheaply = int(options is not None)
        spent.add(trace=at_trace - start, lower=at_lower - at_trace, compile=now - at_lower, cheaply=cheaply)
        self._seconds = now - start
        if entry is not None:
            entry.keep(compiled)
        return compiled

    def _trace(self, arrays: tuple[Any, ...]) -> Any:
        return self._jitted.trace(*arrays) if self._on_disk is None else self._on_disk.traced(arrays)

    def _tell(self) -> None:
        """Say how long it took, once, when nothing is locked: what is told may warn, and warnings may be errors."""
        compiled, self._compiled = self._compiled, None
        if compiled is not None:
            compiled(self._seconds)


def run_once(
    function: Callable[..., tuple[Any, ...]], *arrays: Any, structure: bytes | None = None
) -> tuple[Any, ...]:
    """The results of a function that is run once, so that it is not worth much to compile it.

    Args:
        function: A function of pytrees of arrays, which returns arrays.
        arrays: What it is given.
        structure: A digest of what it computes, by which the disk knows it; None for one that is compiled.
    """
    jitted, is_cheap = jax.jit(function), default_device().platform == _PLATFORM
    on_disk = on_disk_of_trees(jitted, lambda: structure) if structure is not None else None
    entry = None if on_disk is None else on_disk.entry(arrays, _WANTED if is_cheap else ())
    compiled: Any = None if entry is None else entry.load(arrays)
    if compiled is None:
        compiled = jitted.lower(*arrays).compile(compiler_options=(cheap_options() or None) if is_cheap else None)
        if entry is not None:
            entry.keep(compiled)
    results: tuple[Any, ...] = compiled(*arrays)
    return results


def tiered(tiers: Tiers) -> Callable[..., Any]:
    """A function of arrays that runs the best executable there is."""

    first = unharmed(tiers)

    def run(*arrays: Any) -> Any:
        best = tiers.best
        try:
            return first(arrays) if best is None else best(*arrays)
        except BaseException as error:
            if not has_met_half_made(error):
                raise
        return run(*arrays)

    return run


def _placement_of(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """What an executable is compiled for, besides shapes and dtypes, of which a program has but one each: settings of
    JAX's that users switch from call to call, and where arrays are."""
    config: Any = jax.config
    settings = config.jax_default_device, config.jax_default_matmul_precision, config.jax_enable_x64
    return *settings, *[_place_of(array) for array in jax.tree.leaves(arrays)]


def _place_of(array: Any) -> Any:
    if isinstance(array, jax.Array):
        return array.weak_type, array.sharding if array.committed else None
    return False, getattr(array, "sharding", None)
