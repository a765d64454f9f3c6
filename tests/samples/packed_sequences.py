"""Samples of packed sequences."""

import jax.numpy as jnp

from . import real, sample, whole


def packed(x, lengths):
    sizes = [sum(int(n) > t for n in lengths) for t in range(max(lengths))]
    return jnp.concatenate([x[t, :n] for t, n in enumerate(sizes)]), jnp.asarray(sizes, jnp.int32)


def padded(y, sizes, value=0.0, total=None):
    rows, first = [], 0
    for n in sizes:
        missing = jnp.full((sizes[0] - n, *y.shape[1:]), value, y.dtype)
        rows.append(jnp.concatenate([y[first : first + n], missing]))
        first += n
    rows += [jnp.full((sizes[0], *y.shape[1:]), value, y.dtype)] * ((total or len(sizes)) - len(sizes))
    return jnp.stack(rows), jnp.asarray([sum(n > b for n in sizes) for b in range(sizes[0])], jnp.int32)


def swapped(first, rest):
    return first.swapaxes(0, 1), rest


SAMPLES = [
    sample("pack_padded_sequence", real(3, 2, 2), whole(3, 1), ref=lambda x, n: packed(x, (3, 1))),
    sample("pack_padded_sequence", real(3, 4), whole(3, 2, 2), batch_first=True,
           ref=lambda x, n: packed(x.T, (3, 2, 2))),
    sample("pad_packed_sequence", real(4, 2), whole(2, 1, 1), ref=lambda y, n: padded(y, (2, 1, 1))),
    sample("pad_packed_sequence", real(4), whole(3, 1), batch_first=True, padding_value=2.5, total_length=4,
           ref=lambda y, n: swapped(*padded(y, (3, 1), 2.5, 4))),
]
