"""Samples of the family `slicing`."""

import jax.numpy as jnp

from . import Sample, real, sample, whole

SAMPLES: list[Sample] = [
    sample("slice", real(3, 4), ref=lambda x: x[1:3, 0:4:2], start=(1, 0), stop=(3, 4), step=(1, 2)),
    sample("slice", real(3, 4), ref=lambda x: x[:, 1:-1], start=1, stop=-1),
    sample("slice", real(3, 4), ref=lambda x: x[::-1, 3:0:-2], start=(None, 3), stop=(None, 0), step=(-1, -2)),
    sample("slice", real(3, 4), ref=lambda x: x),
    sample("slice", real(3, 4), ref=lambda x: x[:, 2:2], start=(0, 2), stop=(3, 2), note="empty"),
    sample("take_slices", real(3, 4), ref=lambda x: x[1, None, 3:0:-2], key=(1, None, (3, 2, -2))),
    sample("put_slices", real(1, 2), ref=lambda y: jnp.zeros((3, 4)).at[1, 3:0:-2].set(y[0]),
           key=(1, None, (3, 2, -2)), shape=(3, 4)),
    sample("take_points", real(3, 4), whole([0, 1], [2, -1], [0, 1]), ref=lambda x, i: x[i[:, 0], i[:, 1]],
           axes=(0, 1)),
    sample("take_points", real(2, 3, 4), whole([1], [0], [1]), ref=lambda x, i: x[:, i[:, 0]], axes=(1,), at=1),
    sample("take_points", real(2, 3, 4), whole([[3, 0], [1, 1]]), ref=lambda x, i: x[i[..., 1], :, i[..., 0]],
           axes=(2, 0)),
    sample("take_points", real(2, 3, 4), whole([[3], [-1]], [[1], [0]], [[2], [2]]), axes=(2,), rows=((1, 0),), at=1,
           ref=lambda x, i: jnp.stack([x[:, r, i[r, :, 0]] for r in range(3)], 1), note="in their rows"),
    sample("take_points", real(2), whole([1], [0], [-2], [2], [-3]), orders=0, axes=(0,), outside=float("nan"),
           ref=lambda x, _: jnp.stack([x[1], x[0], x[0], jnp.nan, jnp.nan])),
    sample("put_points", real(3), whole([0, 1], [2, -1], [0, 1]), axes=(0, 1), shape=(3, 4),
           ref=lambda y, i: jnp.zeros((3, 4)).at[i[:, 0], i[:, 1]].add(y)),
    sample("put_points", real(2, 3, 4), whole([1], [0], [1]), axes=(1,), shape=(2, 2, 4), at=1,
           ref=lambda y, i: jnp.zeros((2, 2, 4)).at[:, i[:, 0]].add(y)),
    sample("put_points", real(3, 2, 2), whole([[3], [-1]], [[1], [1]], [[2], [5]]), axes=(1,), rows=((0, 0),),
           shape=(3, 4, 2), note="in their rows",
           ref=lambda y, i: jnp.stack([jnp.zeros((4, 2)).at[i[r, :, 0]].add(y[r]) for r in range(3)])),
    sample("put_points", real(4), whole([1], [2], [-3], [0]), axes=(0,), shape=(2,), note="outside",
           ref=lambda y, _: jnp.stack([y[3], y[0]])),
]
