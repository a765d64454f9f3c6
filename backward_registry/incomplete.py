"""Backward rules of incomplete gamma and beta functions, and of exponential integrals."""

import nngrad.functions as F
from nngrad.graph import Variable

from .rules import slopes


def _gamma_density(a: Variable, x: Variable) -> Variable:
    """x^(a-1) exp(-x) / Gamma(a): as a power near 0, where logarithms have no derivatives, and else by logarithms, as
    powers overflow."""
    far = F.greater_scalar(x, val=1.0)
    small, large = F.where(far, F.ones_like(x), x), F.where(far, x, F.ones_like(x))
    by_logs = F.exp((a - 1) * F.log(large) - large - F.lgamma(a))
    return F.where(far, by_logs, F.pow2(small, a - 1) * F.exp(-small - F.lgamma(a)))


def gamma_by_shape(a: Variable, x: Variable) -> Variable:
    """The derivative of `gammainc(a, x)` with respect to the shape `a`."""
    scale = a * _gamma_density(a + 1, x)
    return (F.digamma(a) * scale - F.xlogy(scale, x)) * F.gamma_moment(a, x) - scale * F.gamma_moment(a, x, order=1)


def _incomplete_gamma_slopes(a: Variable, x: Variable, upper: bool) -> tuple[Variable, Variable]:
    by_a, by_x = gamma_by_shape(a, x), _gamma_density(a, x)
    return (-by_a, -by_x) if upper else (by_a, by_x)


slopes(
    F.incomplete_gamma,
    "dy/dx = p = x^(a-1) exp(-x) / Gamma(a), and dy/da = -x p ((log(x) - digamma(a)) M_0 + M_1) with the moments M_n "
    "of order n of the gamma distribution beyond x; both with the other sign if upper",
    _incomplete_gamma_slopes,
)  # fmt: skip


def _beta_density(a: Variable, b: Variable, x: Variable) -> Variable:
    """x^(a-1) (1-x)^(b-1) / B(a, b): by powers, which have derivatives at 0 and 1 too, unless they might underflow."""
    large = F.greater_scalar(a + b, val=100.0)
    p, q = (F.where(large, F.ones_like(shape), shape) for shape in (a, b))
    z = F.where(large, x, F.constant(0.5, shape=x.shape, dtype=x.dtype))
    by_logs = F.exp((a - 1) * F.log(z) + (b - 1) * F.log1p(-z) - F.betaln(a, b))
    return F.where(large, by_logs, F.pow2(x, p - 1) * F.pow2(1 - x, q - 1) * F.exp(-F.betaln(p, q)))


slopes(
    F.betainc, "dy/da and dy/db = the moments with one factor u or v, dy/dx = x^(a-1) (1-x)^(b-1) / B(a, b)",
    lambda a, b, x: (F.beta_moment(a, b, x, p=1), F.beta_moment(a, b, x, q=1), _beta_density(a, b, x)),
)  # fmt: skip


def _beta_moment_slopes(a: Variable, b: Variable, x: Variable, p: int, q: int) -> tuple[Variable, Variable, Variable]:
    both = F.digamma_derivative(a + b, order=1)
    by_a, by_b = F.beta_moment(a, b, x, p=p + 1, q=q), F.beta_moment(a, b, x, p=p, q=q + 1)
    if p:
        fewer = p * F.beta_moment(a, b, x, p=p - 1, q=q)
        by_a, by_b = by_a + F.digamma_difference(a, b, order=1) * fewer, by_b + both * fewer
    if q:
        fewer = q * F.beta_moment(a, b, x, p=p, q=q - 1)
        by_a, by_b = by_a + both * fewer, by_b + F.digamma_difference(b, a, order=1) * fewer
    u, v = F.log(x) + F.digamma_difference(a, b), F.log1p(-x) + F.digamma_difference(b, a)
    return by_a, by_b, u**p * v**q * _beta_density(a, b, x)


slopes(
    F.beta_moment,
    "by a one more factor u, by b one more factor v, and derivatives of the means (trigamma functions) times the "
    "moments of lower powers; by x the integrand",
    _beta_moment_slopes,
)  # fmt: skip
slopes(F.expi, "dy/dx = exp(x) / x", lambda x: F.exp(x) / x)
slopes(
    F.exponential_integral, "dy/dx = -E_(n-1)(x), with E_0(x) = exp(-x) / x",
    lambda x, order: -(F.exponential_integral(x, order=order - 1) if order > 1 else F.exp(-x) / x),
)  # fmt: skip
