"""Executable: a function of arrays with its compiled forms, and the path by which it is called.

The first call decides what serves it, and the first that does not run the quick tier decides for good.
From then on a call passes at most two Python frames above JAX's own: `__call__`, and `_in_settings` if the function
needs settings of JAX that are not in force, or has to be waited for.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax

from ..graph import build_options
from ..graph.bounded_cache import BoundedCache
from ..graph.event import CompilationEvent
from ..graph.jaxpr import primitives_in
from ..graph.messages import SourceLocation
from ..graph.placement import Mesh, Placement, running_on
from ..graph.process import (
    check_process,
    current_trace,
    hit_unfinished_entry,
    interrupt_safe,
    lower_first,
    restore_trace,
)
from ..graph.spec import x64_if
from ..graph.thresholds import LARGE
from .program import Program, platform_on


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
        """True if it can be called as it is, and none of its results can lie on several CPUs."""
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
        tiered: The program it runs, if the first call of that in a process runs the quick tier; None for one tier.
        program: The program to name in the event of its first compilation, if there is one.
    """

    __slots__ = (
        "__weakref__", "_call", "_decided", "_divided", "_lock", "_opaque", "_place", "_quick", "_seconds",
        "_settings", "_temporaries", "_tiered", "_untold", "_waits", "function", "may_wait", "program",
    )  # fmt: skip

    function: Any
    """The optimised executable: a C function that compiles when it meets arrays of another kind."""

    def __init__(
        self,
        function: Any,
        settings: Settings | None = None,
        *,
        opaque: bool = False,
        divided: Mesh | None = None,
        tiered: Program | None = None,
        program: Program | None = None,
    ) -> None:
        self.function = function
        self._settings = None if settings is None or settings.are_default else settings
        self._divided = divided
        self._opaque = opaque
        alone = settings is None or settings.device is settings.mesh is None
        self.may_wait = alone and not opaque and _is_jitted(function)
        """Whether its function may run later, or as a part of another one: XLA compiles it as a whole, for one device,
        and without user code."""
        self._waits = opaque and not _is_jitted(function)
        self._tiered = tiered
        self.program = program
        self._untold = program is not None
        """Whether nobody was told yet that the program was compiled."""
        self._place = None if program is None else SourceLocation.of_user()
        self._quick: Any = None
        """The function of the quick tier, if that has been compiled."""
        self._seconds = 0.0
        """Seconds of compilation to report."""
        self._temporaries: int | None = None
        """Bytes of temporaries, if the compiler has reported them."""
        self._lock = threading.RLock()  # reentrant, for signal handlers
        self._decided: Callable[..., Any] | None = None
        """The function that serves every call from now on; None as long as each call has to decide."""
        self._call: Callable[..., Any] | None = None
        """The same, if a call needs nothing else."""
        if not _is_jitted(function) or not (tiered or opaque or program):
            self._decide()

    @classmethod
    def on(cls, mesh: Mesh, function: Callable[..., Any]) -> Executable:
        """The executable of a function that runs on a mesh."""
        return cls(jax.jit(function), Settings(mesh=mesh))

    @property
    def is_quick(self) -> bool:
        """Whether the next call runs the quick tier."""
        return self._tiered is not None and not was_called(self._tiered) and self._has_quick_tier()

    def optimised(self) -> Any:
        """Its function. No call runs the quick tier from now on."""
        with self._lock:
            if self._tiered is not None:
                note_call(self._tiered)
            spent.add(optimised=int(self._quick is not None))
            self._quick = None
        return self.function

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
        """The results, under the settings of JAX that the function needs."""
        call = self._decided or self._deciding
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
                    lies_on = Placement.mesh_of(results if isinstance(results, tuple | list) else (results,))
                    if lies_on is not None:
                        lies_on.finished(results)
                else:
                    with jax.default_device(device):
                        results = call(*jax.device_put(arrays, device))
        if self._waits and not _are_traced(results):
            jax.block_until_ready(results)
        return results

    def _deciding(self, *arrays: Any) -> Any:
        """The results, of a call that has to decide which tier runs it."""
        if _are_traced(arrays):
            if self._opaque and _is_jitted(self.function):
                self._look_at(self.function.trace(*arrays))
            return self.function(*arrays)
        with self._lock:
            call = self._decided or self._quickly(arrays) or self._optimised(arrays)
        self._report_time()
        return call(*arrays)

    def _decide(self) -> None:
        self._decided = self.function
        if self._settings is None and not self._waits:
            self._call = self.function

    # ---------------------------------------------------------------- compiling

    def _quickly(self, arrays: tuple[Any, ...]) -> Callable[..., Any] | None:
        """The quick tier, if it serves this call."""
        if self._tiered is None or not note_call(self._tiered) or not self._has_quick_tier():
            return None
        spent.add(quick=1)
        quick: Callable[..., Any] = self._quick_function()
        try:
            self._compile(quick, arrays)
        except jax.errors.JaxRuntimeError:
            return None
        return quick

    def _has_quick_tier(self) -> bool:
        device = None if self._settings is None else self._settings.device
        return not build_options().running.deterministic and platform_on(device) == PLATFORM and bool(quick_options())

    def _quick_function(self) -> Any:
        if self._quick is None:
            self._quick = jax.jit(self.function.__wrapped__, compiler_options=quick_options())
        return self._quick

    def _optimised(self, arrays: tuple[Any, ...]) -> Any:
        """The optimised executable. Nothing changes if there is an error."""
        self._compile(self.function, arrays)
        spent.add(optimised=int(self._quick is not None))
        self._quick = None
        self._decide()
        return self.function

    def _compile(self, function: Any, arrays: tuple[Any, ...]) -> jax.stages.Compiled:
        """The compiled form of a jitted function, which JAX caches for its calls."""
        start = time.perf_counter()
        traced = function.trace(*arrays)
        self._look_at(traced)
        at_trace = time.perf_counter()
        lowered = traced.lower()
        at_lower = time.perf_counter()
        compiled: jax.stages.Compiled = lowered.compile()
        now = time.perf_counter()
        spent.add(trace=at_trace - start, lower=at_lower - at_trace, compile=now - at_lower)
        self._seconds += now - start
        return compiled

    @interrupt_safe
    def temporaries(self, arrays: tuple[Any, ...]) -> int | None:
        """Bytes of temporaries for arrays like these, as reported by the compiler; None if it reports none, or fails.

        It is compiled as for the next call, in the same tier, but in one piece. Nothing is run.
        """
        if self._temporaries is not None or not _is_jitted(self.function):
            return self._temporaries
        device, needs_x64, _ = self._settings or Settings()
        try:
            with x64_if(needs_x64), jax.default_device(device) if device else nullcontext(), self._lock:
                function = self._quick_function() if self.is_quick else self.function
                analysis = self._compile(function, arrays).memory_analysis()
        except (jax.errors.JaxRuntimeError, NotImplementedError):
            return None  # the error will be raised again when it matters
        self._temporaries = None if analysis is None else int(analysis.temp_size_in_bytes)
        return self._temporaries

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
        """Tell of the compilation, with no lock held: listeners may warn, and warnings may be errors."""
        seconds, self._seconds = self._seconds, 0.0
        untold, self._untold = self._untold, False
        if seconds or untold:
            event = CompilationEvent(seconds, self.program if untold else None, self._place)
            for hear in build_options().listeners["compiled"]:
                hear(event)


def _is_jitted(function: Any) -> bool:
    return hasattr(function, "trace")


def _are_traced(arrays: Any) -> bool:
    return any([isinstance(array, jax.core.Tracer) for array in jax.tree.leaves(arrays)])


# ---------------------------------------------------------------- the two tiers of a large program
# The first call of a large program in a process runs an executable that compiles quickly, every later one an optimised
# one. XLA's compiler for CPUs takes seconds for such a program. With fewer optimisations it takes two fifths to a
# seventh of that, depending on its version, and the result runs several times slower. So what is called once is done
# soonest in the quick tier. What is called a second time will probably be called often: then the optimised executable
# is compiled. Training steps, `compile` and updates have one tier, so that what they compute does not depend on where a
# process began.

PLATFORM = "cpu"
"""The platform that has tiers. On others the options mean something else, or nothing."""

_OPTIONS: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",  # half the time, and less
    "xla_cpu_use_fusion_emitters": False,  # more than half of the rest; gone since jaxlib 0.11.1
    "xla_cpu_parallel_codegen_split_count": "2",  # a fifth of the rest, as parts are compiled only once
}
"""XLA's options for the quick tier, most important first. docs/compilation.md says what they gain, by version."""


@functools.cache
def quick_options() -> dict[str, str | bool]:
    """The options for the quick tier that this version of XLA accepts."""
    trivial = jax.jit(lambda x: x).lower(jax.ShapeDtypeStruct((), "float32"))

    def known(options: dict[str, str | bool]) -> bool:
        try:
            trivial.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return _OPTIONS if known(_OPTIONS) else {name: value for name, value in _OPTIONS.items() if known({name: value})}


def has_two_tiers(program: Program) -> bool:
    """True if the first call of a program runs the quick tier. User code is not compiled twice.

    Processes that compute together must run the same executables, with the same rounding, but each remembers its own
    calls.
    """
    if program.mesh is not None and program.mesh.spans_processes:
        return False
    return len(program.block.steps) >= LARGE and not program.block.opaque


_called = BoundedCache(sys.maxsize)
"""The programs that were called in this process. They are never dropped: one that returns after its executable is gone
runs the optimised tier, so results do not depend on what the cache holds. Those with ops of a user's class go with it.
"""


def _called_for(program: Program) -> BoundedCache:
    return _called.part([op for op, _, _ in program.block.steps])


def was_called(program: Program) -> bool:
    """True if a program of two tiers was called in this process."""
    return _called_for(program).find(program) is not None


def note_call(program: Program) -> bool:
    """Note a call of a program of two tiers; returns whether it is the first in this process."""
    call = object()
    return _called_for(program).keep(program, call) is call


# ---------------------------------------------------------------- the time spent

_lock = threading.Lock()
"""Held while a counter of this process changes."""


class Spent(NamedTuple):
    """Seconds and counts since the start of the process, or since they were reset."""

    trace: float = 0.0
    """Seconds that JAX spent tracing programs."""
    lower: float = 0.0
    """Seconds that JAX spent lowering them."""
    compile: float = 0.0
    """Seconds that XLA spent compiling them."""
    quick: int = 0
    """The number of programs that have run in the quick tier."""
    optimised: int = 0
    """How often the optimised tier has taken over from the quick one."""


class Account:
    """The running total of time spent. Thread-safe."""

    def __init__(self) -> None:
        self.total = Spent()

    def add(self, **spent: float) -> None:
        """Add seconds and counts, by their names in `Spent`."""
        with _lock:
            total = self.total
            self.total = total._replace(**{name: getattr(total, name) + more for name, more in spent.items()})

    def forget(self) -> None:
        """Reset everything to zero."""
        self.total = Spent()


spent = Account()
"""The time that this process has spent."""
