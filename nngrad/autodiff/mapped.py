"""Ops that apply another op along a leading axis: what a function becomes that has no better batched form."""

from __future__ import annotations

from typing import Any

import jax

from ..graph import Function, op
from ..graph.arguments import Static
from ..graph.axes import AxisMap, Places, row_places
from ..graph.exchange import Processes, group_of, groups_of


def _mapping(of: Any, arguments: Any, batched: Any) -> Any:
    """The forward of `of`, applied along the first axis of the inputs that are `batched`."""
    return jax.vmap(of.bind(arguments), in_axes=tuple([0 if b else None for b in batched]))


def _places(f: Function) -> tuple[Places, ...]:
    return row_places(f, [i for i, is_batched in enumerate(f.args["batched"]) if is_batched])


_ROWS = AxisMap(places=_places)


def _exchanges(given: tuple[Any, ...]) -> Processes | None:
    """Among which processes the op that is applied exchanges arrays."""
    of, arguments, _ = given
    return group_of(groups_of(of, arguments))


@op(axes=_ROWS, exchanges=_exchanges, lockstep=True)
def mapped(*x, of: Static, arguments: Static, batched: Static):  # type: ignore[no-untyped-def]
    """The op `of` applied to each element along a leading axis.

    Args:
        x: Its inputs; those that are `batched` have one axis more than it takes, the first.
        of: The op.
        arguments: Its static arguments.
        batched: For each input whether it has that axis; at least one has.

    Returns:
        The results, stacked along a first axis.
    """
    return _mapping(of, arguments, batched)(*x)


@op(multiple_results=True, axes=_ROWS, exchanges=_exchanges, lockstep=True)
def mapped_several(*x, of: Static, arguments: Static, batched: Static):  # type: ignore[no-untyped-def]
    """The same for an op that has several outputs."""
    return _mapping(of, arguments, batched)(*x)
