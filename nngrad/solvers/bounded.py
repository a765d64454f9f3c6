"""AdaBound and AMSBound, whose bounded learning rates move from Adam's to SGD's; and gradient scalings in which nnabla
and optax differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from .declared import Declared, amount, share
from .rates import Rate
from .solver import Transformation


class _Sum(NamedTuple):
    total: Any


def scale_by_root_of_sum(eps: float) -> Transformation:
    """Adagrad with `eps` outside the square root, where optax has it inside."""

    def update(grads: Any, state: _Sum, params: Any = None) -> tuple[Any, _Sum]:
        total = jax.tree.map(lambda v, g: v + g * g, state.total, grads)
        return jax.tree.map(lambda g, v: g / (jnp.sqrt(v) + eps), grads, total), _Sum(total)

    return Transformation(lambda params: _Sum(optax.tree.zeros_like(params)), update)


class _Moments(NamedTuple):
    count: Any
    mu: Any
    nu: Any
    nu_max: Any = ()


def _by_moments(b1: float, b2: float, step: Callable[[Any, Any, Any], Any], largest: bool) -> Transformation:
    """Scale by `step(m, v, t)`, from the averages m of gradients and v of their squares, without bias correction; with
    `largest` v is the largest so far."""

    def init(params: Any) -> _Moments:
        mu, nu, nu_max = (optax.tree.zeros_like(params) for _ in range(3))
        return _Moments(jnp.zeros([], jnp.int32), mu, nu, nu_max if largest else ())

    def update(grads: Any, state: _Moments, params: Any = None) -> tuple[Any, _Moments]:
        count = state.count + 1
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        nu_max = jax.tree.map(jnp.maximum, state.nu_max, nu) if largest else ()
        steps = jax.tree.map(lambda m, v: step(m, v, count.astype(m.dtype)), mu, nu_max if largest else nu)
        return steps, _Moments(count, mu, nu, nu_max)

    return Transformation(init, update)


def scale_by_amsgrad(b1: float, b2: float, eps: float, bias_correction: bool) -> Transformation:
    """AMSGRAD without bias correction, which optax always applies."""

    def step(m: Any, v: Any, t: Any) -> Any:
        d = m / (jnp.sqrt(v) + eps)
        return d * (jnp.sqrt(1 - b2**t) / (1 - b1**t)) if bias_correction else d

    return _by_moments(b1, b2, step, largest=True)


class AdaBound(Declared):
    """m, v as in Adam;  w <- w - clip(alpha' / (sqrt(v) + eps), lower, upper) m

    alpha' = alpha sqrt(1 - beta2^t) / (1 - beta1^t) at step t, lower = f (1 - 1 / (gamma t + 1)) and
    upper = f (1 + 1 / (gamma t)), where f = final_lr (alpha / first alpha). Luo, Xiong, Liu and Sun, "Adaptive gradient
    methods with dynamic bound of learning rate", ICLR 2019.

    Args:
        alpha: Initial learning rate.
        beta1: Decay rate of m, at least 0 and below 1.
        beta2: Decay rate of v, at least 0 and below 1.
        eps: Added to the root of v, in units of the gradient.
        final_lr: Final learning rate, in units of the parameter by the gradient.
        gamma: How fast the bounds close in, per step; above 0.
        lr: An alias for the learning rate, common to all solvers.
    """

    alpha: InitVar[Rate] = 1e-3
    beta1: float = share(default=0.9)
    beta2: float = share(default=0.999)
    eps: float = amount(default=1e-8)
    final_lr: float = amount(default=0.1)
    gamma: float = amount(default=1e-3)
    lr: InitVar[Rate | None] = field(default=None, kw_only=True)

    def __post_init__(self, rate: Rate, lr: Rate | None = None) -> None:
        super().__post_init__(rate, lr)
        if not self.gamma:
            raise ValueError("gamma: must be positive, got 0")
        if not self._initial_lr:
            raise ValueError("alpha: the first learning rate must not be 0, because the bounds are proportional to it")

    def transformation(self, lr: Any) -> Transformation:
        return self._bounded(lr, bias_correction=True, largest=False)

    def _bounded(self, lr: Any, bias_correction: bool, largest: bool) -> Transformation:
        b1, b2 = self.beta1, self.beta2

        def step(m: Any, v: Any, t: Any) -> Any:
            rate = lr * (jnp.sqrt(1 - b2**t) / (1 - b1**t)) if bias_correction else lr
            final = self.final_lr * (lr / self._initial_lr)
            lower, upper = final * (1 - 1 / (self.gamma * t + 1)), final * (1 + 1 / (self.gamma * t))
            return -jnp.clip(rate / (jnp.sqrt(v) + self.eps), lower, upper) * m

        return _by_moments(b1, b2, step, largest)


class AMSBound(AdaBound):
    """AdaBound with the largest v so far in place of v, as in AMSGRAD.

    Luo, Xiong, Liu and Sun, "Adaptive gradient methods with dynamic bound of learning rate", ICLR 2019.

    Args:
        ...: As for `AdaBound`.
        bias_correction: Whether alpha is multiplied by sqrt(1 - beta2^t) / (1 - beta1^t) at step t.
    """

    bias_correction: bool = False

    def transformation(self, lr: Any) -> Transformation:
        return self._bounded(lr, self.bias_correction, largest=True)
