"""nnabla's module of the solvers' base class; the solvers themselves are in `nngrad.solvers`."""

from ..solvers import Solver as Solver
from ..solvers.state import SolverState as SolverState
