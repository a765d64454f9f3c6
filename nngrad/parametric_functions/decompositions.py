"""Decompositions of weights into products of smaller ones, with NumPy: what layers of low rank start from."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ..initializer import Rng

Matrix: TypeAlias = np.ndarray[Any, Any]


def truncated_svd(matrix: Matrix, rank: int) -> tuple[Matrix, Matrix]:
    """Factors (rows, rank) and (rank, columns), whose product is the nearest one to `matrix` of that rank. The singular
    values are in the first one.

    Args:
        matrix: (..., rows, columns).
        rank: At most the lesser of both.
    """
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    return u[..., :rank] * s[..., None, :rank], v[..., :rank, :]


def canonical_polyadic(
    tensor: Matrix, rank: int, max_iter: int, stopping_criterion: float, lambda_reg: float, rng: Rng
) -> tuple[Matrix, Matrix, Matrix]:
    """Factors a, b and c of a tensor with three axes, which is about the sum over r of a[:, r] x b[:, r] x c[:, r].

    By alternating least squares: with two factors held fixed, the third one is the solution of a linear problem
    (Carroll and Chang, 1970; Harshman, 1970). The columns of b and c are of length 1.

    Args:
        tensor: The tensor.
        rank: Number of terms.
        max_iter: How often, at most, each factor is solved for.
        stopping_criterion: It ends once the part of the squared norm that is explained changes by less than this. A
            negative one is never met.
        lambda_reg: Added to the diagonal of each linear problem.
        rng: What the first factors are drawn from, between 0 and 1.
    """
    factors = [rng.uniform(0, 1, (n, rank)) for n in tensor.shape]
    whole, explained = float(np.sum(tensor**2)), 0.0
    for _ in range(max_iter):
        for axis in range(3):
            first, second = [f for i, f in enumerate(factors) if i != axis]
            gram = (first.T @ first) * (second.T @ second) + lambda_reg * np.eye(rank)
            projected = np.einsum("abc,br,cr->ar", np.moveaxis(tensor, axis, 0), first, second)
            solved = projected @ np.linalg.pinv(gram)
            lengths = np.sqrt(np.sum(solved**2, axis=0))
            factors[axis] = solved / np.where(lengths == 0, 1, lengths)
        # The last factor was solved for: only with its lengths do the three give the tensor.
        rest = tensor - np.einsum("ar,br,cr->abc", factors[0] * lengths, factors[1], factors[2])
        before, explained = explained, 1 - float(np.sum(rest**2)) / whole if whole else 1.0
        if abs(explained - before) < stopping_criterion:
            break
    return factors[0] * lengths, factors[1], factors[2]
