"""Functions defined by equations, and their derivatives of any order."""

from .convergence import Convergence
from .differential import odeint
from .linear import linear_solve
from .roots import fixed_point, minimize, root

__all__ = ["Convergence", "fixed_point", "linear_solve", "minimize", "odeint", "root"]
