"""What became of a function that was opened."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jaxlib
from jax import numpy as jnp

from ..autodiff.sparsity import followed_axes
from ..autodiff.symmetry import obstacle
from ..graph import Function

_LIBRARIES = tuple([os.path.join(os.path.dirname(file), "") for file in (
    jax.__file__, jaxlib.__file__, os.path.dirname(__file__)
)])  # fmt: skip
"""The folders of JAX and of nngrad. A frame of a trace has a file, and not a module, to be known by; a folder of the
user's may have any name."""


@dataclass(frozen=True)
class Kept:
    """Equations that stayed opaque, of one kind."""

    primitives: tuple[str, ...]
    """Their primitives: one, or more where results between them are of a dtype that no Variable holds."""
    reason: str
    """Why."""
    place: str
    """Where the user wrote it: file and line; empty where that is not known."""
    differentiable: bool
    """Whether gradients may pass. Where not, nothing is lost."""
    keeps_rows: bool
    """Whether it is seen that rows which are independent before it are so after it."""
    keeps_symmetry: bool
    """Whether its rule counts as its true derivative, so that derivatives through it are seen to commute."""

    def cost(self) -> str:
        """What it costs at higher orders."""
        if not self.differentiable:
            return "nothing: no gradient passes"
        ways = [("independent rows", self.keeps_rows), ("symmetry", self.keeps_symmetry)]
        lost = [way for way, is_kept in ways if not is_kept]
        work = "its own work about doubles with each further order"
        return f"{work}; what it is part of loses forward mode by {' and by '.join(lost)}" if lost else work


@dataclass
class Opened:
    """What became of the equations of a function: how many are functions of nngrad's own now, and which stayed opaque.

    An opaque equation is right at every order, by JAX's own derivatives, but it is not looked into. `print` tells what
    that costs.
    """

    opened: Counter[str] = field(default_factory=Counter)
    """How many equations of each primitive, or function, were opened."""
    opaque: Counter[Kept] = field(default_factory=Counter)
    """How many stayed opaque."""
    transformed: int = 0
    """How many are transformations of nngrad's own. Where there are any, the graph is made anew in each use: what it is
    the derivative of is part of it."""

    def keep(self, equation: Any, primitives: list[str], reason: str, functions: Sequence[Function]) -> None:
        """Note that an equation stays opaque.

        Args:
            equation: The equation.
            primitives: Those in it, and in what leads to it.
            reason: Why.
            functions: What stands for it.
        """
        differentiable = any([jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.outvars]) and any(
            [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.invars]
        )
        exact = not obstacle(functions)
        location = location_of_equation(equation)
        self.opaque[Kept(tuple(primitives), reason, location, differentiable, _keep_rows(functions), exact)] += 1

    unopened: Counter[str] = field(default_factory=Counter)
    """How many calls were left to JAX as a whole, and why."""

    def copy(self) -> Opened:
        """The same, as it is now."""
        return Opened(self.opened.copy(), self.opaque.copy(), self.transformed)

    def go_back_to(self, before: Opened) -> None:
        """Forget what was noted since `before` was copied."""
        self.opened, self.opaque, self.transformed = before.opened, before.opaque, before.transformed

    @property
    def covered(self) -> float:
        """The share of equations that were opened, of those that gradients may pass."""
        closed = sum([n for kept, n in self.opaque.items() if kept.differentiable])
        return self.opened.total() / max(self.opened.total() + closed, 1)

    def __str__(self) -> str:
        lines = [f"{self.opened.total()} equations opened ({self.covered:.0%} of those that gradients may pass)"]
        for kept, n in sorted(self.opaque.items(), key=lambda item: not item[0].differentiable):
            times = f", {n} times" if n > 1 else ""
            where = f", at {kept.place}" if kept.place else ""
            lines.append(f"opaque: {' + '.join(kept.primitives)}{times}{where}")
            lines += [f"    why:  {kept.reason}", f"    cost: {kept.cost()}"]
        for reason, n in self.unopened.items():
            lines += [f"left to JAX as a whole: {n} calls", f"    why:  {reason}", "    cost: that of JAX's own"]
        return "\n".join(lines)


def _keep_rows(functions: Sequence[Function]) -> bool:
    """Whether all results of some functions are seen to have the rows of whatever they read that has any."""
    for f in functions:
        for x in f.inputs:
            if x.ndim and x.spec.differentiable:
                places = followed_axes([f], x, (0,))
                if any([places.get(id(y)) != (0,) for y in f.outputs if id(y) in places]):
                    return False
    return True


def location_of_equation(equation: Any) -> str:
    """Where the user wrote an equation, as file and line; empty where that is not known."""
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    frames = [] if traceback is None else traceback.frames
    for frame in frames:
        if not frame.file_name.startswith(_LIBRARIES):
            return f"{frame.file_name}:{frame.line_num}"
    return ""
