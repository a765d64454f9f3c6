"""The drop-in transformations of nngrad.jax against JAX's own: values, pytrees, JAX around them, and composition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.jax as nj
from nngrad.extend import Variable, functions_of
from tests.slow import slow_but_every

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.standard_normal(s) * 0.4 for s in ((2, 8), (8, 8), (8, 1))]
PARAMS = {"w": WEIGHTS, "b": np.ones(())}
POINT, POINTS = RNG.standard_normal(2), RNG.standard_normal((3, 2))


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def network(params: Any, x: Any) -> Any:
    h = x
    for w in params["w"][:-1]:
        h = jnp.tanh(h @ w)
    return (h @ params["w"][-1])[0] + params["b"]


def field(x: Any) -> Any:
    return jnp.sin(x) * x[::-1]


def curve(t: Any) -> Any:
    return jnp.tanh(jnp.stack([t, t**2]) @ WEIGHTS[0]) @ WEIGHTS[1] @ WEIGHTS[2][:, 0]


def quadratic(tree: Any) -> Any:
    return jnp.sum(jnp.sin(tree["a"]) ** 2) * tree["b"] ** 2


def with_auxiliary(x: Any) -> Any:
    return jnp.sum(x**2), {"twice": x * 2, "count": jnp.int32(3)}


def trace_of_hessian(params: Any, x: Any) -> Any:
    return jnp.trace(jax.hessian(network, 1)(params, x))


def same(ours: Any, theirs: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (jnp.shape(a), jnp.result_type(a)) == (jnp.shape(b), jnp.result_type(b))
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


TRANSFORMATIONS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "grad": lambda: (nj.grad(network)(PARAMS, POINT), jax.grad(network)(PARAMS, POINT)),
    "grad by several": lambda: (nj.grad(network, (1, 0))(PARAMS, POINT), jax.grad(network, (1, 0))(PARAMS, POINT)),
    "grad with auxiliary": lambda: (nj.grad(with_auxiliary, has_aux=True)(POINT),
                                    jax.grad(with_auxiliary, has_aux=True)(POINT)),
    "value_and_grad": lambda: (nj.value_and_grad(with_auxiliary, has_aux=True)(POINT),
                               jax.value_and_grad(with_auxiliary, has_aux=True)(POINT)),
    "hessian": lambda: (nj.hessian(quadratic)({"a": POINT, "b": 2.0}), jax.hessian(quadratic)({"a": POINT, "b": 2.0})),
    "jacobian": lambda: (nj.jacobian(field)(POINT), jax.jacrev(field)(POINT)),
    "jacobian by several": lambda: (nj.jacobian(lambda a, b: {"y": a * b}, (0, 1))(POINT, POINT),
                                    jax.jacfwd(lambda a, b: {"y": a * b}, (0, 1))(POINT, POINT)),
    "jvp": lambda: (nj.jvp(network, (PARAMS, POINT), (PARAMS, POINT)),
                    jax.jvp(network, (PARAMS, POINT), (PARAMS, POINT))),
    "vjp": lambda: (nj.vjp(network, PARAMS, POINT)[1](2.0), jax.vjp(network, PARAMS, POINT)[1](2.0)),
    "linearize": lambda: (nj.linearize(network, PARAMS, POINT)[1](PARAMS, POINT),
                          jax.linearize(network, PARAMS, POINT)[1](PARAMS, POINT)),
    "linearize with auxiliary": lambda: (nj.linearize(with_auxiliary, POINT, has_aux=True)[::2],
                                         jax.linearize(with_auxiliary, POINT, has_aux=True)[::2]),
    "hvp": lambda: (nj.hvp(functools.partial(network, PARAMS), (POINT,), (POINTS[0],)),
                    jax.jvp(jax.grad(functools.partial(network, PARAMS)), (POINT,), (POINTS[0],))[1:]),
    "laplacian": lambda: (nj.laplacian(network, 1)(PARAMS, POINT), trace_of_hessian(PARAMS, POINT)),
    "bilaplacian": lambda: (nj.bilaplacian(lambda x: jnp.sin(x[0]) * jnp.cos(2 * x[1]))(POINT),
                            25 * jnp.sin(POINT[0]) * jnp.cos(2 * POINT[1])),
    "divergence": lambda: (nj.divergence(field)(POINT), jnp.trace(jax.jacfwd(field)(POINT))),
    "nth_derivative": lambda: (nj.nth_derivative(curve, 3)(0.3), jax.grad(jax.grad(jax.grad(curve)))(0.3)),
    "derivatives": lambda: (nj.derivatives(lambda x, t: jnp.sin(x * t) * x, [(0, 0), (1,)])(0.3, 0.7),
                            [jax.grad(jax.grad(lambda x, t: jnp.sin(x * t) * x))(0.3, 0.7),
                             jax.grad(lambda x, t: jnp.sin(x * t) * x, 1)(0.3, 0.7)]),
    "nested": lambda: (nj.grad(nj.grad(nj.grad(curve)))(0.3), jax.grad(jax.grad(jax.grad(curve)))(0.3)),
    "nested in functions": lambda: (nj.grad(lambda a: nj.grad(lambda b: 2 * nj.grad(curve)(b))(a) ** 2)(0.3),
                                    jax.grad(lambda a: jax.grad(lambda b: 2 * jax.grad(curve)(b))(a) ** 2)(0.3)),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but_every(2, TRANSFORMATIONS))
def test_it_is_what_jax_gives(name: str) -> None:
    same(*TRANSFORMATIONS[name]())


def test_shard_map() -> None:
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("data",))
    spec = jax.sharding.PartitionSpec("data")

    def run(grad: Any) -> Any:
        each = jax.vmap(grad(lambda x: jnp.sum(jnp.sin(x) ** 2)))
        return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=spec, out_specs=spec))(POINTS)

    same(run(nj.grad), run(jax.grad))


def test_it_composes_on_the_graph() -> None:
    def wide_network(t: Any) -> Any:
        h = t
        for w in (np.ones((1, 8)), WEIGHTS[1], WEIGHTS[1], np.ones((8, 1))):
            h = jnp.tanh(h @ w)
        return h

    x = Variable.from_numpy_array(POINTS[:, :1], need_grad=True)
    f: Any = wide_network
    for n in range(1, 5):
        f = functools.partial(lambda f, t: nj.nth_derivative(f, 1)(t), f)
        y = nn.from_jax(f)(x)
        assert sum([g.op.heavy for g in functions_of([y])]) == 3 * n + 5  # as with nn.grad on one graph


def test_random_keys_go_in() -> None:
    def noisy(x: Any, key: Any) -> Any:
        return jnp.sum(x**2 * jax.random.normal(key, x.shape))

    key = jax.random.key(1)
    same(nj.grad(noisy)(POINT, key), jax.grad(noisy)(POINT, key))
    keys = jax.random.split(key, 3)
    same(jax.vmap(nj.grad(noisy), (None, 0))(POINT, keys), jax.vmap(jax.grad(noisy), (None, 0))(POINT, keys))


def test_derivatives_of_integers_among_the_arguments() -> None:
    def function(x: Any, n: Any) -> Any:
        return jnp.sum(x**2) * n

    ours = jax.grad(lambda x: nj.grad(function)(x, 3).sum())(POINT)
    same(ours, jax.grad(lambda x: jax.grad(function)(x, 3).sum())(POINT))


def test_whole_numbers_have_gradients_without_numbers() -> None:
    def function(tree: Any, mask: Any) -> Any:
        return jnp.sum(tree["x"] ** tree["n"] * mask)

    arguments = {"x": POINT, "n": np.array([2, 3])}, np.array([True, False])
    for ours, theirs in (
        (nj.grad(function, (0, 1), allow_int=True)(*arguments), jax.grad(function, (0, 1), allow_int=True)(*arguments)),
        (nj.value_and_grad(function, allow_int=True)(*arguments)[1], jax.grad(function, allow_int=True)(*arguments)),
    ):
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(jax.tree.leaves(ours)[1], jax.tree.leaves(theirs)[1], rtol=1e-12)

    def slope(x: Any) -> Any:
        return nj.grad(function, allow_int=True)({"x": x, "n": arguments[0]["n"]}, 1.0)["x"]

    np.testing.assert_allclose(nj.jacobian(slope)(POINT), np.diag([2, 6 * POINT[1]]), rtol=1e-12)


def test_an_if_on_values_is_left_to_jax_and_under_jit_says_what_there_is_instead() -> None:
    slope = nj.grad(lambda x: x if x > 0 else -x)
    assert (slope(0.3), slope(-0.3)) == (1, -1)
    ((reason, calls),) = slope.report().unopened.items()
    assert reason.startswith("TracerBoolConversionError") and calls == 2
    assert "left to JAX as a whole: 2 calls" in str(slope.report())
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        jax.jit(slope)(0.3)
    assert "lax.cond" in "".join(caught.value.__notes__)


@pytest.mark.slow
def test_systems_that_a_function_solves() -> None:
    matrix = np.array([[3.0, 0.5], [0.1, 2.0]])

    def solved(a: Any, b: Any) -> Any:
        y = jax.scipy.sparse.linalg.bicgstab(lambda v: {"v": a @ v["v"] * jnp.sum(a)}, {"v": b}, tol=1e-14)[0]["v"]
        return jnp.sum(jnp.sin(y))

    def runs(m: Any) -> Any:
        return (
            m.hessian(solved, (0, 1))(matrix, POINT),
            jax.vmap(m.grad(solved, (0, 1)), (None, 0))(matrix, POINTS),
            jax.grad(lambda a: jnp.sum(m.grad(solved, 1)(a, POINT) ** 2))(matrix),
        )

    for a, b in zip(jax.tree.leaves(runs(nj)), jax.tree.leaves(runs(jax)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)


def test_variables_stay_in_their_graph() -> None:
    x = Variable.from_numpy_array(POINT, need_grad=True)
    g = nj.grad(lambda x: jnp.sum(x**3))(x)
    assert isinstance(g, Variable)
    np.testing.assert_allclose(nn.grad(g, x, grad_outputs=np.ones(2))[0].d, 6 * POINT)
