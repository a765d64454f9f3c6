"""Samples of the family `indexing`."""

import jax.numpy as jnp

from . import Sample, fixed, integers, real, sample, whole


def batched_take(x, i):
    """`x[b, :, i[b]]` with the picked axis last."""
    return jnp.stack([a[:, j] for a, j in zip(x, i, strict=True)])


def top(x, k, score=lambda x: x):
    """The k elements of each row with the highest score, and their indices."""
    index = jnp.argsort(-score(x), axis=1)[:, :k]
    return jnp.take_along_axis(x, index, 1), index


def only_top(x, k):
    """`x` with 0 at all but the k largest elements of each row."""
    return jnp.where(x >= jnp.sort(x, 1)[:, -k, None], x, 0)


SAMPLES: list[Sample] = [
    sample("where", fixed([1.0, 0.0, 2.0], [0.0, 0.0, -1.0]), real(2, 3), real(2, 3), ref=lambda c, a, b:
           jnp.where(c != 0, a, b), numeric=False),
    sample("where", whole(1, 0), real(2, 3), real(3), ref=lambda c, a, b: jnp.where(c[:, None] != 0, a, b),
           note="leading"),
    sample("where", whole(1, 0, 1), real(2, 1), real(), ref=lambda c, a, b: jnp.where(c != 0, a, b),
           note="broadcast"),
    sample("extreme_points", fixed([0.5, 2.0], [1.0, -1.0], [3.0, 0.0]), fixed([1.0, 1.0], [2.0, 9.0], [3.0, 5.0]),
           whole([0], [3], [-1]), axes=(0,), numeric=False,  # 3 is there twice, which share its gradient
           ref=lambda x, y, at: x.at[jnp.array([0, 2])].max(y[jnp.array([0, 2])])),
    sample("extreme_points", fixed([0.5, 2.0], [1.0, -1.0], [3.0, 0.0]), fixed([1.0, 1.0], [2.0, 9.0], [2.5, -5.0]),
           whole([0], [3], [-1]), axes=(0,), largest=False,
           ref=lambda x, y, at: x.at[jnp.array([0, 2])].min(y[jnp.array([0, 2])])),
    sample("latest_points", whole([0], [1], [-3], [3], [1]), orders=0, shape=(3,),
           ref=lambda _: jnp.array([False, False, True, False, True])),
    sample("gather", real(3, 4), whole([0, 2], [-1, 0]), ref=lambda x, i: x[i]),
    sample("gather", real(2, 3, 4), whole(1, 3, 1), ref=lambda x, i: x[:, :, i], axis=-1),
    sample("gather", real(2, 3, 4), whole([0, 1], [2, 2]), ref=lambda x, i: x[:, i], axis=1),
    sample("gather", real(3), whole(1), ref=lambda x, i: x[i[0]][None], note="one"),
    sample("gather", real(2, 3), whole([0, 2, 0, 1], [1, 1, 0, 2]), batch_dims=1,
           ref=lambda x, i: jnp.take_along_axis(x, i, 1)),
    sample("gather", real(2, 3, 4), whole([0, 3], [2, 2]), axis=2, batch_dims=1, ref=batched_take),
    sample("gather_nd", real(3, 4), whole([0, 2, 0], [1, -1, 1]), ref=lambda x, i: x[i[0], i[1]]),
    sample("gather_nd", real(3, 4), whole([[0, 2], [1, 0]]), ref=lambda x, i: x[i[0]], note="rows"),
    sample("scatter_nd", real(3), whole([0, 2, 0], [1, 3, 2]), shape=(3, 4),
           ref=lambda d, i: jnp.zeros((3, 4)).at[i[0], i[1]].set(d)),
    sample("scatter_nd", real(3, 2), whole([0, 2, 0]), shape=(3, 2), note="twice",
           ref=lambda d, _: jnp.stack([d[2], 0 * d[0], d[1]])),
    sample("scatter_nd", real(3, 2), whole([0, 2, 0]), shape=(3, 2), add=True,
           ref=lambda d, i: jnp.zeros((3, 2)).at[i[0]].add(d)),
    sample("scatter_add", real(3, 2), whole([0, 1], [0, 0]), real(2, 2),
           ref=lambda x, i, y: x.at[i, jnp.arange(2)[None]].add(y)),
    sample("scatter_add", real(2, 3), whole([2, 0, 0, 1]), real(2, 5), axis=-1,
           ref=lambda x, i, y: x.at[0, i[0]].add(y[0, :4])),
    sample("take_along_axis", real(2, 3), whole([2, 0], [-1, -1]), ref=lambda x, i: jnp.take_along_axis(x, i, 1)),
    sample("take_along_axis", real(3, 1), whole([2, 0], [1, 1]), axis=0,
           ref=lambda x, i: jnp.take_along_axis(jnp.tile(x, (1, 2)), i, 0)),
    sample("sort", real(2, 4), ref=lambda x: jnp.sort(x, -1)),
    sample("sort", real(4, 2), ref=lambda x: jnp.sort(x, 0)[::-1], axis=0, reverse=True),
    sample("sort", real(2, 4), ref=lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)), axis=1, with_index=True),
    sample("sort", integers(0, 3, 2, 4), ref=lambda x: jnp.argsort(-x, 1), reverse=True, only_index=True, orders=0),
    sample("sort_values", real(4), ref=jnp.sort),
    sample("sort_values", real(3, 2), ref=lambda x: -jnp.sort(-x, 0), axis=0, reverse=True),
    sample("argsort", real(3, 2), ref=lambda x: jnp.argsort(-x, 0), axis=0, reverse=True, orders=0),
    sample("argsort", real(2, 4), ref=lambda x: jnp.argsort(x, 0), axis=-2, orders=0),
    sample("top_k_data", real(2, 5), ref=lambda x: top(x, 3)[0], k=3),
    sample("top_k_data", real(2, 5), ref=lambda x: top(x, 2, jnp.abs), k=2, abs=True, with_index=True),
    sample("top_k_data", real(2, 5), ref=lambda x: top(x, 2, jnp.negative)[0], k=2, largest=False),
    sample("top_k_data", real(2, 5), ref=lambda x: only_top(x, 2), k=2, reduce=False),
    sample("top_k_data", real(2, 3), ref=lambda x: top(x.reshape(1, 6), 4)[0][0], k=4, base_axis=0),
]
