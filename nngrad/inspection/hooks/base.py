"""`FunctionHook`, the base class of hooks, and plain functions as hooks, under nnabla's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

from ...extend import Event, Function, build_options, set_switches
from ..shown import aligned

Arrays = tuple[Any, ...]
Key = TypeVar("Key")
Value = TypeVar("Value")


class FunctionHook:
    """Observes functions as they run. Subclasses override the methods that they need.

    In a `with` block a hook watches everything that runs in this thread or asyncio task; `f.add_hook(hook)` makes it
    watch one Function, in every thread. Graphs with a watched function run eagerly, function by function.

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

    def added(self, function: Function | None) -> None:
        """Called when the hook is installed: with its Function, or with None if it observes all functions."""

    def deleted(self, function: Function | None) -> None:
        """Called when the hook is removed, with the same argument as `added`."""

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


def by_key(entries: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Group entries by key, in order."""
    found: dict[Key, list[Value]] = {}
    for key, value in entries:
        found.setdefault(key, []).append(value)
    return found


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table of a hook's records, with the first `words` columns left-aligned."""
    return "\n".join(aligned([head, *rows], range(words, len(head)), (1,)))


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
    _unset("pre", key)


def unset_function_post_hook(key: str) -> None:
    """Remove the function that `set_function_post_hook` set with `key`, if any."""
    _unset("post", key)


def _set(when: str, key: str, callback: Callback | None) -> None:
    if callback is None:
        return
    if not callable(callback):
        raise TypeError(f"function_{when}_hook: expected a function of a Function, got {callback!r}")
    kind = "before" if when == "pre" else "after"
    _listen(f"function_{when}_hook {key}", lambda event: callback(event.function), kind)


def _unset(when: str, key: str) -> None:
    _listen(f"function_{when}_hook {key}", None)


def _listen(key: str, listener: Callable[[Event], Any] | None, *kinds: str) -> None:
    """Let `listener` listen from now on, or nothing, under this key."""
    set_switches(**{key: None if listener is None else (listener, kinds)})
