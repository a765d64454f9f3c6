"""What makes one element of many: reductions, running results, sorting."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from .rows import POSITIVE, VECTOR, X, Y, row, rows_of

HOLES = np.where(np.abs(X) < 0.6, np.nan, X)

ROWS = [
    *rows_of(jnp, "jnp.", "sum mean prod max min amax amin ptp std var median all any argmax argmin average "
             "count_nonzero cumsum cumprod diff ediff1d nancumsum nancumprod nanmax "
             "nanmean nanmedian nanmin nanprod nanstd nansum nanvar sort argsort trapezoid gradient cov corrcoef", X),
    *rows_of(jnp, "jnp.", "cumulative_sum cumulative_prod", VECTOR),
    row("jnp.nansum(nan)", lambda x: jnp.nansum(jnp.where(np.isnan(HOLES), jnp.nan, x), axis=1), X),
    row("jnp.nanmax(nan)", lambda x: jnp.nanmax(jnp.where(np.isnan(HOLES), jnp.nan, x), axis=1), X),
    row("jnp.sum(axis, where)", lambda x: jnp.sum(x**2, axis=(0, 1), where=X > 0, keepdims=True), X),
    row("jnp.max(axis)", lambda x: jnp.max(x, axis=0, initial=0.5) * jnp.min(x, axis=0), X),
    row("jnp.quantile", lambda x: jnp.quantile(x, jnp.array([0.3, 0.8]), axis=1), X),
    row("jnp.percentile", lambda x: jnp.percentile(x, 40.0, method="nearest"), X),
    row("jnp.nanquantile", lambda x: jnp.nanquantile(x, 0.3, axis=0), X),
    row("jnp.logaddexp.reduce", lambda x: jnp.logaddexp.reduce(x, axis=1), X),
    row("jnp.add.accumulate", lambda x: jnp.add.accumulate(x**2, axis=1), X),
    row("jnp.lexsort", lambda x: x[0][jnp.lexsort((x[1], x[0] > 0))] ** 2, X, opaque=1),
    row("jnp.partition", lambda x: jnp.partition(x, 2, axis=1)[:, :2] ** 2, X),
    row("jnp.argpartition", lambda x: x[0][jnp.argpartition(x[0], 2)[2:3]] ** 2, X),
    row("jnp.histogram", lambda x, w: jnp.histogram(x[0], bins=jnp.array([-3.0, -0.2, 0.3, 3.0]), weights=w[0])[0],
        X, Y),
    row("jnp.bincount", lambda w: jnp.bincount(np.array([0, 2, 1, 2]), weights=w[0], length=3), X),
    row("jnp.digitize", lambda x: jnp.digitize(x, jnp.array([-1.0, 0.0, 1.0])) * x, X),
    row("jnp.searchsorted", lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]) * x[1], X),
    row("jnp.unique", lambda x: jnp.unique(x, size=12) ** 2, X),
    row("jnp.nonzero", lambda x: x[0][jnp.nonzero(x[0] > 0, size=3, fill_value=0)] ** 2, X),
    row("lax.sort(two)", lambda x, y: lax.sort((x, y), num_keys=1)[1] * x, X, Y),
    row("lax.sort(two keys)", lambda x, y: lax.sort((jnp.round(x), y, x * y), num_keys=2, dimension=0), X, Y,
        opaque=1),
    row("lax.sort_key_val", lambda x, y: lax.sort_key_val(x[0], y[0])[1] ** 2, X, Y),
    row("lax.top_k", lambda x: lax.top_k(x, 2)[0] ** 2, X),
    row("lax.approx_max_k", lambda x: lax.approx_max_k(x[0], 2)[0] ** 2, X, opaque=1),
    row("lax.cumlogsumexp", lambda x: lax.cumlogsumexp(x, axis=1, reverse=True), X),
    row("lax.cummax", lambda x: lax.cummax(x, axis=1) ** 2 * lax.cummin(x, axis=0, reverse=True), X),
    row("lax.cumsum(reverse)", lambda x: lax.cumsum(x, axis=0, reverse=True) * lax.cumprod(x, axis=1), X),
    row("lax.reduce", lambda x: lax.reduce(x, 0.0, lax.add, (0,)) * lax.reduce(x, -jnp.inf, lax.max, (0,)), X),
    row("lax.reduce(own)", lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + 0.0, (0,)), X, orders=0, opaque=1),
    row("lax.reduce_and", lambda x: lax.reduce_and(x > -3, (0,)) * x[0] + lax.reduce_xor((x > 0), (0,)) * x[0]
        + lax.reduce_or(jnp.asarray(X > 0, int), (0,)) * x[0], X),
    row("lax.argmax", lambda x: lax.argmax(x, 1, int) * x[:, 0], X),
    row("lax.associative_scan", lambda x: lax.associative_scan(lambda a, b: a * b + b, x, axis=1), X),
    row("jnp.linalg.norm", lambda x: jnp.linalg.norm(x) * jnp.linalg.norm(x, axis=1) + jnp.linalg.norm(x, 1)
        + jnp.linalg.norm(x[0], np.inf), X),
    row("jnp.apply_along_axis", lambda x: jnp.apply_along_axis(lambda r: r.sum() * r, 1, x), X),
    row("jnp.apply_over_axes", lambda x: jnp.apply_over_axes(jnp.sum, x**2, [0]), X),
    row("jnp.convolve", lambda x: jnp.convolve(x, VECTOR, mode="same") * jnp.correlate(x, VECTOR, mode="same"), VECTOR),
    row("jnp.geomspace", lambda x: jnp.geomspace(x[0], 2 * x[1], 5), POSITIVE[0]),
    row("jnp.linspace", lambda x: jnp.linspace(x[0], x[1], 5) * jnp.logspace(0, 1, 5), X[0]),
]  # fmt: skip
