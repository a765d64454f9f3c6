"""Reparameterised samples, and random noise on activations and weights.

As in all random functions, numbers are drawn once per `forward()` and shared by every gradient.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from ..graph import Array, Variable, composite
from ..graph.arguments import PositiveScalar, Probability, as_bool, as_float
from ..graph.leaf import as_variables
from ..graph.signatures import explained_by_name
from ..graph.spec import FLOAT32
from .activation import softmax
from .array import cast, in_dtype
from .axes import axis_of
from .elementwise import exp, log
from .indexing import where
from .linear import affine, batch_matmul
from .movement import reshape, transpose
from .stochastic import bernoulli, key_leaf, normal, uniform

_TINY = float(jnp.finfo(jnp.float32).tiny)


def _floating(x: Variable) -> Any:
    """The dtype of noise for `x`."""
    return x.dtype if x.spec.differentiable else FLOAT32


@composite
def gaussian(
    mean: Array, ln_var: Array, eps: Array | None = None, /, return_eps: bool = False, seed: int = -1
) -> Variable | Any:
    """A sample of normal distributions, `mean + exp(ln_var / 2) eps` (Kingma and Welling, 2014).

    Args:
        mean: Means.
        ln_var: Logarithms of the variances, of the same shape.
        eps: Standard normal numbers of that shape; None draws them.
        return_eps: Whether they are returned too.

    Returns:
        The sample, or the pair of it and `eps`.
    """
    if mean.shape != ln_var.shape or (eps is not None and eps.shape != mean.shape):
        of_eps = "" if eps is None else f" and {eps.shape}"
        raise ValueError(f"mean, ln_var and eps must have the same shape, got {mean.shape}, {ln_var.shape}{of_eps}")
    if eps is None:
        eps = in_dtype(normal(key_leaf(seed, "gaussian"), shape=mean.shape), _floating(mean))
    y = mean + exp(ln_var * 0.5) * eps
    return (y, eps) if return_eps else y


@composite
def gumbel_softmax(log_pi: Array, /, tau: PositiveScalar = 0.1, axis: int = 1, seed: int = -1) -> Variable:
    """Relaxed categorical samples, `softmax((log_pi + g) / tau)` with Gumbel noise g (Jang et al., 2017).

    Args:
        log_pi: Logarithms of probabilities, up to a constant.
        tau: The temperature, positive: the lower, the closer to one category.
        axis: The axis of the categories.
    """
    axis = axis_of(axis, log_pi.ndim, "axis")
    u = uniform(key_leaf(seed, "gumbel_softmax"), low=_TINY, shape=log_pi.shape)
    return softmax((log_pi + in_dtype(-log(-log(u)), _floating(log_pi))) * (1 / tau), axis=axis)


@composite
def zoneout(h: Array, x: Array, /, ratio: Probability = 0.5, seed: int = -1) -> Variable:
    """`h` with probability `ratio`, else `x`, drawn for each element (Krueger et al., 2017).

    As `dropout`, it does not know whether the network is being trained: outside of training use
    `F.linear_interpolate(ratio, h, x)` instead.

    Args:
        h: The state before a step.
        x: The state after it, of the same shape.
        ratio: The probability of `h`.

    Raises:
        ValueError: The shapes differ, `ratio` is not a probability, or `seed` is below -1.
    """
    if h.shape != x.shape:
        raise ValueError(f"h and x must have the same shape, got {h.shape} and {x.shape}")
    return where(bernoulli(key_leaf(seed, "zoneout"), p=ratio, shape=h.shape), h, x)


@explained_by_name
def rrelu(
    x: Variable, l: float = 1.0 / 8, u: float = 1.0 / 3, *, r: Any = None, return_r: bool = False,  # noqa: E741
    seed: int = -1,
) -> Any:
    """`x` where it is not negative, else `r x`, with r drawn per element, uniform in [l, u) (Xu et al., 2015).

    Outside of training, use `F.leaky_relu(x, alpha=(l + u) / 2)`, which has no noise.

    Args:
        x: Any shape.
        l: The smallest slope.
        u: The largest slope.
        r: The slopes, of the shape of `x`; None draws them.
        return_r: Whether they are returned too.
        seed: -1 for the stream that `nn.seed` starts, or the seed of a stream of its own.

    Returns:
        The result, or the pair of it and `r`.

    Raises:
        ValueError: `l` is above `u`, `r` has another shape, or `seed` is below -1.
    """
    x, r = as_variables((x, r), ("x", "r"), "rrelu", 1)
    if r is None:
        low, high = as_float(l), as_float(u)
        if not low <= high:
            raise ValueError(f"rrelu: l must not exceed u, got l={l} and u={u}")
        r = in_dtype(uniform(key_leaf(seed, "rrelu"), low=low, high=high, shape=x.shape), _floating(x))
    elif r.shape != x.shape:
        raise ValueError(f"rrelu: r must have the shape of x, {x.shape}, got {r.shape}")
    y = where(x >= 0, x, r * x)
    return (y, r) if return_r else y


@explained_by_name
def simplified_dropconnect(
    x: Variable, W: Variable, b: Any = None, ratio: float = 0.5, train: bool = True, mask: Any = None,  # noqa: N803
    use_batchwise_mask: bool = True, seed: int = -1,
) -> Variable:
    """A linear layer whose weights are dropped with a probability, and scaled by 1 / (1 - ratio) otherwise.

    After DropConnect (Wan et al., 2013), without its sampling of activations.

    Args:
        x: (batch, *sample).
        W: (outputs, prod(sample)).
        b: (outputs,), or None.
        ratio: The probability of dropping a weight, below 1.
        train: Whether weights are dropped at all.
        mask: 1 where a weight is kept, (batch, outputs, inputs), or without the batch axis unless
            `use_batchwise_mask`; None draws it.
        use_batchwise_mask: Whether each sample has its own weights.
        seed: -1 for the stream that `nn.seed` starts, or the seed of a stream of its own.

    Returns:
        (batch, outputs).

    Raises:
        ValueError: The shapes do not fit, `ratio` is not a probability below 1, or `seed` is below -1.
    """
    x, W, b, mask = as_variables(  # noqa: N806
        (x, W, b, mask), ("x", "W", "b", "mask"), "simplified_dropconnect", 2
    )
    ratio = as_float(ratio) if as_bool(train) else 0.0
    if not 0 <= ratio < 1:
        raise ValueError(f"simplified_dropconnect: ratio must be at least 0 and below 1, got {ratio}")
    size = math.prod(x.shape[1:])
    if x.ndim < 2 or W.ndim != 2 or W.shape[1] != size or (b is not None and b.shape != W.shape[:1]):
        raise ValueError(f"simplified_dropconnect: W must be of shape (outputs, {size}) for x {x.shape}, got {W.shape}"
                         + ("" if b is None else f", and b of shape (outputs,), got {b.shape}"))
    if ratio == 0 and mask is None:
        return affine(x, transpose(W), b)
    shape = (x.shape[0], *W.shape) if as_bool(use_batchwise_mask) else W.shape
    if mask is None:
        mask = bernoulli(key_leaf(seed, "simplified_dropconnect"), p=1 - ratio, shape=shape, dtype=_floating(W))
    elif mask.shape != shape:
        raise ValueError(f"simplified_dropconnect: mask must be of shape {shape}, got {mask.shape}")
    left = W * cast(mask, _floating(W)) * (1 / (1 - ratio))
    if left.ndim == 2:
        return affine(x, transpose(left), b)
    y = reshape(batch_matmul(left, reshape(x, shape=(x.shape[0], size, 1))), shape=(x.shape[0], W.shape[0]))
    return y if b is None else y + b
