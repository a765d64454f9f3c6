"""Orthogonal polynomials: three-term recurrences, closed under differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
from jax import lax

from ..graph import Array, op
from ..graph.arguments import Size, one_of
from .arithmetic import floating, widened


class Family(NamedTuple):
    """Polynomials p_0 = 1, p_1, ... in x, with a parameter a."""

    recurrence: Callable[[int, float], tuple[float, float, float]]
    """`(s, t, u)` of k and a: `p_(k+1) = (s x + t) p_k - u p_(k-1)`."""
    slope: Callable[[int, float], tuple[float, str, float]]
    """`(c, family, b)` of n and a: the derivative of p_n is c times p_(n - 1) of that family with parameter b."""


POLYNOMIALS = {
    "gegenbauer": Family(lambda k, a: (2 * (k + a) / (k + 1), 0.0, (k + 2 * a - 1) / (k + 1)),
                         lambda n, a: (2 * a, "gegenbauer", a + 1)),
    "legendre": Family(lambda k, _: ((2 * k + 1) / (k + 1), 0.0, k / (k + 1)), lambda n, _: (1.0, "gegenbauer", 1.5)),
    "chebyshev": Family(lambda k, _: (2.0 if k else 1.0, 0.0, 1.0), lambda n, _: (float(n), "gegenbauer", 1.0)),
    "hermite": Family(lambda k, _: (2.0, 0.0, 2.0 * k), lambda n, _: (2.0 * n, "hermite", 0.0)),
    "hermite_e": Family(lambda k, _: (1.0, 0.0, float(k)), lambda n, _: (float(n), "hermite_e", 0.0)),
    "laguerre": Family(lambda k, a: (-1 / (k + 1), (2 * k + 1 + a) / (k + 1), (k + a) / (k + 1)),
                       lambda n, a: (-1.0, "laguerre", a + 1)),
}  # fmt: skip
"""By name: Abramowitz and Stegun, 22.7 and 22.8."""


@op(elementwise=True, diagonal=True, unbounded=True, precision="high")
def orthogonal_polynomial(
    x: Array, /, degree: Size, family: Annotated[str, one_of(*POLYNOMIALS)] = "legendre", parameter: float = 0.0
) -> jax.Array:
    """The orthogonal polynomial of a degree, by its recurrence; derivatives are polynomials of lower degree.

    Args:
        degree: The degree n, 0 or more.
        family: 'legendre' (P_n), 'chebyshev' (T_n), 'gegenbauer' (C_n^a; a = 1 is Chebyshev's second kind, U_n),
            'hermite' (H_n, weight exp(-x^2)), 'hermite_e' (He_n, weight exp(-x^2 / 2)) or 'laguerre' (L_n^a).
        parameter: The parameter a of 'gegenbauer' and 'laguerre'; other families ignore it.
    """
    z = widened(floating(x))
    before, y = lax.full_like(z, 0), lax.full_like(z, 1)
    for k in range(degree):
        s, t, u = POLYNOMIALS[family].recurrence(k, parameter)
        before, y = y, (s * z + t) * y - u * before
    return lax.convert_element_type(y, floating(x).dtype)
