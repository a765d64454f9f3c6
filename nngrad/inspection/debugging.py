"""Debug mode: every function remembers where it was called, and NaN and infinities are detected and traced back."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..extend import Event, SourceLocation, Switched, coerced, watch
from ..parameter import Scope, get_current_parameter_scope, path_of_scope
from .nan import DEBUG_MODE, Checker, report_of


def _debugging(inf: bool) -> Switched:
    """Listens to functions being made, to record their places, and to runs, to check them; `inf` enables the check for
    infinity in addition to NaN."""
    checkers: WeakKeyDictionary[Any, Checker] = WeakKeyDictionary()  # one for each run

    def listen(event: Event) -> None:
        f, execution = event.function, event.execution
        if execution is None:
            f.location = SourceLocation.of_user()
            return
        if execution not in checkers:
            checkers[execution] = Checker(nan=np.isnan, inf=np.isinf) if inf else Checker(nan=np.isnan)
        checker = checkers[execution]
        checker(event)
        for y in execution.outputs:
            marks = checker.marks_of(y) if y.parent is f else None
            if marks is not None:
                raise FloatingPointError(str(report_of(marks.get("nan") or marks["inf"], checker)))

    return watch(listen, "applied", "emitted", "ran", "kept", key=DEBUG_MODE)


def debug(on: bool = True, *, inf: bool = True) -> Switched:
    """Debug mode, in this thread or asyncio task. The environment variable NNGRAD_DEBUG=1 switches it on everywhere.

    Within the block, functions remember the line of the user's program that applied them, and graphs run function by
    function. If a NaN or an infinity reaches a result, a FloatingPointError says what `nn.find_nan` reports: the
    function that made it, its order of differentiation, its inputs, and the line that called it. Non-finite values that
    do not reach a result, as in the branch of a `where` that is not taken, are no error.

    Training steps, `nn.compile` and `nn.to_jax` are compiled as a whole, and are not checked inside.

    Args:
        on: False switches debug mode off within the block.
        inf: Whether infinity is an error, in addition to NaN.

    Raises:
        TypeError: `on` or `inf` is not a bool.
        FloatingPointError: Within the block, by whatever runs a graph.
    """
    coerced(bool, on, "on")
    coerced(bool, inf, "inf")
    return _debugging(inf) if on else watch(None, key=DEBUG_MODE)


if os.environ.get("NNGRAD_DEBUG", "").lower() not in ("", "0", "false", "no", "off"):
    _debugging(inf=True).everywhere()


def _noting() -> Callable[[Event], None]:
    """A listener that records source lines and scopes on functions as they are made."""
    known: dict[int, tuple[Scope, str]] = {}
    """The names of scopes by id; holding the scopes here prevents reuse of their ids."""

    def note(event: Event) -> None:
        event.function.location = SourceLocation.of_user()
        scope = get_current_parameter_scope()
        if id(scope) not in known:
            known[id(scope)] = scope, path_of_scope(scope)
        event.function.scope = known[id(scope)][1]

    return note


def source_locations(on: bool = True) -> Switched:
    """Within the block, in this thread or asyncio task, functions remember the user's source line and their parameter
    scope, which `nn.show` and other views display. Nothing else changes.

        with nn.source_locations():
            loss = build()
        print(nn.show(loss))

    It also works as a decorator. Building a graph takes two or three times as long within the block; running it takes
    no longer.

    Args:
        on: False switches it off within the block.

    Raises:
        TypeError: `on` is not a bool.
    """
    coerced(bool, on, "on")
    return watch(_noting() if on else None, "applied", "emitted", key="source locations")
