"""Boxes: averages over their bins, and which of them are kept, against loops over boxes; products of patches."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused

from_ = nn.Variable.from_numpy_array
RNG = np.random.default_rng(0)

# ---------------------------------------------------------------- averages over the bins of boxes

BOXES = np.array([
    [0, 1.3, 2.1, 6.2, 5.9], [1, -3, -2.5, 4, 9], [1, 0, 0, 20, 14], [0, 3, 3, 3.5, 3.1], [-1, 2, 2, 2, 2],
])


def value_at(image: Any, y: float, x: float) -> Any:
    """An image (C, height, width) between its pixels."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(image.shape[0])
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    i, j = int(y), int(x)
    corners = image[:, [[i, i], [min(i + 1, height - 1)] * 2], [[j, min(j + 1, width - 1)]] * 2]
    return np.einsum("cij,i,j->c", corners, [1 - (y - i), y - i], [1 - (x - j), x - j])


def averages(x: Any, boxes: Any, bins: tuple[int, int], scale: tuple[float, float], ratio: int) -> Any:
    y = np.zeros((len(boxes), x.shape[1], *bins))
    for k, (number, *corners) in enumerate(boxes):
        x1, y1, x2, y2 = [c * scale[1 - i % 2] - 0.5 for i, c in enumerate(corners)]
        step = ((y2 - y1) / bins[0], (x2 - x1) / bins[1])
        counts = [ratio if ratio > 0 else math.ceil(s) for s in step]
        for i, j in itertools.product(range(bins[0]), range(bins[1])):
            samples = [
                value_at(x[max(int(number), 0)], y1 + step[0] * (i + (a + 0.5) / counts[0]),
                         x1 + step[1] * (j + (b + 0.5) / counts[1]))
                for a, b in itertools.product(range(counts[0]), range(counts[1]))
            ]
            y[k, :, i, j] = np.mean(samples, 0) if samples else 0
    return y


@pytest.mark.parametrize("ratio", [-1, 1, 3, 17])
def test_roi_align(ratio: int) -> None:
    x = RNG.standard_normal((2, 3, 7, 9))
    expected = averages(x, BOXES, (2, 3), (0.5, 0.7), ratio)
    y = F.roi_align(from_(x), from_(BOXES), (2, 3), (0.5, 0.7), ratio)
    np.testing.assert_allclose(y.d, expected, atol=1e-12)
    if ratio == 1:
        last = F.roi_align(from_(np.moveaxis(x, 1, -1)), from_(BOXES), (2, 3), (0.5, 0.7), ratio, True)
        np.testing.assert_allclose(np.moveaxis(last.d, -1, 1), expected, atol=1e-12)


def test_the_gradient_of_roi_align_follows_the_boxes_at_each_forward() -> None:
    x, boxes = from_(RNG.standard_normal((2, 2, 5, 4)), need_grad=True), from_(BOXES)
    y = F.roi_align(x, boxes, (2, 2))
    weights = RNG.standard_normal(y.shape)
    (gx,) = nn.grad([y], [x], grad_outputs=[from_(weights)])
    for scale in (1.0, 0.3):
        boxes.d = BOXES * [1, scale, scale, scale, scale]
        F.sink(y, gx).forward()
        np.testing.assert_allclose(y.d, averages(x.d, boxes.d, (2, 2), (1, 1), -1), atol=1e-12)
        np.testing.assert_allclose(np.sum(gx.d * x.d), np.sum(y.d * weights))


# ---------------------------------------------------------------- products of patches


@pytest.mark.parametrize("arguments", [
    {"patch": 2, "shift": (1, 2), "shift_step": 2, "padding": 1},
    {"patch": (1, 2), "shift": (2, 1), "patch_step": (2, 1), "shift_step": (3, 1), "padding": (1, 0, 0, 2)},
    {"patch": 3, "shift": 1, "shift_step": 1, "padding": (1, 2)},
    {"patch": 2, "shift": (2, 1), "shift_step": (5, 3), "padding": 0},
    {"patch": 1, "shift": (2, 1), "shift_step": (7, 3), "padding": (0, 1)},
])
def test_patch_correlation(arguments: Any) -> None:
    a, b = RNG.standard_normal((2, 2, 3, 4, 5))
    y = F.patch_correlation(from_(a), from_(b), **arguments)
    pairs = {name: (v, v) if isinstance(v, int) else v for name, v in arguments.items() if name != "padding"}
    (h, w), (far_y, far_x) = pairs["patch"], pairs["shift"]
    (dy, dx), (sy, sx) = pairs.get("patch_step", (1, 1)), pairs["shift_step"]
    padding = arguments["padding"]
    padding = (padding,) * 4 if isinstance(padding, int) else padding
    top, bottom, left, right = padding if len(padding) == 4 else np.repeat(padding, 2)
    wide = [np.pad(each, ((0, 0), (0, 0), (9, 9), (9, 9))) for each in (a, b)]

    def patch(image: Any, y: int, x: int) -> Any:
        return image[:, :, y + 9:y + 9 + h, x + 9:x + 9 + w]

    expected = np.stack([
        np.stack([
            np.stack([
                np.stack([
                    (patch(wide[0], y, x) * patch(wide[1], y + i, x + j)).sum((1, 2, 3))
                    for x in range(-left, 5 - w + right + 1, dx)
                ], -1) for y in range(-top, 4 - h + bottom + 1, dy)
            ], -2) for j in range(-far_x, far_x + 1, sx)
        ], 1) for i in range(-far_y, far_y + 1, sy)
    ], 1)
    np.testing.assert_allclose(y.d, expected, atol=1e-12)
    moved = [from_(np.moveaxis(each, 1, -1)) for each in (a, b)]
    last = F.patch_correlation(*moved, **arguments, channel_last=True)
    np.testing.assert_allclose(last.d, np.transpose(expected, (0, 3, 4, 1, 2)), atol=1e-12)


# ---------------------------------------------------------------- which boxes are kept


def overlap(a: Any, b: Any) -> float:
    """Of boxes (x, y, width, height): intersection by union."""
    ends = [[(c[i] - c[2 + i] / 2, c[i] + c[2 + i] / 2) for c in (a, b)] for i in (0, 1)]
    sides = [min(one[1], other[1]) - max(one[0], other[0]) for one, other in ends]
    common = sides[0] * sides[1] if min(sides) > 0 else 0.0
    return float(common / (a[2] * a[3] + b[2] * b[3] - common))


def greedy(boxes: Any, scores: Any, threshold: float) -> list[int]:
    """The numbers of boxes that no better one, which is kept itself, overlaps with, the best first."""
    found: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if all(overlap(boxes[i], boxes[j]) <= threshold for j in found):
            found.append(int(i))
    return found


def random_boxes(*shape: int) -> Any:
    return np.concatenate([RNG.uniform(0, 4, (*shape, 2)), RNG.uniform(1, 3, (*shape, 2))], -1)


def test_nms_detection2d() -> None:
    x = np.concatenate([random_boxes(2, 12), RNG.uniform(0.2, 1, (2, 12, 4))], -1)
    y = F.nms_detection2d(from_(x), 0.3, 0.2).d
    objectness = np.where(x[..., 4:5] < 0.3, 0, x[..., 4:5])
    np.testing.assert_array_equal(y[..., :5], np.concatenate([x[..., :4], objectness], -1))
    scores = objectness * x[..., 5:]
    for b, k in itertools.product(range(2), range(3)):
        there = np.flatnonzero(scores[b, :, k] >= 0.3)
        kept = there[greedy(x[b, there], scores[b, there, k], 0.2)]
        np.testing.assert_array_equal(np.flatnonzero(y[b, :, 5 + k]), np.sort(kept))
    together = F.nms_detection2d(from_(x), 0.3, 0.2, False).d
    for b, i in itertools.product(range(2), range(12)):
        better = [j for j in range(12) if x[b, j, 4] > x[b, i, 4]]
        dropped = x[b, i, 4] < 0.3 or any(overlap(x[b, i], x[b, j]) > 0.2 for j in better)
        expected = np.zeros(3) if dropped else np.where(scores[b, i] < 0.3, 0, scores[b, i])
        np.testing.assert_allclose(together[b, i, 5:], expected)


@pytest.mark.parametrize("center", [0, 1])
def test_onnx_non_max_suppression(center: int) -> None:
    boxes, scores = random_boxes(2, 10), RNG.uniform(0, 1, (2, 3, 10))
    expected = []
    for b, k in itertools.product(range(2), range(3)):
        there = np.flatnonzero(scores[b, k] >= 0.1)
        expected += [[b, k, there[i]] for i in greedy(boxes[b, there], scores[b, k, there], 0.15)[:3]]
    given = boxes if center else np.concatenate(
        [boxes[..., 1::-1] + boxes[..., 3:1:-1] / 2, boxes[..., 1::-1] - boxes[..., 3:1:-1] / 2], -1
    )
    arguments = (center, 3, 0.15, 0.1)
    found = F.onnx_non_max_suppression(from_(given), from_(scores), *arguments)
    np.testing.assert_array_equal(found.d, expected)
    more = F.onnx_non_max_suppression(from_(given), from_(scores), *arguments, size=len(expected) + 2)
    np.testing.assert_array_equal(more.d, [*expected, [-1] * 3, [-1] * 3])
    assert F.onnx_non_max_suppression(from_(given), from_(scores)).shape == (0, 3)


def test_how_many_boxes_are_selected_is_fixed_when_the_function_is_applied() -> None:
    boxes, scores = from_(random_boxes(1, 4)), from_(np.array([[[0.9, 0.8, 0.2, 0.1]]]))
    found = F.onnx_non_max_suppression(boxes, scores, 1, 9, 0.99, 0.5)
    np.testing.assert_array_equal(found.d, [[0, 0, 0], [0, 0, 1]])
    scores.d = np.array([[[0.1, 0.2, 0.7, 0.9]]])
    found.forward()
    np.testing.assert_array_equal(found.d, [[0, 0, 3], [0, 0, 2]])
    scores.d = np.array([[[0.9, 0.8, 0.7, 0.1]]])
    found.forward()
    np.testing.assert_array_equal(found.d, np.full((2, 3), -1))


def test_a_loop_needs_the_size() -> None:
    boxes = from_(random_boxes(1, 4))

    def step(carry: Any, scores: Any, **options: int) -> Any:
        return carry, F.onnx_non_max_suppression(boxes, scores, 1, 9, 0.99, 0.5, **options)

    scores = from_(np.array([[[[0.9, 0.8, 0.2, 0.1]]], [[[0.1, 0.8, 0.2, 0.1]]]]))
    start = F.constant(0)
    with pytest.raises(ValueError, match=r"onnx_non_max_suppression: the size of the result .* Pass size="):
        F.scan(step, start, scores)
    _, found = F.scan(lambda carry, each: step(carry, each, size=2), start, scores)
    np.testing.assert_array_equal(found.d, [[[0, 0, 0], [0, 0, 1]], [[0, 0, 1], [-1, -1, -1]]])


X = from_(np.ones((1, 2, 3, 3)))
ONE = from_(np.zeros((1, 5)))


test_what_is_wrong_is_named = refused([
    (lambda: F.roi_align(X[0], ONE, (1, 1)), "input must have four nonempty axes, got shape"),
    (lambda: F.patch_correlation(X, X[0]), "x1 and x2 must have the same shape of four axes, got"),
    (lambda: F.nms_detection2d(X), r"x must be of shape \(batch, N, 5 \+ classes\) with"),
    (lambda: F.onnx_non_max_suppression(X[0], X[0]), "boxes and scores must be of shape"),
])
