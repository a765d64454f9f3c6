"""Deformable, separable and fused convolutions against convolutions and sums written out, and their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.together import Test, at_once

RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: str = "float64") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


@at_once
@pytest.mark.parametrize("channel_last", [False, True])
@pytest.mark.parametrize("arguments", [
    {"pad": 1}, {"pad": (2, 0), "stride": (2, 1)}, {"dilation": (1, 2), "group": 2},
    {"deformable_group": 2, "stride": 2}, {"base_axis": 2, "group": 4},
])
def test_without_offsets_it_is_a_convolution(arguments: dict[str, Any], channel_last: bool) -> Test:
    """And with offsets that are the same whole numbers everywhere, that of x so moved."""
    group, base_axis = arguments.get("group", 1), arguments.get("base_axis", 1)
    deformable = arguments.get("deformable_group", 1)
    given = {k: v for k, v in arguments.items() if k != "deformable_group"}
    batch = (2, 2)[:base_axis]
    x, w, b = drawn(*batch, 4, 6, 5), drawn(4, 4 // group, 3, 2), drawn(4)
    sizes = F.convolution(x, w, b, **given).shape[-2:]
    moved = np.concatenate([x[..., 1:, :], np.zeros_like(x[..., :1, :])], -2)
    offset = np.zeros((*batch, 12 * deformable, *sizes))
    down = offset.copy()
    down[(slice(None),) * base_axis + (slice(0, None, 2),)] = 1
    mask = np.full((*batch, 6 * deformable, *sizes), 0.5)

    def last(a: Any, axis: int) -> Any:
        return np.moveaxis(a, axis, -1) if channel_last else a

    wanted = []
    for image, offsets in ((x, offset), (moved, down)):
        if arguments.get("pad") and image is moved:
            continue  # what moves in from the margin is not x
        inputs = last(x, base_axis), last(w, 1), last(offsets, base_axis)
        for inner, outer in ((None, b), (last(mask, base_axis), None)):
            y = F.deformable_convolution(*inputs, inner, outer, **arguments, channel_last=channel_last)
            wanted += [y, F.convolution(image, w, outer, **given)]
    found = yield wanted
    for i, (y, expected) in enumerate(zip(found[::2], found[1::2], strict=True)):
        y = np.moveaxis(y, -1, base_axis) if channel_last else y
        np.testing.assert_allclose(y, expected * (0.5 if i % 2 else 1), atol=1e-12)


@at_once
def test_places_that_are_far_away_or_no_numbers_at_all() -> Test:
    x, w, offset = np.ones((1, 1, 2, 2)), np.ones((1, 1, 1, 1)), np.zeros((1, 2, 2, 2))
    offset[0, 0] = [[1e30, -1e30], [np.nan, 0]]
    (y,) = yield (F.deformable_convolution(x, w, offset),)
    np.testing.assert_array_equal(y, [[[[0, 0], [np.nan, 1]]]])


@at_once
def test_large_kernels_are_summed_in_loops() -> Test:
    """As the small ones, which are not; and so are their gradients."""
    x, v, h = drawn(1, 2, 12, 11), drawn(1, 9, 4, 3), drawn(1, 9, 4, 3)
    leaves = [nn.Variable.from_numpy_array(a, need_grad=True) for a in (x, v, h)]
    y = F.adaptive_separable_convolution(*leaves)
    dy = drawn(*y.shape)
    expected = [np.zeros_like(a) for a in (x, v, h)]
    total = np.zeros_like(dy)
    for j in range(9):
        for i in range(9):
            part = x[:, :, j:j + 4, i:i + 3]
            total += v[:, None, j] * h[:, None, i] * part
            expected[0][:, :, j:j + 4, i:i + 3] += v[:, None, j] * h[:, None, i] * dy
            expected[1][:, j] += (h[:, None, i] * part * dy).sum(1)
            expected[2][:, i] += (v[:, None, j] * part * dy).sum(1)
    for found, value in zip((yield y, *nn.grad([y], leaves, grad_outputs=[dy])), [total, *expected], strict=True):
        np.testing.assert_allclose(found, value, atol=1e-12)


@pytest.mark.parametrize("named, shapes, given", [
    ("x must have .* spatial axes", [(4, 5), (1, 1, 1, 1), (4, 2, 5)], {}),
    ("offset", [(2, 2, 4, 4), (1, 2, 1, 1), (1, 2, 4, 4)], {}),
    ("offset", [(1, 2, 4, 4), (1, 2, 1, 1), (1, 3, 4, 4)], {}),
    ("mask", [(1, 2, 4, 4), (1, 2, 1, 1), (1, 2, 4, 4), (1, 2, 4, 4)], {}),
    ("weight", [(1, 2, 4, 4), (1, 3, 1, 1), (1, 2, 4, 4)], {}),
    ("kernel", [(1, 2, 4, 4), (1, 2, 5, 1), (1, 10, 4, 4)], {}),
    ("group", [(1, 2, 4, 4), (1, 1, 1, 1), (1, 2, 4, 4)], {"group": 2}),
    ("deformable_group", [(1, 2, 4, 4), (1, 2, 1, 1), (1, 2, 4, 4)], {"deformable_group": 3}),
    ("stride", [(1, 2, 4, 4), (1, 2, 1, 1), (1, 2, 4, 4)], {"stride": 0}),
    ("bias", [(1, 2, 4, 4), (1, 2, 1, 1), (1, 2, 4, 4), (1, 1, 4, 4), (2,)], {}),
])
def test_wrong_arguments_are_named(named: str, shapes: list[Any], given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=named):
        F.deformable_convolution(*[nn.Variable(shape) for shape in shapes], **given)
