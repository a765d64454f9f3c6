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
        policy: One of `jax.checkpoint_policies`, or a function like them: what it saves is kept, so that first
            derivatives do not compute it again, in loops and branches within `fun` neither. Such a loop keeps its
            carries too. What a policy would move to the host's memory is computed again.
        static_argnums: Which positional arguments `fun` is given as they are; they must be hashable.

    Raises:
        TypeError: `fun` cannot be called, or `static_argnums` are no positions.
    """
    del prevent_cse
    if not callable(fun):
        raise TypeError(f"checkpoint: fun must be a function of arrays, got {fun!r}")
    numbers = positions("checkpoint", "static_argnums", static_argnums)
    found = Transformed(_Checkpointed(fun, policy), Build(builds.called), "checkpoint")
    if not numbers:
        functools.update_wrapper(found, fun, updated=())
        return found

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
class _Checkpointed:
    """What `jax.checkpoint` makes of a function, some of whose arguments are `_Static`, or no arrays."""

    function: Callable[..., Any]
    policy: Callable[..., Any] | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]

        def of_arrays(*arrays: Any) -> Any:
            given = [leaf.value if isinstance(leaf, _Static) else leaf for leaf in leaves]
            for i, array in zip(places, arrays, strict=True):
                given[i] = array
            own_args, own_kwargs = jax.tree.unflatten(tree, given)
            return self.function(*own_args, **own_kwargs)

        return jax.checkpoint(of_arrays, policy=self.policy)(*[leaves[i] for i in places])


def positions(name: str, what: str, given: int | Sequence[int]) -> tuple[int, ...]:
    """Positions of arguments, as `argnums` gives them.

    Raises:
        TypeError: They are none.
    """
    listed = tuple(given) if isinstance(given, Sequence) else (given,)
    if any([isinstance(n, bool) or not hasattr(n, "__index__") for n in listed]):
        raise TypeError(f"{name}: {what} must be a position of an argument, or several, got {given!r}")
    return tuple(map(operator.index, listed))
