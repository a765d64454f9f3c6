"""Building blocks of the differential operators, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import nngrad.functions as F

from ..autodiff.forward_mode import NoForwardMode, Pushforward
from ..autodiff.grad import distinct_variables, emitted, own_leaves
from ..autodiff.request import Request, differentiable, listed, seed_of
from ..functions.array import in_dtype
from ..graph import Switched, Variable, build_options, contained, engine, functions_of
from ..graph.arguments import checked_count, coerced
from ..graph.function import next_serial
from ..graph.options import pause_collector
from ..graph.value import together
from ..rewrite.builder import emitting
from .directions import independent_rows, over_directions

T = TypeVar("T")
Variables = Variable | Iterable[Variable] | Mapping[str, Any]


def pushed(outputs: list[Variable], inputs: list[Variable], tangents: list[Variable]) -> list[Variable]:
    """Derivatives along tangents. A leaf that is not in the graph stands for all leaves there that share its data."""
    pairs = [(x, t) for leaves, t in zip(own_leaves(outputs, inputs), tangents, strict=True) for x in leaves]
    return Pushforward()(outputs, [x for x, _ in pairs], [t for _, t in pairs])


def gradients_at(outputs: list[Variable], inputs: list[Variable], seeds: Sequence[Variable | None]) -> list[Variable]:
    """The gradients. A leaf that is not in the graph stands for all leaves there that share its data."""
    return emitted(Request(outputs, inputs, seeds)).gradients


def as_list(container: Any, name: str) -> list[Any]:
    """The items of a container, at least one."""
    items = listed(container)
    if not items:
        raise ValueError(f"{name}: expected at least one Variable, got an empty {type(container).__name__}")
    return items


def forward_or_reverse(forward: Callable[[], T], reverse: Callable[[], T]) -> T:
    """Returns the result of `forward`, or of `reverse` if there is no forward mode."""
    try:
        return forward()
    except NoForwardMode:
        return reverse()


def hessian_times(ys: list[Variable], xs: list[Variable], vectors: Sequence[Variable]) -> list[Variable]:
    """The Hessian of the sum of `ys` times vectors, forward over reverse, or in reverse where there is no forward
    mode."""
    gradients = gradients_at(ys, xs, [None] * len(ys))
    return forward_or_reverse(
        lambda: pushed(gradients, xs, list(vectors)), lambda: gradients_at(gradients, xs, vectors)
    )


def slope_along(y: Variable, x: Variable, t: Variable, lead: int) -> Variable:
    """The derivative of `y` along `t`, times `t`, for each row: `x.shape[:lead]`, in the dtype of `y`."""
    axes = tuple(range(lead, x.ndim))

    def in_reverse() -> Variable:
        (gx,) = gradients_at([y], [x], [in_dtype(t, y.dtype)])
        return in_dtype(F.sum(gx * t, axis=axes), y.dtype)

    return forward_or_reverse(lambda: F.sum(pushed([y], [x], [t])[0] * in_dtype(t, y.dtype), axis=axes), in_reverse)


def after_batch(x: Variable, lead: int) -> Variable:
    """The array with its first axis moved behind the `lead` axes that follow it."""
    return F.transpose(x, axes=(*range(1, 1 + lead), 0, *range(1 + lead, x.ndim)))


def built(known: list[Variable], build: Callable[[], list[Variable]]) -> list[Variable]:
    """Returns new Variables for the results of `build`, with common subexpressions emitted once."""
    results = _emitted(known, build)
    if build_options().applying.auto_forward:
        for f in functions_of(results):
            if not all([y.is_computed for y in f.outputs]):
                engine.run_functions([f])
    together(results, lambda: _emitted(known, build))
    return results


@contained
def _emitted(known: list[Variable], build: Callable[[], list[Variable]]) -> list[Variable]:
    pause_collector()
    Switched(auto_forward=False).from_now_on()
    since = next_serial()
    with emitting(functions_of(known), 1):
        results = build()
    return distinct_variables(results, since)


def second(y: Variable, x: Variable, t: Variable, lead: int) -> Variable:
    """The second derivative of `y` along `t`, which is held constant: forward over forward, or reverse over reverse for
    each element of a row where there is no forward mode."""

    def along(u: Variable) -> Variable:
        (gx,) = gradients_at([F.sum(gradients_at([y], [x], [u])[0] * t)], [x], [None])
        return in_dtype(F.sum(gx * t, axis=tuple(range(lead, x.ndim))), y.dtype)

    return forward_or_reverse(
        lambda: pushed(pushed([y], [x], [t]), [x], [t])[0],
        lambda: F.reshape(after_batch(over_directions(along, y, lead), lead), shape=y.shape),
    )


def one_floating(variable: Any, name: str) -> Variable:
    """`variable`, a Variable of a floating dtype, or a list of one."""
    items = differentiable(variable, name)
    if len(items) != 1:
        raise ValueError(f"{name}: expected one Variable, got a list of {len(items)}")
    return items[0]


def vectors_for(xs: list[Variable], vectors: Any, name: str) -> list[Variable]:
    """One Variable of the shape and dtype of each of `xs`; a list in a list of one for each is an array's rows."""
    one_each = isinstance(vectors, list | tuple) and len(vectors) == len(xs)
    items = list(vectors) if one_each and not any(isinstance(v, Mapping) for v in vectors) else listed(vectors)
    if len(items) != len(xs):
        raise ValueError(f"{name}: expected a list with one for each of {len(xs)} Variables, got {len(items)}")
    results = []
    for i, (x, v) in enumerate(zip(xs, items, strict=True)):
        vector = seed_of(x, v, f"{name}[{i}]", "Variable")
        if vector is None:
            raise TypeError(f"{name}[{i}]: expected a number, an array, an NdArray or a Variable, got None")
        results.append(vector)
    return results


def checked(
    operator: str, y: Variable, x: Variable, batched: bool, chunk: int | None, scalar: bool = False
) -> int:
    """The number of batch axes, 1 or 0, after checking the arguments."""
    for name, variable in (("y", y), ("x", x)):
        if not isinstance(variable, Variable):
            raise TypeError(f"{operator}: {name}: expected a Variable, got {type(variable).__name__}")
        if not variable.spec.differentiable:
            raise TypeError(f"{operator}: {name} is {variable.dtype.name}; only floating dtypes can be differentiated")
    coerced(bool, batched, f"{operator}: batched")
    if chunk is not None:
        checked_count(chunk, f"{operator}: chunk", others=" or None")
    if batched:
        _check_rows(operator, y, x)
    if scalar and y.size != (y.shape[0] if batched else 1):
        raise ValueError(
            f"{operator}: y must hold one number{' per row, (B,) or (B, 1)' if batched else ''}, got shape {y.shape}"
        )
    return int(batched)


def _check_rows(operator: str, y: Variable, x: Variable) -> None:
    """Raise unless row b of `y` can be shown to depend on row b of `x` alone."""
    one_point = "with batched=False, all of x is one point"
    if not y.ndim or not x.ndim or y.shape[0] != x.shape[0]:
        raise ValueError(
            f"{operator}: y and x must have the same first axis, the batch axis, got shapes {y.shape} and {x.shape}; "
            f"{one_point}"
        )
    if not all([independent_rows(y, leaf) for leaf in own_leaves([y], [x])[0]]):
        raise ValueError(
            f"{operator}: row b of y, of shape {y.shape}, must depend only on row b of x, of shape {x.shape}, which "
            f"cannot be shown; {one_point}"
        )
