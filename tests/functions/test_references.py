"""The files of references are those of the samples; and checks that share an executable fail by themselves."""

from __future__ import annotations

import numpy as np
import pytest

import nngrad.functions as F
from nngrad.graph import Variable
from tests import references
from tests.samples import all_samples
from tests.together import Check, Wanted, outcomes


def test_every_sample_has_its_reference_and_there_are_no_others() -> None:
    """`python -m tests.references` makes the files anew."""
    assert {references.digest(each) for each in all_samples()} == set(references.kept())


def test_a_wrong_reference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [each for each in all_samples("activation") if each.name == "tanh"]
    assert references.differences(few) == []
    digest = references.digest(few[0])
    (name,) = [name for name in references.kept()[str(digest)][1] if name.endswith("levels/2/0/float64")]
    file = dict(references.kept()[str(digest)][0])
    file[name] = file[name] * (1 + 1e-7)
    monkeypatch.setitem(references.kept(), str(digest), (file, references.kept()[str(digest)][1]))
    assert few[0].id in references.differences(few)


def test_checks_that_share_an_executable_fail_by_themselves() -> None:
    def check(factor: float, wrong: bool, breaks: bool = False) -> Check:
        x = Variable.from_numpy_array([1.0, 2.0])
        y = F.mul_scalar(x, val=factor)
        if breaks:
            raise ZeroDivisionError
        ((first, second),) = yield [Wanted([[y], [y, x]], [x], [[np.ones(2)], [np.full(2, 3.0)]])]
        np.testing.assert_array_equal(first[0][0], [factor, factor])
        ((other,),) = yield [Wanted([[y * y]])]
        assert other[0][0].tolist() == [factor**2, 4 * factor**2]
        assert (second[1][1].tolist() == [3.0, 3.0]) is not wrong

    ends = outcomes([lambda: check(2.0, False), lambda: check(3.0, True), lambda: check(4.0, False),
                     lambda: check(5.0, False, True)])  # fmt: skip
    assert [type(end) for end in ends] == [type(None), AssertionError, type(None), ZeroDivisionError]
