"""nnabla's module of the class that its solvers have in common; the solvers themselves are in `nngrad.solvers`."""

from .solvers import Solver as Solver
