"""Backward rules of windows at random positions: reading and writing are each other's transpose."""

import nngrad.functions as F

from .rules import gradients, non_differentiable

non_differentiable(F.random_offsets)


gradients(
    F.take_windows, "The gradient put where the windows were",
    lambda gy, x, starts: (F.put_windows(gy, starts, sizes=x.shape[starts.ndim - 1 :]), None),
)  # fmt: skip
gradients(
    F.put_windows, "The gradient in the windows",
    lambda gy, y, starts: (F.take_windows(gy, starts, sizes=y.shape[starts.ndim - 1 :]), None),
)  # fmt: skip
