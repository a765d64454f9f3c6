"""Backward rules of parts of arrays. Taking is linear: the rule puts, and the other way round."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from . import adjoint_pair, backward

# ---------------------------------------------------------------- slices


adjoint_pair(F.take_slices, F.put_slices)


# ---------------------------------------------------------------- points


@backward(F.take_points)
def take_points_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """The gradient added up at the points"""
    x, indices = f.inputs
    return F.put_points(gy, indices, axes=f.args["axes"], shape=x.shape, at=f.args["at"]), None


@backward(F.put_points)
def put_points_backward(f: Function, gx: Variable) -> tuple[Variable, None]:
    """The gradient at the points; what was left out has none"""
    return F.take_points(gx, f.inputs[1], axes=f.args["axes"], at=f.args["at"]), None
