"""Operands of batching: the inputs of a function, some of which have gained a leading batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..graph import Variable
from .movement import broadcast, reshape

Shape = tuple[int, ...]


class Operand(NamedTuple):
    """One input of a function that is being batched."""

    value: Variable
    x: Variable
    """The input itself."""
    lead: int
    """1 if the value has the batch axis, else 0."""

    @property
    def size(self) -> Shape:
        """The size of the batch axis in a tuple; empty without a batch axis."""
        return self.value.shape[: self.lead]

    @property
    def own(self) -> Shape:
        """The value's shape without the batch axis."""
        return self.value.shape[self.lead :]

    def lined_up(self, ndim: int) -> Variable:
        """The value reshaped so that it broadcasts against an `x` of `ndim` axes."""
        room = ndim - self.x.ndim
        if not self.lead or room <= 0:
            return self.value
        return reshaped(self.value, (*self.size, *(1,) * room, *self.own))

    def widened(self, thin: Sequence[int] = ()) -> Variable:
        """The value repeated along axes where it has size 1 but `x` is longer, except those that stay `thin`."""
        if self.own == self.x.shape:
            return self.value
        shape = [n if a in thin else m for a, (n, m) in enumerate(zip(self.own, self.x.shape, strict=True))]
        return repeated(self.value, (*self.size, *shape))

    def full(self, size: Shape) -> Variable:
        """The value repeated along all axes, including a batch axis of `size`."""
        value = self.widened()
        return value if self.lead or not size else repeated(value, (*size, *value.shape))


def size_of(operands: Sequence[Operand]) -> Shape:
    """The size of the batch axis in a tuple; empty if no operand has one."""
    return next((operand.size for operand in operands if operand.lead), ())


def reshaped(x: Variable, shape: Shape) -> Variable:
    """`x` reshaped to `shape`, or `x` itself if it has that shape."""
    y: Variable = x if x.shape == shape else reshape(x, shape=shape)
    return y


def repeated(x: Variable, shape: Shape) -> Variable:
    """`x` broadcast to `shape`, or `x` itself if it has that shape."""
    y: Variable = x if x.shape == shape else broadcast(x, shape=shape)
    return y
