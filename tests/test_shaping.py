"""What functions of the family `shaping` refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F

X = nn.Variable.from_numpy_array(np.ones((2, 3, 1)))
IMAGES = nn.Variable.from_numpy_array(np.ones((1, 6, 3, 2)))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: F.expand_dims(X, 4), "expand_dims: axis 4 is out of range for an array of 4 axes"),
    (lambda: F.expand_dims(X, (0, -5)), "names an axis twice"),
    (lambda: F.squeeze(X, 1), "axis 1 of shape (2, 3, 1) is of size 3, not 1"),
    (lambda: F.squeeze(X, 3), "squeeze: axis 3 is out of range"),
    (lambda: F.moveaxis(X, (0, 1), 2), "source names 2 axes and destination 1"),
    (lambda: F.moveaxis(X, (0, -3), (1, 2)), "names an axis twice"),
    (lambda: F.swapaxes(X, 0, 3), "swapaxes: axis2 3 is out of range"),
    (lambda: F.rollaxis(X, 0, 4), "start 4 is out of range for 3 axes"),
    (lambda: F.fliplr(X[0, :, 0]), "has no second axis"),
    (lambda: F.flipud(X[0, 0, 0]), "x has no axis"),
    (lambda: F.repeat(X, -1), "must not be negative"),
    (lambda: F.repeat(X, (1, 2), axis=1), "repeats has 2 numbers, and axis 1 of (2, 3, 1) 3 indices"),
    (lambda: F.depth2space(IMAGES, 2), "the 6 channels are no multiple of r^2 = 4"),
    (lambda: F.depth2space(X, 2), "x must have four axes"),
    (lambda: F.depth2space(IMAGES, 0), "r must be at least 1"),
    (lambda: F.space2depth(IMAGES, 2), "the height 3 and the width 2 must be multiples of r = 2"),
])  # fmt: skip
def test_bad_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value)
