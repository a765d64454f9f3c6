"""Second-order solvers, L-BFGS and Gauss-Newton, which get the loss or residuals from `nn.train_step`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..derivatives.curvature import METHODS, gauss_newton, natural_gradient
from ..extend import Variable, checked_choice, checked_count, coerced
from .loss_scale import DynamicLossScale
from .rates import Rate, as_rate
from .solver import Solver, Transformation

Named = dict[str, Any]
"""Arrays by the names of parameters."""


class LBFGS(Solver):
    """L-BFGS with a line search for the strong Wolfe conditions: `optax.lbfgs`. Only for `nn.train_step`.

    Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", 1989. The loss should be the same
    function at each step: the whole data set, or fixed points. Each step computes it and its gradient several times.

    Args:
        lr: The factor of the direction before the line search.
        memory_size: The number of previous steps from which the curvature is estimated.
        line_search: The largest number of steps of the line search.
    """

    def __init__(self, lr: Rate = 1.0, memory_size: int = 10, line_search: int = 20) -> None:
        super().__init__(lr)
        self.memory_size = checked_count(memory_size, "memory_size")
        self.line_search = checked_count(line_search, "line_search")

    def transformation(self, lr: Any) -> Transformation:
        search = optax.scale_by_zoom_linesearch(self.line_search, initial_guess_strategy="one")
        return optax.lbfgs(lr, self.memory_size, linesearch=search)


class GaussNewtonState(NamedTuple):
    """The state of `GaussNewton`."""

    damping: Any


class GaussNewton(Solver):
    """w <- w - eta d,   d = (J^T J + damping I)^-1 J^T r,   for the loss |r|^2 / 2 of residuals r with Jacobian J

    Only for `nn.train_step`, whose `loss` is then the residuals: a Variable of any shape, or a list of Variables.

        step = nn.train_step([interior / n**0.5, boundary / m**0.5], nn.get_parameters(), S.GaussNewton())

    If there are fewer residuals than parameters, `d = J^T (J J^T + damping I)^-1 r` is solved in the space of
    residuals. For residuals that contain derivatives it is energy natural gradient descent (Müller and Zeinhofer,
    2023). Train in float64: float32 cannot represent the small eigenvalues of `J J^T`. The residuals should come from
    many points, ideally the same at each step.

    Args:
        lr: The largest step eta.
        damping: Added to the diagonal; not negative.
        line_search: The number of steps tried, eta = lr, lr / 2, lr / 4, ...; the one with the smallest loss is taken,
            or none if none lowers the loss. With 0 the first is taken unchecked.
        adaptive: Whether damping adapts (Levenberg and Marquardt): it is divided by 4 if the loss falls with the first
            step nearly as the model predicts, and multiplied by 4 if it falls by less than a quarter of that. With
            None it is multiplied by 10 only if no step lowers the loss, and does not fall below `damping`.
        method: "residual", "dense" or "cg", as in `nn.natural_gradient`; by default whichever is smaller.
        maxiter: The largest number of products for "cg".
    """

    takes_residuals = True

    def __init__(
        self, lr: Rate = 1.0, damping: float = 1e-8, line_search: int = 16, adaptive: bool | None = None,
        method: str | None = None, maxiter: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(lr)
        self.damping = as_rate(damping, "damping")
        self.line_search: int = coerced(int, line_search, "line_search")
        if self.line_search < 0 or (adaptive and not self.line_search):
            least = "1 or more with adaptive=True" if adaptive else "0 or more"
            raise ValueError(f"line_search: must be {least}, got {line_search!r}")
        self.adaptive = self.line_search > 0 if adaptive is None else bool(adaptive)
        self.only_if_refused = adaptive is None
        self.method = None if method is None else checked_choice(method, METHODS, "method")
        self.maxiter = None if maxiter is None else checked_count(maxiter, "maxiter", others=" or None")

    def directions(self, residuals: list[Variable], parameters: list[Variable], damping: Variable) -> list[Variable]:
        metric = gauss_newton(residuals, parameters)
        return natural_gradient(metric, damping=damping, method=self.method, maxiter=self.maxiter)

    def loss_scaling(self, scale: float | DynamicLossScale | None) -> None:
        if scale is not None:
            raise ValueError("loss_scaling: not available for S.GaussNewton, whose Jacobians are not scaled; train in "
                             "float32 or float64")

    def transformation(self, lr: Any) -> Transformation:
        def init(params: Named) -> GaussNewtonState:
            dtype = next(iter(params.values())).dtype if params else np.float32
            return GaussNewtonState(np.asarray(self.damping, dtype))

        def update(
            grads: Named, state: GaussNewtonState, params: Named, *, value: Any, value_fn: Any, direction: Named,
            **_: Any,
        ) -> tuple[Named, GaussNewtonState]:  # fmt: skip
            if not self.line_search:
                return jax.tree.map(lambda d: (-lr * d).astype(d.dtype), direction), state
            steps = jnp.asarray(lr, value.dtype) * 0.5 ** jnp.arange(self.line_search, dtype=value.dtype)
            losses = jax.lax.map(lambda eta: value_fn(_moved(params, direction, eta)), steps)
            losses = jnp.where(jnp.isnan(losses), jnp.inf, losses)
            best = jnp.argmin(losses)
            eta = jnp.where(losses[best] < value, steps[best], 0)
            moves = jax.tree.map(lambda d: jnp.where(eta > 0, -eta.astype(d.dtype) * d, 0), direction)
            damping = state.damping
            if self.adaptive:
                foretold = _foretold(damping, grads, direction, steps[0])
                is_promising = ~(foretold <= float(jnp.finfo(value.dtype).eps) ** 0.5 * value) & ~jnp.isnan(value)
                is_refused = (eta == 0) & is_promising
                is_good = value - losses[0] > foretold * 3 / 4
                is_poor = is_refused if self.only_if_refused else ~(value - losses[0] > foretold / 4)
                factor, least = (10.0, self.damping) if self.only_if_refused else (4.0, 0.0)
                damping = jnp.maximum(damping * jnp.where(is_poor, factor, jnp.where(is_good, 0.25, 1.0)), least)
            return moves, GaussNewtonState(damping.astype(state.damping.dtype))

        return optax.GradientTransformationExtraArgs(init, update)


def _foretold(damping: Any, grads: Named, direction: Named, eta: Any) -> Any:
    """By how much the loss falls with the step `eta` if residuals are linear: eta r'J d - eta^2 |J d|^2 / 2, where
    |J d|^2 = r'J d - damping |d|^2."""
    slope = sum([jnp.vdot(grads[name], d) for name, d in direction.items()])
    size = sum([jnp.vdot(d, d) for d in direction.values()])
    return eta * slope - eta**2 * (slope - damping * size) / 2


def _moved(params: Named, direction: Named, eta: Any) -> Named:
    moved: Named = jax.tree.map(lambda p, d: p - eta.astype(p.dtype) * d, params, direction)
    return moved
