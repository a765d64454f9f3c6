"""Pytrees of Variables packed into one vector, for solvers, and functions of vectors captured as bodies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import nngrad.functions as F

from ...functions.inlining import inlined
from ...graph import Spec, Switched, Variable, as_variable, spec_of
from ...graph.block import Block
from ...graph.capture import captured
from ...graph.leaf import common_floating
from ...graph.value import made_together
from .convergence import Convergence

at_full_precision = Switched(precision=None)
"""Decorates functions that look for solutions: iterations that are rounded to 16 bits do not terminate."""


class Packing:
    """How a pytree is packed into one vector: its leaves one after another.

    Args:
        tree: A pytree of floating Variables, arrays and numbers, all of one dtype, which is float32 or float64.
        name: Its name in messages.
        owner: The function that receives it.

    Raises:
        TypeError: The pytree is empty, or a leaf has another dtype.
    """

    def __init__(self, tree: Any, name: str, owner: str) -> None:
        self.name, self.owner = name, owner
        items, self.structure = jax.tree_util.tree_flatten_with_path(tree)
        if not items:
            raise TypeError(f"{owner}: {name} is empty; pass a Variable or a pytree of Variables")
        self.names = [name + jax.tree_util.keystr(path) for path, _ in items]
        leaves = [leaf for _, leaf in items]
        floating = common_floating(leaves)
        self.leaves = [
            as_variable(leaf, name, owner, floating) for name, leaf in zip(self.names, leaves, strict=True)
        ]
        self.dtype = self.leaves[0].dtype
        for name, x in zip(self.names, self.leaves, strict=True):
            if x.dtype not in (np.float32, np.float64):
                raise TypeError(f"{owner}: {name} must be float32 or float64, got {x.spec}; cast it with F.cast")
            if x.dtype != self.dtype:
                raise TypeError(
                    f"{owner}: {name} and {self.names[0]} must have the same dtype, got {x.spec} and "
                    f"{self.leaves[0].spec}; cast one with F.cast"
                )
        self.sizes = [x.size for x in self.leaves]

    @property
    def spec(self) -> Spec:
        """Shape and dtype of the vector."""
        return spec_of((sum(self.sizes),), self.dtype)

    @property
    def vector(self) -> Variable:
        """The given pytree as a vector."""
        return self._joined(self.leaves)

    def packed(self, tree: Any, returned: str) -> Variable:
        """The vector of another pytree of the same structure, shapes and dtype.

        Args:
            tree: The pytree.
            returned: Its description in messages, such as "fun returns".

        Raises:
            TypeError: Its structure or a dtype differs.
            ValueError: A shape differs.
        """
        leaves, structure = jax.tree.flatten(tree)
        if str(structure) != str(self.structure):
            raise TypeError(f"{self.owner}: {self.name} has the structure {self.structure}, but {returned} {structure}")
        variables = []
        for name, x, leaf in zip(self.names, self.leaves, leaves, strict=True):
            y = as_variable(leaf, f"the value that {returned} for {name}", self.owner, self.dtype)
            if y.spec is not x.spec:
                kind = TypeError if x.shape == y.shape else ValueError
                raise kind(
                    f"{self.owner}: {name} is {x.spec}, but {returned} {y.spec} for it. Give {self.name} the shape and "
                    "dtype of the returned value, or cast one with F.cast"
                )
            variables.append(y)
        return self._joined(variables)

    def unpacked(self, vector: Variable) -> Any:
        """The pytree that a vector represents; for a matrix, each leaf has one row for each of its rows."""
        leaves, start = [], 0
        for x, size in zip(self.leaves, self.sizes, strict=True):
            part = vector if len(self.leaves) == 1 else F.slice(vector, start=(start,), stop=(start + size,))
            shape = (*vector.shape[:-1], *x.shape)
            leaves.append(part if shape == part.shape else F.reshape(part, shape=shape))
            start += size
        return jax.tree.unflatten(self.structure, leaves)

    def solution(self, vector: Variable, info: Convergence) -> tuple[Any, Convergence]:
        """The pytree that a solution represents, and how it was found; they are computed together."""
        tree = self.unpacked(vector)
        made_together([*jax.tree.leaves(tree), *info])
        return tree, info

    def _joined(self, leaves: Sequence[Variable]) -> Variable:
        flat = [x if x.ndim == 1 else F.reshape(x, shape=(math.prod(x.shape),)) for x in leaves]
        vector: Variable = flat[0] if len(flat) == 1 else F.concatenate(*flat, axis=0)
        return vector


class CapturedEquation(NamedTuple):
    """A function captured as a body, with the Variables that it reads from outside."""

    body: Block
    """Its inputs are the function's own, and the Variables it reads from outside."""
    parameters: tuple[Variable, ...]

    def at(self, *arguments: Variable) -> Variable:
        """The function applied to `arguments`, as functions of the graph."""
        return inlined(self.body, [*self.parameters, *arguments])[0]


def equation(
    function: Callable[..., Variable], specs: Sequence[Spec], owner: str, written: Callable[..., Any]
) -> CapturedEquation:
    """Capture a function of arguments with these specs, which is called once, on Variables without values. Messages
    name the `owner`, which solves the equation, and the function that the user has `written`."""
    capture = captured(lambda arguments: [function(*arguments)], specs, owner, written, often=True)
    first, count = len(capture.variables), len(capture.variables) + len(capture.keys)
    # A random key that a function reads from outside must not be drawn anew at each step of the loops.
    parameters = (*capture.variables, *[F.unlink(key) for key in capture.keys])
    places = [*range(first), *range(count, count + len(specs)), *range(first, count)]
    return CapturedEquation(capture.body.with_inputs((*[x.spec for x in parameters], *specs), places), parameters)
