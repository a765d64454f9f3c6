"""nnabla's solvers: optax's transformations with nnabla's names, arguments and defaults.

In the formulas w is a parameter, g its gradient and t the number of the step, from 1; averages start at 0. A TypeError
names an argument that is not a number. A ValueError names one that is negative, not finite or, for a decay rate, not
below 1. `...` under `Args:` is filled in (`declared.py`).
"""

from __future__ import annotations

from dataclasses import InitVar, field
from typing import Any

import jax.numpy as jnp
import optax

from .declared import Declared, amount, share
from .rates import Rate
from .scalings import scale_by_amsgrad, scale_by_moments, scale_by_root_of_sum
from .solver import Transformation


class Sgd(Declared, elementwise=True):
    """Gradient descent: w <- w - lr g"""

    lr: InitVar[Rate] = 1e-3

    def transformation(self, lr: Any) -> Transformation:
        return optax.scale(-lr)


class Momentum(Declared, names={"1.trace": "m"}, elementwise=True):
    """v <- momentum v + lr g;  w <- w - v

    Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.

    Args:
        momentum: Share of v that is kept at each step; not negative.
    """

    lr: InitVar[Rate] = 1e-3
    momentum: float = amount(default=0.9)

    def transformation(self, lr: Any) -> Transformation:
        return optax.chain(optax.scale(lr), optax.trace(self.momentum), optax.scale(-1.0))


class Nesterov(Momentum, elementwise=True):
    """v <- momentum v - lr g;  w <- w + momentum v - lr g

    Nesterov, "A method of solving a convex programming problem with convergence rate O(1/k^2)", 1983, in the form of
    Sutskever, Martens, Dahl and Hinton, ICML 2013.

    Args:
        ...: Those of `Momentum`.
    """

    def transformation(self, lr: Any) -> Transformation:
        return optax.chain(optax.scale(-lr), optax.trace(self.momentum, nesterov=True))


class SgdW(Momentum, elementwise=True):
    """v <- momentum v + lr g;  w <- w - v - (lr / first lr) wd w

    Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.

    Args:
        ...: Those of `Momentum`.
        wd: Share of w that is taken off at each step, while the learning rate is the first one.
    """

    wd: float = amount(default=1e-4)

    def transformation(self, lr: Any) -> Transformation:
        decay = optax.add_decayed_weights(decay_per_rate(self.wd, self._initial_lr) * lr)
        return optax.chain(optax.scale(lr), optax.trace(self.momentum), decay, optax.scale(-1.0))


class Adam(Declared, names={"0.mu": "mean", "0.nu": "var", "0.count": "t"}, elementwise=True):
    """m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;  w <- w - alpha m' / (sqrt(v') + eps)

    m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t) at step t. Kingma and Ba, "Adam", ICLR 2015.

    Args:
        alpha: Learning rate.
        beta1: Share of m that is kept at each step, at least 0 and below 1.
        beta2: Share of v that is kept at each step, at least 0 and below 1.
        eps: Added to the root of v', in units of the gradient.
        lr: An alias for the learning rate, common to all solvers.
    """

    alpha: InitVar[Rate] = 1e-3
    beta1: float = share(default=0.9)
    beta2: float = share(default=0.999)
    eps: float = amount(default=1e-8)
    lr: InitVar[Rate | None] = field(default=None, kw_only=True)

    def transformation(self, lr: Any) -> Transformation:
        return optax.chain(optax.scale_by_adam(self.beta1, self.beta2, self.eps), optax.scale(-lr))


class AdamW(Adam, elementwise=True):
    """Adam, and w <- w - (alpha / first alpha) wd w

    Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019. The decay follows changes of
    the learning rate, but it is not multiplied by it: optax's `weight_decay` is `wd / alpha`.

    Args:
        ...: Those of `Adam` and `SgdW`.
    """

    wd: float = amount(default=1e-4)

    def transformation(self, lr: Any) -> Transformation:
        decay = optax.add_decayed_weights(decay_per_rate(self.wd, self._initial_lr))
        return optax.chain(optax.scale_by_adam(self.beta1, self.beta2, self.eps), decay, optax.scale(-lr))


class Adamax(Adam, names={"0.mu": "m", "0.nu": "u", "0.count": "t"}, elementwise=True):
    """m as in Adam;  v <- max(beta2 v, |g| + eps);  w <- w - alpha m / ((1 - beta1^t) v)

    Kingma and Ba, "Adam", ICLR 2015, section 7.1.

    Args:
        ...: Those of `Adam`.
        eps: Added to |g|, in units of the gradient.
    """

    alpha: InitVar[Rate] = 2e-3

    def transformation(self, lr: Any) -> Transformation:
        return optax.chain(optax.scale_by_adamax(self.beta1, self.beta2, self.eps), optax.scale(-lr))


class AdaBelief(Adam, elementwise=True):
    """m as in Adam;  s <- beta2 s + (1 - beta2) (g - m)^2 + eps;  w <- w - alpha m' / (sqrt(s') + eps)

    s' = s / (1 - beta2^t) at step t. Zhuang et al., "AdaBelief optimizer", NeurIPS 2020.

    Args:
        ...: Those of `Adam`.
        beta2: Share of s that is kept at each step, at least 0 and below 1.
        eps: Added to s, in units of the gradient squared, and to the root of s', in units of the gradient.
    """

    def transformation(self, lr: Any) -> Transformation:
        belief = optax.scale_by_belief(self.beta1, self.beta2, self.eps, eps_root=self.eps)
        return optax.chain(belief, optax.scale(-lr))


class AMSGRAD(Adam, names={"0.mu": "m", "0.nu": "v", "0.nu_max": "v_hat", "0.count": "t"}, elementwise=True):
    """m, v as in Adam;  u <- max(u, v);  w <- w - alpha m / (sqrt(u) + eps)

    Reddi, Kale and Kumar, "On the convergence of Adam and beyond", ICLR 2018.

    Args:
        ...: Those of `Adam`.
        eps: Added to the root of u, in units of the gradient.
        bias_correction: Whether alpha is multiplied by sqrt(1 - beta2^t) / (1 - beta1^t) at step t.
    """

    bias_correction: bool = False

    def transformation(self, lr: Any) -> Transformation:
        scale = scale_by_amsgrad(self.beta1, self.beta2, self.eps, self.bias_correction)
        return optax.chain(scale, optax.scale(-lr))


class AdaBound(Adam, names={"mu": "mean", "nu": "var", "count": "t"}, elementwise=True):
    """m, v as in Adam;  w <- w - clip(alpha' / (sqrt(v) + eps), lower, upper) m

    alpha' = alpha sqrt(1 - beta2^t) / (1 - beta1^t) at step t, lower = f (1 - 1 / (gamma t + 1)) and
    upper = f (1 + 1 / (gamma t)), where f = final_lr (alpha / first alpha). Luo, Xiong, Liu and Sun, "Adaptive gradient
    methods with dynamic bound of learning rate", ICLR 2019.

    Args:
        ...: Those of `Adam`.
        alpha: Initial learning rate.
        eps: Added to the root of v, in units of the gradient.
        final_lr: Final learning rate, in units of the parameter by the gradient.
        gamma: How fast the bounds close in, per step; above 0.
    """

    final_lr: float = amount(default=0.1)
    gamma: float = amount(default=1e-3)

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

        return scale_by_moments(b1, b2, step, largest)


class AMSBound(AdaBound, names={"mu": "m", "nu": "v", "nu_max": "v_hat", "count": "t"}, elementwise=True):
    """AdaBound with the largest v so far in place of v, as in AMSGRAD.

    Luo, Xiong, Liu and Sun, "Adaptive gradient methods with dynamic bound of learning rate", ICLR 2019.

    Args:
        ...: Those of `AdaBound`.
        bias_correction: Whether alpha is multiplied by sqrt(1 - beta2^t) / (1 - beta1^t) at step t.
    """

    bias_correction: bool = False

    def transformation(self, lr: Any) -> Transformation:
        return self._bounded(lr, self.bias_correction, largest=True)


class Lion(Declared, names={"0.mu": "m", "0.count": "t"}, elementwise=True):
    """w <- w - lr sign(beta1 m + (1 - beta1) g);  m <- beta2 m + (1 - beta2) g

    Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023.

    Args:
        lr: Learning rate: how far each element moves at each step.
        beta1: Share of m in the direction, at least 0 and below 1.
        beta2: Share of m that is kept at each step, at least 0 and below 1.
    """

    lr: InitVar[Rate] = 1e-4
    beta1: float = share(default=0.9)
    beta2: float = share(default=0.99)

    def transformation(self, lr: Any) -> Transformation:
        return optax.chain(optax.scale_by_lion(self.beta1, self.beta2), optax.scale(-lr))


class Adagrad(Declared, names={"0.total": "v"}, elementwise=True):
    """v <- v + g^2;  w <- w - lr g / (sqrt(v) + eps)

    Duchi, Hazan and Singer, "Adaptive subgradient methods", JMLR 2011.

    Args:
        eps: Added to the root of v, in units of the gradient.
    """

    lr: InitVar[Rate] = 1e-2
    eps: float = amount(default=1e-8)

    def transformation(self, lr: Any) -> Transformation:
        return optax.chain(scale_by_root_of_sum(self.eps), optax.scale(-lr))


class Adadelta(Declared, names={"0.e_g": "e_sqr_grad", "0.e_x": "e_sqr_delta"}, elementwise=True):
    """d = sqrt((x + eps) / (v + eps)) g;  w <- w - lr d

    Before, v <- decay v + (1 - decay) g^2; after, x <- decay x + (1 - decay) d^2. Zeiler, "ADADELTA", 2012,
    arXiv:1212.5701.

    Args:
        lr: Learning rate; 1 is the method as it was published.
        decay: Share of v and x that is kept at each step, at least 0 and below 1.
        eps: Added to v and x.
    """

    lr: InitVar[Rate] = 1.0
    decay: float = share(default=0.95)
    eps: float = amount(default=1e-6)

    def transformation(self, lr: Any) -> Transformation:
        return optax.chain(optax.scale_by_adadelta(self.decay, self.eps), optax.scale(-lr))


class RMSprop(Declared, names={"0.nu": "v"}, elementwise=True):
    """v <- decay v + (1 - decay) g^2;  w <- w - lr g / (sqrt(v) + eps)

    Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012.

    Args:
        decay: Share of v that is kept at each step, at least 0 and below 1.
        eps: Added to the root of v, in units of the gradient.
    """

    lr: InitVar[Rate] = 1e-3
    decay: float = share(default=0.9)
    eps: float = amount(default=1e-8)

    def transformation(self, lr: Any) -> Transformation:
        return optax.chain(optax.scale_by_rms(self.decay, self.eps, eps_in_sqrt=False), optax.scale(-lr))


class RMSpropGraves(Declared, names={"0.nu": "n", "0.mu": "g", "2.trace": "d"}, elementwise=True):
    """d <- momentum d - lr g / sqrt(v - m^2 + eps);  w <- w + d

    Before, v <- decay v + (1 - decay) g^2 and m <- decay m + (1 - decay) g. Graves, "Generating sequences with
    recurrent neural networks", 2013, arXiv:1308.0850.

    Args:
        decay: Share of v and m that is kept at each step, at least 0 and below 1.
        momentum: Share of d that is kept at each step; not negative.
        eps: Added under the root, in units of the gradient squared.
    """

    lr: InitVar[Rate] = 1e-4
    decay: float = share(default=0.95)
    momentum: float = amount(default=0.9)
    eps: float = amount(default=1e-4)

    def transformation(self, lr: Any) -> Transformation:
        scale = optax.scale_by_stddev(self.decay, self.eps)
        return optax.chain(scale, optax.scale(-lr), optax.trace(self.momentum))


class Lars(Momentum, names={"2.trace": "v"}):
    """v <- momentum v + lr coefficient |w| / (|g| + eps) g;  w <- w - v

    The norms are those of one parameter; where |w| or |g| is 0, the factor before g is lr. You, Gitman and Ginsburg,
    "Large batch training of convolutional networks", 2017, arXiv:1708.03888.

    Args:
        ...: Those of `Momentum`.
        coefficient: The trust coefficient: length of a step, in units of |w|, for a learning rate of 1.
        eps: Added to the norm of g, in its units.
    """

    coefficient: float = amount(default=1e-3)
    eps: float = amount(default=1e-6)

    def transformation(self, lr: Any) -> Transformation:
        ratio = optax.scale_by_trust_ratio(trust_coefficient=self.coefficient, eps=self.eps)
        return optax.chain(ratio, optax.scale(lr), optax.trace(self.momentum), optax.scale(-1.0))


class Lamb(Declared, names={"0.mu": "mean", "0.nu": "var", "0.count": "t"}):
    """r = m' / (sqrt(v') + eps) as in Adam;  w <- w - eta |w| / |r| r

    The norms are those of one parameter; where |w| or |r| is 0, their quotient counts as 1. You et al., "Large batch
    optimization for deep learning", ICLR 2020.

    Args:
        eta: Learning rate: length of a step, in units of |w|.
        ...: Those of `Adam`.
    """

    eta: InitVar[Rate] = 1e-3
    beta1: float = share(default=0.9)
    beta2: float = share(default=0.999)
    eps: float = amount(default=1e-6)
    lr: InitVar[Rate | None] = field(default=None, kw_only=True)

    def transformation(self, lr: Any) -> Transformation:
        adam = optax.scale_by_adam(self.beta1, self.beta2, self.eps)
        return optax.chain(adam, optax.scale_by_trust_ratio(), optax.scale(-lr))


def decay_per_rate(wd: float, first: float) -> float:
    """Weight decay per unit of learning rate, where `wd` is the decay at the first learning rate."""
    if wd and not first:
        raise ValueError("wd: the first learning rate must not be 0, because weight decay is proportional to it; pass "
                         "a schedule that begins with 0 to set_learning_rate instead")
    return wd / first if wd else 0.0
