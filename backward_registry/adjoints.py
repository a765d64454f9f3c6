"""The rules of families whose ops are linear, and each other's transposes: patches, regions, resampling, slicing; and
of convolutions and weighted points, each one trilinear form seen from its three sides."""

import nngrad.functions as F

from .rules import adjoint_pair, bilinear_family

adjoint_pair(F.im2col, F.col2im)
adjoint_pair(F.box_averages, F.box_averages_transpose)  # as in nnabla boxes get no gradient
adjoint_pair(F.resample, F.resample_transpose)
adjoint_pair(F.take_slices, F.put_slices)
adjoint_pair(F.take_points, F.put_points)

bilinear_family(F.convolve, F.convolve_data_grad, F.convolve_filter_grad)
bilinear_family(
    F.weighted_points, F.weighted_points_data_grad, F.weighted_points_weight_grad,
    lambda f, x: {"size": x.shape[1 if f.args["channel_last"] else 2]},
)  # fmt: skip
