"""Samples of the family `array`."""

import jax.numpy as jnp

from . import Sample, integers, real, sample, whole

SAMPLES: list[Sample] = [
    sample("constant", ref=lambda: jnp.full((2, 3), 1.5, jnp.float32), orders=0, val=1.5, shape=(2, 3)),
    sample("zeros_like", real(2, 3), ref=jnp.zeros_like, orders=0),
    sample("ones_like", real(2, 3), ref=jnp.ones_like, orders=0),
    sample("eye_like", real(2, 3), ref=lambda _: jnp.eye(2, 3, 1), k=1, orders=0),
    sample("eye", ref=lambda: jnp.eye(2, 3, 1), n=2, m=3, k=1, orders=0),
    sample("eye", ref=lambda: jnp.eye(2, dtype=jnp.int32), n=2, dtype="int32", orders=0),
    sample("arange", ref=lambda: jnp.arange(1, 4, 0.5, jnp.float32), orders=0, start=1, stop=4, step=0.5),
    sample("arange", ref=lambda: jnp.arange(3, -3, -2, jnp.float32), orders=0, start=3, stop=-3, step=-2),
    sample("arange", ref=lambda: jnp.zeros(0, jnp.float32), orders=0, start=3, stop=3),
    sample("arange", ref=lambda: jnp.arange(5, -5, -3, jnp.int32), orders=0, start=5, stop=-5, step=-3, dtype="int32"),
    sample("arange", ref=lambda: jnp.arange(5, 1, -3, jnp.uint8), orders=0, start=5, stop=1, step=-3, dtype="uint8"),
    sample("arange", ref=lambda: jnp.arange(-300, 300, 0.5, dtype=jnp.float32).astype(jnp.bfloat16), orders=0,
           start=-300, stop=300, step=0.5, dtype="bfloat16"),
    sample("linspace", ref=lambda: jnp.int32([-3, -2, 0, 2, 4]), orders=0, start=-3, stop=4, num=5, dtype="int32"),
    sample("linspace", ref=lambda: jnp.linspace(-1, 2, 5, dtype=jnp.float16), orders=0, start=-1, stop=2, num=5,
           dtype="float16"),
    sample("linspace", ref=lambda: jnp.linspace(-1, 2, 5, dtype=jnp.float32), orders=0, start=-1, stop=2, num=5),
    sample("linspace", ref=lambda: jnp.full(1, 2.0, jnp.float32), orders=0, start=2, stop=5, num=1),
    sample("one_hot", whole([0], [2], [-1], [3], [-4]), orders=0, shape=(3,),
           ref=lambda _: jnp.array([[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]], jnp.float32)),
    sample("one_hot", whole([[0, 1], [1, -1]]), orders=0, shape=(2, 3),
           ref=lambda _: jnp.zeros((1, 2, 2, 3), jnp.float32).at[0, 0, 0, 1].set(1).at[0, 1, 1, 2].set(1)),
    sample("meshgrid", real(2), real(3), ref=lambda *x: tuple(jnp.meshgrid(*x))),
    sample("meshgrid", real(2), real(3), real(1), ref=lambda *x: tuple(jnp.meshgrid(*x, indexing="ij")),
           ij_indexing=True),
    sample("meshgrid", real(2), real(3), real(1), ref=lambda *x: tuple(jnp.meshgrid(*x)), note="three"),
    sample("shape", real(2, 3, 4), ref=lambda _: jnp.array([2, 3, 4], jnp.int32), orders=0),
    sample("shape", real(2, 3, 4), ref=lambda _: jnp.array([3], jnp.int32), start=1, end=-1, orders=0),
    sample("cast", real(2, 3), ref=lambda x: x, dtype="float64", note="same"),
    sample("cast", integers(0, 9, 3), ref=lambda x: x.astype(jnp.float64), dtype="float64", orders=0),
    sample("matrix_diag", real(2, 3), ref=lambda x: x[:, :, None] * jnp.eye(3)),
    sample("matrix_diag_part", real(2, 3, 3), ref=lambda x: jnp.diagonal(x, axis1=1, axis2=2)),
    sample("trilu", real(2, 3, 3), ref=jnp.triu),
    sample("trilu", real(2, 3), ref=lambda x: jnp.triu(x, 1), k=1),
    sample("trilu", real(3, 2), ref=lambda x: jnp.tril(x, -1), k=-1, upper=False),
]
