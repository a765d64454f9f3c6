"""The door to JAX: functions opened (`nn.from_jax`), and transformations that may stand in place of JAX's own.

import nngrad.jax as nj

u_xx = jax.vmap(nj.nth_derivative(u, 2))     # in place of jax.vmap(jax.grad(jax.grad(u)))
"""

from .from_jax import from_jax as from_jax
from .taylor import jet as jet
from .transforms import bilaplacian as bilaplacian
from .transforms import derivatives as derivatives
from .transforms import divergence as divergence
from .transforms import grad as grad
from .transforms import hessian as hessian
from .transforms import hvp as hvp
from .transforms import jacfwd as jacfwd
from .transforms import jacobian as jacobian
from .transforms import jacrev as jacrev
from .transforms import jvp as jvp
from .transforms import laplacian as laplacian
from .transforms import linearize as linearize
from .transforms import nth_derivative as nth_derivative
from .transforms import value_and_grad as value_and_grad
from .transforms import vjp as vjp
