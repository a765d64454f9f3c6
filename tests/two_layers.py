"""A network of two layers with parameters, what it is trained on, and what a training leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad import Variable

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 3)).astype(np.float32)
T = RNG.standard_normal((8, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def anew() -> None:
    """There are no parameters, and the first ones are the same in each test."""
    nn.clear_parameters()
    nn.seed(1)


def network(x: Variable, **options: Any) -> Variable:
    """Two layers with a tanh between them; the options are for the first."""
    return PF.affine(F.tanh(PF.affine(x, 4, name="one", **options)), 2, name="two")


def error(x: Variable, t: Variable, **options: Any) -> Variable:
    """The mean squared error of the network."""
    return F.mean((network(x, **options) - t) ** 2.0)


def values() -> dict[str, np.ndarray]:
    """Copies of all parameters."""
    return {name: np.array(p.d) for name, p in nn.get_parameters(grad_only=False).items()}


def put(given: Mapping[str, Any]) -> None:
    """Set parameters."""
    for name, value in given.items():
        nn.get_parameters(grad_only=False)[name].d = value


def close(found: Mapping[str, Any], expected: Mapping[str, Any], rtol: float = 0.0, atol: float = 0.0) -> None:
    """Compare arrays by name; without tolerances they are the same bits."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=rtol, atol=atol, err_msg=name)
