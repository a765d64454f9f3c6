"""Limits of gradients at equal spectral values: how what has arrived at a decomposition depends on its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import nngrad.functions as F
from nngrad.graph import Function, Variable, functions_of
from nngrad.graph.axes import axes_carried

Pushed = Callable[[Sequence[Variable], Sequence[Variable], Sequence[Variable], frozenset[int]], list[Variable]]


class Near:
    """How gradients depend on the outputs of a function, for a rule with limits (`Rule.limits`).

    In the gradient of a body, what arrives is an input, and nobody can ask what it depends on, so limits are fewer.

    Args:
        pushed: Returns the derivatives of Variables as others move along tangents, and those of some ids stay.
        in_body: Whether the traversal is that of a body.
        f: The function.
        axes: The axes of its outputs that count spectral values.
        outputs: Where the traversal started.
        functions: The functions that these depend on.
        equal: Those that compute the same as others before them.
    """

    def __init__(
        self,
        pushed: Pushed,
        in_body: bool,
        f: Function,
        axes: tuple[int, ...],
        outputs: Sequence[Variable],
        functions: Sequence[Function],
        equal: Mapping[Function, tuple[tuple[Variable, ...], tuple[Variable, ...]]],
    ) -> None:
        self.pushed, self.f, self.axes, self.equal = pushed, f, axes, equal
        self.is_open = False
        if in_body:
            spectral = self.spectral(functions)
            self.is_open = any([id(y) in spectral for y in outputs])

    def first(self, f: Function) -> Function | None:
        """The first of the functions that compute the same as `f`."""
        _, shared = self.equal.get(f, ((), f.outputs))
        return shared[0].parent

    def is_equal(self, f: Function) -> bool:
        """True if `f` is the function, or computes the same."""
        return f.op is self.f.op and self.first(f) is self.first(self.f)

    def spectral(self, functions: Iterable[Function]) -> dict[int, frozenset[int] | None]:
        """The axes that count values of the decomposition, of each Variable that has some; None if they are not known.

        A sum over all values has none: it does not depend on the choice of vectors where the whole function does not.
        """
        axes_of: dict[int, frozenset[int] | None] = {}
        for f in functions:
            if self.is_equal(f):
                axes_of.update({id(y): frozenset([y.ndim + a]) for y, a in zip(f.outputs, self.axes, strict=True)})
            elif spectral_inputs := [(i, axes_of[id(x)]) for i, x in enumerate(f.inputs) if id(x) in axes_of]:
                axes = _axes_left(f, spectral_inputs)
                if axes is None or axes:
                    axes_of.update({id(y): axes for y in f.outputs})
        return axes_of

    def along(self, g: Variable, index: int, tangent: Variable) -> Variable | None:
        """The derivative of `g` as output `index` of the function moves along a tangent, and the others stay; None if
        it does not depend on it. What has been summed over all values stays too."""
        functions = functions_of([g])
        spectral = self.spectral(functions)
        ends = [f for f in functions if any([id(x) in spectral for x in f.inputs])]
        stop_ids = frozenset([id(y) for f in ends for y in f.outputs if id(y) not in spectral])
        moving = [f.outputs[index] for f in functions if self.is_equal(f)]
        if not moving:
            return None
        (t,) = self.pushed([g], moving, [tangent] * len(moving), stop_ids)
        f = t.parent
        return None if f is not None and f.op is F.constant and f.arguments[0] == 0 else t


def _axes_left(f: Function, spectral_inputs: Sequence[tuple[int, frozenset[int] | None]]) -> frozenset[int] | None:
    """The axes of the outputs of `f` to which it carries those of its inputs, except those that it sums over together;
    None if it does something else to one of them."""
    axes, left = f.op.axes, set[int]()
    if axes is None and not f.op.diagonal:
        return None
    places = axes_carried(f)
    reached = {b for carried in places for b in carried}
    if f.op is not F.broadcast and any([n != 1 and b not in reached for b, n in enumerate(f.specs[0].shape)]):
        return None  # an axis may be carried to this one too, as to both axes of a diagonal matrix
    terms = axes.indices(f)[0] if axes is not None and axes.indices is not None else None
    summed = [set[int]() for _ in f.inputs]
    for i, carried in spectral_inputs:
        if carried is None or i >= len(places):
            return None
        for a in carried:
            b = places[i][a]
            if b is not None:
                left.add(b)
            elif terms is not None:
                summed[i].add(terms[i][a])
            elif not (axes is not None and axes.adds):
                return None
    if terms is not None:  # with numbers of its own for each value, a sum may depend on the choice of vectors
        both = set().union(*summed)
        pairs = [(indices, set(term) & both) for indices, term in zip(summed, terms, strict=True)]
        if any([common and indices & both != common for indices, common in pairs]):
            return None
    return frozenset(left)
