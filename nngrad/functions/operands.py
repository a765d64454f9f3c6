"""Operands: what the inputs of a function become where some get one more, leading, axis, the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..graph import Variable
from .movement import broadcast, reshape

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


def size_of(operands: Sequence[Operand]) -> Shape:
    """The leading axis' size, in a tuple; an empty one if no operand has that axis."""
    return next((each.size for each in operands if each.lead), ())


def reshaped(x: Variable, shape: Shape) -> Variable:
    """`x` in `shape`; itself if that is its own."""
    y: Variable = x if x.shape == shape else reshape(x, shape=shape)
    return y


def repeated(x: Variable, shape: Shape) -> Variable:
    """`x` repeated to `shape`; itself if that is its own."""
    y: Variable = x if x.shape == shape else broadcast(x, shape=shape)
    return y
