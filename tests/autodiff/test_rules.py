"""Every op at orders 0 to 3, in float64, against a reference that nngrad has no part in."""

from __future__ import annotations

import pytest

import nngrad.functions as F
from nngrad.graph import Variable
from tests.oracle import check_levels, check_slopes, nngrad_graph, stepped
from tests.references import drawn, expected
from tests.samples import Sample, all_samples
from tests.together import Check, Wanted, together


@pytest.mark.parametrize("sample", all_samples(), ids=lambda s: s.id)
@together
def test_op(sample: Sample) -> Check:
    """The sample's values and gradients, and differences of each order."""
    inputs, wanted = drawn(sample), expected(sample)
    orders, leaves = len(wanted.directions), [Variable.from_numpy_array(x) for x in inputs]
    function = getattr(F, sample.name)
    levels = nngrad_graph(lambda *xs: function(*xs, **sample.arguments), leaves, wanted.directions, orders)
    runs = [inputs, *stepped(inputs)] if sample.numeric and orders else [inputs]
    ((got, *around),) = yield [Wanted(levels, leaves, runs)]
    check_levels(got, wanted.levels)
    if around:
        check_slopes(inputs, got, *around, wanted.directions)
