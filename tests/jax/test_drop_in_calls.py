"""The drop-in transformations as they are called: JAX around them, what functions close over, devices, pickling,
threads, and what is kept and released."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.jax as nj
from nngrad.extend import Variable, functions_of
from tests.costs import compilations
from tests.oracle import compiled_cheaply
from tests.slow import slow_but_every

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.standard_normal(s) / 2 for s in ((3, 4), (4, 4), (4, 1))]
TWO_SETS = [np.stack([w, 2 * w]) for w in WEIGHTS]
POINTS = RNG.standard_normal((4, 3))


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def network(weights: Any, x: Any) -> Any:
    for w in weights[:-1]:
        x = jnp.tanh(x @ w)
    return (x @ weights[-1])[..., 0]


def theirs(weights: Any, x: Any) -> Any:
    return jnp.trace(jax.hessian(network, 1)(weights, x))


def same(ours: Any, expected: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert (jnp.shape(a), jnp.result_type(a)) == (jnp.shape(b), jnp.result_type(b))
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def loss(laplacian: Any) -> Any:
    return lambda weights: jnp.mean(jax.vmap(laplacian, (None, 0))(weights, POINTS) ** 2)


# Each takes the Laplacian of the network, and grad.
AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "another axis": lambda lap, _: jax.vmap(jax.jit(lap), (None, 1))(WEIGHTS, POINTS.T),
    "nested": lambda lap, _: jax.vmap(jax.vmap(lap, (None, 0)), (0, None))(TWO_SETS, POINTS),
    "a loss, remat": lambda lap, _: jax.grad(jax.checkpoint(loss(lap)))(WEIGHTS),
    "gradient below": lambda lap, _: jax.vmap(jax.grad(lap, 1), (None, 0))(WEIGHTS, POINTS),
    "a loss in scan": lambda lap, _: jax.jit(jax.grad(lambda w: lax.scan(lambda c, x: (c + lap(w, x) ** 2, None), 0.0,
                                                                        POINTS)[0]))(WEIGHTS),
    "branches": lambda lap, _: jax.vmap(lambda x: lax.cond(x[0] > 0, lambda x: lap(WEIGHTS, x), jnp.sum, x))(POINTS),
    "closing twice": lambda _, grad: jax.jit(lambda w: jax.vmap(grad(lambda x: jnp.sum(
        grad(lambda y: network(w, y * x[0]))(x) ** 2)))(POINTS))(WEIGHTS),
    "closing over sets": lambda _, grad: jax.vmap(lambda w: jax.vmap(grad(lambda x: network(w, x)))(POINTS))(TWO_SETS),
    "closing over keys": lambda _, grad: jax.vmap(lambda k: grad(lambda x: jnp.sum(
        x**2 * jax.random.normal(k, x.shape)))(POINTS[0]))(jax.random.split(jax.random.key(0), 2)),
    "closing over a carry": lambda _, grad: lax.scan(lambda c, x: (c + grad(lambda y: jnp.sum(jnp.sin(y * c)))(x), c),
                                                     POINTS[0], POINTS),
    "staged, then rows": lambda _, grad: jax.vmap(jax.jit(lambda w, x: grad(lambda y: network(w, y))(x)), (None, 0))(
        WEIGHTS, POINTS),
    "forward twice": lambda lap, _: jax.jvp(lambda x: jax.jvp(lambda y: lap(WEIGHTS, y), (x,), (x,))[1], (POINTS[0],),
                                            (POINTS[1],)),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but_every(3, AROUND))
def test_jax_works_on_it(name: str) -> None:
    ours, expected = [
        compiled_cheaply(lambda given=given: AROUND[name](*given))()
        for given in ((nj.laplacian(network, 1), nj.grad), (theirs, jax.grad))
    ]
    same(ours, expected)


def products(function: Callable[..., Any], *arrays: Any) -> int:
    return len(re.findall("stablehlo.dot_general", jax.jit(function).lower(*arrays).as_text()))


def of_graph(operator: Callable[..., Any], *arrays: Any) -> int:
    inputs = [Variable.from_numpy_array(a, need_grad=True) for a in arrays]
    return products(nn.to_jax(operator(nn.from_jax(functools.partial(network, WEIGHTS))(inputs[0]), *inputs), inputs),
                    *arrays)  # fmt: skip


def test_functions_of_one_point_take_the_products_of_functions_of_many() -> None:
    one = functools.partial(network, WEIGHTS)
    line = functools.partial(network, [WEIGHTS[0][:1], *WEIGHTS[1:]])
    times = POINTS[:, 0]
    for n in range(1, 7):
        expected = products(nj.nth_derivative(lambda t: line(t[:, None]), n), times)
        assert products(jax.vmap(nj.nth_derivative(lambda t: line(t[None]), n)), times) == expected
    vectors = POINTS[::-1].copy()
    assert products(jax.vmap(nj.laplacian(one)), POINTS) == of_graph(nn.laplacian, POINTS)
    assert products(jax.vmap(nj.hessian(one)), POINTS) == of_graph(nn.hessian, POINTS)
    assert products(jax.vmap(nj.jacobian(one)), POINTS) == of_graph(nn.jacobian, POINTS)
    along = jax.vmap(lambda x, v: nj.hvp(one, (x,), (v,)))
    assert products(along, POINTS, vectors) == of_graph(nn.hvp, POINTS, vectors)


def test_rows_compose_on_the_graph() -> None:
    """The derivative of what is mapped is that of a graph of all points, and does not start from compiled equations."""
    line = functools.partial(network, [WEIGHTS[0][:1], *WEIGHTS[1:]])
    f: Any = lambda t: line(t[None])  # noqa: E731
    x = Variable.from_numpy_array(POINTS[:, 0], need_grad=True)
    y = nn.from_jax(jax.vmap(f))(x)
    for n in range(1, 6):
        f = functools.partial(lambda f, t: nj.grad(f)(t), f)
        found = nn.from_jax(jax.vmap(f))(x)
        (y,) = nn.grad(y, x)
        assert heavy(found) == heavy(y) <= 2 * n + 3


def test_nested_transformations_take_the_products_of_one() -> None:
    def line(t: Any) -> Any:
        return network([WEIGHTS[0][:1], *WEIGHTS[1:]], t[None])

    def within(grad: Any, f: Any) -> Any:
        return lambda t: grad(jax.checkpoint(f) if grad is nj.grad else f)(t)

    f, at_once = line, []
    for n in range(1, 6):
        f = functools.partial(lambda f, t: nj.grad(f)(t), f)
        at_once.append(products(jax.vmap(nj.nth_derivative(line, n)), POINTS[:, 0]))
        assert products(jax.vmap(f), POINTS[:, 0]) == at_once[-1]
    assert at_once[-1] - at_once[-2] <= 2
    mixed, expected = line, line
    for grad in (nj.grad, jax.grad, nj.grad, nj.grad):
        mixed, expected = within(grad, mixed), within(jax.grad, expected)
    same(compiled_cheaply(jax.vmap(mixed))(POINTS[:, 0]), compiled_cheaply(jax.vmap(expected))(POINTS[:, 0]))


def heavy(y: Variable) -> int:
    return sum([g.op.heavy for g in functions_of([y])])


@pytest.mark.parametrize("second", [lambda x: x, jnp.sin, lambda x: lax.stop_gradient(x) ** 2])
def test_what_else_is_given_is_held_fixed(second: Callable[[Any], Any]) -> None:
    """Also where it depends on what a derivative is taken by, on one graph."""

    def outer(grad: Any) -> Any:
        return grad(lambda x: jnp.sum(grad(lambda a, b: jnp.sum(a**3 * b))(x, second(x)) * second(x)))

    def closing(grad: Any) -> Any:
        return grad(lambda x: jnp.sum(grad(lambda a: jnp.sum(a**3 * second(x)))(x) * x))

    for made in (outer, closing):
        same(made(nj.grad)(POINTS[0]), made(jax.grad)(POINTS[0]))
        same(jax.vmap(made(nj.grad))(POINTS), jax.vmap(made(jax.grad))(POINTS))
    x = Variable.from_numpy_array(POINTS[0], need_grad=True)
    ours = nj.grad(lambda a, b: jnp.sum(a**3 * b))(x, nn.from_jax(second)(x))
    np.testing.assert_allclose(ours.d, 3 * POINTS[0] ** 2 * second(POINTS[0]))


DEVICES = textwrap.dedent("""
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    import nngrad.jax as nj

    W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(4, 3)

    def network(w, x):
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    def theirs(w, x):
        return jnp.trace(jax.hessian(network, 1)(w, x))

    def run(laplacian):
        mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
        rows = NamedSharding(mesh, P("d"))
        each = jax.vmap(laplacian, (None, 0))
        divided = jax.jit(each, in_shardings=(None, rows), out_shardings=rows)(W, X)
        assert len(divided.devices()) == 2

        def loss(w, x):
            return jax.lax.pmean(jnp.mean(each(w, x) ** 2), "d")

        by_parts = jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("d")), out_specs=P())
        explicit = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))
        with jax.set_mesh(explicit):
            stated = jax.jit(each)(*[jax.device_put(a, NamedSharding(explicit, s)) for a, s in ((W, P()), (X, P("d")))])
        return [np.asarray(y) for y in (divided, jax.jit(jax.grad(by_parts))(W, X), stated)]

    for a, b in zip(run(nj.laplacian(network, 1)), run(theirs)):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
""")


@pytest.mark.slow
def test_arrays_that_are_divided_among_devices() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", DEVICES], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


# ---------------------------------------------------------------- what is transformed


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        return jnp.sum(jnp.sin(x * self.scale))

    def method(self, x: Any) -> Any:
        return 2 * self(x)


def square(x: Any) -> Any:
    return jnp.sum(x**2)


def choosing(x: Any, kind: Any, *, scale: Any = 1.0) -> Any:
    return jnp.sum(x**2 if kind == "square" else x) * scale


@nj.grad
def decorated(x: Any) -> Any:
    """Of a square."""
    return jnp.sum(x**2)


def test_it_can_be_pickled_and_copied() -> None:
    x = POINTS[0]
    model = Model(2.0)
    made: list[Any] = [
        nj.grad(square), nj.value_and_grad(square), nj.hessian(square), nj.jacobian(square, (0,)),
        nj.laplacian(square), nj.grad(model), nj.grad(model.method),
        nj.grad(functools.partial(choosing, kind="square")),
    ]  # fmt: skip
    for one in made:
        same(pickle.loads(pickle.dumps(one))(x), one(x))
    others = nj.bilaplacian(square), nj.divergence(square), nj.nth_derivative(square, 2), nj.derivatives(square, [[0]])
    for one in others:
        assert repr(pickle.loads(pickle.dumps(one))) == repr(one)
    same(copy.deepcopy(made[5])(x), copy.copy(made[5])(x))
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert (decorated.__name__, decorated.__doc__, repr(decorated)) == ("decorated", "Of a square.", "grad(decorated)")


def test_arguments_of_all_kinds() -> None:
    x = POINTS[0]
    same(nj.grad(choosing)(x, "square", scale=3.0), 6 * x)
    same(nj.grad(choosing)(x, None, scale=x[0]), np.full(3, x[0]))
    same(nj.grad(choosing)(x, Model, scale=2), np.full(3, 2.0))
    same(nj.grad(lambda a, b: jnp.sum(a * b**2), (-1, 0))(x, x), (2 * x * x, x**2))
    (_, n), (moved, none) = nj.jvp(lambda x, n: (x * n, n), (x, 3), (x, np.zeros((), jax.dtypes.float0)))
    same(moved, 3 * x)
    assert (n, none.dtype, none.shape) == (3, jax.dtypes.float0, ())
    same(nj.hessian(lambda x: (square(x), {"x": x}), has_aux=True)(x), (2 * np.eye(3), {"x": x}))


# ---------------------------------------------------------------- what is kept, and what is not


def test_a_function_is_traced_once_in_each_call() -> None:
    """Though there are derivatives of derivatives; and its graph is the one of before."""
    traces = []

    def function(x: Any) -> Any:
        traces.append(x)
        return jnp.sum(x**3)

    x = POINTS[0]
    for _ in range(2):
        nj.grad(function)(x)
        nj.hvp(function, (x,), (x,))
        jax.jit(jax.vmap(nj.laplacian(function)))(POINTS)
        jax.jit(lambda x: jax.jvp(nj.grad(nj.grad(lambda y: y * function(y))), (x,), (x,)) if x.ndim == 0 else x)(x)
    assert len(traces) == 6
    kept = nj.grad(function)._graphs
    before = dict(kept)
    nj.grad(function)(x)
    assert before and all([kept[key] is before.get(key) for key in kept])


USES: dict[str, Callable[[Any], Any]] = {
    "called at once": lambda f: nj.hvp(f, (POINTS[0],), (POINTS[0],)),
    "staged": lambda f: jax.jit(nj.grad(f))(POINTS[0]),
    "mapped": lambda f: jax.vmap(nj.grad(f))(POINTS),
    "closed over": lambda f: jax.jit(lambda s: nj.grad(lambda x: f(s * x))(POINTS[0]))(2.0),
    "opened": lambda f: nn.from_jax(lambda x: nj.grad(f)(x))(POINTS[0]),
}


@pytest.mark.parametrize("use", USES)
def test_functions_are_released(use: str) -> None:
    def used() -> weakref.ref[Any]:
        def function(x: Any) -> Any:
            return jnp.sum(x**3)

        USES[use](function)
        return weakref.ref(function)

    reference = used()
    gc.collect()
    assert reference() is None


def test_functions_made_anew_share_an_executable() -> None:
    """They differ in the arrays and numbers that they close over; another exponent is another computation."""
    x, powers = POINTS[0], [2]

    def gradient(b: Any, scale: float, transformed: Callable[..., Any] = lambda g: g) -> Any:
        return transformed(nj.grad(lambda x: scale * jnp.sum(b * jnp.sin(x) ** powers[0])))

    def expected(b: Any, scale: float) -> Any:
        return scale * b * powers[0] * np.sin(x) ** (powers[0] - 1) * np.cos(x)

    for transformed, given in [(lambda g: g, x), (jax.vmap, x[None])]:
        gradient(jnp.ones(3), 0.2, transformed)(given)
        for scale, b in [(0.3, jnp.asarray(POINTS[1])), (0.7, jnp.asarray(POINTS[2]))]:
            with compilations() as compiled:
                found = gradient(b, scale, transformed)(given)
            assert not compiled
            same(found.reshape(3), expected(b, scale))
    powers[0] = 3
    same(gradient(jnp.ones(3), 0.5)(x), expected(np.ones(3), 0.5))
    b = POINTS[1].copy()
    of_writable = gradient(b, 0.5)
    same(of_writable(x), expected(b, 0.5))
    b += 1
    same(of_writable(x), expected(b, 0.5))


def test_threads_and_a_while_without_64_bits() -> None:
    def function(x: Any) -> Any:
        return jnp.sum(jnp.sin(x) ** 2)

    gradient, found = nj.grad(function), []

    def work() -> None:
        with jax.enable_x64(True):
            found.append(np.asarray(gradient(POINTS[0])))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        same(each, np.sin(2 * POINTS[0]))
    assert len(found) == 4
    with jax.enable_x64(False):
        assert gradient(POINTS[0]).dtype == np.float32
    assert gradient(POINTS[0]).dtype == np.float64


def test_the_report_tells_what_stays_opaque() -> None:
    @jax.custom_jvp
    def turned(x: Any) -> Any:
        return jnp.round(x[::-1])

    turned.defjvp(lambda primals, tangents: (turned(*primals), tangents[0][::-1]))

    def function(x: Any) -> Any:
        noise = jax.random.normal(jax.random.key(jnp.argmax(x)), x.shape)
        return jnp.sum(turned(turned(x) + noise) + jax.scipy.special.i1e(x) + jnp.cumprod(x + 1j).real[0])

    gradient = nj.grad(function)
    gradient(POINTS[0])
    report = gradient.report()
    assert {each.primitives[0] for each in report.opaque if each.differentiable} == {"custom_jvp_call", "cumprod"}
    assert 0 < report.covered < 1
    text = str(report)
    shown = r"opaque: custom_jvp_call, 2 times, at .*test_drop_in_calls.py:\d+\n    why: it has a custom deriv"
    assert re.search(shown, text)


def test_what_depends_on_no_row_has_none() -> None:
    """As under JAX's own transformations, such a result may be asked for without an axis."""

    def along(m: Any, fun: Callable[[Any], Any]) -> Callable[..., Any]:
        return jax.vmap(lambda x, t: m.jvp(fun, (x,), (t,)), (0, None), (0, None))

    x = jnp.arange(3.0)
    for ours, theirs in zip(along(nj, lambda x: 7 * x)(x, 2.0), along(jax, lambda x: 7 * x)(x, 2.0), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    second = jax.vmap(nj.hessian(lambda x: jnp.sum(x**2) + x[0] * x[1]), out_axes=None)
    np.testing.assert_allclose(second(jnp.ones((4, 2))), [[2, 1], [1, 2]])
    np.testing.assert_allclose(jax.jacfwd(second)(jnp.ones((4, 2))), 0)
    assert jax.vmap(nj.hessian(lambda x: jnp.sum(x**2)))(jnp.ones((0, 2))).shape == (0, 2, 2)
    with pytest.raises(ValueError, match="out_axes"):
        along(nj, jnp.sin)(x, 2.0)


@pytest.mark.parametrize("around", ["vmap", "grad"])
def test_jax_transposes_what_is_linear(around: str) -> None:
    """`jax.linear_transpose` of what `linearize` gives, as of what JAX's gives: through products and a loop."""
    matrix = np.random.default_rng(1).standard_normal((3, 3))

    def fun(x: Any) -> Any:
        turned, _ = lax.scan(lambda c, _: (jnp.sin(c) * x, None), x, None, 3)
        return jnp.sin(matrix @ x) * turned, jnp.sum(x**2)

    def back(m: Any) -> Callable[[Any], Any]:
        return lambda x: jax.linear_transpose(m.linearize(fun, x)[1], x)((jnp.cos(x), 2 * x[0]))[0]

    def result(m: Any) -> Any:
        x = jnp.asarray(matrix[0])
        if around == "vmap":
            return jax.vmap(back(m))(jnp.stack([x, 2 * x]))
        return jax.grad(lambda x: jnp.sum(back(m)(x) ** 2))(x)

    np.testing.assert_allclose(result(nj), result(jax), rtol=1e-12)
