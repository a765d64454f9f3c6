"""What ops are declared to be, compared over all of them: facts that the numbers of one sample cannot show."""

from __future__ import annotations

import numpy as np
import pytest

import nngrad.functions as F
from backward_registry import registry
from nngrad.autodiff.forward_mode import Pushforward
from nngrad.graph import Op, Variable
from tests.facts import Case
from tests.functions.test_facts import OF_OPS, case_of
from tests.functions.test_precision import NEITHER
from tests.oracle import as_tuple, direction, stepped
from tests.references import drawn
from tests.samples import Sample
from tests.together import Check, Wanted, by_itself, together

OPS = [each for each in [getattr(F, name) for name in F.names()] if isinstance(each, Op)]


def test_products_alone_are_computed_in_16_bits() -> None:
    """Heavy ops that are linear in each input; sums, losses, decompositions and what is elementwise are not."""
    products = {each.name for each in OPS if each.heavy and each.linear == "each"}
    left_out = {name for name in products if any([part in name for part in NEITHER])}
    assert {each.name for each in OPS if each.precision == "low"} == products - left_out


def moves(case: Case) -> bool:
    """Whether its outputs have no elements but those of its inputs, at other places than the first input has them."""
    known = np.concatenate([x.ravel() for x in case.arrays])
    x, outputs = case.arrays[0], by_itself(case(case.arrays))[0]
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


STEP = 1e-6
AT_KINKS = [
    sample for sample in OF_OPS
    if sample.orders and not (sample.numeric or sample.surrogate) and registry[sample.name].exact
]  # fmt: skip
PIECEWISE = {
    "log_gamma_sample": "its derivative is that of the distribution, and not of the draws, some of which are rejected",
    "recomputed": "its value is that of an input that gets no gradient",
    "sigmoid_complement": "its value is that of an input that gets no gradient",
    "tanh_slope": "its value is that of an input that gets no gradient",
    "less_share": "it is applied twice, which changes nothing where the shares sum to 1",
    "less_mean": "it is applied twice, which changes nothing where the weights sum to 1",
}
"""Ops whose differences mean nothing, though their rules are exact, each with the reason."""


@pytest.mark.parametrize("sample", [each for each in AT_KINKS if each.name not in PIECEWISE], ids=lambda s: s.id)
@together
def test_rules_that_are_called_exact_are_derivatives(sample: Sample) -> Check:
    """The tangent of each element, by the rule, and its differences ahead and behind, where these agree: also of what
    has kinks or jumps, between these; `test_rules.py` compares the others with differences."""
    inputs = drawn(sample)
    leaves, moves = [Variable.from_numpy_array(x) for x in inputs], direction(inputs)
    outputs = [y for y in as_tuple(getattr(F, sample.name)(*leaves, **sample.arguments)) if y.spec.differentiable]
    moving = [x for x, v in zip(leaves, moves, strict=True) if v is not None]
    along = Pushforward()(outputs, moving, [Variable.from_numpy_array(v) for v in moves if v is not None])
    (((now, tangents), (ahead, _), (behind, _)),) = yield [
        Wanted([outputs, along], leaves, [inputs, *stepped(inputs, STEP)])
    ]
    for y, t, a, b in zip(now, tangents, ahead, behind, strict=True):
        right, left = (a - y) / STEP, (y - b) / STEP
        smooth = np.abs(right - left) <= 1e-3 * (1 + np.abs(left))
        np.testing.assert_allclose(t[smooth], right[smooth], rtol=1e-3, atol=1e-3)
