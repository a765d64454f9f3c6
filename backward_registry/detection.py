"""Non-maximum suppression, which has no derivative."""

import nngrad.functions as F

from .rules import non_differentiable

non_differentiable(F.nms_mask, F.ranked_boxes, F.selected_rows)
