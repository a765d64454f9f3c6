"""First gradients by few coordinates in forward mode, with one tangent each, as a basis for higher orders.

A first gradient by several inputs takes one reverse pass. Each further order would take another such pass and a tangent
for each derivative of the previous order. In forward mode each derivative is one tangent of another, and all share
their common parts (Griewank, Utke and Walther 2000). So if a gradient computed in reverse mode is to be differentiated
again, it is rebuilt in forward mode, and the new gradient differentiates that. The user's Variables stay as they are,
but know their alternative forms, by which a graph that contains both is computed and differentiated
(`graph/traverse.py`). This is done if

- both are by the same inputs, which are *coordinates*: each element of such a Variable provably moves only one element
  of the outputs, or each row of a few columns only one row of them. Together they are at most `MOST_COORDINATES`;
- the derivative by just one of them is differentiated again: a product of the gradient with a vector, as in
  Hessian-vector products, takes only one tangent of the reverse pass.

The derivative by a column is the tangent of an input that moves along a unit vector, the same for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import nngrad.functions as F

from ..functions.array import zeros_like
from ..graph import Function, Variable, build_options, create, functions_of
from ..graph.body_op import Axes
from ..graph.function import watched
from ..graph.spec import Spec, spec_of
from ..graph.thresholds import MOST_COORDINATES
from ..graph.traverse import Form
from ..rewrite.builder import emitting
from ..rewrite.linear import sliced_windows
from .batching import followed_axes
from .forward_mode import Pushforward
from .request import Derivation, Request, Task, derivation_of, task_of
from .symmetry import NotApplicable, forward_task, long_axes, summand, summed_to_axes
from .walk import ones, order_of


class _Direction(NamedTuple):
    """A coordinate: all elements of an input, or those of one column."""

    tangent: Variable
    spec: Spec
    """The shape and dtype of the derivative."""


def by_coordinates(task: Task) -> list[Variable]:
    """The gradients in forward mode, with one tangent per coordinate.

    Raises:
        NotApplicable: They cannot be computed so, or gain nothing by it.
    """
    task, reached, apart = _opened(task)
    with emitting(task.functions, order_of(task.path)) as builder:
        push = Pushforward(stop_ids=task.stop_ids, stands_for=task.stands_for)

        def along(x: Variable, direction: _Direction, places: Sequence[Axes]) -> Variable:
            ts = push.walk(builder, task.path, task.active, reached, [x], [direction.tangent])
            parts = [summed_to_axes(t, axes, direction.spec) for t, axes in zip(ts, places, strict=True)]
            return F.add_n(*parts) if parts else zeros_like(direction.tangent)

        results = []
        for x, (by_column, places) in zip(task.inputs, apart, strict=True):
            if not reached:
                results.append(zeros_like(x))
            elif by_column:
                results.append(F.concatenate(*[along(x, each, places) for each in _columns(x)], axis=1))
            else:
                results.append(along(x, _Direction(ones(builder, x.spec), x.spec), places))
        return results


def _opened(task: Task) -> tuple[Task, list[Variable], list[tuple[bool, list[Axes]]]]:
    """The task in forward form, the outputs that the inputs reach, and the result of `_apart` for each input."""
    if any([seed is not None for seed in task.seeds]):
        raise NotApplicable("grad_outputs are given")
    if least_coordinates(task.inputs) > MOST_COORDINATES:
        raise NotApplicable("there are too many coordinates")
    task = forward_task(task)
    reached = [y for y in task.outputs if id(y) in task.active]
    return task, reached, [_apart(task, reached, x) for x in task.inputs]


def built_forward(task: Task) -> bool:
    """Whether the outputs depend on gradients, and the nearest of these were all computed in forward mode."""
    nearest: list[str] = []

    def passes(y: Variable) -> bool:
        derived_by = derivation_of(y)
        if derived_by is None or derived_by.derivation is None:
            return True
        nearest.append(derived_by.mode.name)
        return False

    task.above(passes)
    return bool(nearest) and all([name == "forward" for name in nearest])


# ---------------------------------------------------------------- existing gradients


def to_be_differentiated(
    request: Request, functions: Sequence[Function] | None, derived: Sequence[Variable]
) -> list[Derivation]:
    """The derivations computed in reverse mode by coordinates that are to be differentiated again by some of these.

    Args:
        request: The request.
        functions: The functions that its outputs depend on; None if it does not matter what they read.
        derived: The results of `grad` among them.
    """
    options = build_options()
    plain = request.aggregate is None and not request.stop_gradients
    plain = plain and not any([seed is not None for seed in request.seeds])
    if not plain or options.emitting.builder is not None or not options.emitting.simplify:
        return []
    if options.applying.auto_forward or watched():
        return []
    asked = {id(x) for x in request.inputs}
    found: dict[Derivation, None] = {}
    for derived_by in [gx._derived for gx in derived]:
        derivation = derived_by.derivation
        if derivation is None or derived_by.mode.name != "reverse":
            continue
        if derivation.forms != () and asked <= {id(x) for x in derivation.inputs}:
            found[derivation] = None
    return [d for d in found if has_shapes(d) and (functions is None or reads_one(d, functions, request.outputs))]


def reads_one(derivation: Derivation, functions: Sequence[Function], outputs: Sequence[Variable]) -> bool:
    """Whether only one result is read, and if it has columns, only one of them."""
    given = {id(y) for y in outputs}
    results = {id(gx): gx for ref in derivation.results if (gx := ref()) is not None}
    readers: list[Function] = []
    read: set[int] = given & set(results)
    for f in functions:
        own = {id(x) for x in f.inputs} & set(results)
        read |= own
        readers += [f] if own else []
    if len(read) != 1:
        return False
    gx = results[read.pop()]
    if gx.ndim != 2 or gx.shape[1] == 1:
        return True
    columns: set[int] = set()
    for f in readers:
        if f.op is F.take_slices:
            start, count, _ = sliced_windows(f.arguments[0])[1]
            columns |= {start} if count == 1 else {*range(gx.shape[1])}
        elif f.op is F.split and f.arguments[0] % 2 == 1:
            later = {id(x) for each in functions for x in each.inputs} | given
            columns |= {i for i, y in enumerate(f.outputs) if id(y) in later}
        else:
            return False
    return id(gx) not in given and len(columns) == 1


def has_coordinates(derivation: Derivation) -> bool:
    """Whether `by_coordinates` can differentiate it."""
    try:
        _opened(task_of(derivation.outputs, derivation.inputs, derivation.seeds, derivation.stop_gradients))
    except NotApplicable:
        return False
    return True


def has_shapes(derivation: Derivation) -> bool:
    """Whether the shapes fit several coordinates and outputs with the same rows."""
    if len({id(x) for x in derivation.inputs}) != len(derivation.inputs):
        return False
    if derivation.stop_gradients or any([seed is not None for seed in derivation.seeds]):
        return False
    if not 1 < least_coordinates(derivation.inputs) <= MOST_COORDINATES:
        return False
    rows = {x.shape[0] if x.ndim else 1 for x in derivation.inputs}
    outputs = [summand(y, frozenset()) for y in derivation.outputs]
    return (
        len(rows) == 1
        and all([0 < x.ndim <= 2 for x in derivation.inputs])
        and all([y.ndim > 0 and y.shape[0] in rows for y in outputs])
    )


def keep_forms(derivation: Derivation, results: Sequence[Variable], since: int) -> None:
    """Record the alternative forms of a derivation's results, just built in forward mode since this serial number."""
    modes = [None if (known := derivation_of(y)) is None else known.mode.name for y in results]
    if any([mode != "forward" for mode in modes]):
        return
    forms = [create(F.identity, (y,), (), order=1 if y.parent is None else y.parent.order) for y in results]
    for form, y in zip(forms, results, strict=True):
        form._derived = y._derived
    own = frozenset([f for f in functions_of(forms) if f.serial >= since])
    derivation.forms = tuple([Form(form, own) for form in forms])


# ---------------------------------------------------------------- coordinates


def least_coordinates(inputs: Sequence[Variable]) -> int:
    """A lower bound on the number of coordinates of the inputs: for those of two axes, the number of columns."""
    return sum([x.shape[1] if x.ndim == 2 else 1 for x in inputs])


def _apart(task: Task, reached: list[Variable], x: Variable) -> tuple[bool, list[Axes]]:
    """Whether to treat `x` by columns, and the axes of its rows, or elements, in each output."""
    rows = [0] if x.ndim and x.shape[0] != 1 else []
    wanted = [long_axes(x.spec)]
    if x.ndim == 2 and 1 < x.shape[1] <= MOST_COORDINATES:
        wanted.append(tuple(rows))
    for axes in wanted:
        places = followed_axes(task.path, x, axes, task.stands_for)
        found = [places.get(id(y), ()) for y in reached]
        if not any([each is None for each in found]) and all([id(y) in places for y in reached]):
            return len(axes) != len(long_axes(x.spec)), [each or () for each in found]
    raise NotApplicable("an element of an output may depend on several elements of the input")


def _columns(x: Variable) -> list[_Direction]:
    """The direction along each column."""
    rows, count = x.shape
    column = spec_of((rows, 1), x.dtype)
    one = F.constant(val=1, shape=column.shape, dtype=x.dtype)
    none = F.constant(val=0, shape=column.shape, dtype=x.dtype)
    return [
        _Direction(F.concatenate(*[one if k == i else none for k in range(count)], axis=1), column)
        for i in range(count)
    ]
