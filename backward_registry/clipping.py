"""Backward rules of functions that pass values unchanged and clip gradients.

The clipped gradient is not linear in the incoming one, so it has no forward mode: tangents pass unchanged.
"""

from collections.abc import Sequence

import nngrad.functions as F
from nngrad.functions.array import filled_like
from nngrad.graph import Function, Variable

from .rules import Rule, registry


def clip_grad_by_value_backward(f: Function, gy: Variable) -> tuple[Variable, None, None]:
    """min(max(gy, lower), upper)"""
    _, lower, upper = f.inputs
    return F.clip_by_value(gy, lower, upper), None, None


def clip_grad_by_norm_backward(f: Function, gy: Variable) -> Variable:
    """clip_norm gy / norm(gy), and 0 where that norm is 0"""
    clip_norm: float | None = f.args["clip_norm"]
    norm = F.norm(gy, axis=f.args["axes"], keepdims=True)
    is_zero = F.equal_scalar(norm, val=0.0)
    length = F.where(is_zero, filled_like(norm, 1), norm)
    return gy * F.where(is_zero, filled_like(norm, 0), (1.0 if clip_norm is None else clip_norm) / length)


def top_k_grad_backward(f: Function, gy: Variable) -> Variable:
    """The k largest elements of gy, and 0 elsewhere"""
    return F.top_k_data(gy, k=f.args["k"], abs=f.args["abs"], reduce=False, base_axis=f.args["base_axis"])


def passed(f: Function, ts: Sequence[Variable | None], read: Sequence[bool]) -> list[Variable | None]:
    """The unchanged tangent."""
    return [ts[0]]


for _op, _rule in (
    (F.clip_grad_by_value, clip_grad_by_value_backward),
    (F.clip_grad_by_norm, clip_grad_by_norm_backward),
    (F.top_k_grad, top_k_grad_backward),
):
    registry.add(_op, Rule(_rule, "rule", False, __name__, tangents=passed))
