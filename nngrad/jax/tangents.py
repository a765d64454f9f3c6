"""JAX's conventions for derivatives by complex numbers and integers, and for weak types."""

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
    """Convert complex gradients to JAX's convention, or back: by x + iy it is that by x minus i times that by y."""

    def of(value: Any) -> Any:
        return ComplexPair(value.real, F.mul_scalar(value.imaginary, val=-1.0)) if is_pair(value) else value

    return jax.tree.map(of, tree, is_leaf=lambda value: isinstance(value, ComplexPair | WithoutTangent))


def like(others: Sequence[Variable], made: Sequence[Variable]) -> Sequence[Variable]:
    """Derivatives, weakly typed where the Variables they belong to are."""
    around = surroundings_of_now()
    if around is not None:
        around.are_weak(made, [id(x) in around.weak for x in others])
    return made


def is_whole(x: Any) -> bool:
    """Whether `x` is a Variable of integers or booleans."""
    return isinstance(x, Variable) and not x.spec.differentiable


@jax.tree_util.register_pytree_node_class
class WithoutTangent:
    """The gradient with respect to integers: a pytree without leaves, which becomes JAX's float0 array when results
    become arrays.

    Args:
        shape: The shape of the integers.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def tree_flatten(self) -> tuple[tuple[()], tuple[int, ...]]:
        """No leaves, and the shape."""
        return (), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, ...], leaves: Any) -> Any:
        """The float0 array."""
        del leaves
        return np.zeros(shape, jax.dtypes.float0)
