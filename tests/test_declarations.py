"""What ops are declared to be, compared over all of them: facts that the numbers of one sample cannot show."""

from __future__ import annotations

import numpy as np

import nngrad.functions as F
from nngrad.graph import Op

from .facts import Case
from .test_facts import OF_OPS, case_of
from .test_precision import NEITHER

OPS = [each for each in [getattr(F, name) for name in F.names()] if isinstance(each, Op)]


def test_products_alone_are_computed_in_16_bits() -> None:
    """Heavy ops that are linear in each input; sums, losses, decompositions and what is elementwise are not."""
    products = {each.name for each in OPS if each.heavy and each.linear == "each"}
    left_out = {name for name in products if any([part in name for part in NEITHER])}
    assert {each.name for each in OPS if each.precision == "low"} == products - left_out


def moves(case: Case) -> bool:
    """Whether its outputs have no elements but those of its inputs, at other places than the first input has them."""
    known = np.concatenate([x.ravel() for x in case.arrays])
    x, outputs = case.arrays[0], case(case.arrays)
    return all([np.isin(y, known).all() and (y.shape != x.shape or (y != x).any()) for y in outputs])


def test_what_is_computed_in_place_moves_no_elements() -> None:
    fused = {"in place": 0, "moving": 0}
    for sample in OF_OPS:
        each = getattr(F, sample.name)
        if each.fuses and not each.diagonal and sample.inputs:
            found = moves(case_of(sample))
            assert not found or each.fuses == "moving", sample.id
            fused[each.fuses] += found or each.fuses == "in place"
    assert all(fused.values())
