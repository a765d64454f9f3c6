"""Derivatives in the forms that JAX gives them: by complex and whole numbers, and weakly typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .. import functions as F
from ..graph import Variable
from .surroundings import surroundings_of_now
from .values import ComplexPair, is_pair


def conjugate(tree: Any) -> Any:
    """Gradients by complex numbers as JAX has them, or back: that by x + iy is the one by x less i times that by y."""

    def of(value: Any) -> Any:
        return ComplexPair(value.real, F.mul_scalar(value.imaginary, val=-1.0)) if is_pair(value) else value

    return jax.tree.map(of, tree, is_leaf=lambda value: isinstance(value, ComplexPair | WithoutTangent))


def like(others: Sequence[Variable], made: Sequence[Variable]) -> Sequence[Variable]:
    """Derivatives, weakly typed where what they belong to is."""
    around = surroundings_of_now()
    if around is not None:
        around.are_weak(made, [id(x) in around.weak for x in others])
    return made


def is_whole(x: Any) -> bool:
    """Whether it is a Variable of whole numbers or truths."""
    return isinstance(x, Variable) and not x.spec.differentiable


@jax.tree_util.register_pytree_node_class
class WithoutTangent:
    """The gradient by whole numbers, which have none: a pytree without leaves, in whose place there is JAX's array of
    float0 where results become arrays.

    Args:
        shape: That of the numbers.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def tree_flatten(self) -> tuple[tuple[()], tuple[int, ...]]:
        """Nothing, and the shape."""
        return (), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, ...], leaves: Any) -> Any:
        """The array."""
        del leaves
        return np.zeros(shape, jax.dtypes.float0)
