"""Backward rules of parts of arrays. Taking is linear: the rule puts, and the other way round."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import adjoint_pair, backward

# ---------------------------------------------------------------- slices


adjoint_pair(F.take_slices, F.put_slices)


# ---------------------------------------------------------------- points


@backward(F.take_points)
def take_points_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """The gradient added up at the points"""
    x, indices = f.inputs
    axes, at, rows = f.args["axes"], f.args["at"], f.args["rows"]
    return F.put_points(gy, indices, axes=axes, shape=x.shape, at=at, rows=rows), None


@backward(F.put_points)
def put_points_backward(f: Function, gx: Variable) -> tuple[Variable, None]:
    """The gradient at the points; what was left out has none"""
    axes, at, rows = f.args["axes"], f.args["at"], f.args["rows"]
    return F.take_points(gx, f.inputs[1], axes=axes, at=at, rows=rows), None
