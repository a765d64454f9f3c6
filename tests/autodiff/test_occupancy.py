"""Places taken over stretches of steps, against a table of all places and steps."""

from __future__ import annotations

import numpy as np
import pytest

from nngrad.memory.liveness import Occupancy


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 33])
def test_places_are_taken_where_a_table_says_so(steps: int) -> None:
    rng = np.random.default_rng(steps)
    table = np.zeros((5, steps), bool)
    occupancy = Occupancy(steps)
    for _ in range(12):
        place = int(rng.integers(len(table)))
        first, last = sorted(rng.integers(0, steps, 2).tolist())
        occupancy.take(place, first, last)
        table[place, first : last + 1] = True
        for a in range(steps):
            for b in range(a, steps):
                expected = sum([1 << k for k, row in enumerate(table) if row[a : b + 1].any()])
                assert occupancy.taken(a, b) == expected
