"""The Lanczos method: eigenvalues and eigenvectors of symmetric operators from matrix-vector products."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..derivatives.curvature import CurvatureMatrix
from ..derivatives.products import hvp
from ..extend import Variable, checked_count, functions_of, variables
from ..functions import cast, concatenate, reshape
from ..jax.to_jax import compile

Array = np.ndarray[Any, Any]
Product = Callable[[Array], Array]


class Ritz(NamedTuple):
    """The result of a run of the Lanczos method."""

    values: Array
    """Estimates of eigenvalues, of shape (k), ascending; the extreme ones converge first."""
    weights: Array
    """The squared component of the unit starting vector along each, of shape (k); their sum is 1."""
    vectors: Array | None = None
    """Estimates of eigenvectors, of shape (n, k), with columns of length 1; None if they were not requested."""


def lanczos(
    matrix: Variable | CurvatureMatrix | Product, parameters: Any = None, k: int = 64, *, start: Any = None,
    seed: int = 0, vectors: bool = True,
) -> Ritz:  # fmt: skip
    """Eigenvalues and eigenvectors of a Hessian, or of another symmetric matrix, by the Lanczos method.

        top = nn.lanczos(loss, parameters, 50).values[-1]

    The matrix is never formed: each iteration multiplies it by a vector of the concatenated elements of all parameters.
    Each new vector is orthogonalised against all earlier ones, and again where that changed much of it; otherwise
    rounding errors duplicate eigenvalues.
    It stops early once the vectors span the Krylov space of the first one. Results are NumPy arrays in float64.

    Args:
        matrix: A loss of shape (), for its Hessian with respect to `parameters`; the result of `nn.gauss_newton` or
            `nn.fisher`; or a function that multiplies a vector, (n,).
        parameters: The parameters to differentiate a loss by, at their current values.
        k: The largest number of products, which never exceeds the number of elements.
        start: The starting vector, not zero; drawn at random by default. Required if `matrix` is a function.
        seed: The seed of that draw.
        vectors: Whether to compute eigenvectors.

    Raises:
        TypeError: Something has the wrong type.
        ValueError: The loss is not of shape (), there are no parameters, `k` is below 1, `start` is zero or missing, or
            the Hessian is not finite.
    """
    count = checked_count(k, "lanczos: k")
    product: Product
    if isinstance(matrix, CurvatureMatrix):
        product, size = compiled_product(lambda v: matrix @ v, matrix.parameters, "the matrix"), matrix.shape[0]
    elif isinstance(matrix, Variable):
        product, size = product_of_hessian(matrix, parameters)
    elif callable(matrix) and start is not None:
        product, size = matrix, len(start)
    elif callable(matrix):
        raise ValueError("lanczos: start: expected a vector, because matrix is a function, got None")
    else:
        raise TypeError(f"lanczos: matrix: expected a loss, a curvature matrix or a function, got {matrix!r}")
    first = np.random.default_rng(seed).standard_normal(size) if start is None else np.asarray(start, np.float64)
    if first.shape != (size,) or not np.linalg.norm(first):
        raise ValueError(f"lanczos: start: expected a nonzero vector of shape ({size},), got shape {first.shape}")
    return _iterated(product, first, min(count, size), vectors)


def product_of_hessian(loss: Variable, parameters: Any) -> tuple[Product, int]:
    """The Hessian-vector product of a loss, and the size of its vectors."""
    (loss,) = variables(loss, "loss")
    listed = variables(() if parameters is None else parameters, "parameters")
    if loss.shape != ():
        raise ValueError(f"loss: must have shape (), got {loss.shape}; take F.sum or F.mean of it")
    if not listed:
        raise ValueError("parameters: expected at least one; nn.get_parameters() returns those of this scope")
    product = compiled_product(lambda vectors: hvp(loss, listed, vectors), listed, "loss: its Hessian")
    return product, sum([p.size for p in listed])


def compiled_product(
    product: Callable[[list[Variable]], list[Variable]], parameters: list[Variable], name: str
) -> Product:
    """Compile a product with a vector of all elements of the parameters. Whatever does not depend on the vector, such
    as the forward and the gradient for a Hessian, is computed once, at the current values."""
    sizes = [p.size for p in parameters]
    vector = Variable((sum(sizes),), dtype=functools.reduce(jnp.promote_types, [p.dtype for p in parameters]))
    ends = np.cumsum(sizes).tolist()
    directions = [
        cast(reshape(vector[end - p.size : end], shape=p.shape), dtype=p.dtype)
        for p, end in zip(parameters, ends, strict=True)
    ]
    result = concatenate(*[reshape(x, shape=(x.size,)) for x in product(directions)], axis=0)
    moving, fixed = {id(vector)}, dict[int, Variable]()
    for f in functions_of([result]):
        if any([id(x) in moving for x in f.inputs]):
            moving.update([id(y) for y in f.outputs])
            fixed |= {id(x): x for x in f.inputs if x.parent and x.parent.inputs and id(x) not in moving}
    known: Any = compile([*fixed.values()])() if fixed else []
    # A loss may be linear in all parameters: then the product does not depend on the vector.
    run: Any = compile(result, [*fixed.values(), *([vector] if id(result) in moving else [])])

    def multiplied(v: Array) -> Array:
        image = np.asarray(run(*known, *([v.astype(vector.dtype)] if id(result) in moving else [])), np.float64)
        if not np.isfinite(image).all():
            raise ValueError(f"{name} has NaN or infinities at these values; nn.find_nan shows where they come from")
        return image

    return multiplied


def _iterated(product: Product, start: Array, count: int, vectors: bool) -> Ritz:
    basis = np.zeros((count, len(start)))
    diagonal, beside = np.zeros(count), np.zeros(count)
    basis[0] = start / np.linalg.norm(start)
    for i in range(count):
        w = np.asarray(product(basis[i]), np.float64)
        size = np.linalg.norm(w)
        diagonal[i] = basis[i] @ w
        w = w - diagonal[i] * basis[i] - (beside[i - 1] * basis[i - 1] if i else 0)
        before, beside[i] = np.inf, np.linalg.norm(w)
        while beside[i] < before / 2**0.5:  # more than rounding errors was left (Daniel et al. 1976)
            w = w - basis[: i + 1].T @ (basis[: i + 1] @ w)
            before, beside[i] = beside[i], np.linalg.norm(w)
        if i + 1 == count or beside[i] <= 1e-10 * max(size, np.finfo(float).tiny):
            count = i + 1
            break
        basis[i + 1] = w / beside[i]
    off = beside[: count - 1]
    values, parts = np.linalg.eigh(np.diag(diagonal[:count]) + np.diag(off, 1) + np.diag(off, -1))
    return Ritz(values, parts[0] ** 2, basis[:count].T @ parts if vectors else None)
