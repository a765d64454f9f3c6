"""Backward rules of weighted sums of points: T = <y, weighted_points(x, weights)> is linear in y, x and weights, and a
gradient takes the slot of what it reached. The points themselves have no derivative."""

from __future__ import annotations

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward


@backward(F.weighted_points)
def weighted_points_backward(f: Function, gy: Variable) -> tuple[Variable, Variable, None]:
    """dT/dx and dT/dweights, with gy for y"""
    x, weights, indices = f.inputs
    last = f.args["channel_last"]
    gx = F.weighted_points_data_grad(gy, weights, indices, size=x.shape[1 if last else 2], channel_last=last)
    return gx, F.weighted_points_weight_grad(gy, x, indices, channel_last=last), None


@backward(F.weighted_points_data_grad)
def weighted_points_data_grad_backward(f: Function, gx: Variable) -> tuple[Variable, Variable, None]:
    """dT/dy and dT/dweights, with gx for x"""
    y, weights, indices = f.inputs
    last = f.args["channel_last"]
    gy = F.weighted_points(gx, weights, indices, channel_last=last)
    return gy, F.weighted_points_weight_grad(y, gx, indices, channel_last=last), None


@backward(F.weighted_points_weight_grad)
def weighted_points_weight_grad_backward(f: Function, gweights: Variable) -> tuple[Variable, Variable, None]:
    """dT/dy and dT/dx, with gweights for weights"""
    y, x, indices = f.inputs
    last = f.args["channel_last"]
    gx = F.weighted_points_data_grad(y, gweights, indices, size=x.shape[1 if last else 2], channel_last=last)
    return F.weighted_points(x, gweights, indices, channel_last=last), gx, None
