"""What a solver does with gradients before it moves parameters along them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from ..graph import Variable
from ..graph.leaf import arrays_in
from ..graph.process import check_process
from ..graph.spec import x64_if
from ..graph.value import put_together
from .gradients import Arrays, clipped, decayed, has_inf_has_nan, scaled_gradients
from .rates import as_rate, as_real
from .update_hooks import call_after, call_before


class GradientMethods:
    """The methods of a `Solver` that change or check the gradients that `backward()` has left."""

    _variables: tuple[Variable, ...]
    _needs_x64: bool
    updating: threading.RLock
    loss_scale: Any
    unused_change: str

    def weight_decay(self, decay_rate: float) -> None:
        """Add `decay_rate` times the parameter to each gradient.

        It changes the gradients that `backward()` has left (`p.g`), so it has no effect on a training step of
        `nn.train_step`, which keeps its gradients to itself and is given `weight_decay=` instead.

        Raises:
            ValueError: `decay_rate` is negative or not finite.
        """
        self._change_gradients("weight_decay", decayed, as_rate(decay_rate, "weight_decay: decay_rate"))

    def clip_grad_by_norm(self, norm: float) -> None:
        """Scale each gradient whose L2 norm is larger than `norm` to that norm: each parameter's by itself.

        It changes the gradients that `backward()` has left (`p.g`), so it has no effect on a training step of
        `nn.train_step`, which keeps its gradients to itself and is given `clip_grad_by_norm=` instead; or
        `clip_grad_by_global_norm=`, for the norm of all gradients together.

        Raises:
            ValueError: `norm` is negative or not a number. Infinity clips nothing.
        """
        limit = as_real(norm, "clip_grad_by_norm: norm")
        if not limit >= 0:
            raise ValueError(f"clip_grad_by_norm: norm must not be negative, got {norm!r}")
        self._change_gradients("clip_grad_by_norm", clipped, limit)

    def scale_grad(self, scale: float) -> None:
        """Multiply all gradients by `scale`: those that `backward()` has left (`p.g`), as in `weight_decay`.

        Raises:
            ValueError: `scale` is not finite.
        """
        factor = as_real(scale, "scale_grad: scale")
        if not math.isfinite(factor):
            raise ValueError(f"scale_grad: scale must be finite, got {scale!r}")
        self._change_gradients("scale_grad", scaled_gradients, factor)

    def _change_gradients(self, name: str, function: Callable[..., Arrays], value: float) -> None:
        check_process()
        call_before()
        with self.updating:
            self.unused_change = name
            cells = [p.grad for p in self._variables]
            params, grads = arrays_in([p.cell for p in self._variables]), arrays_in(cells)
            with x64_if(self._needs_x64):
                changed = function(tuple(params), tuple(grads), value, self.loss_scale)
            for cell in cells:
                cell.variable = None  # which has another value
            put_together(cells, changed)
        call_after()

    def check_inf_grad(self) -> bool:
        """Whether some gradient is infinite."""
        return self._found()[0]

    def check_nan_grad(self) -> bool:
        """Whether some gradient is not a number."""
        return self._found()[1]

    def check_inf_or_nan_grad(self) -> bool:
        """Whether some gradient is infinite or not a number."""
        return any(self._found())

    def _found(self) -> tuple[bool, bool]:
        check_process()
        with x64_if(self._needs_x64):
            inf, nan = has_inf_has_nan(tuple(arrays_in([p.grad for p in self._variables])))
        return bool(inf), bool(nan)
