"""All of jax.scipy.special."""

from __future__ import annotations

import jax
import jax.scipy.special as special
import numpy as np

from .rows import LESS, MORE, POSITIVE, UNIT, X, row, rows_of

ROWS = [
    *rows_of(special, "jax.scipy.special.", "i0 i0e i1 i1e erf erfc expit log_ndtr ndtr", X),
    # JAX 0.12 raises where it takes the second derivative of arrays
    *rows_of(special, "jax.scipy.special.", "erfcx", X, orders=3 if jax.__version_info__ < (0, 12) else 1),
    *rows_of(special, "jax.scipy.special.", "digamma entr expi gamma gammaln loggamma factorial gammasgn", POSITIVE),
    *rows_of(special, "jax.scipy.special.", "exp1", POSITIVE, orders=1),  # JAX fails at the second order
    *rows_of(special, "jax.scipy.special.", "spence", UNIT),
    *rows_of(special, "jax.scipy.special.", "logit ndtri", UNIT),
    *rows_of(special, "jax.scipy.special.", "erfinv", LESS),
    *rows_of(special, "jax.scipy.special.", "beta betaln kl_div rel_entr xlogy xlog1py boxcox boxcox1p",
             POSITIVE, MORE),
    row("jax.scipy.special.bernoulli", lambda x: special.bernoulli(3) * x[0], X),
    row("jax.scipy.special.bessel_jn", lambda x: special.bessel_jn(x, v=2, n_iter=20), POSITIVE[0]),
    row("jax.scipy.special.comb", lambda x: special.comb(5, 2) * x, X),
    row("jax.scipy.special.betainc", lambda x: special.betainc(1.5, 2.5, x), UNIT),
    row("jax.scipy.special.gammainc", lambda x: special.gammainc(1.5, x), POSITIVE),
    row("jax.scipy.special.gammaincc", lambda x: special.gammaincc(1.5, x), POSITIVE),
    row("jax.scipy.special.gammainc(a)", lambda a, x: special.gammainc(a, x), POSITIVE, MORE, orders=1),
    row("jax.scipy.special.expn", lambda x: special.expn(2, x), POSITIVE, orders=1),
    row("jax.scipy.special.fresnel", lambda x: special.fresnel(x), X, opaque=1),
    row("jax.scipy.special.hyp1f1", lambda x: special.hyp1f1(1.5, 2.5, x), X, opaque=1),
    row("jax.scipy.special.multigammaln", lambda x: special.multigammaln(x + 2, 3), POSITIVE),
    row("jax.scipy.special.polygamma", lambda x: special.polygamma(2, x), POSITIVE),
    row("jax.scipy.special.sici", lambda x: special.sici(x), POSITIVE, opaque=1),
    row("jax.scipy.special.sph_harm_y", lambda t, p: special.sph_harm_y(np.array([2]), np.array([1]), t, p).real,
        POSITIVE[0], MORE[0]),
    row("jax.scipy.special.wofz", lambda x: special.wofz(x + 0.5j).real, X, opaque=1),
    row("jax.scipy.special.zeta", lambda x: special.zeta(2.5, x), POSITIVE, opaque=1),
    row("jax.scipy.special.logsumexp", lambda x: special.logsumexp(x, axis=0), X),
    *rows_of(special, "jax.scipy.special.", "softmax log_softmax", X),
]  # fmt: skip
