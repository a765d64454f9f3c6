"""The spectrum of a Hessian by the method of Lanczos, from products of the Hessian and vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...autodiff.request import variables
from ...derivatives import hvp
from ...derivatives.parts import positive_int
from ...execution import compile
from ...graph import Variable, functions_of

Array = np.ndarray[Any, Any]


class Ritz(NamedTuple):
    """What a run of Lanczos' method finds."""

    values: Array
    """Of shape (k), ascending: estimates of eigenvalues; the outer ones come close first."""
    weights: Array
    """Of shape (k), of sum 1: how much of the vector that it began with belongs to each."""


class Spectrum(NamedTuple):
    """Eigenvalues of a Hessian, as far as some random vectors tell."""

    runs: tuple[Ritz, ...]
    """One for each random vector."""
    size: int
    """How many eigenvalues there are: the number of elements of the parameters."""

    @property
    def largest(self) -> float:
        """About the largest eigenvalue."""
        return float(max([run.values[-1] for run in self.runs]))

    @property
    def smallest(self) -> float:
        """About the smallest eigenvalue."""
        return float(min([run.values[0] for run in self.runs]))

    @property
    def trace(self) -> float:
        """About the sum of all eigenvalues: Hutchinson's estimate from the same vectors."""
        return float(np.mean([run.values @ run.weights for run in self.runs]) * self.size)

    def density(self, at: Array, width: float, scale: Callable[[Array], Array] = np.asarray) -> Array:
        """The density of eigenvalues on a scale, each widened to a bell; its integral is 1.

        Args:
            at: Places on the scale.
            width: Standard deviation of a bell, on the scale.
            scale: What brings eigenvalues to the scale.
        """
        values = scale(np.concatenate([run.values for run in self.runs]))
        weights = np.concatenate([run.weights for run in self.runs]) / len(self.runs)
        bells = np.exp(-(((np.asarray(at)[:, None] - values) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
        density: Array = bells @ weights
        return density


def hessian_spectrum_of(
    loss: Variable, parameters: Mapping[str, Variable] | Iterable[Variable], vectors: int = 4, iterations: int = 64,
    seed: int = 0,
) -> Spectrum:  # fmt: skip
    """The spectrum of the Hessian of a loss by stochastic Lanczos quadrature (Ghorbani, Krishnan and Xiao, 2019).

    The Hessian itself is never made: each iteration takes its product with a vector, which costs about two gradients.

    Args:
        loss: Of shape ().
        parameters: What it is differentiated by, at the values that they have now.
        vectors: How many random vectors to begin with.
        iterations: How many products for each, at most.
        seed: Of the vectors.

    Raises:
        TypeError: The loss or a parameter is no Variable, or a number is not whole.
        ValueError: The loss has another shape, there are no parameters, a number is below 1, or the Hessian is not
            finite.
    """
    (loss,) = variables(loss, "loss")
    listed = list(parameters.values()) if isinstance(parameters, Mapping) else variables(parameters, "parameters")
    if loss.shape != ():
        raise ValueError(f"loss: expected one of shape (), got {loss.shape}; take F.sum or F.mean of it")
    if not listed:
        raise ValueError("parameters: there are none; nn.get_parameters() gives those of this scope")
    vectors, iterations = positive_int(vectors, "vectors"), positive_int(iterations, "iterations")
    product = _product(loss, listed)
    size = sum([p.size for p in listed])
    rng = np.random.default_rng(seed)
    runs = [lanczos(product, rng.standard_normal(size), iterations) for _ in range(vectors)]
    return Spectrum(tuple(runs), size)


def _product(loss: Variable, parameters: list[Variable]) -> Callable[[Array], Array]:
    """The product of the Hessian with a vector of all elements of the parameters, as one executable."""
    directions = [Variable(p.shape, dtype=p.dtype) for p in parameters]
    products = hvp(loss, parameters, directions)
    # A loss may be linear in a parameter: no product depends on its direction then.
    read = {id(x) for x in products} | {id(x) for function in functions_of(products) for x in function.inputs}
    used = [i for i, direction in enumerate(directions) if id(direction) in read]
    run: Any = compile(products, [directions[i] for i in used])
    ends = np.cumsum([p.size for p in parameters])[:-1]

    def product(v: Array) -> Array:
        parts = np.split(v, ends)
        results = run(*[parts[i].reshape(parameters[i].shape).astype(parameters[i].dtype) for i in used])
        made = np.concatenate([np.ravel(r) for r in results]).astype(np.float64)
        if not np.isfinite(made).all():
            raise ValueError("loss: its Hessian has NaN or infinities at these values; nn.find_nan tells where they "
                             "come from")
        return made

    return product


def lanczos(product: Callable[[Array], Array], start: Array, iterations: int) -> Ritz:
    """Lanczos' method for a symmetric operator, begun with a vector.

    Each new vector is made orthogonal to all before it, twice: else rounding brings eigenvalues back. It ends early
    where the vectors span all that the operator makes of the first one.

    Args:
        product: The operator.
        start: A vector, not zero.
        iterations: How many products are taken at most; there are no more than there are elements.
    """
    count = min(iterations, len(start))
    basis = np.zeros((count, len(start)))
    diagonal, beside = np.zeros(count), np.zeros(count)
    basis[0] = start / np.linalg.norm(start)
    for i in range(count):
        w = product(basis[i])
        size = np.linalg.norm(w)
        diagonal[i] = basis[i] @ w
        for _ in range(2):
            w = w - basis[: i + 1].T @ (basis[: i + 1] @ w)
        beside[i] = np.linalg.norm(w)
        if i + 1 == count or beside[i] <= 1e-10 * max(size, np.finfo(float).tiny):
            count = i + 1
            break
        basis[i + 1] = w / beside[i]
    off = beside[: count - 1]
    values, vectors = np.linalg.eigh(np.diag(diagonal[:count]) + np.diag(off, 1) + np.diag(off, -1))
    return Ritz(values, vectors[0] ** 2)
