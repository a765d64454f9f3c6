"""Forms of ops for inputs that get one more, leading, axis: for the few for which what is derived from the declaration
of their axes would not be the least work.

A form takes the function and its operands and applies what computes the same for all elements of the leading axis at
once; it returns None to have the op mapped along the axis. The value of an operand may be *thin*: an axis of size 1
stands for one along which the value repeats itself, as the directions `(K, 1, d)` do that are the same for all rows of
a batch. Thin values stay thin as far as that is right, so a product with a matrix, say, is taken of one row in place of
a whole batch.

The forms serve operands without a leading axis as well: then they apply the op as it is, to values that may be thin.
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
    """Register the decorated function as the form of `op`."""

    def enter(form: Form) -> Form:
        forms[op] = form
        return form

    return enter
