"""Backward rules of weighted sums of points: T = <y, weighted_points(x, weights)> is linear in y, x and weights. The
points themselves have no derivative."""

import nngrad.functions as F

from .rules import bilinear_family

bilinear_family(
    F.weighted_points, F.weighted_points_data_grad, F.weighted_points_weight_grad,
    lambda f, x: {"size": x.shape[1 if f.args["channel_last"] else 2]},
)  # fmt: skip
