"""Differential operators: Jacobian and Hessian products, the matrices themselves, and sums over their elements.

`vmap` applies a function to many values at once.

All results are Variables of a graph of ordinary functions: they can be used in a loss, trained through and
differentiated again. For several directions the graph for one is vectorised, so that they share one matrix product per
layer. For a sum over directions only the sum of the highest derivatives is propagated.

*Rows.* With `batched=True`, the default, the first axis of x and of y is the batch axis, and row b of y must depend on
row b of x alone. The graph has to show this; otherwise a ValueError is raised. With `batched=False` all elements count
as one point.
"""

from .curvature import fisher, gauss_newton, natural_gradient
from .matrices import hessian, hessian_diagonal, jacobian
from .partials import derivatives, nth_derivative
from .patterns import sparsity
from .products import hvp, jvp, vjp
from .sparse_matrices import sparse_hessian, sparse_jacobian
from .sums import bilaplacian, divergence, laplacian
from .vmap import vmap

__all__ = [
    "bilaplacian", "derivatives", "divergence", "fisher", "gauss_newton",
    "hessian", "hessian_diagonal", "hvp", "jacobian", "jvp", "laplacian", "natural_gradient",
    "nth_derivative", "sparse_hessian", "sparse_jacobian", "sparsity", "vjp", "vmap",
]  # fmt: skip
