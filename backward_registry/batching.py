"""Forms of ops for inputs that get one more, leading, axis: for the few for which what is derived from the declaration
of their axes would not be the least work.

A form takes the function and its operands and applies what computes the same for all elements of the leading axis at
once; it returns None to have the op mapped along the axis. The value of an operand may be *thin*: an axis of size 1
stands for one along which the value repeats itself, as the directions `(K, 1, d)` do that are the same for all rows of
a batch. Thin values stay thin as far as that is right, so a product with a matrix, say, is taken of one row in place of
a whole batch.

The forms serve operands without a leading axis as well: then they apply the op as it is, to values that may be thin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import nngrad.functions as F

if TYPE_CHECKING:
    from nngrad.graph import Function, Op, Variable

Shape = tuple[int, ...]


class Operand(NamedTuple):
    """What an input of a function becomes."""

    value: Variable
    x: Variable
    """The input itself."""
    lead: int
    """1 if the value has the leading axis, else 0."""

    @property
    def size(self) -> Shape:
        """The leading axis' size, in a tuple; an empty one if there is no such axis."""
        return self.value.shape[: self.lead]

    @property
    def own(self) -> Shape:
        """The value's shape without the leading axis."""
        return self.value.shape[self.lead :]

    def lined_up(self, ndim: int) -> Variable:
        """The value with as many axes as an `x` of `ndim` axes would have, so that the two broadcast together."""
        room = ndim - self.x.ndim
        if not self.lead or room <= 0:
            return self.value
        return reshaped(self.value, (*self.size, *(1,) * room, *self.own))

    def widened(self, kept: Sequence[int] = ()) -> Variable:
        """The value repeated along the axes of `x` where it is thin, but for those that are `kept`."""
        if self.own == self.x.shape:
            return self.value
        shape = [n if a in kept else m for a, (n, m) in enumerate(zip(self.own, self.x.shape, strict=True))]
        return repeated(self.value, (*self.size, *shape))

    def full(self, size: Shape) -> Variable:
        """The value repeated along all axes, a leading one of `size` included."""
        value = self.widened()
        return value if self.lead or not size else repeated(value, (*size, *value.shape))


Form = Callable[["Function", Sequence[Operand]], Any]
"""Takes a function and its operands, and returns what its output becomes, or a tuple where it has several."""

forms: dict[Op, Form] = {}


def batched(op: Op) -> Callable[[Form], Form]:
    """Register the decorated function as the form of `op`."""

    def enter(form: Form) -> Form:
        forms[op] = form
        return form

    return enter


def size_of(operands: Sequence[Operand]) -> Shape:
    """The leading axis' size, in a tuple; an empty one if no operand has that axis."""
    return next((each.size for each in operands if each.lead), ())


def reshaped(x: Variable, shape: Shape) -> Variable:
    """`x` in `shape`; itself if that is its own."""
    y: Variable = x if x.shape == shape else F.reshape(x, shape=shape)
    return y


def repeated(x: Variable, shape: Shape) -> Variable:
    """`x` repeated to `shape`; itself if that is its own."""
    y: Variable = x if x.shape == shape else F.broadcast(x, shape=shape)
    return y
