"""nnabla's module of what its solvers have in common; the solvers themselves are in `nngrad.solvers`."""

from .solvers import Solver as Solver
from .solvers.state import SolverState as SolverState
