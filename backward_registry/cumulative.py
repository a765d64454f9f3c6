"""Backward rules of cumulative sums and products."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, gradients


def scan_axis(f: Function) -> tuple[int, int]:
    """The axis that `f` runs along, and the step back against its direction."""
    axis = f.args["axis"]
    return (0 if axis is None else axis), (1 if f.args["reverse"] else -1)


gradients(
    F.cumsum, "The cumulative sum of the gradient from the other end",
    lambda gy, axis, exclusive, reverse: F.cumsum(gy, axis, exclusive, not reverse),
)  # fmt: skip


@backward(F.cumprod)
def cumprod_backward(f: Function, gy: Variable) -> Variable:
    """dL/dx[k] = (product before k) s[k], where s[k] = gy[k] + x[k+1] s[k+1] collects the later terms"""
    (x,) = f.inputs
    axis, back = scan_axis(f)
    reverse = f.args["reverse"]
    before = F.cumprod(x, axis=axis, exclusive=True, reverse=reverse)
    arriving = F.displace(gy, axis=axis, by=back) if f.args["exclusive"] else gy
    return before * F.recurrence(F.displace(x, axis=axis, by=back), arriving, axis=axis, reverse=not reverse)


@backward(F.recurrence)
def recurrence_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dL/db[k] = w[k] = gy[k] + a[k+1] w[k+1], dL/da[k] = w[k] y[k-1]"""
    (a, _), (y,) = f.inputs, f.outputs
    axis, back = scan_axis(f)
    w = F.recurrence(F.displace(a, axis=axis, by=back), gy, axis=axis, reverse=not f.args["reverse"])
    return w * F.displace(y, axis=axis, by=-back), w


gradients(F.displace, "The gradient moved back", lambda gy, axis, by: F.displace(gy, axis=axis, by=-by))
