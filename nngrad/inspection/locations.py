"""source_locations: functions remember where in the user's program they were applied, and in which scope."""

from __future__ import annotations

from ..graph import Function
from ..graph.function import locate
from ..graph.options import Switched, switched
from ..parameter import Scope, get_current_parameter_scope, path_of_scope


class _Noting:
    """Notes on functions where they are applied, and in which scope."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Scope, str]] = {}
        """The names of scopes by their ids; scopes that are kept here keep their ids."""

    def note(self, f: Function) -> None:
        """Note where the user's program is."""
        locate(f)
        scope = get_current_parameter_scope()
        known = self._known.get(id(scope))
        if known is None:
            known = self._known[id(scope)] = scope, path_of_scope(scope)
        f.scope = known[1]


def source_locations(on: bool = True) -> Switched:
    """Functions that are applied within, in this thread or asyncio task, remember the line of your program and the
    scope of parameters, which `nn.show` and other views of graphs tell. Nothing else is different.

        with nn.source_locations():
            loss = build()
        print(nn.show(loss, columns=("scope", "location")))

    It may also decorate a function. Building a graph takes two or three times as long within, running it as long as
    ever; `nngrad show` switches it on.

    Args:
        on: False switches it off within.

    Raises:
        TypeError: `on` is no bool.
    """
    if not isinstance(on, bool):
        raise TypeError(f"on: expected True or False, got {on!r}")
    return switched(locate=_Noting().note if on else None)
