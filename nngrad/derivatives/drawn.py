"""Random directions, and sums over them.

A random vector v with E[v v'] = I turns a quadratic form into a trace: E[v' H v] = tr H. There are three distributions:

- *sparse*: unit vectors e_i, along `count` different coordinates drawn without replacement, times D / count. With
  count = D the result is exact. A product of such a vector with a matrix takes one of its rows.
- *rademacher*: each element 1 or -1. Only off-diagonal elements of H contribute to the variance of the trace.
- *gaussian*: each element standard normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import nngrad.functions as F

from ..functions.array import in_dtype
from ..functions.stochastic import key_leaf
from ..graph import Variable
from ..graph.arguments import checked_choice, checked_count
from ..graph.spec import Spec
from .directions import Vectors, in_chunks
from .vectorize import vectorize

KINDS = ("sparse", "rademacher", "gaussian")
"""The distributions of directions."""

class Draw(NamedTuple):
    """The distribution and number of random directions."""

    directions: int
    kind: str
    key: Variable
    """uint32[2], which determines all directions."""

    def vectors(self, number: int, x: Spec, lead: int) -> Vectors:
        """Directions of `x`, `(n, *(1,) * lead, *x.shape[lead:])`, equal along its leading axes. Each `number` names an
        independent draw."""
        shape, ones = x.shape[lead:], (1,) * lead
        key = F.subkey(self.key, index=number)
        if self.kind == "sparse":
            chosen = F.distinct_integers(key, count=self.directions, high=math.prod(shape))
            return lambda first, count: unit_vectors_along(part(chosen, first, count), x, lead)
        if self.kind == "gaussian":
            values = F.normal(key, shape=(self.directions, *ones, *shape))
            values = in_dtype(values, x.dtype)
        else:
            values = 2 * F.bernoulli(key, shape=(self.directions, *ones, *shape), dtype=x.dtype) - 1
        return lambda first, count: part(values, first, count)


def checked_draw(operator: str, size: int, directions: Any, kind: Any, seed: Any) -> Draw | None:
    """Returns the checked settings of a draw, where x has `size` coordinates; None if `directions` is None."""
    checked_choice(kind, KINDS, f"{operator}: kind")
    if directions is None:
        return None
    count = checked_count(directions, f"{operator}: directions", others=" or None")
    if kind == "sparse" and count > size:
        raise ValueError(
            f"{operator}: directions must be at most {size}, the number of coordinates of x, each drawn once, "
            f"got {count}; directions=None takes all of them, and is exact"
        )
    return Draw(count, kind, checked_key(operator, seed))


def checked_key(operator: str, seed: Any) -> Variable:
    """The key: the given Variable, or a leaf that draws a new one at each forward pass."""
    if isinstance(seed, Variable):
        if seed.shape != (2,) or seed.dtype.name != "uint32":
            raise TypeError(f"{operator}: seed must be a key, uint32[2], if it is a Variable, got {seed.spec}")
        return seed
    try:
        number = None if isinstance(seed, bool) else index(seed)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{operator}: seed must be an int, or a Variable that holds a key, got {seed!r}")
    return key_leaf(number, operator)


def part(values: Variable, first: int, count: int) -> Variable:
    """The slice of `values` along the first axis, starting at number `first`."""
    if first == 0 and count == values.shape[0]:
        return values
    key = ((first, count, 1), *[(0, n, 1) for n in values.shape[1:]])
    chosen: Variable = F.take_slices(values, key=key)
    return chosen


def unit_vectors_along(chosen: Variable, x: Spec, lead: int) -> Variable:
    """The unit vectors along the coordinates `chosen` of `x`: `(n, *(1,) * lead, *x.shape[lead:])`."""
    shape, ones = x.shape[lead:], (1,) * lead
    size, count = math.prod(shape), chosen.shape[0]
    vectors: Variable = F.one_hot(F.reshape(chosen, shape=(count, *ones, 1)), shape=(size,), dtype=x.dtype)
    return vectors if shape == (size,) else F.reshape(vectors, shape=(count, *ones, *shape))


def sum_over(y: Variable, values: Sequence[tuple[Variable, Vectors]], count: int, chunk: int | None) -> Variable:
    """The sum of `y` over `count` values of each of the placeholders, computed `chunk` at a time, or all at once."""
    whole = vectorize([y], {t: vectors(0, count) for t, vectors in values}, True)
    return whole[0] if chunk is None or chunk >= count else in_chunks([y], values, count, chunk, whole, True)[0]
