"""Unbiased estimates of operators from a few random directions, at a cost independent of the dimension (Shi, Hu, Lin
and Kawaguchi, 2024, "Stochastic Taylor Derivative Estimator").

With D the size of x, k directions, and d_i the derivative by element i:

    laplacian    sparse:                D / k sum_i d_i d_i y                     over k coordinates i
                 rademacher, gaussian:  1 / k sum_v (v . d)^2 y                   since E[v_i v_j] = delta_ij
    bilaplacian  sparse:                D^2 / k sum_(i, j) d_i^2 d_j^2 y          over k pairs (i, j), i as well as j
                                                                                  drawn without replacement
                 rademacher:            1 / k sum_(v, w) (v . d)^2 (w . d)^2 y    v and w independent
                 gaussian:              1 / (3 k) sum_v (v . d)^4 y
    divergence   sparse:                D / k sum_i d_i y_i
                 rademacher, gaussian:  1 / k sum_v v . (v . d) y

To fourth order, E[v_i v_j v_k v_l] = a (delta_ij delta_kl + delta_ik delta_jl + delta_il delta_jk) + b delta_ijkl with
a = E[v_i^2]^2 and b = E[v_i^4] - 3 a. For Gaussians b = 0, so E[(v . d)^4 y] is 3 times the bilaplacian. For signs
b = -2: E[(v . d)^4 y] = 3 bilaplacian - 2 sum_i d_i^4 y, which no factor corrects, so they take two vectors each.
"""

from __future__ import annotations

import math

import nngrad.functions as F

from ..graph import Variable
from ..graph.block import new_leaves
from .drawn import Draw, sum_over
from .parts import second, slope_along


def laplacian(y: Variable, x: Variable, lead: int, chunk: int | None, draw: Draw) -> Variable:
    """An estimate of the Laplacian."""
    (t,) = new_leaves([x.spec])
    total = sum_over(second(y, x, t, lead), [(t, draw.vectors(0, x.spec, lead))], draw.directions, chunk)
    return _times(total, _scale(x, lead, draw))


def bilaplacian(y: Variable, x: Variable, lead: int, chunk: int | None, draw: Draw) -> Variable:
    """An estimate of the bilaplacian."""
    (t,) = new_leaves([x.spec])
    inner = second(y, x, t, lead)
    vectors = [(t, draw.vectors(0, x.spec, lead))]
    if draw.kind == "gaussian":
        return _times(sum_over(second(inner, x, t, lead), vectors, draw.directions, chunk), 1 / (3 * draw.directions))
    (other,) = new_leaves([x.spec])
    vectors.append((other, draw.vectors(1, x.spec, lead)))
    total = sum_over(second(inner, x, other, lead), vectors, draw.directions, chunk)
    size = math.prod(x.shape[lead:]) if draw.kind == "sparse" else 1
    return _times(total, size * size / draw.directions)


def divergence(y: Variable, x: Variable, lead: int, chunk: int | None, draw: Draw) -> Variable:
    """An estimate of the divergence."""
    (t,) = new_leaves([x.spec])
    vectors = draw.vectors(0, x.spec, lead)
    total = sum_over(slope_along(y, x, t, lead), [(t, vectors)], draw.directions, chunk)
    return _times(total, _scale(x, lead, draw))


def _scale(x: Variable, lead: int, draw: Draw) -> float:
    return (math.prod(x.shape[lead:]) if draw.kind == "sparse" else 1) / draw.directions


def _times(y: Variable, number: float) -> Variable:
    scaled: Variable = F.mul_scalar(y, val=number)
    return scaled
