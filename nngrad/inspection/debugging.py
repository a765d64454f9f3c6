"""Debug mode: every function remembers where it was called, and NaN and infinities are detected and traced back."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..extend import Event, Function, Switched, Variable, check_bool, users_location, watch
from ..parameter import Scope, get_current_parameter_scope, path_of_scope
from .nan import DEBUG_MODE, Array, Beginning, Checker, located
from .stepwise import location_text


def _not_finite(values: Array) -> Array:
    return ~np.isfinite(values)


class DebugChecker(Checker):
    """Checks the results of functions as they run, and reports the origin of those that are not finite."""

    def message(self, begun: Beginning) -> str:
        """The error message: the fault, the function, and the line that called it."""
        f = begun.variable.parent
        assert f is not None  # leaves are not checked
        inner = None if any([self.bad(array) for array in begun.given]) else self.within(begun)
        if inner is None or inner.variable.parent is None:
            return "\n".join([self._finding(begun, f, "the leaf"), *located(f, _UNKNOWN)])
        g = inner.variable.parent
        part = f"part of a derivative of order {g.order} of what was " * (g.order > 0)
        lines = [self._finding(inner, g, "the body's"), f"  {g.op.name} is {part}{location_text(g)}"]
        return "\n".join([*lines, *[f"  {step}" for step in reversed(inner.trail)], *located(f, _UNKNOWN)])

    def _finding(self, begun: Beginning, f: Function, leaf: str) -> str:
        """The fault, the function, and its inputs, in words."""
        which = f"output {begun.variable.index}" if len(f.specs) > 1 else "the result"
        lines = [f"{self._wrong(begun.array)} in {which} of {f.op.name} (order {f.order}), {f!r}"]
        for name, x, array in zip(f.op.names_of(len(f.inputs)), f.inputs, begun.given, strict=True):
            lines.append(f"  its input {name}, {_named(x, leaf)}, is {self._described(np.asarray(array))}")
        return "\n".join(lines)

    def _wrong(self, array: Any) -> str:
        """A description of the non-finite values in an array; empty if there are none."""
        values = np.asarray(array)
        for bad in self.bad(values).values():
            what = "NaN" if np.isnan(values).any() else "infinity"
            first = [int(i) for i in np.argwhere(bad)[0]]
            return f"{what} ({bad.sum()} of {values.size} elements, the first at {first})" if values.shape else what
        return ""

    def _described(self, values: Array) -> str:
        """A description of a function's inputs."""
        wrong = self._wrong(values)
        if wrong:
            return f"not finite itself: {wrong}"
        if not values.size:
            return "empty"
        if values.size == 1:
            return f"{values.reshape(())[()]:.6g}"
        return f"finite, between {values.min():.6g} and {values.max():.6g}"


def _named(x: Variable, leaf: str) -> str:
    name = f" {x.name!r}" if x.name else ""
    return f"{leaf}{name} {x.spec}" if x.parent is None else f"{x.spec} from {x.parent.op.name}"


_UNKNOWN = "an unknown place: it was built outside debug mode"


def _debugging(inf: bool) -> Switched:
    """Listens to functions being made, to record their places, and to runs, to check them; `inf` enables the check for
    infinity in addition to NaN."""
    checkers: WeakKeyDictionary[Any, DebugChecker] = WeakKeyDictionary()  # one for each run

    def listen(event: Event) -> None:
        f, execution = event.function, event.execution
        if execution is None:
            f.location = users_location()
            return
        if execution not in checkers:
            checkers[execution] = DebugChecker(wrong=_not_finite if inf else np.isnan)
        checker = checkers[execution]
        checker(event)
        for y in execution.outputs:
            marks = checker.marks_of(y) if y.parent is f else None
            if marks is not None:
                raise FloatingPointError(checker.message(marks["wrong"]))

    return watch(listen, "applied", "emitted", "ran", "kept", key=DEBUG_MODE)


def debug(on: bool = True, *, inf: bool = True) -> Switched:
    """Debug mode, in this thread or asyncio task. The environment variable NNGRAD_DEBUG=1 switches it on everywhere.

    Within the block, functions remember the line of the user's program that applied them, and graphs run function by
    function. If a NaN or an infinity reaches a result, a FloatingPointError names the function that made it, its order
    of differentiation, its inputs, and the line that called it. Non-finite values that do not reach a result, as in the
    branch of a `where` that is not taken, are no error.

    Training steps, `nn.compile` and `nn.to_jax` are compiled as a whole, and are not checked inside.

    Args:
        on: False switches debug mode off within the block.
        inf: Whether infinity is an error, in addition to NaN.

    Raises:
        TypeError: `on` or `inf` is not a bool.
        FloatingPointError: Within the block, by whatever runs a graph.
    """
    check_bool(on, "on")
    check_bool(inf, "inf")
    return _debugging(inf) if on else watch(None, key=DEBUG_MODE)


if os.environ.get("NNGRAD_DEBUG", "").lower() not in ("", "0", "false", "no", "off"):
    _debugging(inf=True).everywhere()


def _noting() -> Callable[[Event], None]:
    """A listener that records source lines and scopes on functions as they are made."""
    known: dict[int, tuple[Scope, str]] = {}
    """The names of scopes by id; holding the scopes here prevents reuse of their ids."""

    def note(event: Event) -> None:
        event.function.location = users_location()
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
        print(nn.show(loss, columns=("scope", "location")))

    It also works as a decorator. Building a graph takes two or three times as long within the block; running it takes
    no longer.

    Args:
        on: False switches it off within the block.

    Raises:
        TypeError: `on` is not a bool.
    """
    check_bool(on, "on")
    return watch(_noting() if on else None, "applied", "emitted", key="source locations")
