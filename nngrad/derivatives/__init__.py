"""Differential operators: products with Jacobians and Hessians, those matrices themselves, and sums over them.

All results are Variables of a graph made of ordinary functions: they can be used in a loss, trained through and
differentiated again. Where several directions are wanted, the graph for one is vectorized, so that they share one
matrix product per layer; where only a sum over directions is wanted, the sum of the highest derivatives is propagated
and not each of them.

*Rows.* With `batched=True`, the normal case, the first axis of x and of y is that of a batch, and row b of y depends on
row b of x alone. This is shown from the graph; where it cannot be, a ValueError says so. With `batched=False` all
elements count as one point.
"""

from .curvature import fisher, gauss_newton, natural_gradient
from .drawn import unbiased_square
from .general import differential_operator, diffusion
from .matrices import hessian, hessian_diagonal, jacobian
from .partials import derivatives, nth_derivative
from .patterns import sparsity
from .products import hvp, jvp, vjp
from .ritz import lanczos
from .sparse_matrices import sparse_hessian, sparse_jacobian
from .sums import bilaplacian, curl, divergence, laplacian

__all__ = [
    "bilaplacian", "curl", "derivatives", "differential_operator", "diffusion", "divergence", "fisher", "gauss_newton",
    "hessian", "hessian_diagonal", "hvp", "jacobian", "jvp", "lanczos", "laplacian", "natural_gradient",
    "nth_derivative", "sparse_hessian", "sparse_jacobian", "sparsity", "unbiased_square", "vjp",
]  # fmt: skip
