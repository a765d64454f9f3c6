"""Collectives within what the drop-in transformations are given, over axes that jax.vmap or jax.shard_map names
around."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad.jax as nj
from tests.oracle import compiled_cheaply

RNG = np.random.default_rng(16)
POINTS = RNG.standard_normal((3, 2))
GRID = RNG.standard_normal((2, 3, 2))


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def same(ours: Any, theirs: Any) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


COLLECTIVES: dict[str, Callable[[Any], Any]] = {
    "psum": lambda x: jnp.sum(jnp.sin(x) * lax.psum(x, "i")),
    "pmean": lambda x: jnp.sum(jnp.sin(x) * lax.pmean(x**2, "i")),
    "pmax": lambda x: jnp.sum(jnp.sin(x) * lax.pmax(lax.stop_gradient(x), "i")),
    "all_gather": lambda x: jnp.sum(jnp.sin(x) * lax.all_gather(x**2, "i")),
    "ppermute": lambda x: jnp.sum(jnp.sin(x) * lax.ppermute(x**2, "i", [(0, 1), (1, 2), (2, 0)])),
    "axis_index": lambda x: jnp.sum(jnp.sin(x) * (1 + lax.axis_index("i"))),
    "axis_size": lambda x: jnp.sum(jnp.sin(x) * lax.psum(1, "i")),
    "of the result": lambda x: jnp.sum(lax.psum(x**3, "i")),
}
WITHIN: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "grad": lambda m, f: m.grad(f),
    "hessian": lambda m, f: m.hessian(f),
    "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (jnp.cos(x),)),
    "vjp": lambda m, f: lambda x: m.vjp(lambda x: x**2 * f(x), x)[1](x),
    "jax around": lambda m, f: jax.grad(lambda x: jnp.sum(m.grad(f)(x) ** 2)),
}


def mapped(module: Any, within: str) -> Callable[[Any], Any]:
    return lambda xs: [
        jax.vmap(WITHIN[within](module, f), axis_name="i")(xs) for f in COLLECTIVES.values()
    ]  # fmt: skip


@pytest.mark.parametrize("within", WITHIN)
def test_over_an_axis_of_vmap(within: str) -> None:
    same(compiled_cheaply(mapped(nj, within))(POINTS), compiled_cheaply(mapped(jax, within))(POINTS))


def over_two(x: Any) -> Any:
    return jnp.sum(jnp.sin(x) * lax.psum(x**2, "i") * lax.pmean(x, "j")) + jnp.sum(lax.psum(x**2, ("i", "j")))


AROUND: dict[str, Callable[[Any], Any]] = {
    "two axes, second order": lambda m: jax.vmap(jax.vmap(m.hessian(over_two), 1, axis_name="j"), 1, axis_name="i")(
        GRID),
    "nothing mapped": lambda m: jax.vmap(m.grad(COLLECTIVES["psum"]), None, axis_name="i", axis_size=4)(POINTS[0]),
    "sizes": lambda m: [jax.vmap(m.grad(COLLECTIVES["axis_size"]), axis_name="i")(xs) for xs in (POINTS, POINTS[:2])],
    "closed over": lambda m: jax.grad(lambda w: jnp.sum(jax.vmap(
        lambda x: m.grad(lambda y: COLLECTIVES["psum"](y * w))(x), axis_name="i")(POINTS) ** 2))(2.0),
    "in a loop": lambda m: jax.vmap(lambda x: lax.scan(
        lambda c, t: (c + m.grad(COLLECTIVES["psum"])(c * t), None), x, jnp.arange(3.0))[0], axis_name="i")(POINTS),
}  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
def test_as_it_is_called(around: str) -> None:
    same(compiled_cheaply(lambda: AROUND[around](nj))(), compiled_cheaply(lambda: AROUND[around](jax))())


def test_what_jax_lacks_is_refused() -> None:
    f = COLLECTIVES["psum"]
    with pytest.raises(NotImplementedError, match=r"with collectives .* are left to JAX"):
        jax.vmap(nj.laplacian(f), axis_name="i")(POINTS)
    with pytest.raises(NameError, match="unbound axis name: i"):
        jax.vmap(nj.grad(f))(POINTS)


DEVICES = textwrap.dedent("""
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import AxisType, PartitionSpec as P
    from jax import lax
    jax.config.update("jax_enable_x64", True)
    import nngrad.jax as nj

    X = np.random.default_rng(0).normal(size=(4, 3))
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))

    def f(x):
        others = lax.psum(x, "d") + lax.all_gather(x**2, "d").sum(0) * lax.ppermute(x, "d", [(0, 1), (1, 0)])
        return jnp.sum(jnp.sin(x) * others * (1 + lax.axis_index("d")))

    def run(m):
        def each(x):
            g = m.grad(f)(x)
            return g, m.grad(lambda x: jnp.sum(m.grad(f)(x) * jnp.cos(x)))(x), m.value_and_grad(f)(x)[1]

        parts = jax.shard_map(each, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
        return jax.jit(parts)(X)

    for a, b in zip(run(nj), run(jax), strict=True):
        assert len(a.devices()) == 2
        np.testing.assert_allclose(a, b, rtol=1e-10)
    checked = [jax.shard_map(m.grad(f), mesh=mesh, in_specs=P("d"), out_specs=P("d"))(X) for m in (nj, jax)]
    np.testing.assert_allclose(*checked, rtol=1e-10)

    # By an argument that is equal on all devices: JAX sums the gradient over them where it keeps account of that.
    def scaled(w, x):
        return jnp.sum(jnp.tanh(x * w) ** 2)

    def by_w(m, **options):
        each = lambda w, x: lax.psum(jax.vmap(lambda x: m.grad(scaled)(w, x))(x).sum() + m.grad(scaled)(w, x), "d")
        return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=(P(), P("d")), out_specs=P(), **options))(2.0, X)

    for options in ({}, {"check_vma": False}):
        np.testing.assert_allclose(by_w(nj, **options), by_w(jax, **options), rtol=1e-10)

    # Devices within
    gathered = jax.shard_map(lambda x: jnp.sin(lax.all_gather(x, "d", tiled=True)), mesh=mesh, in_specs=P("d"),
                             out_specs=P(), check_vma=False)

    def within(x):
        return jnp.sum(gathered(x) ** 3)

    for build in (
        lambda m: m.grad(within),
        lambda m: m.grad(lambda x: jnp.sum(m.grad(within)(x) ** 2)),
        lambda m: jax.grad(lambda x: jnp.sum(m.grad(within)(x) ** 2)),
        lambda m: lambda x: m.jvp(within, (x,), (x,))[1],
        lambda m: lambda x: m.vjp(gathered, x)[1](jnp.cos(x))[0],
    ):
        expected = build(jax)(X)
        for around in (lambda g: g, jax.jit):
            np.testing.assert_allclose(around(build(nj))(X), expected, rtol=1e-10, atol=1e-12)
    try:
        jax.jit(nj.laplacian(within))(X)
    except NotImplementedError as error:
        assert "jax.shard_map over several devices" in str(error), error
    else:
        raise AssertionError("a graph hides from JAX what is for several devices")
""")


@pytest.mark.slow
def test_over_an_axis_of_devices() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", DEVICES], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
