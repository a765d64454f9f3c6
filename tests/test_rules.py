"""Every op at orders 0 to 3, in float64, against a reference that nngrad has no part in."""

from __future__ import annotations

import numpy as np
import pytest

import nngrad.functions as F
from tests.oracle import check
from tests.samples import Sample, all_samples


@pytest.mark.parametrize("sample", all_samples(), ids=lambda s: s.id)
def test_op(sample: Sample) -> None:
    rng = np.random.default_rng(7)
    inputs = [draw(rng) for draw in sample.inputs]
    function = getattr(F, sample.name)
    orders = 0 if sample.surrogate else sample.orders
    check(lambda *xs: function(*xs, **sample.arguments), sample.reference, inputs, orders, numeric=sample.numeric)
