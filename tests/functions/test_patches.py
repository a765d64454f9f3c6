"""Windows as channels, Chainer's pooling and shifts beyond what the sample tables say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused
from tests.together import Test, at_once

RNG = np.random.default_rng(0)


@at_once
@pytest.mark.parametrize("ksize, stride, pad, cover_all", [
    (2, None, 0, True), ((3, 2), (2, 1), (1, 0), True), (3, 2, 1, False), ((1, 3), (1, 2), 0, True),
])
def test_indices_of_maxima_lead_back(ksize: Any, stride: Any, pad: Any, cover_all: bool) -> Test:
    """What is put back at the indices and pooled again is what was put."""
    x = RNG.uniform(1, 2, (2, 3, 7, 6))
    arguments = {"ksize": ksize, "stride": stride, "pad": pad, "cover_all": cover_all}
    y, indices = F.max_pooling_nd(x, **arguments, return_indices=True)
    found, places, alone, columns, back, count = yield (
        y, indices, F.max_pooling_nd(x, **arguments), F.im2col(x, ksize, stride or ksize, pad, cover_all),
        *[F.upsampling_2d(given, indices, **arguments, outsize=(7, 6)) for given in (y, np.ones(y.shape))],
    )  # fmt: skip
    np.testing.assert_array_equal(found, alone)
    columns = columns.reshape(2, 3, -1, *y.shape[2:])
    np.testing.assert_array_equal(np.take_along_axis(columns, places[:, :, None], 2)[:, :, 0], found)
    np.testing.assert_allclose(back, np.where(count > 0, x * count, 0))


@at_once
@pytest.mark.parametrize("by", [-9, -4, -1, 0, 2, 4, 11])
@pytest.mark.parametrize("mode, numpy_mode", [("nearest", "edge"), ("reflect", "symmetric")])
def test_shifts(by: int, mode: str, numpy_mode: Any) -> Test:
    x = np.arange(8).reshape(2, 4)
    expected = np.pad(x, ((0, 0), (12, 12)), numpy_mode)[:, 12 - by:16 - by]
    one, other = yield F.shift(x, by, mode), F.shift(x.T, (by, 0), mode)
    np.testing.assert_array_equal(one, expected)
    np.testing.assert_array_equal(other, expected.T)


test_wrong_arguments_are_named = refused([
    ("ksize", lambda x: F.im2col(x, 9)),
    ("stride", lambda x: F.max_pooling_nd(x, 2, 0)),
    ("3 axes", lambda x: F.max_pooling_1d(x, 1)),
    ("3 axes", lambda x: F.average_pooling_1d(x, 1)),
    ("pad_value", lambda x: F.average_pooling_nd(x, 1, pad_value=1)),
    ("pyramid_height", lambda x: F.spatial_pyramid_pooling_2d(x, 0)),
    ("indexes", lambda x: F.upsampling_2d(x, x[:1], 2)),
    ("border_mode", lambda x: F.shift(x, 1, "wrap")),
], given=lambda: nn.Variable((2, 2, 4, 3)))
