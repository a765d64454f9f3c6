"""The largest differences of what several processes compute, relative to the largest value of each array."""

from __future__ import annotations

import numpy as np

from .programs import Results


def differences(found: Results, expected: Results) -> dict[str, float]:
    """The largest relative difference of each kind of result, over all arrays."""
    assert found.keys() == expected.keys()
    largest: dict[str, float] = {}
    for key, value in expected.items():
        program, _, name = key.partition(": ")
        kind = f"{program}: {'losses' if name == 'losses' else 'parameters'}"
        assert np.isfinite(value).all(), key
        scale = max(float(np.abs(value).max()), 1e-3)
        largest[kind] = max(largest.get(kind, 0.0), float(np.abs(found[key] - value).max()) / scale)
    return largest
