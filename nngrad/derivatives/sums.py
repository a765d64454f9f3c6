"""Laplacian, bilaplacian and divergence."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Literal, overload

from ..autodiff.forward_mode import NoForwardMode
from ..autodiff.symmetry import NotApplicable
from ..graph import Variable
from ..graph.arguments import coerced
from . import stochastic
from .bilaplacian import bilaplacian_of
from .directions import over_directions
from .drawn import checked_draw
from .matrices import first_derivatives
from .parts import built, checked, second, slope_along


@overload
def laplacian(
    y: Variable, x: Variable, batched: bool = True, chunk: int | None = None, directions: int | None = None,
    kind: str = "sparse", seed: int | Variable = -1, with_gradient: Literal[False] = False,
) -> Variable: ...
@overload
def laplacian(
    y: Variable, x: Variable, batched: bool = True, chunk: int | None = None, directions: int | None = None,
    kind: str = "sparse", seed: int | Variable = -1, *, with_gradient: Literal[True],
) -> tuple[Variable, Variable]: ...
def laplacian(
    y: Variable, x: Variable, batched: bool = True, chunk: int | None = None, directions: int | None = None,
    kind: str = "sparse", seed: int | Variable = -1, with_gradient: bool = False,
) -> Variable | tuple[Variable, Variable]:  # fmt: skip
    """The Laplacian: the sum of the second derivatives by each element of `x`.

        result[b, k] = sum_i d^2 y[b, k] / dx[b, i]^2

    The first derivatives along all directions are propagated together, but of the second derivatives only their sum
    (the forward Laplacian: Li et al. 2024, "A computational framework for neural network-based variational Monte Carlo
    with Forward Laplacian"; collapsed Taylor mode: Dangel et al. 2025, "Collapsing Taylor Mode Automatic
    Differentiation").

    Args:
        y: `(B,)`, `(B, 1)` or `(B, *m)`; of any shape with `batched=False`.
        x: `(B, *d)`; of any shape with `batched=False`.
        batched: Whether rows are independent; see `nngrad.derivatives`.
        chunk: The number of directions to propagate at once, to bound the memory; None for all.
        directions: The number of random directions of an unbiased estimate, whose cost does not grow with the size of
            `x`; all rows share them. None for the exact result.
        kind: Their distribution: "sparse" (different unit vectors), "rademacher" (signs) or "gaussian".
        seed: -1 for the stream that `nn.seed` starts, another int for a stream of its own; each `forward()` draws new
            directions. Or a Variable that holds a key, uint32[2], which determines them.
        with_gradient: Whether to return the first derivatives too, which the pass computes anyway: a local energy -1/2
            (laplacian + |gradient|^2) of log |psi| reads them.

    Returns:
        In the shape of `y`. With `with_gradient` the first derivatives, in the shape that `jacobian` gives them, and
        the Laplacian.

    Raises:
        TypeError, ValueError, MissingRule: As in `jacobian`; ValueError also for more sparse `directions` than `x` has
            coordinates, for an unknown `kind`, and for `with_gradient` with random `directions`.
    """
    lead = checked("laplacian", y, x, batched, chunk)
    draw = checked_draw("laplacian", math.prod(x.shape[lead:]), directions, kind, seed)
    coerced(bool, with_gradient, "laplacian: with_gradient")
    if draw is not None:
        if with_gradient:
            raise ValueError(
                "laplacian: with_gradient must be False with random directions, which do not give the gradient; "
                "compute it with nn.grad, or leave out directions"
            )
        return built([y, x], lambda: [stochastic.laplacian(y, x, lead, chunk, draw)])[0]

    def build() -> list[Variable]:
        first = [first_derivatives(y, x, lead, chunk)] if with_gradient else []
        return [_summed_second(y, x, lead, chunk), *first]

    result, *first = built([y, x], build)
    return (first[0], result) if first else result


def bilaplacian(
    y: Variable, x: Variable, batched: bool = True, chunk: int | None = None, directions: int | None = None,
    kind: str = "sparse", seed: int | Variable = -1,
) -> Variable:  # fmt: skip
    """The Laplacian of the Laplacian.

        result[b, k] = sum_ij d^4 y[b, k] / (dx[b, i]^2 dx[b, j]^2)

    In few dimensions, up to about a dozen for a network, a pass propagates the first and second derivatives, the
    gradient of the Laplacian, and the bilaplacian; in more, or with `chunk`, it is the Laplacian of the Laplacian.

    Args, Returns, Raises:
        As in `laplacian`. d^2 pairs of directions are propagated, `chunk` times d at once. With `directions` that many
        pairs are drawn; for "gaussian", that many single directions.
    """
    lead = checked("bilaplacian", y, x, batched, chunk)
    draw = checked_draw("bilaplacian", math.prod(x.shape[lead:]), directions, kind, seed)
    if draw is not None:
        return built([y, x], lambda: [stochastic.bilaplacian(y, x, lead, chunk, draw)])[0]
    return built([y, x], lambda: [_bilaplacian(y, x, lead, chunk)])[0]


def divergence(
    y: Variable, x: Variable, batched: bool = True, chunk: int | None = None, directions: int | None = None,
    kind: str = "sparse", seed: int | Variable = -1,
) -> Variable:  # fmt: skip
    """The divergence of a vector field: the trace of its Jacobian.

        result[b] = sum_i dy[b, i] / dx[b, i]

    Args:
        y: The field `(B, *d)`; of any shape with `batched=False`.
        x: The points, of the same shape.
        batched: Whether rows are independent; see `nngrad.derivatives`.
        chunk: The number of directions to propagate at once, to bound the memory; None for all.
        directions: The number of random directions of an estimate, as in `laplacian`.
        kind: As in `laplacian`.
        seed: As in `laplacian`.

    Returns:
        `(B,)`; `()` with `batched=False`; in the dtype of `y`.

    Raises:
        TypeError, ValueError, MissingRule: As in `jacobian`; ValueError also if the shapes differ.
    """
    lead = checked("divergence", y, x, batched, chunk)
    if y.shape != x.shape:
        raise ValueError(f"divergence: the field y must have the shape of x, {x.shape}, got {y.shape}")
    draw = checked_draw("divergence", math.prod(x.shape[lead:]), directions, kind, seed)
    if draw is not None:
        return built([y, x], lambda: [stochastic.divergence(y, x, lead, chunk, draw)])[0]

    def build() -> Variable:
        return over_directions(lambda t: slope_along(y, x, t, lead), x, lead, chunk, collapse=True)

    return built([y, x], lambda: [build()])[0]


def _bilaplacian(y: Variable, x: Variable, lead: int, chunk: int | None) -> Variable:
    if chunk is None:
        with suppress(NotApplicable, NoForwardMode):
            return bilaplacian_of(y, x, lead)
    return _summed_second(_summed_second(y, x, lead, None), x, lead, chunk)


def _summed_second(y: Variable, x: Variable, lead: int, chunk: int | None) -> Variable:
    return over_directions(lambda t: second(y, x, t, lead), x, lead, chunk, collapse=True)
