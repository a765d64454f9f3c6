"""Batched forms of the few ops for which the form derived from their axis declaration would cost more than necessary.

A form takes the function and its operands, and computes all elements of the leading batch axis at once; it returns None
to have the op mapped along the axis. The value of an operand may be *thin*: an axis of size 1 stands for repeated
values, as in directions `(K, 1, d)` that are the same for all rows of a batch. Values stay thin as long as that is
correct, so that a matrix product, for example, reads one row instead of a whole batch.

The forms also serve operands without a batch axis: then they apply the op unchanged, to values that may be thin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nngrad.functions.operands import Operand

if TYPE_CHECKING:
    from nngrad.graph import Function, Op

Form = Callable[["Function", Sequence[Operand]], Any]
"""Takes a function and its operands, and returns what its output becomes, or a tuple where it has several."""

forms: dict[Op, Form] = {}


def batched(op: Op) -> Callable[[Form], Form]:
    """Register the decorated function as the batched form of `op`."""

    def enter(form: Form) -> Form:
        forms[op] = form
        return form

    return enter
