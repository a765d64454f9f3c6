"""What moves elements and computes nothing."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from .rows import VECTOR, X, Y, row, rows_of

ROWS = [
    *rows_of(jnp, "jnp.", "array asarray atleast_1d atleast_2d atleast_3d copy diagflat diagonal diag fliplr flipud "
             "flip matrix_transpose ones_like ravel rot90 squeeze trace transpose tril triu "
             "unstack zeros_like", X),
    *rows_of(jnp, "jnp.", "append broadcast_arrays", X, Y),
    row("jnp.stacks", lambda x, y: jnp.column_stack((x, y)).sum(1)
        * jnp.hstack((x, y))[:, 0] * jnp.vstack((x, y))[:3, 0]
        + jnp.dstack((x, y))[:, 0, 1], X, Y),
    row("jnp.concatenate", lambda x, y: jnp.concatenate([x, y**2], axis=1) ** 2, X, Y),
    row("jnp.stack", lambda x, y: jnp.stack([x, y**2], axis=1) ** 2, X, Y),
    row("jnp.block", lambda x, y: jnp.block([[x, y], [y, x]]) ** 2, X, Y),
    row("jnp.broadcast_to", lambda x: jnp.broadcast_to(x[0], (2, 4)) * jnp.broadcast_to(x[:, :1], (3, 2))[:2, :1], X),
    row("jnp.split", lambda x: [y**2 for y in jnp.split(x, 2, axis=1)], X),
    row("jnp.array_split", lambda x: [y**2 for y in jnp.array_split(x, 3, axis=1)] + jnp.hsplit(x, 2)
        + jnp.vsplit(x, 3), X),
    row("jnp.expand_dims", lambda x: jnp.expand_dims(x, (0, 2)) ** 2, X),
    row("jnp.moveaxis", lambda x: jnp.moveaxis(x[None], 0, 2) ** 2 * jnp.rollaxis(x, 1)[0, 0], X),
    row("jnp.swapaxes", lambda x: jnp.swapaxes(x, 0, 1) ** 2 * jnp.permute_dims(x, (1, 0)), X),
    row("jnp.reshape", lambda x: jnp.reshape(x, (2, -1), order="F") ** 2 * jnp.resize(x, (2, 6)), X),
    row("jnp.repeat", lambda x: jnp.repeat(x, np.array([1, 0, 2]), axis=0) ** 2, X),
    row("jnp.tile", lambda x: jnp.tile(x, (2, 1, 2)) ** 2, X),
    row("jnp.roll", lambda x: jnp.roll(x, (1, -1), axis=(0, 1)) * x, X),
    row("jnp.roll(traced)", lambda x: jnp.roll(x, jnp.argmax(x[0]), axis=1) * x, X),
    *[row(f"jnp.pad({mode})", lambda x, mode=mode: jnp.pad(x, ((1, 2), (0, 3)), mode=mode) ** 2, X)
      for mode in ("constant", "edge", "reflect", "symmetric", "wrap", "mean", "maximum", "linear_ramp")],
    row("jnp.tri", lambda x: x[:, :3] * jnp.tri(3) * jnp.eye(3) + jnp.identity(3), X),
    row("jnp.indices", lambda x: x[:2, :2] * jnp.indices((2, 2))[0] * jnp.fromfunction(jnp.add, (2, 2)), X),
    row("jnp.meshgrid", lambda x: jnp.meshgrid(x[0], x[1])[0] * jnp.ix_(x[0], x[1])[1], X),
    row("jnp.arange", lambda x: x * jnp.arange(4) * jnp.arange(4.0), X),
    row("jnp.vander", lambda x: jnp.vander(x, 3), VECTOR),
    row("jnp.triu_indices", lambda x: x[jnp.triu_indices(3)] ** 2, X),
    row("jnp.vectorize", lambda x: jnp.vectorize(lambda r: jnp.sin(r) * r.sum(), signature="(n)->(n)")(x), X),
    row("jnp.windows", lambda x: x * (jnp.hanning(4) + jnp.hamming(4) + jnp.blackman(4) + jnp.bartlett(4)
                                      + jnp.kaiser(4, 3)), X),
    row("lax.broadcast", lambda x: lax.broadcast(x, (2,)) ** 2, X),
    row("lax.broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)) ** 2, X),
    row("lax.collapse", lambda x: lax.collapse(x, 0, 2) ** 2, X),
    row("lax.pad", lambda x: lax.pad(x, x[0, 0], [(1, -1, 1), (-1, 2, 0)]) ** 2, X, opaque=1),
    row("lax.rev", lambda x: lax.rev(x, (0, 1)) * x, X),
    row("lax.split", lambda x: [y**2 for y in lax.split(x, (1, 3), axis=1)], X),
    row("lax.tile", lambda x: lax.tile(x, (2, 1)) ** 2 * lax.squeeze(lax.expand_dims(x, (1,)), (1,))[0], X),
    row("lax.iota", lambda x: x * lax.iota(float, 4) * lax.broadcasted_iota(int, (3, 4), 0), X),
    row("lax.optimization_barrier", lambda x: lax.optimization_barrier(x) ** 2, X),
]  # fmt: skip
