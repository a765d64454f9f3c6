"""Solver methods that change or check gradients, and those for loss scaling."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import jax

from ..graph import Variable
from ..graph.leaf import arrays_in
from ..graph.process import check_process
from ..graph.spec import x64_if
from ..graph.value import put_together
from .gradients import Arrays, clipped, decayed, has_inf_has_nan, is_frozen, scaled_gradients
from .loss_scale import DynamicLossScale, DynamicState, LossScale, as_loss_scale
from .rates import as_rate, as_real
from .state import NAMES_OF_LOSS_SCALE
from .update_hooks import Hook, call_after, call_before


class GradientMethods:
    """The methods of a `Solver` that change or check the gradients computed by `backward()`.

    Each calls its `pre_hook()` before and its `post_hook()` after the change, once for all parameters.
    """

    _variables: tuple[Variable, ...]
    _needs_x64: bool
    updating: threading.RLock
    loss_scale: Any
    unused_change: str

    def weight_decay(self, decay_rate: float, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> None:
        """Add `decay_rate` times the parameter to each gradient.

        It changes the gradients that `backward()` has left (`p.g`). So it has no effect on a training step of
        `nn.train_step`, whose gradients are internal; give that `weight_decay=` instead.

        Raises:
            ValueError: `decay_rate` is negative or not finite.
        """
        rate = as_rate(decay_rate, "weight_decay: decay_rate")
        self._change_gradients("weight_decay", decayed, rate, pre_hook, post_hook)

    def clip_grad_by_norm(
        self, clip_norm: float, pre_hook: Hook | None = None, post_hook: Hook | None = None
    ) -> None:
        """Clip the L2 norm of each parameter's gradient to `clip_norm`.

        It changes the gradients that `backward()` has left (`p.g`). So it has no effect on a training step of
        `nn.train_step`, whose gradients are internal; give that `clip_grad_by_norm=` instead, or
        `clip_grad_by_global_norm=` for the norm of all gradients together.

        Raises:
            ValueError: `clip_norm` is negative or not a number. Infinity clips nothing.
        """
        limit = as_real(clip_norm, "clip_grad_by_norm: clip_norm")
        if not limit >= 0:
            raise ValueError(f"clip_grad_by_norm: clip_norm must not be negative, got {clip_norm!r}")
        self._change_gradients("clip_grad_by_norm", clipped, limit, pre_hook, post_hook)

    def scale_grad(self, scale: float, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> None:
        """Multiply all gradients, those computed by `backward()` (`p.g`), by `scale`, as in `weight_decay`.

        Raises:
            ValueError: `scale` is not finite.
        """
        factor = as_real(scale, "scale_grad: scale")
        if not math.isfinite(factor):
            raise ValueError(f"scale_grad: scale must be finite, got {scale!r}")
        self._change_gradients("scale_grad", scaled_gradients, factor, pre_hook, post_hook)

    def _change_gradients(
        self, name: str, function: Callable[..., Arrays], value: float, pre_hook: Hook | None, post_hook: Hook | None
    ) -> None:
        check_process()
        call_before(pre_hook)
        with self.updating:
            self.unused_change = name
            moved = [p for p in self._variables if not is_frozen(p)]
            cells = [p.grad for p in moved]
            params, grads = arrays_in([p.cell for p in moved]), arrays_in(cells)
            with x64_if(self._needs_x64):
                changed = function(tuple(params), tuple(grads), value, self.loss_scale)
            for cell in cells:
                cell.variable = None  # the cell gets another value
            put_together(cells, changed)
        call_after(post_hook)

    def check_inf_grad(self, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> bool:
        """Whether any gradient has an infinite element."""
        return self._found(pre_hook, post_hook)[0]

    def check_nan_grad(self, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> bool:
        """Whether any gradient has a NaN."""
        return self._found(pre_hook, post_hook)[1]

    def check_inf_or_nan_grad(self, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> bool:
        """Whether any gradient has an infinite element or a NaN."""
        return any(self._found(pre_hook, post_hook))

    def _found(self, pre_hook: Hook | None, post_hook: Hook | None) -> tuple[bool, bool]:
        check_process()
        if pre_hook is not None:
            pre_hook()
        with x64_if(self._needs_x64):
            inf, nan = has_inf_has_nan(tuple(arrays_in([p.grad for p in self._variables])))
        if post_hook is not None:
            post_hook()
        return bool(inf), bool(nan)


class LossScaleMethods:
    """The methods of a `Solver` for a loss that is multiplied by a scale."""

    _scaling: LossScale | None
    updating: threading.RLock
    state: Any
    _change: Callable[[Callable[[Any], None]], None]
    _compile: Callable[[], None]

    def loss_scaling(self, scale: float | DynamicLossScale | None) -> None:
        """Divide the gradients by the loss scale in each update from now on.

        Training in float16 needs it, since there gradients below 6e-8 become zero, and above 65504 infinite. A loop of
        your own has to multiply the loss; `nn.train_step` does so by itself:

            solver.loss_scaling(nn.DynamicLossScale())
            ...
            loss.forward()
            solver.zero_grad()
            loss.backward(loss_scale=solver.loss_scale)
            solver.update()

        The arguments of `weight_decay` and `clip_grad_by_norm` refer to the gradients of the unscaled loss. With a
        scale the solver computes, and keeps its state, in at least float32. Its current state is kept. Training steps
        made earlier must be made again.

        Args:
            scale: A power of two, which stays fixed and skips no update; a DynamicLossScale, whose scale is part of the
                solver's state; or None for no scaling.

        Raises:
            TypeError: `scale` is something else.
            ValueError: It is not a power of two, or not in the range of float32.
        """
        scaling = as_loss_scale(scale, "loss_scaling: scale")

        def become(solver: Any) -> None:
            old = {} if solver._state is None else solver.named_state()
            solver._scaling = scaling
            solver._variables = tuple(solver._params.values())  # a new object, so that training steps notice the change
            solver._start_from({n: a for n, a in old.items() if n not in NAMES_OF_LOSS_SCALE}, list(solver._params))

        with self.updating:
            self._compile()  # harmless if the change below fails
            self._change(become)

    @property
    def loss_scale(self) -> float | jax.Array:
        """The number to multiply the loss by; if it is dynamic, a float32[] that may not be ready yet."""
        scaling = self._scaling
        if isinstance(scaling, DynamicLossScale):
            scale: jax.Array = self.state.loss_scale.scale
            return scale
        return 1.0 if scaling is None else scaling

    @property
    def skipped_updates(self) -> int:
        """How many updates a dynamic loss scale has skipped because of infinite or NaN gradients."""
        dynamic = self._dynamic_state()
        return 0 if dynamic is None else int(dynamic.skipped)

    @property
    def scaling(self) -> float | DynamicLossScale | None:
        """The argument of `loss_scaling`."""
        return self._scaling

    def _dynamic_state(self) -> DynamicState | None:
        return self.state.loss_scale if isinstance(self._scaling, DynamicLossScale) else None
