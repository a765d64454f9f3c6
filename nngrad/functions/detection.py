"""Non-maximum suppression of detected boxes."""

from __future__ import annotations

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Variable, composite, op
from ..graph.arguments import Size, one_of
from .arithmetic import floating, mul2, widened
from .array import zeros_like
from .axes import rows
from .indexing import where
from .movement import concatenate
from .sets import known_values
from .slicing import take_slices

# ---------------------------------------------------------------- selection of boxes


def _suppressed(
    low: Any, high: Any, area: Any, scores: Any, alive: Any, threshold: float, chained: bool
) -> tuple[jax.Array, jax.Array]:
    """The order of boxes by descending score, (batch, classes, N), and which of the `alive` ones are kept, in that
    order: those whose intersection over union with every better box is within the threshold. If `chained`, only better
    boxes that are kept themselves count. Boxes extend from `low` to `high`, (batch, N, 2)."""

    def of_class(low: Any, high: Any, area: Any, scores: Any, alive: Any) -> tuple[Any, Any]:
        order = jnp.argsort(-scores, stable=True)
        low, high, area, alive = (of_boxes[order] for of_boxes in (low, high, area, alive))
        place = jnp.arange(order.size)
        count = jnp.max(jnp.where(alive, place + 1, 0), initial=0)

        def step(state: Any) -> Any:
            i, remaining = state
            sides = jnp.minimum(high, high[i]) - jnp.maximum(low, low[i])
            common = jnp.where((sides > 0).all(-1), sides[:, 0] * sides[:, 1], 0)
            union = jnp.where(common > 0, area + area[i] - common, 1)
            one = (remaining if chained else alive)[i]
            return i + 1, remaining & ~(one & (place > i) & (common / union > threshold))

        return order, lax.while_loop(lambda state: state[0] < count, step, (jnp.zeros_like(count), alive))[1]

    of_image = jax.vmap(of_class, (None, None, None, 0, 0))
    selection: tuple[jax.Array, jax.Array] = jax.vmap(of_image)(low, high, area, scores, alive)
    return selection


@op(axes=rows())
def nms_mask(x: Array, /, thresh: float, nms: float, nms_per_class: bool) -> jax.Array:
    """Which scores of detected boxes are kept: the op behind `nms_detection2d`.

    Args:
        ...: As in `nms_detection2d`.

    Returns:
        bool (batch, N, 1 + classes): for the objectness, and for the score of each class.
    """
    if x.ndim != 3 or x.shape[2] < 6:
        raise ValueError(f"x must be of shape (batch, N, 5 + classes) with at least one class, got {x.shape}")
    x = widened(floating(x))
    centre, size, objectness = x[..., 0:2], x[..., 2:4], x[..., 4:5]
    there = objectness >= thresh
    scores = jnp.where(there, objectness, 0) * x[..., 5:]
    passed = jnp.concatenate([there, there & (scores >= thresh)], -1)
    ranked = scores if nms_per_class else objectness
    alive = passed[..., 1:] if nms_per_class else passed[..., :1]
    alive = alive & (ranked != 0)
    ranked, alive = [jnp.moveaxis(of_boxes, 2, 1) for of_boxes in (jnp.where(alive, ranked, 0), alive)]
    area = size[..., 0] * size[..., 1]
    order, selected = _suppressed(centre - size / 2, centre + size / 2, area, ranked, alive, nms, nms_per_class)
    mask = jnp.moveaxis(jnp.take_along_axis(selected, jnp.argsort(order, 2), 2), 1, 2)
    return jnp.concatenate([passed[..., :1], mask], -1) if nms_per_class else passed & mask


@op(axes=rows(inputs=(0, 1)))
def ranked_boxes(
    boxes: Array, scores: Array, /, center_point_box: Annotated[int, one_of(0, 1)], max_output_boxes_per_class: Size,
    iou_threshold: float, score_threshold: float,
) -> jax.Array:
    """For each class, the box indices by descending score: the op behind `onnx_non_max_suppression`.

    Args:
        ...: As in `onnx_non_max_suppression`.

    Returns:
        int32 (batch, classes, N): -1 in place of a box that is not selected.

    Raises:
        ValueError: The shapes do not fit, or `center_point_box` or `max_output_boxes_per_class` is out of range.
    """
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3 or scores.shape[::2] != boxes.shape[:2]:
        raise ValueError("boxes and scores must be of shape (batch, N, 4) and (batch, classes, N), got "
                         f"{boxes.shape} and {scores.shape}")
    boxes, scores = widened(floating(boxes)), widened(floating(scores))
    first, second = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        low, high, size = first - second / 2, first + second / 2, second
    else:
        low, high = jnp.minimum(first, second), jnp.maximum(first, second)
        size = high - low
    area = size[..., 0] * size[..., 1]
    order, selected = _suppressed(low, high, area, scores, scores >= score_threshold, iou_threshold, True)
    selected = selected & (jnp.cumsum(selected, 2) <= max_output_boxes_per_class)
    return jnp.where(selected, order, -1).astype(jnp.int32)


@op
def selected_rows(numbers: Array, /, size: Size, whole: bool = False) -> jax.Array:
    """The positions of the boxes that `ranked_boxes` has selected, each with its box index.

    Args:
        numbers: int32 (batch, classes, N); negative ones are skipped.
        size: The number of rows returned; missing rows are -1.
        whole: Whether all rows are -1 unless exactly `size` boxes are selected.

    Returns:
        int32 (size, 3): batch, class, number.
    """
    there = numbers >= 0
    places = jnp.nonzero(there, size=size, fill_value=0)
    rows = jnp.stack([*places[:2], numbers[places]], 1).astype(jnp.int32)
    count = jnp.sum(there)
    filled = jnp.arange(size) < count
    return jnp.where((filled & (count == size) if whole else filled)[:, None], rows, -1)


# ---------------------------------------------------------------- nnabla's functions


@composite
def nms_detection2d(
    x: Array, /, thresh: float | None = None, nms: float | None = None, nms_per_class: bool | None = None
) -> Variable:
    """Non-maximum suppression: scores of detected boxes, set to 0 for boxes that a better one overlaps.

    The score of a class is multiplied by the objectness. The selection has no derivative, but the selected scores have
    gradients.

    Args:
        x: (batch, N, 5 + classes): for each box x and y of its centre, width, height, objectness, and the probability
            of each class.
        thresh: The threshold: smaller objectness and scores become 0; None for 0.5.
        nms: The intersection over union above which one of two boxes is dropped; None for 0.45.
        nms_per_class: Whether boxes are compared by their scores, class by class. False compares them by objectness,
            and drops a box with all its classes if any better one overlaps it, even one that is itself dropped. None
            means True.

    Returns:
        Of the shape of `x`: boxes, objectness, and scores.

    Raises:
        ValueError: x does not have three axes, the last with more than five entries.
    """
    mask = nms_mask(
        x, thresh=0.5 if thresh is None else thresh, nms=0.45 if nms is None else nms,
        nms_per_class=nms_per_class is None or nms_per_class,
    )
    batch, count, width = x.shape
    whole = ((0, batch, 1), (0, count, 1))
    boxes, objectness, classes = [
        take_slices(x, key=(*whole, (low, high - low, 1))) for low, high in ((0, 4), (4, 5), (5, width))
    ]
    scores = concatenate(objectness, mul2(objectness, classes), axis=2)
    return concatenate(boxes, where(mask, scores, zeros_like(scores)), axis=2)


@composite
def onnx_non_max_suppression(
    boxes: Array, scores: Array, /, center_point_box: int | None = None, max_output_boxes_per_class: int | None = None,
    iou_threshold: float | None = None, score_threshold: float | None = None, size: int | None = None,
) -> Variable:
    """Indices of the boxes that ONNX's NonMaxSuppression selects: no better box of the class overlaps. No derivative.

    Args:
        boxes: (batch, N, 4): two opposite corners (y1, x1, y2, x2) of each box.
        scores: (batch, classes, N).
        center_point_box: 1 if boxes are given by centre x and y, width, and height; None for 0.
        max_output_boxes_per_class: The largest number of boxes selected for each class and batch item; None for 0,
            which selects none.
        iou_threshold: The intersection over union above which the box with the lower score is dropped; None for 0.
        score_threshold: A box with a lower score is not selected; None for 0.
        size: The number of rows returned; None for as many as are selected when the function is applied. If more are
            selected, the first ones are returned; if fewer, missing rows are -1. With None, a later `forward()` that
            selects another number gives -1 everywhere.

    Returns:
        int32 (size, 3): batch item, class and box index of each selected box, sorted by batch item, class, and
        descending score.

    Raises:
        ValueError: The shapes do not fit, an argument is out of range, or `size` is not given where values are not
            known, as in the body of a loop.
    """
    numbers = ranked_boxes(
        boxes, scores, center_point_box=center_point_box or 0,
        max_output_boxes_per_class=max_output_boxes_per_class or 0, iou_threshold=iou_threshold or 0.0,
        score_threshold=score_threshold or 0.0,
    )
    if size is not None:
        return selected_rows(numbers, size=size)
    count = int(np.count_nonzero(known_values(numbers) >= 0))
    return selected_rows(numbers, size=count, whole=True)
