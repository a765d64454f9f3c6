"""Scopes: settings in force for one thread or asyncio task, undone reliably even after interrupts."""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from collections.abc import Callable, Generator
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

Layer = tuple[object, Any]
"""The key of a `with` block, and what one entry of the block has put in force."""


class WithBlock:
    """A `with` block that adds a layer to those in force in this thread or task. It can also decorate a function.

    A block removes only its own layer, so that blocks need not end in the reverse order of their beginnings: in
    generators they do not. An object may be entered again, and in several threads and tasks at once.

    An interrupt (an exception that may come between any two steps) removes the layer as well. If it comes just as
    Python calls `__exit__`, so that none of that runs, the layer is removed when the exception is deallocated. Library
    code that cannot wait for this is `contained`.
    """

    def __init__(self) -> None:
        self._key = object()
        self._guard: weakref.ref[WithBlock] | None = None

    @staticmethod
    def layers() -> tuple[Layer, ...]:
        """The layers in force."""
        raise NotImplementedError

    @staticmethod
    def put(layers: tuple[Layer, ...]) -> None:
        """Put layers in force."""
        raise NotImplementedError

    def value(self) -> Any:
        """The value that entering the block puts in force."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        value, before = self.value(), self.layers()
        # Not `__del__`, in which interrupts would get lost: this runs only if `__exit__` did not.
        self._guard = weakref.ref(self, functools.partial(self._forgotten, self._key))
        try:
            self.put((*before, (self._key, value)))
        except BaseException:
            self.put(before)
            raise
        return value

    def __exit__(self, *_: object) -> None:
        after = None
        try:
            after = without(self.layers(), self._key)
            self.put(after)
        except BaseException:
            self.put(without(self.layers(), self._key) if after is None else after)
            raise
        self._guard = None

    @classmethod
    def _forgotten(cls, own: object, _: object) -> None:
        for key, _ in cls.layers():
            if key is own:
                cls.put(without(cls.layers(), own))

    def _again(self) -> WithBlock:
        twin = copy.copy(self)
        WithBlock.__init__(twin)
        return twin

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, with each call running within such a block; it may be async, or a generator.

        Raises:
            TypeError: `function` cannot be called, or is an async generator.
        """
        if not callable(function):
            raise TypeError(f"function: expected a function to decorate, got {type(function).__name__}")
        if inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__name__} is an async generator, which a block cannot decorate; write `with` in its body"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return await function(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                # In a context of its own, or what loops over it would run within the block too.
                context = copy_context()
                block = context.run(self._again)
                context.run(block.__enter__)
                return _steps(context.run, function(*args, **kwargs))

        else:

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return function(*args, **kwargs)

        return call  # type: ignore[return-value]


def without(layers: tuple[Layer, ...], key: object) -> tuple[Layer, ...]:
    """`layers` without the last one of `key`."""
    if layers and layers[-1][0] is key:
        return layers[:-1]
    for i in range(len(layers) - 1, -1, -1):
        if layers[i][0] is key:
            return layers[:i] + layers[i + 1 :]
    return layers


def _steps(run: Callable[..., Any], generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Yield what `generator` yields, with `run` taking each of its steps."""
    step: tuple[Any, ...] = (generator.send, None)
    while True:
        try:
            given = run(*step)
        except StopIteration as end:
            return end.value
        try:
            step = generator.send, (yield given)
        except GeneratorExit:
            run(generator.close)
            raise
        except BaseException as error:
            step = generator.throw, error
