"""find_nan: which function made the first NaN or infinity that reaches a result, and out of what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..autodiff.request import variables
from ..execution.interpret import interpret, results_of
from ..execution.stepwise import MarkedArray, Trail, run_in_steps, written_at
from ..graph import Function, Variable, leaves_of
from ..graph.body_op import ControlOp
from ..graph.leaf import arrays_of


class InputState(NamedTuple):
    """One input of the function that was found."""

    name: str
    """The parameter of the function, and the Variable's own name if it has one."""
    finite: bool
    """Whether all elements are finite."""
    value: float | None
    """Its element in the place that was found, where it has one there: functions that are elementwise, and numbers."""


class NanReport(NamedTuple):
    """Where the first NaN or infinity comes from; `str()` of it says so in words."""

    kind: str
    """'nan' or 'inf'."""
    function: Function | None
    """The function that made it of inputs that had none of its kind; None if it was in a leaf."""
    variable: Variable
    """The output of the function, or the leaf."""
    order: int
    """Order of differentiation of the function: 0 is what the user built, 1 its gradient, and so on."""
    place: tuple[int, ...]
    """Index of the first such element."""
    elements: int
    """How many elements are such."""
    inputs: tuple[InputState, ...]
    """The function's inputs."""
    cause: NanReport | None
    """For a NaN that was made of infinities: where the first of those comes from."""
    reaches: tuple[int, ...]
    """Which of the outputs are not finite; none if what was found is selected away before it gets there."""
    within: NanReport | None = None
    """For a loop, and what else has a body: the function in the body that made the first one."""
    steps: Trail = ()
    """For a function in a body: at which step of which loop, the outermost first."""

    def __str__(self) -> str:
        lines = [f"{_NAMES[self.kind]} in {self._whose()}, {self._where()}"]
        if self.steps and self.function is not None:
            lines += [f"  {self.function.op.name}, {written_at(self.function)}"]
            lines += [f"  {step}" for step in reversed(self.steps)]
        for state in self.inputs:
            known = "" if state.value is None else f", {state.value:.6g} there"
            lines.append(f"  {state.name}: {'finite' if state.finite else 'not finite'}{known}")
        if self.cause is not None:
            cause = "\n".join("  " + line for line in str(self.cause).splitlines())
            lines += ["  made of an infinity, which comes from here:", cause]
        if self.within is not None:
            lines += ["  which comes from within:", *["  " + line for line in str(self.within).splitlines()]]
        return "\n".join(lines)

    def _whose(self) -> str:
        if self.function is None:
            return f"the leaf {self.variable.name or repr(self.variable.spec)}"
        f = self.function
        origin = f.origin if f.order else None
        by = "" if origin is None else f", from the rule of {origin.op.name}"
        return f"{f!r} (order of differentiation {f.order}{by})"

    def _where(self) -> str:
        at = f"at {list(self.place)}" if self.place else "its only element"
        return at if self.elements == 1 else f"{at} and {self.elements - 1} more of {self.variable.size} elements"


_NAMES = {"nan": "NaN", "inf": "infinity"}


def find_nan(outputs: Variable | Iterable[Variable], masked: bool = False) -> NanReport | None:
    """Run the graph of `outputs` function by function, and say where the first NaN or infinity comes from.

    What is found is the function that made it: one with no NaN among its inputs for a NaN, with no infinity for an
    infinity. NaN goes before infinity, which is a value like another as long as nothing is made NaN by it. Where the
    NaN was made of infinities, as 0 times infinity is, the report has the function that made those too.

    It looks back from those of the outputs that are not finite. What lies in the graph and does not reach them, as an
    infinity that a `where` does not take, is no error, and is looked for only if `masked`.

    The values are those of the last `forward()` of the outputs, or those of the leaves' present values if there was
    none. XLA may round what it fuses otherwise than function by function.

    Args:
        outputs: A Variable or Variables.
        masked: Whether to report what does not reach the outputs too.

    Returns:
        A `NanReport`, or None if there is nothing to report.

    Raises:
        TypeError: Something is not a Variable.
    """
    outputs = variables(outputs, "outputs")
    graph = _BadValues(outputs)
    reaches = tuple([i for i, y in enumerate(outputs) if graph.has(y, "nan") or graph.has(y, "inf")])
    roots = [outputs[i] for i in reaches]
    found = graph.source("nan", roots) or graph.source("inf", roots)
    if found is None and masked:
        found = graph.first("nan") or graph.first("inf")
    return None if found is None else found._replace(reaches=reaches)


class _BadValues:
    """The values of a graph that hold NaN or infinity."""

    def __init__(self, outputs: list[Variable]) -> None:
        self._values: dict[tuple[Any, int], Any] = {}
        self._bad: dict[tuple[Any, int], dict[str, np.ndarray[Any, Any]]] = {}
        self._functions: list[Function] = []
        self._leaves = leaves_of(outputs)
        arrays = {id(x): a for x, a in zip(self._leaves, arrays_of(self._leaves, draw=False), strict=True)}
        for y in outputs:
            snapshot = None if y.parent is None else y.parent.snapshot
            arrays |= {} if snapshot is None else snapshot.by_leaf()
        for x in self._leaves:
            self._look(x, arrays[id(x)])
        interpret(outputs, arrays, computed=self._computed)

    def _computed(self, f: Function, results: tuple[Any, ...]) -> None:
        self._functions.append(f)
        for y, array in zip(f.outputs, results, strict=True):
            self._look(y, array)

    def _look(self, x: Variable, array: Any) -> None:
        values = self._values[_key(x)] = np.asarray(array)
        if not x.spec.differentiable:
            return
        if kinds := _kinds(values):
            self._bad[_key(x)] = kinds

    def has(self, x: Variable, kind: str) -> bool:
        """Whether `x` has an element of the kind."""
        bad = self._bad.get(_key(x))
        return bad is not None and kind in bad

    def source(self, kind: str, roots: list[Variable]) -> NanReport | None:
        """Where what is of the kind in `roots` comes from: what made the first of it, in the order of running."""
        seen: set[tuple[Any, int]] = set()
        stack = [x for x in roots if self.has(x, kind)]
        sources: list[Variable] = []
        while stack:
            x = stack.pop()
            if _key(x) in seen:
                continue
            seen.add(_key(x))
            above = [] if x.parent is None else [z for z in x.parent.inputs if self.has(z, kind)]
            stack += above
            if not above:
                sources.append(x)
        return self._report(kind, min(sources, key=lambda x: x.rank)) if sources else None

    def first(self, kind: str) -> NanReport | None:
        """Returns what made the first of the kind, whether it reaches anything or not."""
        for x in (*self._leaves, *(y for f in self._functions for y in f.outputs)):
            if self.has(x, kind):
                return self._report(kind, x)
        return None

    def _report(self, kind: str, x: Variable) -> NanReport:
        f, mask = x.parent, self._bad[_key(x)][kind]
        place = tuple(int(i) for i in np.argwhere(mask)[0])
        if f is None:
            return NanReport(kind, None, x, 0, place, int(mask.sum()), (), None, ())
        cause = self.source("inf", list(f.inputs)) if kind == "nan" else None
        states = input_states(f, [self._values[_key(z)] for z in f.inputs], place)
        within = None if not isinstance(f.op, ControlOp) else self._within(kind, f, x.index)
        return NanReport(kind, f, x, f.order, place, int(mask.sum()), states, cause, (), within)

    def _within(self, kind: str, f: Function, index: int) -> NanReport | None:
        """What made the first of the kind in the bodies of `f`: it is run once more, a step at a time."""
        inputs = [MarkedArray(self._values[_key(z)], None) for z in f.inputs]
        mark: _Marks | None = run_in_steps(f, inputs, results_of, _InBodies())[index].mark
        return None if mark is None else mark.get(kind)


_Marks = dict[str, NanReport]
"""What made the first NaN, and the first infinity, that an array has."""


class _InBodies:
    """Looks at functions in bodies: of a NaN or an infinity that one gives it knows where that comes from."""

    def marks(
        self, f: Function, inputs: Sequence[MarkedArray], results: Sequence[Any], trail: Trail
    ) -> list[_Marks | None]:
        """The marks of the results of a function."""
        return [self._of_result(f, y, inputs, result, trail) for y, result in zip(f.outputs, results, strict=True)]

    def of_part(self, mark: _Marks, array: Any) -> _Marks | None:
        """The mark of a part of an array."""
        return {kind: report for kind, report in mark.items() if _kinds(array).get(kind) is not None} or None

    def _of_result(
        self, f: Function, y: Variable, inputs: Sequence[MarkedArray], result: Any, trail: Trail
    ) -> _Marks | None:
        found: _Marks = {}
        for kind, mask in _kinds(result).items():
            earlier = [x.mark[kind] for x in inputs if x.mark is not None and kind in x.mark]
            if earlier:
                found[kind] = earlier[0]
                continue
            place = tuple(int(i) for i in np.argwhere(mask)[0])
            causes = [x.mark["inf"] for x in inputs if x.mark is not None and "inf" in x.mark]
            cause = causes[0] if causes and kind == "nan" else None
            states = input_states(f, [np.asarray(x.array) for x in inputs], place)
            found[kind] = NanReport(
                kind, f, y, f.order, place, int(mask.sum()), states, cause, (), steps=trail
            )
        return found or None


def _kinds(array: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Where an array has NaN and where infinity, if it has any."""
    values = np.asarray(array)
    if values.dtype.kind in "biu" or np.isfinite(values).all():
        return {}
    return {kind: mask for kind, mask in (("nan", np.isnan(values)), ("inf", np.isinf(values))) if mask.any()}


def input_states(f: Function, arrays: Sequence[Any], place: tuple[int, ...]) -> tuple[InputState, ...]:
    """The inputs of a function, of which the result at `place` is not finite."""
    names = f.op.names_of(len(f.inputs))
    return tuple([
        InputState(f"{name} {x.name!r}" if x.name else name, not _kinds(array), _element(x, array, place, f))
        for name, x, array in zip(names, f.inputs, arrays, strict=True)
    ])


def _element(x: Variable, array: Any, place: tuple[int, ...], f: Function) -> float | None:
    """The element of `x` that the result at `place` is made of, where that is one and a floating number."""
    y = f.specs[0].shape
    if not x.spec.differentiable or (x.shape and not f.op.diagonal):
        return None
    if f.op.selects and x.shape not in ((), y):
        return None  # a condition may stand for the first axes
    own = place[len(place) - x.ndim :]
    return float(array[tuple([i if n > 1 else 0 for i, n in zip(own, x.shape, strict=True)])])


def _key(x: Variable) -> tuple[Any, int]:
    return (id(x), -1) if x.parent is None else (x.parent, x.index)
