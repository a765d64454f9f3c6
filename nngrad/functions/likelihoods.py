"""Negative log likelihoods of distributions, and of classes compared with sampled ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..graph import Array, Variable, as_variable, composite
from ..graph.arguments import as_int
from ..graph.leaf import as_variables
from ..graph.signatures import explained_by_name
from .activation import softplus
from .arithmetic import check_same_shape
from .array import cast, zeros_like
from .comparison import equal_scalar
from .distances import MeanOrNo, SumOrNo, reduced_loss
from .elementwise import exp
from .indexing import where
from .linear import batch_matmul, embed
from .movement import concatenate, reshape
from .reduction import logsumexp, sum
from .special import log1p


@composite
def bernoulli_nll(x: Array, y: Array, /, reduce: SumOrNo = "sum") -> Variable:
    """`softplus(y) - x y`: for outcomes `x` whose probability is `sigmoid(y)`.

    Args:
        x: Outcomes, 0 or 1, or between.
        y: Scores, of the same shape.
    """
    check_same_shape(x=x, y=y)
    return reduced_loss(softplus(y) - x * y, reduce)


@composite
def gaussian_nll(x: Array, mean: Array, ln_var: Array, /, reduce: SumOrNo = "sum") -> Variable:
    """`(ln_var + (x - mean)^2 / exp(ln_var) + log(2 pi)) / 2`: for samples of normal distributions.

    Args:
        x: Samples.
        mean: Means, of the same shape.
        ln_var: Logarithms of the variances, of the same shape.
    """
    check_same_shape(x=x, mean=mean, ln_var=ln_var)
    d = x - mean
    return reduced_loss(0.5 * (ln_var + d * d * exp(-ln_var) + math.log(2 * math.pi)), reduce)


@composite
def gaussian_kl_divergence(mean: Array, ln_var: Array, /, reduce: SumOrNo = "sum") -> Variable:
    """`(mean^2 + exp(ln_var) - ln_var - 1) / 2`: the divergence from the standard normal distribution.

    Args:
        mean: Means.
        ln_var: Logarithms of the variances, of the same shape.
    """
    check_same_shape(mean=mean, ln_var=ln_var)
    loss = 0.5 * (mean * mean + exp(ln_var) - ln_var - 1)
    return reduced_loss(loss, reduce)


def _scores(x: Variable, rows: Variable, weights: Variable) -> Variable:
    """The products of each row of `x`, (batch, n), with the rows of `weights` that `rows`, (batch, k), name."""
    products = batch_matmul(embed(rows, weights), reshape(x, shape=(*x.shape, 1)))
    return reshape(products, shape=rows.shape)


def _check_words(function: str, x: Variable, t: Variable, weights: Variable) -> None:
    if x.ndim != 2 or t.shape != x.shape[:1] or weights.ndim != 2 or weights.shape[1] != x.shape[1]:
        raise ValueError(f"{function}: x, t and W must be of shape (batch, n), (batch,) and (classes, n), got "
                         f"{x.shape}, {t.shape} and {weights.shape}")


@composite
def black_out(x: Array, t: Array, W: Array, samples: Array, /, reduce: MeanOrNo = "mean") -> Variable:  # noqa: N803
    """A cross entropy over sampled classes instead of all classes (Ji et al., 2016).

    `-log p(t) - sum log(1 - p(s))` over the samples s, with the softmax p over target and samples of `x W'`.

    Args:
        x: (batch, n).
        t: (batch,), the targets.
        W: (classes, n).
        samples: (batch, k), other classes.
    """
    _check_words("black_out", x, t, W)
    if samples.ndim != 2 or samples.shape[0] != x.shape[0]:
        raise ValueError(f"samples must be of shape ({x.shape[0]}, k), got {samples.shape}")
    positive = _scores(x, reshape(t, shape=(*t.shape, 1)), W)
    negative = _scores(x, samples, W)
    total = logsumexp(concatenate(positive, negative, axis=1), axis=1, keepdims=True)
    others = sum(log1p(-exp(negative - total)), axis=1)
    loss = reshape(total - positive, shape=t.shape) - others
    return reduced_loss(loss, reduce)


@explained_by_name
def negative_sampling(
    x: Variable, t: Variable, W: Variable, sampler: Callable[[tuple[int, int]], Any],  # noqa: N803
    sample_size: int, reduce: str = "sum", *, return_samples: bool = False,
) -> Any:
    """`softplus(-x w_t) + sum softplus(x w_s)` over sampled rows of `W` (Mikolov et al., 2013).

    Args:
        x: (batch, n).
        t: (batch,), the targets; -1 means no loss.
        W: (classes, n).
        sampler: A function of a shape that returns integers of that shape. `lambda s: F.randint(0, n, s)` draws anew at
            each `forward()`; an array that it returns is drawn once.
        sample_size: The number of rows sampled for each target.
        reduce: 'sum', or 'no' for the loss of each sample of the batch.
        return_samples: Whether the classes are returned too, (batch, 1 + sample_size), the target first.

    Returns:
        The loss, or the pair of it and the classes.

    Raises:
        TypeError: `sampler` cannot be called.
        ValueError: The shapes do not fit.
    """
    name = "negative_sampling"
    x, t, W = as_variables((x, t, W), ("x", "t", "W"), name)  # noqa: N806
    _check_words(name, x, t, W)
    if not callable(sampler):
        raise TypeError(f"{name}: sampler must be a function of a shape, got {sampler!r}")
    if reduce not in ("sum", "no"):
        raise ValueError(f"{name}: reduce must be 'sum' or 'no', got {reduce!r}")
    shape = (x.shape[0], as_int(sample_size))
    samples = as_variable(sampler(shape), "what sampler returns", name)
    if samples.shape != shape:
        raise ValueError(f"{name}: sampler must return the shape it is given, {shape}, got {samples.shape}")
    nothing = equal_scalar(t, val=-1)
    target = reshape(where(nothing, zeros_like(t), t), shape=(*t.shape, 1))
    positive = reshape(_scores(x, target, W), shape=t.shape)
    loss = softplus(-positive) + sum(softplus(_scores(x, samples, W)), axis=1)
    loss = reduced_loss(where(nothing, zeros_like(loss), loss), reduce)
    if not return_samples:
        return loss
    return loss, concatenate(reshape(t, shape=(*t.shape, 1)), cast(samples, t.dtype), axis=1)
