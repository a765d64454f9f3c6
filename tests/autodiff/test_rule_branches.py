"""What rules do for arguments that no sample has."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import nngrad as nn
import nngrad.functions as F


@pytest.mark.parametrize(("function", "sign"), [(F.gammainc, 1), (F.gammaincc, -1)])
def test_incomplete_gamma_functions_of_large_order(function, sign: int) -> None:
    """Where the gamma function itself comes near the largest number."""
    x = nn.Variable.from_numpy_array(np.array([120.0, 150.0, 180.0]), need_grad=True)
    (gx,) = nn.grad(function(150.0, x), x)
    np.testing.assert_allclose(gx.d, sign * stats.gamma(150.0).pdf(x.d), rtol=1e-12)
