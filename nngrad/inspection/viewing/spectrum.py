"""The spectrum of a Hessian by the Lanczos method, from Hessian-vector products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...extend import Variable, checked_count
from ..lanczos import Ritz, lanczos, product_of_hessian

Array = np.ndarray[Any, Any]


class Spectrum(NamedTuple):
    """The eigenvalues of a Hessian, estimated from random vectors."""

    runs: tuple[Ritz, ...]
    """The result of the Lanczos method for each random vector."""
    size: int
    """The number of eigenvalues, which is the number of elements of the parameters."""

    @property
    def largest(self) -> float:
        """An estimate of the largest eigenvalue."""
        return float(max([run.values[-1] for run in self.runs]))

    @property
    def smallest(self) -> float:
        """An estimate of the smallest eigenvalue."""
        return float(min([run.values[0] for run in self.runs]))

    @property
    def trace(self) -> float:
        """Hutchinson's estimate of the trace, from the same vectors."""
        return float(np.mean([run.values @ run.weights for run in self.runs]) * self.size)

    def density(self, at: Array, width: float, scale: Callable[[Array], Array] = np.asarray) -> Array:
        """The density of eigenvalues on a grid, each smoothed by a Gaussian; its integral is 1.

        Args:
            at: The points of the grid, on the scale.
            width: The standard deviation of the Gaussian, on the scale.
            scale: Maps eigenvalues to the scale.
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

    The Hessian is never formed: each iteration multiplies it by a vector, which costs about two gradients.

    Args:
        loss: The loss, of shape ().
        parameters: The parameters to differentiate with respect to, at their current values.
        vectors: The number of random start vectors.
        iterations: The maximum number of products for each vector.
        seed: The seed of the vectors.

    Raises:
        TypeError: The loss or a parameter is not a Variable, or a number is not an integer.
        ValueError: The loss has another shape, there are no parameters, a number is below 1, or the Hessian is not
            finite.
    """
    vectors, iterations = checked_count(vectors, "vectors"), checked_count(iterations, "iterations")
    product, size = product_of_hessian(loss, parameters)
    rng = np.random.default_rng(seed)
    runs = [lanczos(product, k=iterations, start=rng.standard_normal(size), vectors=False) for _ in range(vectors)]
    return Spectrum(tuple(runs), size)
