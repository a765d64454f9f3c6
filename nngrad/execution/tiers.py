"""Executables in two tiers: one that is compiled cheaply runs first, and the best one takes over when it is ready.

XLA's compiler for CPUs takes seconds for a large program. Told to optimise less it takes two fifths to a seventh of
that, by its version, and what it makes runs two to six times slower. So a large program is compiled cheaply at its
first call. When it has been in use for as long as that took, the best executable is compiled in the background, from
the same lowering, and takes over between two calls. A program that is run once is compiled once.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from ..graph import build_options
from ..graph.half_made import has_met_half_made, unharmed
from ..graph.place import warn_user
from . import background
from .on_disk import Entry, OnDisk, on_disk_of_trees
from .platforms import default_device
from .progress import shown
from .spent import spent

LARGE = 50
"""Programs of so many functions have two tiers. The best executable of a gradient of 50 functions takes half a second
to compile, if there are convolutions in it some seconds; the cheap one about a fifth of that."""

_CHEAP: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",  # half the time, and less
    "xla_cpu_use_fusion_emitters": False,  # more than half of what is left; jaxlib 0.11.1 and newer have it no more
    "xla_cpu_parallel_codegen_split_count": "2",  # a fifth of what is left, since parts are not compiled over and over
}
"""XLA's options for the first tier, the most important one first. What they serve, by version: docs/compilation.md."""
_WANTED = tuple(_CHEAP.items())
"""By these an executable is known on disk; which of them XLA has, its version says."""

_SECONDS_FROM_DISK = 1.0
"""For so long a cheap executable that came from disk is in use before the best one is asked for: what compiling it took
is not known then, and to lower the program for the best one is work that a short run shall not pay for."""

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


class _First:
    """The executable of the first tier, and how long it has been in use.

    Args:
        executable: What was compiled cheaply.
        arrays: Arrays, or pytrees of them, as those that it was compiled for.
        seconds: How long it is to be in use before the best one is asked for.
    """

    __slots__ = ("_is_due", "_placement", "_seconds", "_since", "executable", "failure")

    failure: Exception | None
    """Why there will be no best one, until that is told."""

    def __init__(self, executable: Callable[..., Any], arrays: tuple[Any, ...], seconds: float) -> None:
        self.executable = executable
        self.failure = None
        self._placement = _placement_of(arrays)
        self._seconds = seconds
        self._since: float | None = None
        self._is_due = False

    def takes(self, arrays: tuple[Any, ...]) -> bool:
        """Whether it was compiled for such arrays."""
        return _placement_of(arrays) == self._placement

    def becomes_due(self) -> bool:
        """Note a call; returns whether it is time for the best one, once."""
        now = time.perf_counter()
        if self._since is None:
            self._since = now
            return False
        if self._is_due or now - self._since < self._seconds:
            return False
        self._is_due = True
        return True

    def tell(self) -> None:
        """Warn, once, if the best one could not be compiled."""
        failure, self.failure = self.failure, None
        if failure is not None:
            warn_user(f"nngrad could not compile the best executable of a graph and goes on with a slower one: "
                      f"{failure}", RuntimeWarning)


class Tiers:
    """The executables of a program. See `tiered`.

    Args:
        jitted: The program as a jitted function of arrays, or a function that calls several.
        best: `jitted`, as it is to be called in the end.
        is_large: Whether there is a first tier.
        device: Where it runs; None leaves it to JAX.
        compiled: Called once with the seconds that the first call had to wait for the compiler, if that is wanted.
        on_disk: What is remembered on disk of it; None for nothing.
    """

    __slots__ = (
        "__weakref__",
        "_compiled",
        "_device",
        "_entry",
        "_first",
        "_jitted",
        "_lock",
        "_lowered",
        "_on_disk",
        "_seconds",
        "_then",
        "best",
        "is_large",
    )

    best: Callable[..., Any] | None
    """What runs from now on; None until it is compiled."""

    def __init__(
        self,
        jitted: Any,
        best: Callable[..., Any],
        is_large: bool = False,
        device: jax.Device | None = None,
        compiled: Callable[[float], None] | None = None,
        on_disk: OnDisk | None = None,
    ) -> None:
        self.best = None
        self.is_large = is_large
        self._compiled = compiled
        self._device = device
        self._jitted = jitted
        self._on_disk = on_disk
        self._entry: Entry | None = None
        self._then = best
        self._lock = threading.RLock()  # a signal's handler may come back to it
        self._first: _First | None = None
        self._lowered: Any = None
        self._seconds = 0.0

    def __call__(self, arrays: tuple[Any, ...]) -> Any:
        """The results for arrays, or pytrees of them, while the best executable is not there."""
        if any([isinstance(array, jax.core.Tracer) for array in jax.tree.leaves(arrays)]):
            return self._then(*arrays)
        first = self._first
        if first is None:
            with self._lock:
                if self._first is None and self.best is None:
                    self._compile(arrays)
                first = self._first
            self._tell()
            if first is None:
                return self._then(*arrays)
        if build_options().deterministic:
            self._prepare(arrays)
            self._wait_for_best()
            return self._then(*arrays)
        if not first.takes(arrays):
            return self._then(*arrays)  # for which JAX compiles
        first.tell()
        if first.becomes_due():
            self._prepare(arrays)
            background.request(self)
        return first.executable(*arrays)

    @unharmed
    def compile_for(self, given: tuple[Any, ...]) -> Any:
        """Compile for arrays, or what they will be like, with one tier or two; returns a `jax.stages.Compiled`."""
        with self._lock:
            return self._compile(given)

    def _compile(self, arrays: tuple[Any, ...]) -> Any:
        """Get an executable, at the first call: from disk, or from the compiler. Nothing changes if that fails."""
        if not hasattr(self._jitted, "trace"):  # several, each of which is compiled as it is met
            self.best = self._then
            return None
        has_first, on_disk = self._has_first(), self._on_disk
        entry = None if on_disk is None else on_disk.entry(arrays)
        compiled = None if entry is None else entry.load(arrays)
        if compiled is not None:
            self.best, self._compiled = self._then, None
            return compiled
        self._entry = entry
        cheap = None if on_disk is None or entry is None or not has_first else on_disk.entry(arrays, _WANTED)
        compiled = None if cheap is None else cheap.load(arrays)
        if compiled is not None:
            self._first, self._compiled = _First(compiled, arrays, _SECONDS_FROM_DISK), None
            return compiled
        return self._compile_anew(arrays, cheap_options() if has_first else {}, cheap)

    def _compile_anew(self, arrays: tuple[Any, ...], options: dict[str, str | bool], cheap: Entry | None) -> Any:
        """Compile, by the options of the first tier if there are any, and remember it in `cheap` then."""
        start = time.perf_counter()
        with shown("a graph"):
            traced = self._trace(arrays)
            at_trace = time.perf_counter()
            lowered = traced.lower()
            at_lower = time.perf_counter()
            if options:
                try:
                    compiled = lowered.compile(compiler_options=options)
                except jax.errors.JaxRuntimeError:
                    options = {}  # it is for the usual way to fail, where that is looked after
            if not options:
                compiled = lowered.compile()
        now = time.perf_counter()
        spent.add(trace=at_trace - start, lower=at_lower - at_trace, compile=now - at_lower, cheaply=int(bool(options)))
        self._seconds = now - start
        if not options:
            self._keep_best(compiled)
            return compiled
        self._first, self._lowered = _First(compiled, arrays, self._seconds), lowered
        if cheap is not None:
            cheap.keep(compiled)
        return compiled

    def _has_first(self) -> bool:
        """Whether there is a first tier for calls of now."""
        return self.is_large and not build_options().deterministic and self._on_platform()

    def _keep_best(self, compiled: Any) -> None:
        """Let the best executable take over, and be remembered."""
        if self._entry is not None:
            self._entry.keep(compiled)
        self.best = self._then

    def _trace(self, arrays: tuple[Any, ...]) -> Any:
        return self._jitted.trace(*arrays) if self._on_disk is None else self._on_disk.traced(arrays)

    def _tell(self) -> None:
        """Say how long it took, once, when nothing is locked: what is told may warn, and warnings may be errors."""
        compiled, self._compiled = self._compiled, None
        if compiled is not None:
            compiled(self._seconds)

    def _on_platform(self) -> bool:
        device = default_device() if self._device is None else self._device
        return bool(device.platform == _PLATFORM)

    def _prepare(self, arrays: tuple[Any, ...]) -> None:
        """Let there be what the best executable is compiled from; in the caller's thread, whose settings count."""
        with self._lock:
            if self._lowered is None and self.best is None:
                self._lowered = self._trace(arrays).lower()

    def _wait_for_best(self) -> None:
        start = time.perf_counter()
        with shown("the best executable of a graph"):
            self._compile_best()
        spent.add(compile=time.perf_counter() - start)

    def _compile_best(self) -> None:
        """Compile the best executable, if that was not done; it takes over then."""
        with self._lock:
            if self.best is None:
                self._keep_best(self._lowered.compile())  # which JAX keeps for the jitted function
                self._first, self._lowered = None, None
                spent.add(best=1)

    def work(self) -> None:
        """Compile the best executable in the background; an error is told at the next call."""
        start, first = time.perf_counter(), self._first
        try:
            self._compile_best()
        except Exception as error:
            if first is not None:
                first.failure = error
        spent.add(background=time.perf_counter() - start)

    def compiles(self, arrays: tuple[Any, ...]) -> bool:
        """Whether it was not the compiler that failed, when a call did."""
        if self._first is not None:
            return True
        try:
            self._jitted.lower(*arrays).compile()
        except jax.errors.JaxRuntimeError:
            return False
        return True


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


Settings = tuple[Any, ...]
"""Those of JAX's settings that users switch from call to call: default device, precision of products, 64 bits."""


def settings_of_now() -> Settings:
    """What these settings are in this thread."""
    config: Any = jax.config
    return config.jax_default_device, config.jax_default_matmul_precision, config.jax_enable_x64


def _placement_of(arrays: tuple[Any, ...]) -> list[Any]:
    """What an executable is compiled for, besides shapes and dtypes, of which a program has but one each."""
    return [*settings_of_now(), *[_place_of(array) for array in jax.tree.leaves(arrays)]]


def _place_of(array: Any) -> Any:
    if isinstance(array, jax.Array):
        return array.weak_type, array.sharding if array.committed else None
    return False, getattr(array, "sharding", None)
