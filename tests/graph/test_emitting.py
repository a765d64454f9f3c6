"""What a builder remembers of the functions that it makes."""

from __future__ import annotations

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from nngrad.rewrite.builder import emitting, recording


@pytest.mark.parametrize("simplified", [True, False])
def test_what_is_made_is_recorded_by_all_who_record(simplified: bool) -> None:
    x = Variable.from_numpy_array(np.ones(3))
    with nn.simplify(simplified), emitting([], 1) as builder:
        before = F.sin(x)
        with recording(builder) as outer:
            first = F.cos(x)
            with recording(builder) as inner:
                second = F.tanh(x)
            third = F.exp(x)
        after = F.sinh(x)
    assert [f.name for f in inner] == [second.parent.name]
    assert outer == [y.parent for y in (first, second, third)]
    assert before.parent not in outer and after.parent not in outer
