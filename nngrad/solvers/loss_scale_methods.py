"""What a solver is told of loss scaling, and says of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax

from ..graph import Variable
from .loss_scale import DynamicLossScale, DynamicState, LossScale, as_loss_scale
from .state import NAMES_OF_LOSS_SCALE


class LossScaleMethods:
    """The methods of a `Solver` whose gradients are those of a loss that was multiplied by a number."""

    _scaling: LossScale | None
    updating: threading.RLock
    state: Any
    _change: Callable[[Callable[[Any], None]], None]
    _compile: Callable[[Any], None]
    _params: Mapping[str, Variable]

    def loss_scaling(self, scale: float | DynamicLossScale | None) -> None:
        """Divide the gradients by the number that the loss is multiplied by, at each update from now on.

        Training in float16 needs it, since gradients below 6e-8 are zero there, and above 65504 infinite. The loop
        multiplies the loss, `nn.train_step` does so by itself:

            solver.loss_scaling(nn.DynamicLossScale())
            ...
            loss.forward()
            solver.zero_grad()
            loss.backward(loss_scale=solver.loss_scale)
            solver.update()

        In between `weight_decay` and `clip_grad_by_norm` take the scale into account: their arguments are meant for
        the gradients of the loss itself. With a scale the solver computes, and keeps its state, in float32 at
        least. The state that it has is kept; a training step made before must be made anew.

        Args:
            scale: A power of two, which stays as it is and with which nothing is skipped; a DynamicLossScale, whose
                scale is part of the solver's state; or None for no scaling.

        Raises:
            TypeError: `scale` is something else.
            ValueError: It is no power of two, or not within the range of float32.
        """
        scaling = as_loss_scale(scale, "loss_scaling: scale")

        def become(solver: Any) -> None:
            old = {} if solver._state is None else solver.named_state()
            solver._scaling = scaling
            solver._variables = tuple(solver._params.values())  # another object: a training step sees the change
            solver._start_from({n: a for n, a in old.items() if n not in NAMES_OF_LOSS_SCALE}, list(solver._params))

        with self.updating:
            self._compile(list(self._params.values()))  # harmless by itself
            self._change(become)

    @property
    def loss_scale(self) -> float | jax.Array:
        """What the loss has to be multiplied by: a number, or float32[] where it is dynamic, without waiting for it."""
        scaling = self._scaling
        if isinstance(scaling, DynamicLossScale):
            scale: jax.Array = self.state.loss_scale.scale
            return scale
        return 1.0 if scaling is None else scaling

    @property
    def skipped_updates(self) -> int:
        """How many updates a dynamic loss scale has skipped, because a gradient was infinite or not a number."""
        dynamic = self._dynamic_state()
        return 0 if dynamic is None else int(dynamic.skipped)

    @property
    def scaling(self) -> float | DynamicLossScale | None:
        """What `loss_scaling` was given."""
        return self._scaling

    def _dynamic_state(self) -> DynamicState | None:
        return self.state.loss_scale if isinstance(self._scaling, DynamicLossScale) else None
