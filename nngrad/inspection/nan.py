"""`find_nan`: find the function that made the first NaN or infinity in a result, and its inputs. Functions are observed
as they run, and each value that is not finite is traced to its origin."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..extend import ControlOp, Event, Function, Variable, arrays_of, interpret, leaves_of, variables, watch
from .stepwise import MarkedArray, Trail, run_in_steps

Array = np.ndarray[Any, Any]

DEBUG_MODE = "debug mode"
"""The key of what listens in debug mode, which would raise the error that is to be reported here."""


class Beginning(NamedTuple):
    """The origin of a value that is not finite: a function of finite values, or a leaf."""

    kind: str
    number: int
    """The number of its function, in execution order."""
    variable: Variable
    array: Any
    inputs: tuple[Any, ...]
    """The inputs of its function."""
    cause: Beginning | None
    """For a NaN made from infinities, the origin of the first infinity."""
    trail: Trail
    """For a function in a body, the loops around it and the step of each."""


Marks = Mapping[str, Beginning]
"""The origin of each kind of non-finite value in an array."""


class Checker:
    """Listens to functions as they run, and tracks the origin of each value that is not finite.

    Args:
        kinds: What to look for, by name: functions that return a mask of its elements in an array.
    """

    def __init__(self, **kinds: Callable[[Array], Array]) -> None:
        self._kinds = kinds
        self._marks: dict[tuple[Any, int], Marks] = {}
        self._numbers = itertools.count()

    def bad(self, array: Any) -> dict[str, Array]:
        """The masks of the kinds that occur in an array."""
        values = np.asarray(array)
        if values.dtype.kind in "biu" or np.isfinite(values).all():
            return {}
        masks = {kind: where(values) for kind, where in self._kinds.items()}
        return {kind: mask for kind, mask in masks.items() if mask.any()}

    def leaf(self, x: Variable, array: Any) -> None:
        """Check a leaf; a leaf that was not checked is never an origin."""
        if kinds := self.bad(array):
            number = next(self._numbers)
            self._marks[id(x), 0] = {kind: Beginning(kind, number, x, array, (), None, ()) for kind in kinds}

    def __call__(self, event: Event) -> None:
        """Check a function that has run."""
        f = event.function
        inputs = [MarkedArray(array, self.marks_of(x)) for array, x in zip(event.inputs, f.inputs, strict=True)]
        self._marks |= {(f, k): marks for k, marks in enumerate(self.marks(f, inputs, event.results, ())) if marks}

    def within(self, begun: Beginning) -> Beginning | None:
        """For an origin at a function with bodies, the origin in these: the function is run again, step by step."""
        f = begun.variable.parent
        if f is None or not isinstance(f.op, ControlOp) or any([begun.kind in self.bad(x) for x in begun.inputs]):
            return None
        inputs = [MarkedArray(np.asarray(array), None) for array in begun.inputs]
        return first_of(begun.kind, [run_in_steps(f, inputs, Checker(**self._kinds))[begun.variable.index].mark])

    def marks_of(self, x: Variable) -> Marks | None:
        """The origins of non-finite values in a Variable; None if all are finite."""
        return self._marks.get((id(x), 0) if x.parent is None else (x.parent, x.index))

    def marks(
        self, f: Function, inputs: Sequence[MarkedArray], results: Sequence[Any], trail: Trail
    ) -> list[Marks | None]:
        """The origins of non-finite values in each result: an input's origin, or this function."""
        marks_of_inputs = [x.mark for x in inputs]
        number = next(self._numbers)
        marked: list[Marks | None] = []
        for k, result in enumerate(results):
            marks = {}
            for kind in self.bad(result):
                cause = first_of("inf", marks_of_inputs) if kind == "nan" else None
                arrays = tuple([x.array for x in inputs])
                marks[kind] = first_of(kind, marks_of_inputs) or Beginning(
                    kind, number, f.outputs[k], result, arrays, cause, trail
                )
            marked.append(marks or None)
        return marked

    def of_part(self, mark: Marks, array: Any) -> Marks | None:
        """The origins of non-finite values in a part of an array."""
        bad = self.bad(array)
        return {kind: begun for kind, begun in mark.items() if kind in bad} or None


def first_of(kind: str, marks: Iterable[Marks | None]) -> Beginning | None:
    """The first origin of a kind among several marks; among outputs of one function, the last."""
    origins = [mark[kind] for mark in marks if mark and kind in mark]
    return min(reversed(origins), key=lambda begun: begun.number, default=None)


def arrays_of_last_forward(outputs: Sequence[Variable]) -> dict[int, Any]:
    """The arrays of the leaves by the ids of the leaves: those of the last `forward()` of the outputs, or else the
    current ones."""
    leaves = leaves_of(outputs)
    arrays = {id(x): array for x, array in zip(leaves, arrays_of(leaves, draw=False), strict=True)}
    for y in outputs:
        snapshot = None if y.parent is None else y.parent.snapshot
        arrays |= {} if snapshot is None else snapshot.by_leaf()
    return arrays


class InputState(NamedTuple):
    """An input of the reported function."""

    name: str
    """The parameter of the function, and the Variable's own name if it has one."""
    finite: bool
    """Whether all elements are finite."""
    value: float | None
    """Its element at the reported place: for elementwise functions and for single numbers; else None."""


class NanReport(NamedTuple):
    """The origin of the first NaN or infinity; `str()` of it says so in words."""

    kind: str
    """'nan' or 'inf'."""
    function: Function | None
    """The function that made it from inputs without any of its kind; None if it was in a leaf."""
    variable: Variable
    """The output of the function, or the leaf."""
    order: int
    """Order of differentiation of the function: 0 is what the user built, 1 its gradient, and so on."""
    place: tuple[int, ...]
    """Index of the first such element."""
    elements: int
    """The number of such elements."""
    inputs: tuple[InputState, ...]
    """The function's inputs."""
    cause: NanReport | None
    """For a NaN made from infinities, the origin of the first infinity."""
    within: NanReport | None = None
    """For a loop or another function with a body, the function in the body that made the first one."""
    steps: Trail = ()
    """For a function in a body, the loops around it and the step of each, the outermost first."""

    def __str__(self) -> str:
        lines = [f"{_NAMES[self.kind]} in {self._whose()}, {self._where()}"]
        if self.steps and self.function is not None:
            place = getattr(self.function, "location", "an unknown place")
            lines += [f"  {self.function.op.name}, written at {place}"]
            lines += [f"  {step}" for step in reversed(self.steps)]
        elif self.function is not None:
            lines += _located(self.function)
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


def _located(f: Function) -> list[str]:
    """The lines of the user's program that called a function, or those of whose gradient it is part, as far as they
    were recorded."""
    place, origin = getattr(f, "location", None), f.origin
    if origin is None:
        return [f"  {f.op.name} was called at {place}"] if place else []
    lines = []
    while origin is not None:
        called = getattr(origin, "location", None)
        lines.append(f"  it is part of the gradient of {origin.op.name} (order {origin.order})"
                     + (f", which was called at {called}" if called else ""))
        origin = origin.origin
    if not place:
        return [line for line in lines if " called at " in line]
    return [lines[0], f"  which was requested at {place}", *lines[1:]]


_NAMES = {"nan": "NaN", "inf": "infinity"}


def find_nan(outputs: Variable | Iterable[Variable]) -> NanReport | None:
    """Run the graph of `outputs` function by function, and report where the first NaN or infinity comes from.

    The report names the function that made it: for a NaN one without NaN in its inputs, for an infinity one without
    infinities. NaN takes precedence, since infinities are legitimate as long as no NaN results from them. For a NaN
    made from infinities, such as 0 times infinity, the report also names the function that made those. It gives the
    lines of the user's program that called them if the graph was built within `nn.source_locations()` or `nn.debug()`.

    The search goes back from the outputs that are not finite. Other non-finite values in the graph, such as an infinity
    that a `where` does not select, are no error.

    Values are computed from the leaves at the last `forward()` of the outputs, or else from their current values. XLA
    may round fused functions differently from single ones.

    Args:
        outputs: A Variable or Variables.

    Returns:
        A `NanReport`, or None if there is nothing to report.

    Raises:
        TypeError: Something is not a Variable.
    """
    outputs = variables(outputs, "outputs")
    return nan_in(outputs, arrays_of_last_forward(outputs))


def nan_in(outputs: list[Variable], arrays: dict[int, Any]) -> NanReport | None:
    """`find_nan` for given arrays of the leaves, by the ids of the leaves."""
    checker = Checker(nan=np.isnan, inf=np.isinf)
    for x in leaves_of(outputs):
        checker.leaf(x, arrays[id(x)])
    with watch(None, key=DEBUG_MODE), watch(checker, "ran"):
        interpret(outputs, arrays)
    marks = [checker.marks_of(y) for y in outputs]
    origin = first_of("nan", marks) or first_of("inf", marks)
    return None if origin is None else report_of(origin, checker)


def report_of(begun: Beginning, checker: Checker) -> NanReport:
    """The report on a NaN or infinity with this origin, whose run the checker has listened to."""
    kind, x, f = begun.kind, begun.variable, begun.variable.parent
    mask = (np.isnan if kind == "nan" else np.isinf)(np.asarray(begun.array))
    place = tuple([int(i) for i in np.argwhere(mask)[0]])
    if f is None:
        return NanReport(kind, None, x, 0, place, int(mask.sum()), (), None)
    cause = None if begun.cause is None else report_of(begun.cause, checker)
    states = input_states(f, [np.asarray(array) for array in begun.inputs], place)
    inner = checker.within(begun)
    within = None if inner is None else report_of(inner, checker)
    return NanReport(kind, f, x, f.order, place, int(mask.sum()), states, cause, within, begun.trail)


def input_states(f: Function, arrays: Sequence[Any], place: tuple[int, ...]) -> tuple[InputState, ...]:
    """The inputs of a function whose result at `place` is not finite."""
    names = f.op.names_of(len(f.inputs))
    return tuple([
        InputState(f"{name} {x.name!r}" if x.name else name, _is_finite(array), _element(x, array, place, f))
        for name, x, array in zip(names, f.inputs, arrays, strict=True)
    ])


def _is_finite(array: Any) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array).all())


def _element(x: Variable, array: Any, place: tuple[int, ...], f: Function) -> float | None:
    """The element of `x` that the result at `place` is computed from, if it is a single floating one."""
    y = f.specs[0].shape
    if not x.spec.differentiable or (x.shape and not f.op.diagonal):
        return None
    if f.op.selects and x.shape not in ((), y):
        return None  # a condition may cover only the first axes
    here = place[len(place) - x.ndim :]
    return float(array[tuple([i if n > 1 else 0 for i, n in zip(here, x.shape, strict=True)])])
