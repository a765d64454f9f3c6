"""Backward rules of functions that control gradients, effects and the order of computation."""

from collections.abc import Sequence

import nngrad.functions as F
from nngrad.functions.array import filled_like
from nngrad.graph import Function, Variable

from .rules import backward, gradients, non_differentiable


@backward(F.sink, exact=False)
def sink_backward(f: Function, gy: Variable) -> Sequence[Variable | None]:
    """Ones, whatever the incoming gradient"""
    del gy
    if not f.args["one_input_grad"]:
        return [None] * len(f.inputs)
    return [filled_like(x, 1) for x in f.inputs]


non_differentiable(F.unlink, exact=False)


@backward(F.update)
def update_backward(f: Function, *gys: Variable) -> tuple[Variable, ...]:
    """dy[i]/dx[i] = 1"""
    del f
    return gys


@backward(F.optimization_barrier)
def optimization_barrier_backward(f: Function, gy: Variable) -> tuple[Variable | None, ...]:
    """dy/dx[0] = 1; the other inputs only order the computation"""
    return (gy, *[None] * (len(f.inputs) - 1))


gradients(
    F.sharding_constraint, "dy/dx = 1, divided in the same way: it is its own transpose",
    lambda gy, axes: F.sharding_constraint(gy, axes=axes),
)  # fmt: skip
gradients(
    F.recomputed, "dy/doriginal = 1: the value is that of `original`, wherever it was computed", lambda gy: (None, gy)
)
gradients(F.value_of, "The gradient goes to what the value is written to", lambda gy: (gy, None), exact=False)
