"""The report of `from_jax`: which equations were opened, and which stayed opaque."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import jax
import jaxlib
from jax import numpy as jnp

_LIBRARIES = tuple([os.path.join(os.path.dirname(file), "") for file in (
    jax.__file__, jaxlib.__file__, os.path.dirname(__file__)
)])  # fmt: skip
"""The folders of JAX and of nngrad. Frames of a trace are identified by file, not by module, since a folder of the
user's may have any name."""


@dataclass(frozen=True)
class Kept:
    """A kind of equations that stayed opaque."""

    primitives: tuple[str, ...]
    """Their primitives; several if results between them have a dtype that no Variable holds."""
    reason: str
    """The reason."""
    place: str
    """Where the user wrote it, as file and line; empty if unknown."""
    differentiable: bool
    """True where gradients may pass through it. If not, nothing is lost."""


@dataclass
class Opened:
    """Which equations of a function were opened, as nngrad's own functions, and which stayed opaque.

    An opaque equation is right at every order, by JAX's own derivatives, but cannot be simplified: its own work about
    doubles with each order, and independent rows and symmetry are not known to pass.
    """

    opened: Counter[str] = field(default_factory=Counter)
    """The number of opened equations, by primitive or function."""
    opaque: Counter[Kept] = field(default_factory=Counter)
    """The number of opaque equations, by kind."""
    transformed: int = 0
    """The number of nngrad's own transformations. If there are any, the graph is rebuilt for each use, since its
    derivation is part of it."""

    def keep(self, equation: Any, primitives: list[str], reason: str) -> None:
        """Record that an equation stays opaque: `primitives` are its own, and those of its delayed inputs."""
        differentiable = any([jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.outvars]) and any(
            [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.invars]
        )
        self.opaque[Kept(tuple(primitives), reason, location_of_equation(equation), differentiable)] += 1

    unopened: Counter[str] = field(default_factory=Counter)
    """The number of calls left to JAX as a whole, by reason."""

    def copy(self) -> Opened:
        """A copy of the current counts."""
        return Opened(self.opened.copy(), self.opaque.copy(), self.transformed)

    def go_back_to(self, before: Opened) -> None:
        """Restore the counts of an earlier copy."""
        self.opened, self.opaque, self.transformed = before.opened, before.opaque, before.transformed

    @property
    def covered(self) -> float:
        """The share of opened equations among those that gradients may pass through."""
        closed = sum([n for kind, n in self.opaque.items() if kind.differentiable])
        return self.opened.total() / max(self.opened.total() + closed, 1)

    def __str__(self) -> str:
        lines = [f"{self.opened.total()} equations opened ({self.covered:.0%} of those that gradients may pass)"]
        for kind, n in sorted(self.opaque.items(), key=lambda item: not item[0].differentiable):
            times = f", {n} times" if n > 1 else ""
            where = f", at {kind.place}" if kind.place else ""
            lines.append(f"opaque: {' + '.join(kind.primitives)}{times}{where}")
            lines.append(f"    why: {kind.reason}")
        for reason, n in self.unopened.items():
            lines += [f"left to JAX as a whole: {n} calls", f"    why: {reason}"]
        return "\n".join(lines)


def location_of_equation(equation: Any) -> str:
    """Where the user wrote an equation, as file and line; empty if unknown."""
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    frames = [] if traceback is None else traceback.frames
    for frame in frames:
        if not frame.file_name.startswith(_LIBRARIES):
            return f"{frame.file_name}:{frame.line_num}"
    return ""
