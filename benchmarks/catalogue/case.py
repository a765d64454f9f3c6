"""What a case of the table is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """One function at one size, by each of those who have it. Inputs and results are float32, unless they are whole."""

    title: str
    arrays: list[np.ndarray]
    in_nngrad: Callable[..., Any]
    """Variables of the arrays in, the result out."""
    in_jax: dict[str, Callable[..., Any]]
    """Each of JAX's ways, by what it is called: arrays in, the result out."""
    in_torch: Callable[..., Any] | None
    """Tensors in, the result out; None where PyTorch has no such function."""
    differentiated: tuple[int, ...]
    """Which of the arrays gradients are taken for."""
    tolerance: float = 1e-4
    """How far results may lie apart, relative to the largest number."""
    goal: float | None = 1.2
    """The ratio to each peer that is wanted at most."""
