"""Hooks that observe functions as they run, forward and backward."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from ..extend import Event, Function, build_options, watch
from .shown import aligned

__all__ = [
    "FunctionHook", "TimerHook", "label", "set_function_post_hook", "set_function_pre_hook",
    "unset_function_post_hook", "unset_function_pre_hook",
]  # fmt: skip

Arrays = tuple[Any, ...]


class FunctionHook:
    """Observes functions as they run. Subclasses override the methods that they need.

    In a `with` block a hook watches everything that runs in this thread or asyncio task; graphs run eagerly there,
    function by function.

    `forward_preprocess` and `forward_postprocess` are called around each function that the user built. The backward of
    a function consists of the functions that one call of its backward rule emitted: `backward_preprocess` is called
    before the first and `backward_postprocess` after the last of them runs, and nothing else runs in between. A rule
    that computes nothing, such as that of an addition, which passes its gradient on, has no backward to watch. If a
    gradient is differentiated again, its own functions are watched too: their `order` is above 0. Gradients built while
    hooks watch are not simplified, so that each function has a backward of its own; in gradients built earlier,
    functions share computations, and some have no backward.

    Hooks receive JAX or NumPy arrays, which must not be written to. Computations with `F` inside a hook are watched
    too, so use NumPy or JAX for the arrays. A hook should keep names and numbers rather than functions or arrays, which
    would keep graphs alive. An exception in a hook ends the run.
    """

    name: str = ""
    """The name of the hook, by default that of its class. Two hooks with the same name cannot be active at once."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def __enter__(self) -> Self:
        hooks = [hook for hook in build_options().listeners["before"] if isinstance(hook, FunctionHook)]
        if any([hook.name == self.name for hook in hooks]):
            raise KeyError(f"a hook named {self.name!r} is already in force; choose another name for one of them")
        self.added(None)
        try:
            _listen(f"hook {self.name}", self, "before", "after")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            _listen(f"hook {self.name}", None)
        except BaseException:
            _listen(f"hook {self.name}", None)
            raise
        finally:
            self.deleted(None)

    def __call__(self, event: Event) -> None:
        """Call the method for an event."""
        way = "forward" if event.gradients is None else "backward"
        gradients = () if event.gradients is None else (event.gradients,)
        when = "pre" if event.kind == "before" else "post"
        getattr(self, f"{way}_{when}process")(event.function, event.inputs, *gradients)

    def added(self, function: None) -> None:
        """Called when the block begins; with None, as in Chainer."""

    def deleted(self, function: None) -> None:
        """Called when the block ends; with None, as in Chainer."""

    def forward_preprocess(self, function: Function, in_data: Arrays) -> None:
        """Called before a function runs, with the arrays of its inputs."""

    def forward_postprocess(self, function: Function, in_data: Arrays) -> None:
        """Called after a function has run, with the arrays of its inputs."""

    def backward_preprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        """Called before the backward of a function runs.

        Args:
            function: The function whose backward runs.
            in_data: The arrays of its inputs.
            out_grad: The gradient of each output, or None for an output without one.
        """

    def backward_postprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        """Called after the backward of a function has run, with the same arguments."""


def label(function: Function) -> str:
    """A function's name in tables: its op, and the order of differentiation unless it is 0."""
    return f"{function.op.name} (order {function.order})" if function.order else function.op.name


Callback = Callable[[Function], Any]


def set_function_pre_hook(key: str, function_pre_hook: Callback | None) -> None:
    """In this thread or asyncio task, call a function before each Function runs, forward and backward.

    Watched graphs run eagerly, function by function; `nn.FunctionHook` also receives arrays and gradients.

    Args:
        key: The key for `unset_function_pre_hook`; an earlier hook with the same key is replaced.
        function_pre_hook: The function; None sets none.
    """
    _set("pre", key, function_pre_hook)


def set_function_post_hook(key: str, function_post_hook: Callback | None) -> None:
    """In this thread or asyncio task, call a function after each Function has run, forward and backward.

    Args:
        key: The key for `unset_function_post_hook`; an earlier hook with the same key is replaced.
        function_post_hook: The function; None sets none.
    """
    _set("post", key, function_post_hook)


def unset_function_pre_hook(key: str) -> None:
    """Remove the function that `set_function_pre_hook` set with `key`, if any."""
    _listen(f"function_pre_hook {key}", None)


def unset_function_post_hook(key: str) -> None:
    """Remove the function that `set_function_post_hook` set with `key`, if any."""
    _listen(f"function_post_hook {key}", None)


def _set(when: str, key: str, callback: Callback | None) -> None:
    if callback is None:
        return
    if not callable(callback):
        raise TypeError(f"function_{when}_hook: expected a function of a Function, got {callback!r}")
    kind = "before" if when == "pre" else "after"
    _listen(f"function_{when}_hook {key}", lambda event: callback(event.function), kind)


def _listen(key: str, listener: Callable[[Event], Any] | None, *kinds: Any) -> None:
    """Let `listener` listen from now on, or nothing, under this key."""
    watch(listener, *kinds, key=key).from_now_on()


# ---------------------------------------------------------------- times


class Times(NamedTuple):
    """The times of one kind of function, in seconds."""

    calls: int
    total: float
    median: float
    longest: float


class TimerHook(FunctionHook):
    """Measures the time of each function, which runs by itself until its results are ready.

    The first run of an op on new shapes compiles it, which dominates the longest time; the median is the time of the op
    itself. A graph that is compiled as a whole is faster than the sum, since XLA fuses functions.
    """

    def __init__(self) -> None:
        self.history: list[tuple[str, str, float]] = []
        """For each run of a function: its name, 'forward' or 'backward', and seconds."""
        self._starts: dict[int, list[float]] = {}
        """By thread, when the functions now running began, the innermost last: several may use it."""

    def __call__(self, event: Event) -> None:
        """Read the clock."""
        now, starts = time.perf_counter(), self._starts.setdefault(threading.get_ident(), [])
        if event.kind == "before":
            starts.append(now)
        else:
            way = "forward" if event.gradients is None else "backward"
            self.history.append((label(event.function), way, now - starts.pop()))

    @property
    def total(self) -> float:
        """The total in seconds."""
        return sum(seconds for *_, seconds in self.history)

    @property
    def times(self) -> dict[tuple[str, str], Times]:
        """The times by name of the function and direction, the longest total first."""
        by_key: dict[tuple[str, str], list[float]] = {}
        for name, way, seconds in self.history:
            by_key.setdefault((name, way), []).append(seconds)
        times = {
            key: Times(len(values), sum(values), sorted(values)[len(values) // 2], max(values))
            for key, values in by_key.items()
        }
        return dict(sorted(times.items(), key=lambda item: -item[1].total))

    def summary(self) -> str:
        """A table, in milliseconds."""
        rows = [(*key, str(t.calls), *[f"{seconds * 1e3:.3f}" for seconds in t[1:]]) for key, t in self.times.items()]
        rows.append(("total", "", str(len(self.history)), f"{self.total * 1e3:.3f}", "", ""))
        head = ("function", "", "calls", "total ms", "median ms", "longest ms")
        return "\n".join(aligned([head, *rows], range(2, len(head)), (1,)))
