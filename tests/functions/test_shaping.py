"""What functions of the family `shaping` refuse, and margins of any width."""

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
    (lambda: F.squeeze(X, 1), "axis must be of size 1, got axis 1 of shape (2, 3, 1)"),
    (lambda: F.moveaxis(X, (0, 1), 2), "source and destination must have equally many axes, got 2 and 1"),
    (lambda: F.swapaxes(X, 0, 3), "swapaxes: axis2 3 is out of range"),
    (lambda: F.repeat(X, -1), "must not be negative"),
    (lambda: F.depth2space(IMAGES, 2), "the number of channels must be a multiple of r^2 = 4, got 6"),
    (lambda: F.space2depth(IMAGES, 2), "height and width must be multiples of r = 2, got 3 and 2"),
])  # fmt: skip
def test_bad_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize(("size", "widths"), [(2, (0, 9)), (3, (8, 5)), (5, (9, 0))])
def test_wide_margins_are_mirrored_again_and_again(size: int, widths: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(size=(2, size, 3))
    leaf = nn.Variable.from_numpy_array(x, dtype=x.dtype)
    y = F.pad(leaf, (*widths, 0, 0), mode="reflect")
    np.testing.assert_array_equal(y.d, np.pad(x, ((0, 0), widths, (0, 0)), "reflect"))
    weights, expected = np.random.default_rng(1).normal(size=y.shape), np.zeros_like(x)
    np.add.at(expected, (slice(None), np.pad(np.arange(size), widths, "reflect")), weights)
    (gx,) = nn.grad([y], [leaf], grad_outputs=[weights])
    np.testing.assert_allclose(gx.d, expected, atol=1e-12)
