"""`nn.precision`: the dtype in which functions within a block compute.

Each op declares its preferred precision (the fact `precision`), and casts, which are functions of the graph, are
inserted before it accordingly. So a parameter stays in float32, and the cast returns its gradient in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from ..extend import Function, Op, Switched, Variable, create
from ..functions import array

_NARROW = {"bfloat16": np.dtype(bfloat16), "float16": np.dtype(np.float16)}
_WIDE = np.dtype(np.float32)
_OFF = "float32"


def precision(dtype: str) -> Switched:
    """Let functions within the block compute in `dtype`, where that does no harm.

    Matrix products and convolutions cast float32 inputs to `dtype`, and return `dtype`. Sums, means, losses,
    logarithms, powers and factorisations cast 16-bit inputs to float32, and return float32; softmax and averages over
    windows compute in float32 inside. All other functions compute in the dtype of their inputs. If inputs have mixed
    dtypes, as when a bias is added, parameters and other leaves are cast to 16 bits; computed float32 values are not.
    The fact `precision` shows a function's preference: `F.sum.precision` is 'high'.

    Parameters stay in float32, and so do their gradients, of any order. float64 is never changed. Functions of
    gradients compute in the dtypes of the functions that they differentiate.

    float16 needs loss scaling, since small gradients underflow: `solver.loss_scaling(nn.DynamicLossScale())`.

        with nn.precision("bfloat16"):
            loss = F.mean(F.softmax_cross_entropy(network(x), t))
        step = nn.train_step(loss, nn.get_parameters(), S.Adam(), inputs=[x, t])

    It also works as a decorator, and applies to this thread or asyncio task.

    Args:
        dtype: 'bfloat16' or 'float16'; or 'float32', which switches it off within an outer block.

    Raises:
        ValueError: `dtype` is another dtype.
    """
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name == _OFF:
        return Switched(precision=None)
    if name not in _NARROW:
        raise ValueError(f"dtype: must be 'bfloat16', 'float16' or 'float32', got {dtype!r}")
    return Switched(precision=PrecisionPolicy(_NARROW[name]))


class PrecisionPolicy:
    """Inserts casts to `narrow`, a 16-bit dtype, before functions."""

    def __init__(self, narrow: np.dtype[Any]) -> None:
        self._narrow = narrow

    def apply(
        self,
        op: Op,
        inputs: tuple[Variable, ...],
        arguments: tuple[Any, ...],
        effects: tuple[tuple[Variable, int], ...],
    ) -> Any:
        """Make the Function of `op`, with casts before and after it."""
        narrow, wanted = self._narrow, op.precision
        dtypes = [x.spec.dtype for x in inputs if x.spec.differentiable]
        if any([dtype != narrow and dtype != _WIDE for dtype in dtypes]):
            return create(op, inputs, arguments, effects)
        if wanted == "low":
            inputs = self._cast(inputs, _WIDE, narrow)
        elif wanted:
            inputs = self._cast(inputs, narrow, _WIDE)
        elif narrow in dtypes and _WIDE in dtypes and (op.diagonal or op.update_keys is not None):
            inputs = tuple([array.cast(x, narrow) if x.dtype == _WIDE and _is_of_leaf(x) else x for x in inputs])
        outputs = create(op, inputs, arguments, effects)
        if wanted != "inside" or narrow not in dtypes:
            return outputs
        return self._cast(outputs, _WIDE, narrow) if op.multiple_results else array.cast(outputs, narrow)

    def like(self, y: Variable, dtype: np.dtype[Any]) -> Variable:
        """`y` cast to `dtype` if one has 16 bits and the other 32."""
        ours = (self._narrow, _WIDE)
        return array.cast(y, dtype) if y.dtype != dtype and y.dtype in ours and dtype in ours else y

    def settled(self, y: Variable) -> Variable:
        """`y` in a dtype that is common to several functions: float32 if it has 16 bits."""
        return array.cast(y, _WIDE) if y.dtype == self._narrow else y

    def _cast(self, variables: Sequence[Variable], before: Any, after: Any) -> tuple[Variable, ...]:
        return tuple([array.cast(x, after) if x.dtype == before else x for x in variables])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrecisionPolicy) and self._narrow == other._narrow

    def __hash__(self) -> int:
        return hash(self._narrow)


def _is_of_leaf(x: Variable) -> bool:
    """True for a leaf, and for a slice or another layout of one."""
    f: Function | None = x.parent
    while f is not None and len(f.inputs) == 1 and (f.op.view or f.op.fuses == "moving" or f.op.slice_keys is not None):
        f = f.inputs[0].parent
    return f is None
