"""JAX functions that are opened: values and derivatives against JAX's own, and what becomes of equations."""

from __future__ import annotations

import functools
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from nngrad.extend import Variable, functions_of
from tests.oracle import compiled_cheaply
from tests.slow import slow_but_every
from tests.together import Called, Check, Wanted, together

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((4, 5)), RNG.standard_normal((5, 3))
IMAGE, KERNEL = RNG.standard_normal((2, 6, 5, 3)), RNG.standard_normal((3, 3, 3, 4)) / 3
SQUARE = RNG.standard_normal((4, 4))
POSITIVE = SQUARE @ SQUARE.T + 4 * np.eye(4)
INDEX = jnp.array([0, 2, -1, 2])


def convolved(x: Any, w: Any, *, strides: Any = (1, 1), padding: Any = "SAME", out: str = "NHWC", **kwargs: Any) -> Any:
    numbers = ("NHWC", "HWIO", out)
    return jnp.tanh(lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers, **kwargs))


def in_window(x: Any, initial: float, operation: Any, padding: Any = "SAME") -> Any:
    return lax.reduce_window(x, initial, operation, (1, 3, 2, 1), (1, 2, 2, 1), padding) ** 2


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "a network": (lambda x, w: jnp.tanh(x @ w) @ w.T, X, W),
    "elementwise": (lambda x: jnp.sin(x) * jnp.exp(x) / (1 + x**2) + jnp.cbrt(x) + jnp.expm1(x) * jnp.log1p(x**2)
                    + lax.rsqrt(1 + x * x) + jnp.exp2(x) + jnp.arctan2(x, 2.0) + x**3 + jnp.arcsinh(x)
                    - 3 / (x + 9), X),
    "special functions": (lambda x: jax.scipy.special.gammaln(x**2 + 1) + jax.scipy.special.digamma(x**2 + 1)
                          + lax.erf_inv(0.5 * jnp.tanh(x)) + lax.erfc(x) + jax.scipy.special.polygamma(1, x**2 + 1), X),
    "steps": (lambda x: jnp.floor(3 * x) * x + jnp.round(x) * x**2 + jnp.sign(x) * jnp.abs(x) ** 3 + jnp.mod(x, 0.7) * x
              + jnp.trunc(x) * x, X),
    "activations": (lambda x: jax.nn.gelu(x) * jax.nn.silu(x) + jax.nn.softplus(x) * jax.nn.elu(x) + jax.nn.relu(x) ** 2
                    + jax.nn.mish(x) + jax.nn.log_sigmoid(x) + jax.nn.hard_tanh(x) * x
                    + jnp.clip(x, -0.5, 0.8) ** 2, X),
    "softmax": (lambda x: jax.nn.softmax(x) * x + jax.nn.log_softmax(x, axis=0) ** 2, X),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=1) + jnp.logaddexp(x[:, 0], x[:, 1]), X),
    "statistics": (lambda x: jnp.var(x, axis=0) + jnp.std(x, axis=0) * jnp.mean(x, axis=0) + jnp.linalg.norm(x), X),
    "a layer's norm": (lambda x: jax.nn.standardize(x, axis=-1), X),
    "reductions": (lambda x: jnp.prod(x, axis=1) + jnp.max(x, axis=1) ** 2 + jnp.min(x, axis=1) * jnp.median(x, axis=1)
                   + jnp.sum(x, axis=1), X),
    "along an axis": (lambda x: jnp.cumsum(x, axis=1) ** 2 * lax.cumlogsumexp(x, axis=1) + jnp.cumprod(x, axis=0)
                      + lax.cummax(x, axis=1) ** 2 + lax.cummin(x, axis=0, reverse=True) ** 2, X),
    "sorted": (lambda x: jnp.sort(x, axis=0) * x + jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1) ** 2, X),
    "largest": (lambda x: lax.top_k(x, 2)[0] ** 3, X),
    "slices": (lambda x: x[1:3, ::2] ** 2 * x[0, 1] + x[::-1][:2, :3] * x[..., 1:4][1:3], X),
    "at indices": (lambda x: x[INDEX] ** 3 * x[INDEX, jnp.array([1, 0, 3, 2])][:, None] + x.T[INDEX].T[:, :1], X),
    "out of range": (lambda x: x.at[jnp.array([0, 7])].get(mode="fill", fill_value=0) ** 2 + x[jnp.array([2, -1])], X),
    "added at": (lambda x: x.at[INDEX].add(1.5 * x[1]) ** 2 + x.at[1:3, 2].add(x[0, 0]) + x.at[5].add(x[0]) * x, X),
    "at no index": (lambda x: (x.at[...].set(x[0] ** 2) + x[0, 0].at[...].add(x[1, 1] ** 2) * x.sum(0).at[()].set(2.0)
                               + x[0, 1].at[()].set(x[1, 0] ** 3)), X),
    "set at": (lambda x: x.at[1:3].set(x[0] ** 2) ** 2 + x.at[jnp.array([0, 3])].set(x[0] ** 2)
               + x.at[2, 1].set(0.5), X),
    "dynamic slices": (lambda x: lax.dynamic_slice(x, (1, jnp.argmax(x[0])), (2, 2)) ** 3, X),
    "dynamic updates": (lambda x: lax.dynamic_update_slice(x, x[:2, :2] ** 2, (9, jnp.argmax(x[0]))) ** 3, X),
    "moved": (lambda x: jnp.roll(jnp.tile(jnp.stack([x, x**2], 1), (1, 2, 1)), 1, axis=1).transpose(2, 0, 1)
              * jnp.repeat(x, 4, axis=1).reshape(5, 4, 4), X),
    "padded": (lambda x: lax.pad(x, 0.0, [(1, -1, 1), (-1, 2, 0)]) ** 2
               + lax.pad(x, x[0, 0], [(1, 2, 0), (0, 1, 0)])[0, 0]
               * jnp.pad(x, ((1, 2), (0, 1)), mode="edge")[:, :6], X),
    "chosen": (lambda x: jnp.where(x > 0, jnp.sin(x), x**3) + jnp.select([x > 1, x > 0], [x**2, x**3], x), X),
    "one-hot": (lambda x: jax.nn.one_hot(jnp.argmax(x, 1), 5) * x**2, X),
    "truths": (lambda x: jnp.where(jnp.any(x > 1, axis=1) & ~jnp.all(x < 0, axis=1) | (x[:, 0] < x[:, 1]), x[:, 0] ** 2,
                                   x[:, 1]) * jnp.isfinite(x).sum(), X),
    "whole numbers": (lambda x: x ** 2 * ((jnp.arange(5) // 2 * 3 % 4) ^ 5)
                      + (jnp.argmax(x) // 3 + jnp.argmin(x) % 3) * x, X),
    "products": (lambda x, w: jnp.einsum("ij,jk,ik->k", x, w, jnp.sin(x @ w)) + jnp.tensordot(x, w, 1)[0]
                 + w.T @ x[0], X, W),
    "products of many": (lambda a: jnp.einsum("abc,adc->bd", a[:, :, 0], a[:, :, 1]) + jnp.vdot(a, a), IMAGE),
    "a convolution": (functools.partial(convolved, strides=(2, 1)), IMAGE, KERNEL),
    "a convolution with all": (functools.partial(convolved, padding=[(1, 0), (2, -1)], out="NCHW", lhs_dilation=(2, 1),
                                                 rhs_dilation=(1, 2)), IMAGE, KERNEL),
    "convolutions of groups": (functools.partial(convolved, feature_group_count=3), IMAGE, KERNEL[:, :, :1, :3]),
    "convolutions of batches": (functools.partial(convolved, batch_group_count=2), IMAGE, KERNEL),
    "a transposed convolution": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), IMAGE, KERNEL),
    "greatest of windows": (lambda x: in_window(x, -jnp.inf, lax.max), IMAGE),
    "sums of windows": (lambda x: in_window(x, 0.0, lax.add, [(0, 0), (1, 0), (0, 1), (0, 0)]), IMAGE),
    "a solution": (lambda a, b: jnp.linalg.solve(a, b) ** 2, POSITIVE, SQUARE),
    "an inverse": (lambda a: jnp.linalg.inv(a) ** 2, POSITIVE),
    "determinants": (lambda a: jnp.linalg.det(a) + jnp.linalg.slogdet(a)[1] ** 2 * jnp.linalg.slogdet(a)[0], SQUARE),
    "factors": (lambda a: jnp.linalg.cholesky(a) ** 3
                + jax.scipy.linalg.solve_triangular(a, a[0], lower=True), POSITIVE),
    "eigenvalues": (lambda a: jnp.linalg.eigh(a)[0] ** 3 + jnp.linalg.svd(a, full_matrices=False)[1] ** 2, POSITIVE),
    "orthogonal factors": (lambda a: jnp.linalg.qr(a)[1] ** 3, SQUARE),
    "a loop": (lambda x: lax.scan(lambda h, t: (jnp.tanh(h + t), h * t), jnp.zeros(5), x, reverse=True), X),
    "a loop with truths": (lambda x: lax.scan(lambda c, t: ((c[0] + 1, c[1] | (t[0] > 0)), jnp.where(c[1], t**2, t)),
                                              (0, False), x)[1], X),
    "a bounded loop": (lambda x: lax.fori_loop(0, 3, lambda i, h: jnp.sin(h) * (i + 1), x), X),
    "branches": (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x**2, x)
                 + lax.switch(jnp.argmax(x[0]), [jnp.cos, jnp.tanh, lambda x: 3 * x], x), X),
    "vmap": (lambda x, w: jax.vmap(lambda r: jnp.tanh(r @ w) @ w.T @ r)(x), X, W),
    "vmap of branches": (lambda x: jax.vmap(lambda r: lax.cond(r[0] > 0, jnp.sin, lambda r: r**2, r))(x), X),
    "vmap of known functions": (lambda a: jax.vmap(
        lambda m: jax.nn.relu(m).sum() + jax.nn.softplus(m[0, 0]) + jnp.linalg.slogdet(m)[1] + jnp.linalg.det(m) ** 2
        + jnp.linalg.slogdet(m[:2, :2])[1], in_axes=1)(a[:, :, :3]), IMAGE[0, :3]),
    "an axis with a name": (lambda x: jax.vmap(lambda r: r * lax.pmean(r**2, "rows")
                                               * lax.pmax(lax.stop_gradient(r), "rows"),
                                               axis_name="rows")(x), X),
    "gradients inside": (lambda x, w: jax.vmap(jax.grad(lambda r: jnp.tanh(r @ w).sum()))(x) ** 2, X, W),
    "a checkpoint": (lambda x, w: jax.checkpoint(lambda r: jnp.tanh(r @ w))(x), X, W),
    "frozen": (lambda x: lax.stop_gradient(jnp.sin(x)) * x**3, X),
    "attention": (lambda x: jax.nn.softmax(x @ x.T / 2) @ x, X),
    "a loss": (lambda x: -jnp.take_along_axis(jax.nn.log_softmax(x), jnp.array([[0], [1], [2], [4]]), axis=1), X),
    "dropout": (lambda x: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), x**2, 0), X),
    "sinc": (lambda x: jnp.sinc(x), X),
    "a spectrum": (lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, X),
    "complex numbers": (lambda x: jnp.real((x + 1j * x**2) ** 2), X),
    "a Bessel function": (lambda x: jax.scipy.special.i0e(x), X),
}  # fmt: skip

def number(function: Any) -> Callable[..., Any]:
    """All that a function returns as one number, in which nothing cancels."""

    def run(*arrays: Any) -> Any:
        leaves = [y for y in jax.tree.leaves(function(*arrays)) if jnp.issubdtype(y.dtype, jnp.floating)]
        return sum([jnp.sum(jnp.sin(y) + 0.1 * y) for y in leaves])

    return run


@pytest.mark.parametrize("name", slow_but_every(4, FUNCTIONS))
@together
def test_value_and_derivatives(name: str) -> Check:
    function, *arrays = FUNCTIONS[name]
    directions = [np.random.default_rng(1).standard_normal(a.shape) for a in arrays]
    run = number(function)

    def along(t: Any) -> Any:
        return run(*[a + t * d for a, d in zip(arrays, directions, strict=True)])

    def theirs(*given: Any) -> tuple[Any, ...]:
        value, gradients = jax.value_and_grad(run, tuple(range(len(arrays))))(*given)
        first, second = jax.jvp(lambda t: jax.jvp(along, (t,), (1.0,))[1], (0.0,), (1.0,))
        return value, *gradients, first, second

    inputs = [Variable.from_numpy_array(a, need_grad=True) for a in arrays]
    opened = nn.from_jax(run)
    y = opened(*inputs)
    gradients = nn.grad(y, inputs)
    product = F.add_n(*[F.sum(g * d) for g, d in zip(gradients, directions, strict=True)])
    second = F.add_n(*[F.sum(g * d) for g, d in zip(nn.grad(product, inputs), directions, strict=True)])
    graphs = Wanted([[y, *gradients, product, second]], inputs, [arrays])
    ((ours,),), (expected,) = yield [graphs, Called(theirs, [arrays])]
    for i, (a, b) in enumerate(zip(ours, expected, strict=True)):
        np.testing.assert_allclose(a, b, rtol=1e-12 if i == 0 else 1e-8, atol=1e-9)
    report = opened.report()
    assert report.covered == 1, str(report)


# ---------------------------------------------------------------- order after order


C = 0.1, 0.5, 0.2
HIDDEN = [RNG.standard_normal(s) / 2 for s in ((2, 6), (6, 6), (6, 6), (6, 1))]
ACTIVATIONS: dict[str, Any] = {
    "tanh": jnp.tanh, "softplus": jax.nn.softplus, "mish": jax.nn.mish, "gelu": jax.nn.gelu, "silu": jax.nn.silu,
    "elu": jax.nn.elu, "log_sigmoid": jax.nn.log_sigmoid,
    "logsumexp": lambda h: h * jax.nn.logsumexp(h, -1, keepdims=True),
    "softmax": lambda h: h * jax.nn.softmax(h), "standardize": lambda h: jax.nn.standardize(jnp.tanh(h)),
    "where": lambda h: jnp.where(h > 0, jnp.sin(h), h**3), "floor": lambda h: jnp.sin(h) + jnp.floor(h),
    "branches": jax.vmap(jax.vmap(lambda h: lax.cond(h > 0, jnp.sin, jnp.tanh, h))),
    "a Bessel function": jax.scipy.special.i0e,
    "sinc": jnp.sinc, "entropies": lambda h: jax.scipy.special.entr(jax.nn.sigmoid(h)),
    "truths": lambda h: jnp.where((h > 0).reshape(-1, *h.shape)[0] & ~(h > 5), h**2, jnp.sin(h)),
    "a derivative": jax.vmap(jax.vmap(jax.grad(jnp.tanh))), "log2": lambda h: jnp.log2(h**2 + 2),
    "a polynomial": lambda h: getattr(lax, "polynomial", lambda x, c: c[0] + x * (c[1] + x * c[2]))(jnp.sin(h), C),
    "negative indices": lambda h: jnp.tanh(h * h[:, -1:] - h[:, jnp.array([-1, -2, 0, 1, 2, 3])]),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but_every(5, ACTIVATIONS))
def test_products_of_matrices_grow_with_the_order(name: str) -> None:
    def network(t: Any) -> Any:
        h = t * np.asarray([[0.3, -0.7]]) + np.asarray([[0.2, 0.5]])
        for matrix in HIDDEN[:-1]:
            h = ACTIVATIONS[name](h @ matrix)
        return h @ HIDDEN[-1]

    with jax.enable_x64(True):
        t = Variable.from_numpy_array(np.linspace(-1, 1, 3)[:, None], need_grad=True)
        g = nn.from_jax(network)(t)
        counts = []
        for _ in range(6):
            (g,) = nn.grad(g, t)
            counts.append(sum([f.op.heavy for f in functions_of([g])]))
        assert counts == [7, 9, 11, 13, 15, 17]


@together
def test_frozen_values_commute() -> Check:
    """Against nested jax.jvp, to order 6: what is frozen may depend on all rows, and on what is differentiated by."""

    def function(x: Any) -> Any:
        h = jnp.tanh(x @ HIDDEN[0])
        h = jnp.sin(h @ HIDDEN[1]) * lax.stop_gradient(jnp.mean(h, axis=0)) + lax.stop_gradient(h) ** 2 * h
        return jnp.tanh(h @ HIDDEN[2]) @ HIDDEN[3] * lax.stop_gradient(jnp.sin(x[:, :1]))

    start, direction = X[:3, :2], X[:3, 2:4]

    def along(t: Any) -> Any:
        return function(start + t * direction)

    with jax.enable_x64(True):
        point = np.zeros((3, 1))
        t = Variable.from_numpy_array(point, need_grad=True)
        g, theirs = nn.from_jax(along)(t), along
        for _ in range(6):
            (g,) = nn.grad(g, t)
            theirs = functools.partial(lambda f, t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1], theirs)
        assert nn.explain(g).orders[-1].mode == "forward"
    ((found,),), ((expected,),) = yield [Wanted([[g]]), Called(theirs, [[point]])]
    np.testing.assert_allclose(found[0], expected, rtol=1e-10)


# ---------------------------------------------------------------- as it is called


def test_pytrees_keys_static_arguments_and_constants() -> None:
    table = np.arange(6.0, dtype=np.float32).reshape(2, 3)

    def function(tree: Any, key: Any, *, kind: str) -> dict[str, Any]:
        noise = jax.random.normal(key, tree["a"].shape)
        y = tree["a"] @ table.T + tree["b"] if kind == "sum" else tree["a"]
        return {"y": y, "noise": noise, "positive": tree["a"] > 0, "count": jnp.int32(3), "table": table * 2}

    key = jax.random.key(3)
    a, b = np.ones((2, 3), np.float32), np.float32(2.0)
    opened = nn.from_jax(function)
    results = opened({"a": Variable.from_numpy_array(a), "b": b}, key, kind="sum")
    expected = function({"a": a, "b": b}, key, kind="sum")
    assert results.keys() == expected.keys()
    for name, y in results.items():
        assert y.dtype == expected[name].dtype
        np.testing.assert_allclose(y.d, expected[name], rtol=1e-6)
    with pytest.raises(RuntimeError, match="call it first"):
        nn.from_jax(lambda x: x).report()


def test_gradients_reach_pytrees() -> None:
    def loss(params: Any, x: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ params["w"] + params["b"]) ** 2)

    values = {"w": W, "b": np.ones(3)}
    params = {name: Variable.from_numpy_array(value, need_grad=True) for name, value in values.items()}
    y = nn.from_jax(loss)(params, X)
    with jax.enable_x64(True):
        expected = jax.grad(loss)(values, X)
    for g, name in zip(nn.grad(y, [params["w"], params["b"]]), ("w", "b"), strict=True):
        np.testing.assert_allclose(g.d, expected[name], rtol=1e-12)


def test_an_unknown_rule_of_its_author_is_kept() -> None:
    @jax.custom_jvp
    def relu(x: Any) -> Any:  # by the name of one that is known, and with its value
        return jnp.maximum(x, 0)

    relu.defjvp(lambda primals, tangents: (relu(*primals), 3 * tangents[0]))
    x = Variable.from_numpy_array(np.asarray([-1.0, 2.0]), need_grad=True)
    opened = nn.from_jax(relu)
    (g,) = nn.grad(opened(x), x)
    np.testing.assert_array_equal(g.d, [3.0, 3.0])
    assert opened.report().covered == 1  # it goes element by element, and so does its derivative

    @jax.custom_jvp
    def summed(x: Any) -> Any:
        return jnp.cumsum(x)

    summed.defjvp(lambda primals, tangents: (summed(*primals), 3 * tangents[0]))
    opened = nn.from_jax(summed)
    (g,) = nn.grad(opened(x), x)
    np.testing.assert_array_equal(g.d, [3.0, 3.0])
    (kept,) = opened.report().opaque
    assert kept.primitives == ("custom_jvp_call",) and kept.reason == "it has a custom derivative rule"
    assert "custom_jvp_call" in str(opened.report())


def test_a_rule_that_mixes_elements_does_not_go_element_by_element() -> None:
    @jax.custom_jvp
    def doubled(x: Any) -> Any:
        return 2 * x

    doubled.defjvp(lambda primals, tangents: (doubled(*primals), jnp.flip(tangents[0])))
    x = Variable.from_numpy_array(np.asarray([-1.0, 2.0, 5.0]), need_grad=True)
    opened = nn.from_jax(doubled)
    (g,) = nn.grad(F.sum(opened(x) * np.asarray([1.0, 2.0, 3.0])), x)
    np.testing.assert_array_equal(g.d, [3.0, 2.0, 1.0])
    assert opened.report().covered == 0


def test_kinks_have_the_derivatives_that_jax_gives_them() -> None:
    def function(x: Any) -> Any:
        return jnp.sum(jnp.abs(x) + x.at[1].max(x[0]) * 2 + x.at[jnp.array([0])].min(x[:1]))

    x = Variable.from_numpy_array(np.zeros(3), need_grad=True)
    (g,) = nn.grad(nn.from_jax(function)(x), x)
    np.testing.assert_array_equal(g.d, jax.grad(function)(np.zeros(3)))


def test_while_loops_have_reverse_mode_through_forward_mode() -> None:
    def function(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * 2), (0, x))[1].sum()

    with jax.enable_x64(True):
        x = Variable.from_numpy_array(X[0], need_grad=True)
        opened = nn.from_jax(function)
        (g,) = nn.grad(opened(x), x)
        np.testing.assert_allclose(g.d, jax.jacfwd(function)(X[0]), rtol=1e-12)
    assert "reverse mode runs it forward" in str(opened.report())


def bisected(a: Any) -> Any:
    """The root of y^3 + y = a between 0 and a, by halving."""
    def step(ends: Any) -> Any:
        middle = (ends[0] + ends[1]) / 2
        below = middle**3 + middle < a
        return jnp.where(below, middle, ends[0]), jnp.where(below, ends[1], middle)

    return lax.while_loop(lambda ends: ends[1] - ends[0] > 1e-9, step, (jnp.zeros_like(a), a))[0]


def branching(a: Any) -> Any:
    """The same, by a branch, within a jitted function, with the ends in one array."""
    def step(ends: Any) -> Any:
        middle = jnp.mean(ends)
        return lax.cond(middle**3 + middle < a, lambda: ends.at[0].set(middle), lambda: ends.at[1].set(middle))

    return jax.jit(lambda a: lax.while_loop(lambda e: e[1] - e[0] > 1e-9, step, jnp.stack([0 * a, a])))(a)[0]


def counted(a: Any) -> Any:
    """Comparisons that decide an integer, and through it a step."""
    def step(s: Any) -> Any:
        return s[0] * jnp.where(jnp.argmin(jnp.stack([s[0], a])) == 0, 0.5, 2.0), s[1] + 1

    return lax.while_loop(lambda s: s[1] < 3, step, (a, 0))[0]


@pytest.mark.parametrize("function", [bisected, branching, counted])
def test_a_loop_of_unknown_length_that_comparisons_steer_is_refused(function: Any) -> None:
    with jax.enable_x64(True):
        x = Variable.from_numpy_array(np.array(2.5), need_grad=True)
        for apply in (nn.from_jax(function), F.jax_function(function)):
            with pytest.raises(NotImplementedError, match="selected by comparisons of what is differentiated"):
                nn.grad(apply(x), x)
        for build, of_jax in ((nj.grad, jax.grad), (nj.hessian, jax.hessian)):
            with pytest.raises((ValueError, TypeError)) as refused:  # JAX 0.8 has a TypeError for Hessians
                of_jax(function)(2.5)
            with pytest.raises(type(refused.value), match=re.escape(str(refused.value)[:60])):
                build(function)(2.5)
        for forward in (nj.jacfwd(function), lambda x: nj.jvp(function, (x,), (1.0,))):
            with pytest.raises(NotImplementedError, match="selected by comparisons of what is differentiated"):
                forward(2.5)


def test_halving_between_ends_that_alone_move_is_refused_in_reverse_mode() -> None:
    def root(end: Any) -> Any:
        def step(s: Any) -> Any:
            middle = (s[0] + s[1]) / 2
            return jnp.where(middle**2 < 2, middle, s[0]), jnp.where(middle**2 < 2, s[1], middle)

        return lax.while_loop(lambda s: s[1] - s[0] > 1e-9, step, (0 * end, end))[0]

    with jax.enable_x64(True):
        for function in (root, jax.checkpoint(root), lambda end: jax.vmap(root)(end[None])[0]):
            with pytest.raises(ValueError, match=r"Reverse-mode differentiation does not work for lax\.while_loop"):
                nj.grad(function)(2.5)


def test_steps_of_an_adaptive_length_have_forward_mode() -> None:
    def decayed(rate: Any) -> Any:
        def step(s: Any) -> Any:
            y, t, h = s
            error = jnp.abs(rate * h) ** 2
            taken = error < 1e-6
            y, t = jnp.where(taken, y / (1 + rate * h + error / 2), y), jnp.where(taken, t + h, t)
            return y, t, h * jnp.where(taken, 1.5, 0.5)

        return lax.while_loop(lambda s: s[1] < 1, step, (jnp.float64(1), jnp.float64(0), jnp.float64(0.1)))[0]

    with jax.enable_x64(True):
        assert nj.jvp(decayed, (0.7,), (1.0,))[1] == jax.jvp(decayed, (0.7,), (1.0,))[1]


def test_comparisons_that_end_a_loop_or_do_not_move_are_no_obstacle() -> None:
    def newton(a: Any, size: Any) -> Any:
        step = lambda y: y - jnp.where(size > 1, 1.0, 0.5) * (y**3 + y - a) / (3 * y * y + 1)  # noqa: E731
        return lax.while_loop(lambda y: jnp.abs(y**3 + y - a) > 1e-12, step, jnp.where(a > 1, a, 1.0))

    with jax.enable_x64(True):
        y = float(newton(2.5, 2))
        np.testing.assert_allclose(nj.grad(newton)(2.5, 2), 1 / (3 * y * y + 1), rtol=1e-9)


def test_weighted_logsumexp_has_derivatives_in_weights_that_are_zero() -> None:
    a, b = np.array([[0.3, -0.2, 0.5]]), np.array([1.0, 0.0, 0.5])
    with jax.enable_x64(True):
        for form in (
            lambda b: jax.scipy.special.logsumexp(a, b=b, axis=1)[0],
            lambda b: jax.vmap(lambda row: jax.nn.logsumexp(row, b=b))(a)[0],
        ):
            p = np.exp(a[0]) / np.sum(b * np.exp(a[0]))
            np.testing.assert_allclose(nj.grad(form)(b), p, rtol=1e-12)
            np.testing.assert_allclose(nj.hessian(form)(b), -np.outer(p, p), rtol=1e-12)
        # What a weight of 0 hides has no influence.
        g = nj.grad(lambda a: jax.scipy.special.logsumexp(a, b=b))(np.array([0.3, np.nan, 0.2]))
        weights = np.array([np.exp(0.3), 0, 0.5 * np.exp(0.2)])
        np.testing.assert_allclose(g, weights / weights.sum(), rtol=1e-12)


def test_the_least_at_points_is_one_of_what_is_put_there_however_it_is_compiled() -> None:
    """XLA computes what is put there several times in this program, compiled quickly, and rounds it otherwise."""
    def lowest(x: Any, y: Any) -> Any:
        u = jnp.reshape(jax.scipy.special.gammaln(jnp.sin(y) + 2), (1, 3))
        u = u[jnp.argsort(jnp.sum(u, 1))[0]]
        return jnp.sum(jnp.sin(x.at[jnp.array([0, -1, 0])].min(jnp.resize(u, (3, 3)))))

    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 3)), rng.standard_normal(3)
    with jax.enable_x64(True):
        inputs = [Variable.from_numpy_array(a) for a in (x, y)]
        found = compiled_cheaply(nn.to_jax(nn.from_jax(lowest)(*inputs), inputs))(x, y)
        np.testing.assert_allclose(found, lowest(jnp.asarray(x), jnp.asarray(y)), rtol=1e-14)


def test_errors_name_the_function() -> None:
    with pytest.raises(TypeError, match="expected a function of JAX arrays"):
        nn.from_jax(3)  # type: ignore[arg-type]

    def wrong(x: Any) -> Any:
        return x @ jnp.ones((7, 7))

    with pytest.raises(TypeError) as caught:
        nn.from_jax(wrong)(X)
    assert "in from_jax(wrong), traced for" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("folder", ["jaxlib/jax", "some where"])
def test_the_place_of_an_equation_is_the_users_whatever_the_folder_is_called(folder: str, tmp_path: Path) -> None:
    script = tmp_path / folder / "mine.py"
    script.parent.mkdir(parents=True)
    script.write_text("import jax\n\n\ndef f(x):\n    return jax.lax.linalg.schur(x)[0]\n")
    opened = nn.from_jax(runpy.run_path(str(script))["f"])
    opened(Variable.from_numpy_array(np.eye(2, dtype=np.float32)))
    assert f"opaque: schur, at {script}:5" in str(opened.report())


def test_the_accuracy_that_a_program_asks_for_is_kept() -> None:
    """JAX's rule for the highest one keeps tanh' = 4 e^-2x / (1 + e^-2x)^2 where 1 - tanh^2 is 0."""
    with jax.enable_x64(True):
        function = functools.partial(lax.tanh, accuracy=lax.AccuracyMode.HIGHEST)
        expected = 4 * np.exp(-40.0)
        for order in (1, 2):
            function, expected = nj.grad(function), expected * (-2.0) ** (order - 1)
            np.testing.assert_allclose(float(function(20.0)), expected, rtol=1e-12)
