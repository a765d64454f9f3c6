"""Leaves of the graphs in tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from nngrad.extend import Variable


def leaf(values: Any, dtype: Any = np.float64, need_grad: bool = True, name: str = "") -> Variable:
    """A leaf with these values."""
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad).apply(name=name)


def vector(*values: Any, dtype: Any = np.float64, need_grad: bool = True) -> Variable:
    """A leaf with these values along its first axis."""
    return leaf(values, dtype, need_grad)
