"""checkpoint: a function of arrays that gradients compute again."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from . import builds
from .transformed import Build, Transformed


def checkpoint(
    fun: Callable[..., Any], *, prevent_cse: bool = True, policy: Callable[..., Any] | None = None,
    static_argnums: int | Sequence[int] = (),
) -> Callable[..., Any]:  # fmt: skip
    """A function whose inner values gradients compute again, so that they need not be kept, as `jax.checkpoint`.

    Args:
        fun: A function of arrays.
        prevent_cse: Is of no effect: what is computed again here is never one with what was computed first.
        policy: One of `jax.checkpoint_policies`. With any but `nothing_saveable` everything is kept, whatever the
            policy would not: so what it saves is saved.
        static_argnums: Which positional arguments `fun` is given as they are; they must be hashable.

    Raises:
        TypeError: `fun` cannot be called, or `static_argnums` are no positions.
    """
    del prevent_cse
    keeps = policy not in (None, jax.checkpoint_policies.nothing_saveable)
    build = Build(builds.value if keeps else builds.checkpoint)
    numbers = positions("checkpoint", "static_argnums", static_argnums)
    if not numbers:
        return Transformed(fun, build, "checkpoint")
    found = Transformed(_OfStatic(fun), build, "checkpoint")

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        fixed = {n + len(args) if n < 0 else n for n in numbers}
        return found(*[_Static(type(a), a) if i in fixed else a for i, a in enumerate(args)], **kwargs)

    return checkpointed


@dataclass(frozen=True)
class _Static:
    """An argument that the function is given as it is; 1, 1.0 and True are three."""

    kind: type
    value: Any


@dataclass(frozen=True)
class _OfStatic:
    """A function, some of whose arguments are `_Static`."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*[a.value if isinstance(a, _Static) else a for a in args], **kwargs)


def positions(name: str, what: str, given: int | Sequence[int]) -> tuple[int, ...]:
    """Positions of arguments, as `argnums` gives them.

    Raises:
        TypeError: They are none.
    """
    listed = tuple(given) if isinstance(given, Sequence) else (given,)
    if any([isinstance(n, bool) or not hasattr(n, "__index__") for n in listed]):
        raise TypeError(f"{name}: {what} must be a position of an argument, or several, got {given!r}")
    return tuple(map(operator.index, listed))
