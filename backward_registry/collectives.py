"""Backward rules of collectives. They are linear in the arrays of all processes together: the rule is the transpose."""

import nngrad.functions as F

from .rules import adjoint_pair, gradients

adjoint_pair(F.all_gather, F.reduce_scatter)


gradients(F.all_reduce, "gx_r = sum_s gy_s", lambda gy, processes: F.all_reduce(gy, processes=processes))
gradients(
    F.bcast, "gx_src = sum_s gy_s, and zeros elsewhere",
    lambda gy, processes, src: F.reduce_to_process(gy, processes=processes, dst=src),
)  # fmt: skip
gradients(F.reduce_to_process, "gx_r = gy_dst", lambda gy, processes, dst: F.bcast(gy, processes=processes, src=dst))
