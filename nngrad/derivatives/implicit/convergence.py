"""How good a solution is, and the options that control its accuracy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...functions.bodies.matrices import SolveOptions
from ...functions.krylov import METHODS
from ...graph import Variable
from ...graph.arguments import checked_choice
from ...graph.spec import DType


class Convergence(NamedTuple):
    """How good a solution is: three scalar Variables, through which no gradient passes."""

    residual: Variable
    """The Euclidean norm of the residual, which is 0 at a solution."""
    converged: Variable
    """Whether the residual is as small as requested: a bool."""
    steps: Variable
    """The number of steps taken, an int32; for linear systems, products with the matrix. 0 where none are counted."""

    def check(self) -> None:
        """Raise an error unless the solution has converged. This reads the values.

        Raises:
            ArithmeticError: The solution has not converged.
        """
        if not self.converged.d:
            raise ArithmeticError(
                f"no convergence: the residual is {float(self.residual.d):.3g} after {int(self.steps.d)} steps. Start "
                "closer to the solution, increase maxiter= or tol=, or use another method"
            )


def without_gradients(residual: Variable, converged: Variable, steps: Variable) -> Convergence:
    """A Convergence of these Variables, with gradients stopped at them."""
    for x in (residual, converged, steps):
        x.need_grad = False
    return Convergence(residual, converged, steps)


def tolerance(tol: float | None, dtype: DType, owner: str, name: str = "tol") -> float:
    """The given tolerance, or the default for the dtype."""
    if tol is None:
        return float(np.finfo(dtype).eps ** (2 / 3))
    if isinstance(tol, bool) or not isinstance(tol, int | float) or not tol >= 0:
        raise ValueError(f"{owner}: {name} must be a non-negative number, got {tol!r}")
    return float(tol)


def keeps(unconverged: str, owner: str) -> bool:
    """True if a solution that has not converged is returned."""
    if unconverged not in ("nan", "keep"):
        raise ValueError(
            f"{owner}: unconverged must be 'nan' or 'keep', the result without convergence, got {unconverged!r}"
        )
    return unconverged == "keep"


LINEAR = ("dense", *[name for name in METHODS if name != "iterate"])
"""The methods for linear systems."""

OF_FIXED_POINTS = ("dense", *METHODS)
"""The methods for the linear equations of fixed points."""

_MOST_DENSE = 128
"""The most unknowns for which the matrix of a linear system is formed by default."""


def options_for(
    linear: str | None, n: int, dtype: DType, keep: bool, owner: str, iterative: str, known: tuple[str, ...]
) -> SolveOptions:
    """How to solve the linear equations for the derivatives of a solution with n unknowns: by `linear`, one of the
    `known` methods; by default "dense", or the `iterative` method for many unknowns."""
    method = ("dense" if n <= _MOST_DENSE else iterative) if linear is None else linear
    checked_choice(method, known, f"{owner}: linear")
    tol = tolerance(None, dtype, owner)
    return SolveOptions(method, tol, 0.0, max(10 * n, 100), keep)
