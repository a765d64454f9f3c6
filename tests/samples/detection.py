"""Samples of the family `detection`."""

import jax.numpy as jnp

from . import Sample, fixed, sample

DETECTED = fixed([[0.0, 0.0, 2.0, 2.0, 0.9, 0.75, 0.95], [0.2, 0.1, 2.0, 2.0, 0.8, 0.9, 0.7],
                  [5.0, 5.0, 1.0, 1.0, 0.7, 0.1, 0.9]])
"""Two boxes that overlap, each of which is the better one for a class, and one apart from them."""
CORNERS = fixed([[0.0, 0.0, 2.0, 2.0], [2.1, 2.2, 0.1, 0.1], [4.0, 4.0, 5.0, 5.0]])
SCORES = fixed([[0.4, 0.9, 0.3], [0.8, 0.6, 0.1]])


def kept(x, mask):
    boxes, objectness, classes = jnp.split(x, [4, 5], -1)
    scores = jnp.concatenate([objectness, objectness * classes], -1)
    return jnp.concatenate([boxes, jnp.where(jnp.array(mask), scores, 0)], -1)


SAMPLES: list[Sample] = [
    sample("nms_detection2d", DETECTED, thresh=0.5, numeric=False,
           ref=lambda x: kept(x, [[1, 0, 1], [1, 1, 0], [1, 0, 1]])),
    sample("nms_detection2d", DETECTED, thresh=0.5, nms_per_class=False, numeric=False,
           ref=lambda x: kept(x, [[1, 1, 1], [0, 0, 0], [1, 0, 1]])),
    sample("nms_detection2d", DETECTED, thresh=0.6, nms=0.95, orders=1, numeric=False,
           ref=lambda x: kept(x, [[1, 1, 1], [1, 1, 0], [1, 0, 1]])),
    sample("nms_mask", DETECTED, thresh=0.6, nms=0.95, nms_per_class=True, orders=0,
           ref=lambda x: jnp.array([[[True, True, True], [True, True, False], [True, False, True]]])),
    sample("ranked_boxes", CORNERS, SCORES, center_point_box=0, max_output_boxes_per_class=2, iou_threshold=0.5,
           score_threshold=0.2, orders=0, ref=lambda b, s: jnp.array([[[1, -1, 2], [0, -1, -1]]])),
    sample("selected_rows", fixed([[2, -1, 0], [-1, 1, 2]], dtype="int32"), size=5, orders=0,
           ref=lambda n: jnp.array([[0, 0, 2], [0, 0, 0], [0, 1, 1], [0, 1, 2], [-1, -1, -1]])),
    sample("selected_rows", fixed([[2, -1, 0], [-1, 1, 2]], dtype="int32"), size=5, whole=True, orders=0,
           ref=lambda n: jnp.full((5, 3), -1)),
    sample("onnx_non_max_suppression", CORNERS, SCORES, max_output_boxes_per_class=3, iou_threshold=0.5, orders=0,
           ref=lambda b, s: jnp.array([[0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 2]])),
    sample("onnx_non_max_suppression", CORNERS, SCORES, max_output_boxes_per_class=2, iou_threshold=0.5,
           score_threshold=0.2, orders=0, ref=lambda b, s: jnp.array([[0, 0, 1], [0, 0, 2], [0, 1, 0]])),
    sample("onnx_non_max_suppression", fixed([[1.0, 1.0, 2.0, 2.0], [1.15, 1.1, 2.1, 2.0], [4.5, 4.5, 1.0, 1.0]]),
           SCORES, center_point_box=1, max_output_boxes_per_class=3, iou_threshold=0.5, size=5, orders=0,
           ref=lambda b, s: jnp.array([[0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 2], [-1, -1, -1]])),
]
