"""Distances and losses made of them: between arrays, pairs and triplets of samples, and clusters of pixels."""

from __future__ import annotations

import itertools
from typing import Annotated, TypeAlias

import numpy as np

from ..graph import Array, AsFloats, Variable, as_variable, composite
from ..graph.arguments import NotNegativeScalar, PositiveScalar, Scalar, one_of
from ..graph.signatures import Words
from .activation import relu
from .arithmetic import check_same_shape, maximum_scalar
from .array import cast, zeros_like
from .comparison import equal
from .contractions import einsum
from .elementwise import abs
from .indexing import where
from .linear import batch_matmul
from .movement import reshape
from .reduction import mean, sum
from .reduction import norm as length
from .shaping import expand_dims

MeanOrNo: TypeAlias = Annotated[str, one_of("mean", "no"), Words("'mean', or 'no' for the loss of each sample.")]
SumOrNo: TypeAlias = Annotated[str, one_of("sum", "no"), Words("'sum', or 'no' for the loss of each element.")]
"""How a loss is reduced to a number."""


def reduced_loss(loss: Variable, reduce: str) -> Variable:
    """The loss of each sample, reduced as `reduce` says: 'no', 'mean' or 'sum'."""
    return loss if reduce == "no" else sum(loss) if reduce == "sum" else mean(loss)


@composite
def mean_squared_error(x0: AsFloats, x1: Array, /) -> Variable:
    """The mean of `(x0 - x1)^2` over all elements.

    Args:
        x1: The same shape.
    """
    check_same_shape(x0=x0, x1=x1)
    d = x0 - x1
    return mean(d * d)


@composite
def mean_absolute_error(x0: AsFloats, x1: Array, /) -> Variable:
    """The mean of `|x0 - x1|` over all elements.

    Args:
        x1: The same shape.
    """
    check_same_shape(x0=x0, x1=x1)
    return mean(abs(x0 - x1))


@composite
def cdist(x0: AsFloats, x1: Array, /, p: float = 2) -> Variable:
    """The p-norm distance of each row of `x0` from each row of `x1`; between equal rows its gradient is 0, as `norm`'s.

    Args:
        x0: (*batch, m, n).
        x1: (*batch, k, n); batch axes broadcast.
        p: As in `norm`.

    Returns:
        (*batch, m, k).
    """
    if x0.ndim < 2 or x1.ndim < 2 or x0.shape[-1] != x1.shape[-1]:
        raise ValueError(f"x0 and x1 must be (*batch, m, n) and (*batch, k, n), got {x0.shape} and {x1.shape}")
    return length(expand_dims(x0, -2) - expand_dims(x1, -3), p=p, axis=-1)


@composite
def cosine_similarity(x0: AsFloats, x1: Array, /, axis: int = 1, eps: PositiveScalar = 1e-8) -> Variable:
    """The cosine of the angle between vectors along an axis: `x0 . x1 / (max(|x0|, eps) max(|x1|, eps))`.

    Args:
        x1: Of any shape that broadcasts with that of `x0`.
        eps: The least norm, so that the similarity with a vector of zeros is 0.
    """
    x0, x1 = (x / maximum_scalar(length(x, axis=axis, keepdims=True), val=eps) for x in (x0, x1))
    return sum(x0 * x1, axis=axis)


@composite
def contrastive(x0: Array, x1: Array, y: Array, /, margin: PositiveScalar = 1, reduce: MeanOrNo = "mean") -> Variable:
    """`(y d^2 + (1 - y) max(margin - d, 0)^2) / 2` for pairs at distance d (Hadsell et al., 2006).

    Args:
        x0: (pairs, n).
        x1: Of the same shape.
        y: (pairs,): 1 for a pair that belongs together, else 0.
        margin: The distance, positive, beyond which other pairs have no loss.
    """
    if x0.ndim != 2 or x0.shape != x1.shape or y.shape != x0.shape[:1]:
        raise ValueError(f"x0 and x1 must be (pairs, n) and y (pairs,), got {x0.shape}, {x1.shape} and {y.shape}")
    difference = x0 - x1
    y = cast(y, difference.dtype)
    near, apart = relu(margin - length(difference, axis=1)), 1 - y
    # Derivatives of a distance of 0, which may be infinite, are no part of the loss of a pair that belongs together.
    hinge = where(apart, near * near, zeros_like(near))
    loss = 0.5 * (y * sum(difference * difference, axis=1) + apart * hinge)
    return reduced_loss(loss, reduce)


@composite
def triplet(
    anchor: Array, positive: Array, negative: Array, /, margin: PositiveScalar = 0.2, reduce: MeanOrNo = "mean"
) -> Variable:
    """`max(|a - p|^2 - |a - n|^2 + margin, 0)` for triplets of samples (Schroff et al., 2015).

    Args:
        anchor: (triples, n).
        positive: The samples to be near, of the same shape.
        negative: The samples to be far, of the same shape.
        margin: How much farther the negative samples should be; positive.
    """
    if anchor.ndim != 2 or not anchor.shape == positive.shape == negative.shape:
        raise ValueError("anchor, positive and negative must have the same shape (triples, n), got "
                         f"{anchor.shape}, {positive.shape} and {negative.shape}")
    near, far = anchor - positive, anchor - negative
    return reduced_loss(relu(sum(near * near - far * far, axis=1) + margin), reduce)


@composite
def cross_covariance(
    y: Array, z: Array, /, reduce: Annotated[str, one_of("half_squared_sum", "no")] = "half_squared_sum"
) -> Variable:
    """Half the sum of squared covariances between two sets of features (Cheung et al., 2014).

    Args:
        y: (samples, m).
        z: (samples, n).
        reduce: 'half_squared_sum', or 'no' for the covariances (m, n) themselves.
    """
    if y.ndim != 2 or z.ndim != 2 or y.shape[0] != z.shape[0]:
        raise ValueError(f"y and z must be (samples, features) with equally many samples, got {y.shape} and {z.shape}")
    y, z = (x - mean(x, axis=0, keepdims=True) for x in (y, z))
    covariance = batch_matmul(y, z, transpose_a=True) * (1 / y.shape[0])
    return covariance if reduce == "no" else 0.5 * sum(covariance * covariance)


@composite
def discriminative_margin_based_clustering_loss(
    embeddings: Array, labels: Array, /, delta_v: NotNegativeScalar, delta_d: Scalar, max_embedding_dim: int,
    norm: Annotated[int, one_of(1, 2)] = 1, alpha: Scalar = 1.0, beta: Scalar = 1.0, gamma: Scalar = 0.001,
) -> tuple[Variable, Variable, Variable]:
    """Losses that pull the pixels of an instance together and push instances apart (De Brabandere et al., 2017).

    Args:
        embeddings: (batch, max_embedding_dim, height, width).
        labels: (batch, height, width): 1, 2, ... for the instances; other pixels belong to none.
        delta_v: The distance from its centre, not negative, up to which a pixel has no loss.
        delta_d: Half the distance beyond which two centres have no loss.
        max_embedding_dim: The number of channels, and the largest number of instances.
        norm: The norm of distances: 1 or 2.
        alpha: The weight of the first loss.
        beta: The weight of the second loss.
        gamma: The weight of the third loss.

    Returns:
        The loss of pixels far from their centres, that of centres near each other, and the norm of the centres.
    """
    k = max_embedding_dim
    if embeddings.ndim != 4 or embeddings.shape[1] != k or labels.shape != (embeddings.shape[0], *embeddings.shape[2:]):
        raise ValueError(f"embeddings must be (batch, {k}, height, width) and labels (batch, height, width), got "
                         f"{embeddings.shape} and {labels.shape}")
    batch = embeddings.shape[0]
    instances = as_variable(np.arange(1, k + 1, dtype=np.int32).reshape(k, 1, 1, 1))
    members = cast(equal(instances, reshape(labels, shape=(1, *labels.shape))), embeddings.dtype)
    counts = sum(members, axis=(2, 3))
    sums = einsum(members, embeddings, equation="knhw,nehw->kne")
    centres = sums / reshape(maximum_scalar(counts, val=1), shape=(k, batch, 1))

    centre = einsum(members, centres, equation="knhw,kne->nehw")
    far = relu(length(embeddings - centre, p=norm, axis=1) - delta_v)
    weights = members / reshape(maximum_scalar(sum(counts, axis=1), val=1), shape=(k, 1, 1, 1))
    variance = sum(sum(weights, axis=0) * far * far) * (1 / k)

    pairs = list(itertools.combinations(range(k), 2))
    size = sum(length(centres, p=norm, axis=(1, 2))) * (1 / (k * batch))
    distance = sum(centres) * 0
    if pairs:
        first, second = (np.array(numbers) for numbers in zip(*pairs, strict=True))
        near = relu(2 * delta_d - length(centres[first] - centres[second], p=norm, axis=2))
        distance = sum(near * near) * (1 / (len(pairs) * batch))
    return alpha * variance, beta * distance, gamma * size
