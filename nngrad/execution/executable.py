"""Executable: a function of arrays with its compiled forms, and the path by which it is called.

The function that serves a call is chosen once: by a program's first calls for the quick tier (`compiling.py`), and then
for good. From then on a call passes at most two Python frames above JAX's own: `__call__`, and `_in_settings` if the
function needs settings of JAX that are not in force, or has to be waited for.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax

from ..graph import build_options
from ..graph.jaxpr import primitives_in
from ..graph.mesh import Mesh, mesh_of, running_on
from ..graph.messages import warn_user
from ..graph.process import (
    check_process,
    current_trace,
    hit_unfinished_entry,
    interrupt_safe,
    lower_first,
    restore_trace,
)
from ..graph.spec import x64_if
from .compiling import (
    PLATFORM,
    CallCount,
    QuickExecutable,
    count_of,
    count_on_from,
    progress_shown,
    quick_options,
    spent,
    thorough_options,
)
from .program import digest_of, placement_of, platform_on


class Settings(NamedTuple):
    """Where a function runs, and under which settings of JAX."""

    device: jax.Device | None = None
    """The device; None leaves it to JAX."""
    needs_x64: bool = False
    """Whether it has 64-bit values."""
    mesh: Mesh | None = None
    """The devices that it runs on, if there are several."""

    @property
    def are_default(self) -> bool:
        """Whether it can be called as it is, and none of its results can lie on several CPUs."""
        if self.device is not None or self.mesh is not None or self.needs_x64:
            return False
        return jax.default_backend() != "cpu" or jax.device_count() == 1


class Executable:
    """A function of arrays that is compiled when it is first called.

    Args:
        function: A jitted function, or one that calls several; it returns a tuple, or pytrees of arrays.
        settings: Where it runs, and JAX's settings; None for a function whose caller sets these.
        opaque: Whether it contains user code, which may call functions on the host. Then it is waited for: JAX returns
            results before they are computed, so that an error on the host would surface when somebody reads a parameter
            that has taken such a result, and its former value would be lost.
        divided: The devices over which it is sharded, which cannot call functions on the host.
        quick_calls: How many calls of the structure run the quick tier; 0 for a function with one tier.
        structure: Returns a digest of the computation, the same in every process, by which its calls are counted; None
            if that is unknown, and then there is one tier.
        compiled: Called once with the seconds that the first call waited for the compiler, if that is wanted.
        in_partitions: The function in separately compiled parts, for when the compiler fails on the whole.
        quickly: Compiles it for the quick tier in another way, for given arrays; None if that is not wanted.
    """

    __slots__ = (
        "__weakref__", "_call", "_compile_quickly", "_compiled", "_count", "_decided", "_divided", "_in_partitions",
        "_is_optimised", "_lock", "_opaque", "_quick", "_quick_calls", "_settings",
        "_structure", "_waits", "function", "optimised", "seconds",
    )  # fmt: skip

    optimised: Callable[..., Any]
    """The optimised executable: a C function that compiles when it meets arrays of another kind."""

    seconds: float
    """The last compile time; 0 if nothing was compiled."""

    def __init__(
        self,
        function: Any,
        settings: Settings | None = None,
        *,
        opaque: bool = False,
        divided: Mesh | None = None,
        quick_calls: int = 0,
        structure: Callable[[], bytes | None] = lambda: None,
        compiled: Callable[[float], None] | None = None,
        in_partitions: Callable[..., Any] | None = None,
        quickly: Callable[[tuple[Any, ...]], QuickExecutable | None] | None = None,
    ) -> None:
        self.function = function
        self.optimised = function
        self._settings = None if settings is None or settings.are_default else settings
        self._divided = divided
        self._opaque = opaque
        self._waits = opaque and not _is_jitted(function)
        self._quick_calls = quick_calls
        self._structure = structure
        self._compiled = compiled
        self._in_partitions = in_partitions
        self._compile_quickly = quickly
        self._quick: dict[Any, Callable[..., Any]] = {}
        self._count: CallCount | None = None
        self._is_optimised = not (quick_calls or opaque or compiled or in_partitions) or not _is_jitted(function)
        self.seconds = 0.0
        self._lock = threading.RLock()  # reentrant, for signal handlers
        self._decided: Callable[..., Any] | None = None
        """The function that serves every call from now on; None as long as each call has to decide."""
        self._call: Callable[..., Any] | None = None
        """The same, if a call needs nothing else."""
        if self._is_optimised:
            self._decide(self.optimised)
        if quick_calls:
            with _adding:
                _with_tiers.add(self)

    # ---------------------------------------------------------------- a call

    def __call__(self, *arrays: Any) -> Any:
        """The results for arrays, or pytrees of them."""
        call, before = self._call, None
        try:
            if call is not None:
                return call(*arrays)
            lower_first()
            before = current_trace()
            return self._in_settings(arrays)
        except BaseException as error:
            if before is not None:
                restore_trace(before)
            if not hit_unfinished_entry(error):
                raise
        return self(*arrays)

    def _in_settings(self, arrays: tuple[Any, ...]) -> Any:
        """As `__call__`, under the settings that the function needs."""
        call = self._decided
        if call is None:
            is_settled = self._is_optimised and build_options().running.deterministic
            call = self.optimised if is_settled else self._for_this_call
        if self._settings is None:
            results = call(*arrays)
        else:
            device, needs_x64, mesh = self._settings
            check_process()
            with x64_if(needs_x64):
                if mesh is not None:
                    with mesh.turn(), running_on(mesh):
                        return mesh.finished(call(*arrays))
                if device is None:
                    results = call(*arrays)
                    # On CPUs, results on a mesh are waited for outside of it too, for the reason that `finished` gives.
                    lies_on = mesh_of(results if isinstance(results, tuple | list) else (results,))
                    if lies_on is not None:
                        lies_on.finished(results)
                else:
                    with jax.default_device(device):
                        results = call(*jax.device_put(arrays, device))
        if self._waits and not _are_traced(results):
            jax.block_until_ready(results)
        return results

    def _for_this_call(self, *arrays: Any) -> Any:
        """As `__call__`, as long as each call has to decide what runs it."""
        if _are_traced(arrays):
            if self._opaque and _is_jitted(self.function):
                self._look_at(self.function.trace(*arrays))
            return self.optimised(*arrays)
        with self._lock:
            call = self._chosen(arrays)
        self._report_time()
        return call(*arrays)

    def _decide(self, call: Callable[..., Any]) -> None:
        self._decided = call
        if self._settings is None and not self._waits:
            self._call = call

    # ---------------------------------------------------------------- which tier

    @property
    def has_quick_calls(self) -> bool:
        """Whether a call made now may run the quick tier."""
        return self._decided is None and self._quick_calls > 0 and not build_options().running.deterministic

    def decide_again(self) -> None:
        """Make each call decide again, as if there had been none, because the count of calls has changed."""
        with self._lock:
            self._call = self._decided = None

    def _chosen(self, arrays: tuple[Any, ...]) -> Callable[..., Any]:
        """The function that serves this call. Nothing changes if there is an error."""
        quick = self._counted_quick(arrays)
        if quick is not None:
            return quick
        if not self._is_optimised:
            try:
                self._optimise(arrays)
            except jax.errors.JaxRuntimeError as error:
                is_wanted = self._quick or self._asks_for_quick()  # in a resumed run it may not exist yet
                quick = self._quickly(arrays) if is_wanted else None
                if quick is not None:
                    self._quick_calls = sys.maxsize
                    warn_user("nngrad could not compile the optimised executable of a graph, and continues with a "
                              f"slower one: {error}", RuntimeWarning)
                    return quick
                if self._in_partitions is None:
                    raise
                self.optimised, self._is_optimised = self._in_partitions, True
        if not self._quick_calls or not build_options().running.deterministic:
            # Else a call outside of it may still be quick.
            spent.add(optimised=int(bool(self._quick)))
            self._quick = {}
            self._decide(self.optimised)
        return self.optimised

    def _counted_quick(self, arrays: tuple[Any, ...]) -> Callable[..., Any] | None:
        count = self._count_for(arrays) if self._asks_for_quick() else None
        quick = self._quickly(arrays) if count is not None and count.below(self._quick_calls) else None
        return quick if quick is not None and count is not None and count.count(self._quick_calls) else None

    @interrupt_safe
    def quick_call(self, arrays: tuple[Any, ...]) -> Callable[..., Any] | None:
        """Count this call and return the function that serves it, if that is of the quick tier; else None."""
        with self._lock:
            quick = self._counted_quick(arrays)
        if quick is not None:
            self._report_time()
        return quick

    def _asks_for_quick(self) -> bool:
        """Whether a call made now runs the quick tier if it is one of the first."""
        device = None if self._settings is None else self._settings.device
        return self.has_quick_calls and platform_on(device) == PLATFORM and bool(quick_options())

    def _count_for(self, arrays: tuple[Any, ...]) -> CallCount | None:
        """The count of calls of the structure; None if it has no digest, so that another run could not continue it."""
        if self._count is None:
            structure = self._structure()
            if structure is None:
                self._quick_calls = 0
                return None
            shapes = str([(a.shape, str(a.dtype)) for a in jax.tree.leaves(arrays)]).encode()
            self._count = count_of(digest_of(structure, shapes))
        return self._count

    def _quickly(self, arrays: tuple[Any, ...]) -> Callable[..., Any] | None:
        """The quick executable; None if it cannot be compiled, so that the error arises in the usual way."""
        placement = placement_of(arrays)
        if placement not in self._quick:
            call = self._quickly_otherwise(arrays) or self.quick_for(arrays)
            if call is None:
                self._quick_calls = 0
                return None
            self._quick[placement] = call
        return self._quick[placement]

    def _quickly_otherwise(self, arrays: tuple[Any, ...]) -> Callable[..., Any] | None:
        made = None if self._compile_quickly is None else self._compile_quickly(arrays)
        if made is None:
            return None
        self.seconds = made.seconds
        spent.add(quick=int(made.seconds > 0))
        if not made.seconds:
            self._compiled = None
        return made.call

    # ---------------------------------------------------------------- compiling

    def temporaries(self, arrays: tuple[Any, ...]) -> int | None:
        """Bytes of temporaries for arrays like these, as reported by the compiler; None if it reports none, or fails.

        It is compiled as for the first call, in the same tier. Nothing is run, and nothing counted.
        """
        device, needs_x64, _ = self._settings or Settings()
        try:
            with x64_if(needs_x64), jax.default_device(device) if device else nullcontext():
                analysis = self._for_first_call(arrays).memory_analysis()
        except (jax.errors.JaxRuntimeError, NotImplementedError):
            return None  # the error will be raised again when it matters
        return None if analysis is None else int(analysis.temp_size_in_bytes)

    @interrupt_safe
    def _for_first_call(self, arrays: tuple[Any, ...]) -> jax.stages.Compiled:
        with self._lock:
            quick = self._quickly(arrays) if self._asks_for_quick() else None
            if quick is not None and not isinstance(quick, jax.stages.Compiled):  # XLA has no analysis of several
                quick = self.quick_for(arrays)
            return self._optimise(arrays) if quick is None else quick

    def quick_for(self, arrays: tuple[Any, ...], thorough: bool = False) -> jax.stages.Compiled | None:
        """The quickly compiled executable; None if the compiler fails under these options."""
        return self._made(arrays, thorough_options() if thorough else quick_options())

    def _optimise(self, arrays: tuple[Any, ...]) -> jax.stages.Compiled:
        """The optimised executable, which JAX caches for the jitted function."""
        compiled = self._made(arrays)
        assert compiled is not None
        self._is_optimised = True
        return compiled

    def _made(
        self, arrays: tuple[Any, ...], options: dict[str, str | bool] | None = None
    ) -> jax.stages.Compiled | None:
        """An executable under compiler options, if any; None if it fails under these."""
        start = time.perf_counter()
        try:
            with progress_shown("a graph"):
                traced = self.traced(arrays)
                self._look_at(traced)
                at_trace = time.perf_counter()
                lowered = traced.lower()
                at_lower = time.perf_counter()
                compiled: jax.stages.Compiled = lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError:
            if options is None:
                raise
            return None
        now = time.perf_counter()
        is_of_tier = options is not None and self._quick_calls > 0
        spent.add(trace=at_trace - start, lower=at_lower - at_trace, compile=now - at_lower, quick=int(is_of_tier))
        self.seconds = now - start
        return compiled

    def traced(self, arrays: tuple[Any, ...]) -> Any:
        """The function traced for arrays. JAX caches it."""
        return self.function.trace(*arrays)

    def _look_at(self, traced: Any) -> None:
        """Find out whether user code calls functions on the host.

        Raises:
            ValueError: It does, and there are several devices.
        """
        if self._opaque:
            self._waits = any(["callback" in name for name in primitives_in(traced.jaxpr.jaxpr)])
            if self._waits and self._divided is not None:
                raise ValueError("the graph calls a Python function on the host, which cannot be divided over "
                                 f"{self._divided!r}; write it with F or F.jax_function, or run it outside the mesh")

    def _report_time(self) -> None:
        """Report the compile time, once, with no lock held: this may warn, and warnings may be errors."""
        compiled, self._compiled = self._compiled, None
        if compiled is not None:
            compiled(self.seconds)


_with_tiers: weakref.WeakSet[Executable] = weakref.WeakSet()
_adding = threading.RLock()


def continue_counts(numbers: Mapping[str, int]) -> None:
    """Set the counts of calls to those from `compiling.counted`, in this process or another."""
    count_on_from(numbers)
    with _adding:
        waiting = list(_with_tiers)
    for executable in waiting:
        executable.decide_again()


def _is_jitted(function: Any) -> bool:
    return hasattr(function, "trace")


def _are_traced(arrays: Any) -> bool:
    return any([isinstance(array, jax.core.Tracer) for array in jax.tree.leaves(arrays)])
