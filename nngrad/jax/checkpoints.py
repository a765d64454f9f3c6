"""`nngrad.jax.checkpoint`: rematerialise a function's intermediate values for gradients."""

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
    """Recompute a function's intermediate values for gradients instead of keeping them, as `jax.checkpoint`.

    Args:
        fun: A function of arrays.
        prevent_cse: Has no effect: recomputed values are never merged with the first ones here.
        policy: One of `jax.checkpoint_policies`, or a function like them. Values that it saves are kept, so that first
            derivatives do not recompute them, in loops and branches within `fun` either. Such a loop keeps its carries
            too. Values that a policy would offload to the host are recomputed.
        static_argnums: Which positional arguments `fun` is given unchanged; they must be hashable.

    Raises:
        TypeError: `fun` is not callable, or `static_argnums` is not an int or a sequence of ints.
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
    """A static argument, compared by type too: 1, 1.0 and True differ."""

    kind: type
    value: Any


@dataclass(frozen=True)
class _Checkpointed:
    """A function under `jax.checkpoint`, some of whose arguments are `_Static` or not arrays."""

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
    """Argument positions, given as for `argnums`, as a tuple.

    Raises:
        TypeError: `given` is not an int or a sequence of ints.
    """
    listed = tuple(given) if isinstance(given, Sequence) else (given,)
    if any([isinstance(n, bool) or not hasattr(n, "__index__") for n in listed]):
        raise TypeError(f"{name}: {what} must be a position of an argument, or several, got {given!r}")
    return tuple(map(operator.index, listed))
