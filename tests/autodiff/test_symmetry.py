"""Forward mode from backward rules, and the routes that nested gradients take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import Polynomial

import nngrad as nn
import nngrad.functions as F
from backward_registry import Registry, Rule, registry
from backward_registry.rules import gradients, slopes
from nngrad.autodiff.carried import followed_axes
from nngrad.autodiff.forward_mode import Pushforward
from nngrad.graph import Array, Variable, functions_of, op, path_between
from tests.autodiff.test_properties import SETTINGS, Recipe, agree, draw_leaves, follow, recipes
from tests.slow import slow_but
from tests.together import Called, Check, Wanted, by_itself, computed, together, values

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.normal(size=s) / s[0] ** 0.5 for s in [(1, 5), (5, 5), (5, 1)]]


def leaf(array: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(array, np.float64))


def network(x: Variable, activation: Callable[[Variable], Variable] = F.tanh) -> Variable:
    w = [leaf(a) for a in WEIGHTS]
    return F.affine(activation(F.affine(activation(F.affine(x, w[0])), w[1])), w[2])


def products(y: Variable) -> int:
    return sum(f.name == "batch_matmul" for f in functions_of([y]))


def nested(y: Variable, xs: list[Variable], **options: Any) -> list[Variable]:
    """Gradients of gradients, one for each of `xs` in turn."""
    results = []
    for x in xs:
        (y,) = nn.grad(y, x, **options)
        results.append(y)
    return results


# ---------------------------------------------------------------- forward mode


@SETTINGS
@given(recipes())
def test_tangents_agree_with_jax(recipe: Recipe) -> None:
    arrays = draw_leaves(recipe)
    leaves, tangents = [leaf(a) for a in arrays], [np.cos(np.arange(a.size)).reshape(a.shape) for a in arrays]
    moved = Pushforward()(follow(recipe, leaves, ours=True), leaves, [leaf(t) for t in tangents])

    def theirs(*given: Any) -> Any:
        return jax.jvp(lambda *xs: follow(recipe, xs, ours=False), given[: len(arrays)], given[len(arrays) :])[1]

    ((ours,),), (expected,) = computed([Wanted([moved]), Called(theirs, [[*arrays, *tangents]])])
    agree(ours, expected, 1e-10)


@pytest.mark.parametrize("f", [
    lambda x: F.softmax(x), lambda x: F.norm(x, axis=1), lambda x: F.cumprod(x, axis=1),
    lambda x: F.batch_matmul(x, x, True),
    lambda x: F.concatenate(x, F.sin(x), axis=0), lambda x: F.stack(x, x * x), lambda x: F.sort(x, axis=1),
    lambda x: F.pad(x, pad_width=(1, 1), mode="reflect"), lambda x: F.einsum(x, x, equation="ij,kj->ik"),
    lambda x: F.where(F.greater_scalar(x, val=0.8), x**3, x), lambda x: F.amax(x, axis=0), lambda x: F.prod(x),
    lambda x: F.add_n(*F.split(F.exp(x), axis=1)), lambda x: F.logsumexp(x, axis=0), lambda x: F.batch_inv(x[:, :2]),
])  # fmt: skip
@together
def test_forward_mode_of_each_kind_of_op(f: Callable[[Variable], Variable]) -> Check:
    x, t = leaf(RNG.uniform(0.5, 1.5, (2, 3))), leaf(RNG.normal(size=(2, 3)))
    y = f(x)
    run = nn.to_jax(y, x)

    def theirs(point: Any, direction: Any) -> Any:
        return jax.jvp(lambda a: jax.jvp(run, (a,), (direction,)), (point,), (direction,))[1]

    moved = Pushforward()([y], [x], [t])
    graphs = Wanted([[*moved, *Pushforward()(moved, [x], [t])]])
    (((ours, again),),), ((first, second),) = yield [graphs, Called(theirs, [[x.d, t.d]])]
    np.testing.assert_allclose(ours, first, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(again, second, rtol=1e-9, atol=1e-11)


def test_what_stops_gradients_stops_tangents() -> None:
    x = leaf([1.0, 2.0])
    stopped = F.sin(x)
    stopped.need_grad = False
    y = x * stopped + F.unlink(x) + F.greater_scalar(x, val=1.5)
    np.testing.assert_allclose(Pushforward()([y], [x], [leaf([1.0, 1.0])])[0].d, np.sin(x.d))


def test_a_rule_that_is_not_linear_has_no_forward_mode() -> None:
    rules = Registry()
    for each, rule in registry.ops():
        rules.add(each, rule)
    rules.add(F.softmax.body if hasattr(F.softmax, "body") else F.softmax,
              Rule(lambda f, gy: gy * gy, "rule", True, __name__), replace=True)
    x = leaf([[1.0, 2.0]])
    with pytest.raises(ValueError, match="softmax: its backward rule is not linear"):
        Pushforward(rules)([F.softmax(x)], [x], [leaf([[1.0, 1.0]])])


def test_rules_of_one_expression_take_what_they_name() -> None:
    @op()
    def scaled(x: Array, w: Array, /, by: float = 2.0) -> jax.Array:
        return by * x * w

    @op()
    def halved(x: Array, /) -> jax.Array:
        return x / 2

    slopes(scaled, "by w and by x", lambda by, w, x: (by * w, by * x))
    gradients(halved, "y / x, which is 1/2", lambda y, gy, x: gy * (y / x))
    x, w = leaf([1.0, 2.0]), leaf([3.0, 5.0])
    gx, gw = nn.grad(scaled(halved(x), w, by=3.0), [x, w])
    np.testing.assert_allclose([gx.d, gw.d], [1.5 * w.d, 1.5 * x.d])
    assert registry.find(scaled).function.__doc__ == "by w and by x"
    with pytest.raises(ValueError, match="halved: the op has no inputs or arguments by, z"):
        gradients(halved, "", lambda x, z, by: x)


def test_a_missing_rule_is_named() -> None:
    x = leaf([1.0])
    with pytest.raises(nn.MissingRule, match=r"cannot differentiate tanh.*no backward rule.*output <- Tanh"):
        Pushforward(Registry())([F.tanh(x)], [x], [x])


# ---------------------------------------------------------------- independence


@pytest.mark.parametrize(("f", "expected"), [
    (lambda x: F.tanh(x) * 2, (0,)),
    (lambda x: F.affine(x, leaf(np.ones((3, 4)))), (0,)),
    (lambda x: F.transpose(x), (1,)),
    (lambda x: F.reshape(x, shape=(4, 3, 1)), (0,)),
    (lambda x: F.reshape(x, shape=(2, 6)), None),
    (lambda x: F.sum(x, axis=1), (0,)),
    (lambda x: F.sum(x, axis=0), None),
    (lambda x: F.softmax(x, axis=1), (0,)),
    (lambda x: F.softmax(x, axis=0), None),
    (lambda x: F.concatenate(x, x, axis=1), (0,)),
    (lambda x: F.concatenate(x, x, axis=0), None),
    (lambda x: F.stack(x, x, axis=0), (1,)),
    (lambda x: x[:, 1], (0,)),
    (lambda x: x[1:], None),
    (lambda x: x[:, None], (0,)),
    (lambda x: F.batch_matmul(leaf(np.ones((5, 3))), x, False, True), (1,)),
    (lambda x: F.batch_matmul(x, x, True), None),
    (lambda x: F.batch_matmul(x, F.tanh(x), False, True), None),
    (lambda x: x + F.sum(x, axis=0, keepdims=True), None),
    (lambda x: F.broadcast(x, shape=(2, 4, 3)), (1,)),
    (lambda x: x * leaf(np.ones((2, 4, 3))), (1,)),
    (lambda x: F.flip(x, axes=(0,)), None),
    (lambda x: F.cumsum(x, axis=1), (0,)),
    (lambda x: F.split(x, axis=1)[0], (0,)),
    (lambda x: F.sort(x, axis=1), (0,)),
    (lambda x: F.sort(x, axis=0), None),
    (lambda x: F.einsum(x, leaf(np.ones((2, 3))), equation="bi,ji->jb"), (1,)),
    (lambda x: F.einsum(x, F.tanh(x), equation="bi,bi->b"), (0,)),
    (lambda x: F.einsum(x, x, equation="bi,ci->bc"), None),
    (lambda x: F.einsum(x, leaf(np.ones(4)), equation="bi,b->i"), None),
    (lambda x: x[:, np.array([2, 0])], (0,)),
    (lambda x: x[np.array([1, 0, 2, 3])], None),
    (lambda x: F.gather(F.reshape(x, shape=(4, 1, 3)), np.array([[0, 0], [0, 0]]), axis=1), (0,)),
    (lambda x: F.take_points(F.reshape(x, shape=(3, 4)), np.array([[1], [0]]), axes=(0,), at=1), None),
    (lambda x: F.take_points(F.transpose(x), np.array([[1], [0]]), axes=(0,), at=0), (1,)),
    (lambda x: F.take_points(F.transpose(x), np.array([[1], [0]]), axes=(0,), at=1), (0,)),
    (lambda x: F.pad(x, (1, 2)), (0,)),
    (lambda x: F.pad(x, (0, 0, 1, 2), mode="reflect"), (0,)),
    (lambda x: F.pad(x, (0, 1, 0, 0)), None),
    (lambda x: F.pad(F.transpose(x), (0, 1)), None),
    (lambda x: F.matrix_diag(x), (0,)),
    (lambda x: F.matrix_diag(F.transpose(x)), (1,)),
    (lambda x: F.batch_det(F.matrix_diag(x) + 1), (0,)),
    (lambda x: F.batch_inv(F.matrix_diag(x) + 1), (0,)),
    (lambda x: F.batch_inv(F.matrix_diag(F.transpose(x)) + 1), None),
    (lambda x: F.max_pooling(F.reshape(x, shape=(4, 1, 1, 3)), (1, 2)), (0,)),
    (lambda x: F.average_pooling(F.reshape(x, shape=(1, 4, 3, 1)), (2, 1)), (1,)),  # channels stay apart
    (lambda x: F.average_pooling(F.reshape(x, shape=(1, 1, 4, 3)), (2, 1)), None),
    (lambda x: F.optimization_barrier(F.tanh(x), F.sum(x)), (0,)),
    (lambda x: F.recomputed(x * 2, x), (0,)),
    (lambda x: F.jax_function(lambda a: a * 2)(x), None),  # not known, so not relied on
])  # fmt: skip
@together(size=60)
def test_which_axes_are_carried(f: Callable[[Variable], Variable], expected: Any) -> Check:
    x = leaf(RNG.normal(size=(4, 3)))
    y = f(x)
    path, _, _ = path_between([y], [x])
    assert followed_axes(path, x, (0,))[id(y)] == expected
    if expected is not None:  # and they are: another row changes nothing
        other = np.array(x.d)
        other[1:] += 1.0
        ((((before,),), ((after,),)),) = yield [Wanted([[y]], [x], [[x.d], [other]])]
        np.testing.assert_array_equal(np.take(before, 0, expected[0]), np.take(after, 0, expected[0]))


# ---------------------------------------------------------------- nested gradients


def test_products_grow_linearly_in_the_order() -> None:
    x = leaf(RNG.uniform(-1, 1, (4, 1)))
    assert [products(g) for g in nested(network(x), [x] * 6)] == [5, 6, 7, 8, 9, 10]


def sinc_series(h: Any) -> Any:
    """sin(h) / h, in which nothing cancels near 0."""
    return sum([(-1) ** k * h ** (2 * k) / float(math.factorial(2 * k + 1)) for k in range(16)])


SMOOTH: dict[str, tuple[Callable[[Variable], Variable], Callable[[Any], Any]]] = {
    "softplus": (F.softplus, jax.nn.softplus),
    "softplus, beta": (lambda h: F.softplus(h, beta=2.0), lambda h: jax.nn.softplus(2 * h) / 2),
    "sigmoid": (F.sigmoid, jax.nn.sigmoid),
    "log_sigmoid": (F.log_sigmoid, jax.nn.log_sigmoid),
    "swish": (F.swish, jax.nn.silu),
    "gelu": (F.gelu, jax.nn.gelu),
    "mish": (F.mish, jax.nn.mish),
    "elu": (F.elu, jax.nn.elu),
    "celu": (lambda h: F.celu(h, axis=1)[:, : h.shape[1]], jax.nn.elu),
    "selu": (F.selu, jax.nn.selu),
    "softsign": (F.softsign, jax.nn.soft_sign),
    "tanh_shrink": (F.tanh_shrink, lambda h: h - jnp.tanh(h)),
    "sinc": (F.sinc, sinc_series),
    "sinc_derivative": (lambda h: F.sinc_derivative(h, order=1), jnp.vectorize(jax.grad(sinc_series))),
    "cast": (lambda h: F.tanh(F.cast(h, dtype="float64")), jnp.tanh),
}


@pytest.mark.parametrize("name", slow_but([*SMOOTH][::3], SMOOTH))
@together
def test_derivatives_of_every_activation_cost_what_those_of_tanh_cost(name: str) -> Check:
    activation, reference = SMOOTH[name]
    x = leaf(RNG.uniform(-1, 1, (4, 1)))
    orders = nested(network(x, activation), [x] * 4)
    assert [products(g) for g in orders] == [5, 6, 7, 8]

    def theirs(point: Any) -> Any:
        h = jnp.reshape(point, (1, 1))
        for w in WEIGHTS[:-1]:
            h = reference(h @ w)
        return (h @ WEIGHTS[-1])[0, 0]

    first = jax.grad(theirs)
    second = jax.grad(first)
    wanted = jax.vmap(lambda point: (first(point), second(point), jax.grad(second)(point)))
    ((found,),), (expected,) = yield [Wanted([orders[:3]]), Called(wanted, [[x.d[:, 0]]])]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a[:, 0], b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["softplus", "mish", "cast"])
@together
def test_operators_take_rows_apart_through_every_activation(name: str) -> Check:
    activation, reference = SMOOTH[name]
    first, x = leaf(RNG.normal(size=(3, 5))), leaf(RNG.uniform(-1, 1, (4, 3)))
    y = F.affine(activation(F.affine(activation(F.affine(x, first)), leaf(WEIGHTS[1]))), leaf(WEIGHTS[2]))

    def theirs(point: Any) -> Any:
        return (reference(reference(point @ first.d) @ WEIGHTS[1]) @ WEIGHTS[2])[0]

    both = jax.vmap(lambda point: (jax.grad(theirs)(point), jax.hessian(theirs)(point)))
    graphs = Wanted([[nn.jacobian(y, x), nn.laplacian(y, x)]])
    (((rows, traces),),), ((gradients, matrices),) = yield [graphs, Called(both, [[x.d]])]
    np.testing.assert_allclose(rows[:, 0], gradients, rtol=1e-9)
    np.testing.assert_allclose(traces[:, 0], np.trace(matrices, axis1=1, axis2=2), rtol=1e-9)


def as_plain(build: Callable[[], list[Variable]], atol: float = 0.0) -> Check:
    """What is built is the same without simplification."""
    got = build()
    with nn.simplify(False):
        plain = build()
    found = yield from values(*got, *plain)
    for a, b in zip(found[: len(got)], found[len(got) :], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=atol)


@together
def test_nested_gradients_agree_with_the_plain_walk() -> Check:
    x = leaf(RNG.uniform(-1, 1, (4, 1)))
    y = network(x)
    yield from as_plain(lambda: nested(y, [x] * 5))


@pytest.mark.parametrize("order", ["xt", "xxt", "txx", "xtx", "ttx"])
@together
def test_mixed_partials(order: str) -> Check:
    x, t = leaf(RNG.uniform(-1, 1, (3, 1))), leaf(RNG.uniform(-1, 1, (3, 1)))
    u = F.sin(2 * x) * F.exp(-t) * network(x * t + x)
    orders = iter([order, sorted(order)])  # the latter without simplification
    yield from as_plain(lambda: nested(u, [{"x": x, "t": t}[c] for c in next(orders)])[-1:])


@together
def test_one_call_for_several_inputs_leads_to_the_same() -> Check:
    x, t = leaf(RNG.uniform(-1, 1, (3, 1))), leaf(RNG.uniform(-1, 1, (3, 1)))
    u = network(x * t + x)
    yield from as_plain(lambda: [h for g in nn.grad(u, [x, t]) for h in nn.grad(g, x)])


MOVES: dict[str, Callable[[Variable], Variable]] = {
    "transposed": lambda h: F.transpose(h),
    "last axis first": lambda h: F.transpose(h, axes=(h.ndim - 1, *range(h.ndim - 1))),
    "an axis more": lambda h: F.reshape(h, shape=(*h.shape, 1)),
    "repeated": lambda h: F.broadcast(F.reshape(h, shape=(1, *h.shape)), shape=(2, *h.shape)) * leaf([[[1.0]], [[3.0]]])
    if h.ndim == 2 else h,
    "summed": lambda h: F.sum(h, axis=0) if h.ndim > 2 else h,
}  # fmt: skip


@SETTINGS
@given(st.lists(st.sampled_from(list(MOVES)), min_size=1, max_size=4), st.sampled_from([(2, 2), (2, 3), (3, 1)]))
def test_axes_that_move_on_the_way(steps: list[str], shape: tuple[int, ...]) -> None:
    x = leaf(np.linspace(0.2, 1.1, math.prod(shape)).reshape(shape))

    def build() -> list[Variable]:
        y = x
        for step in steps:
            y = MOVES[step](y)
            y = F.sin(y * leaf(np.cos(np.arange(y.size)).reshape(y.shape)))  # no two elements alike
        return nested(y, [x] * 2)

    by_itself(as_plain(build, 1e-12))


def scalar_field(x: Variable) -> Variable:
    """A number that mixes all of x."""
    return F.sum(F.sin(x @ leaf(RNG_MATRIX)) ** 2) * F.logsumexp(x)


RNG_MATRIX = np.random.default_rng(1).normal(size=(3, 4))


@pytest.mark.parametrize("between", [
    lambda g: g,
    lambda g: g[:, :1],
    lambda g: F.sum(g * g),
    lambda g: F.sum(F.tanh(g), axis=0) * 2,
], ids=["itself", "a part", "a function", "a sum"])
@together
def test_gradients_of_numbers_are_differentiated_forward(between: Callable[[Variable], Variable]) -> Check:
    x = leaf(RNG.uniform(0.2, 1, (2, 3)))

    def third(y: Variable) -> Variable:
        for _ in range(2):
            (y,) = nn.grad(between(nn.grad(y, x)[0]), x)
        return y

    got = third(scalar_field(x))
    with nn.simplify(False):
        plain = third(scalar_field(x))
    a, b = yield from values(got, plain)
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())  # parts cancel


@together
def test_a_hessian_vector_product_as_users_write_it() -> Check:
    a, b = leaf(RNG.normal(size=(3, 4))), leaf(RNG.normal(size=(4, 2)))
    x, v, w = leaf(RNG.normal(size=(5, 3))), leaf(RNG.normal(size=(3, 4))), leaf(RNG.normal(size=(4, 2)))
    loss = F.mean(F.tanh(F.tanh(x @ a) @ b) ** 2)
    ga, gb = nn.grad(loss, [a, b])
    got = nn.grad(F.sum(ga * v) + F.sum(gb * w), [a, b])
    back = nn.grad(F.add_n(*[F.sum(g) for g in got]), [a])[0]  # and again
    run = nn.to_jax(loss, [a, b])

    def product(*points: Any) -> Any:
        return jax.jvp(jax.grad(run, argnums=(0, 1)), points, (v.d, w.d))[1]

    total = jax.grad(lambda *points: sum([jnp.sum(h) for h in product(*points)]))
    graphs, points = Wanted([[*got, back]]), [[a.d, b.d]]
    (((*ours, again),),), (theirs,), ((expected,),) = yield [graphs, Called(product, points), Called(total, points)]
    for one, reference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, reference, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(again, expected, rtol=1e-9, atol=1e-13)


# ---------------------------------------------------------------- where forward mode may not go


@together
def test_surrogate_rules() -> Check:
    x = leaf([[0.3], [1.7]])
    yield from as_plain(lambda: nested(F.round(x * 2) * F.sin(x) * F.round(x), [x] * 3), 1e-12)


@together
def test_need_grad_false_and_unlink() -> Check:
    x = leaf([[0.3], [1.7]])

    def stopped() -> list[Variable]:
        h = F.sin(x)
        h.need_grad = False
        return nested(h * x**3, [x] * 3)

    yield from as_plain(stopped, 1e-12)
    yield from as_plain(lambda: nested(F.unlink(F.sin(x)) * x**3, [x] * 3), 1e-12)


@pytest.mark.parametrize("field", [lambda x: F.sin(x) * x, lambda x: F.sum(F.sin(x) * F.sum(x * x))])
@together
def test_grad_outputs_that_depend_on_the_input(field: Callable[[Variable], Variable]) -> Check:
    x = leaf([[0.3], [1.7]])

    def build() -> list[Variable]:
        y = field(x)
        (first,) = nn.grad(y, x, grad_outputs=F.cos(x) if y.shape == x.shape else F.sum(F.cos(x)))
        return [first, *nested(first, [x] * 2)]

    yield from as_plain(build, 1e-12)


def test_a_gradient_without_double_backprop_is_a_constant() -> None:
    x = leaf([[0.3], [1.7]])
    (g,) = nn.grad(F.sin(x), x, enable_double_backprop=False)
    np.testing.assert_array_equal(nn.grad(g * x, x)[0].d, g.d)


def test_a_hook_elsewhere_changes_nothing() -> None:
    x, other = leaf(RNG.uniform(-1, 1, (4, 1))), leaf([1.0])
    watched = F.exp(other)
    size = len(functions_of(nested(network(x), [x] * 3)[-1:]))
    watched.parent.add_hook(nn.hooks.TimerHook())
    assert len(functions_of(nested(network(x), [x] * 3)[-1:])) == size


@together
def test_an_input_in_the_middle_of_the_graph() -> Check:
    x = leaf([[0.3, 0.5], [1.7, 0.1]])
    h = F.tanh(x)
    yield from as_plain(lambda: nested(F.sum(F.sin(h) * F.sum(h**2)), [h, h, x]), 1e-12)


# ---------------------------------------------------------------- closed forms

POINTS = np.array([[-0.9], [-0.3], [0.4], [0.8]])


def tanh_derivative(n: int) -> np.ndarray[Any, Any]:
    """By the polynomials in y = tanh x of which each is the derivative of the last times 1 - y^2."""
    p = Polynomial([0.0, 1.0])
    for _ in range(n):
        p = p.deriv() * Polynomial([1.0, 0.0, -1.0])
    return p(np.tanh(POINTS))


def lorentz_derivative(n: int) -> np.ndarray[Any, Any]:
    """1/(1 + x^2) is the imaginary part of 1/(x - i)."""
    return (-1.0) ** n * math.factorial(n) * ((POINTS - 1j) ** -(n + 1.0)).imag


@pytest.mark.parametrize(("f", "derivative"), [
    (F.sin, lambda n: np.sin(POINTS + n * np.pi / 2)),
    (lambda x: F.exp(2 * x), lambda n: 2.0**n * np.exp(2 * POINTS)),
    (F.tanh, tanh_derivative),
    (lambda x: x**15, lambda n: math.factorial(15) / math.factorial(15 - n) * POINTS ** (15 - n)),
    (lambda x: 1 / (1 + x**2), lorentz_derivative),
], ids=["sin", "exp", "tanh", "power", "lorentz"])  # fmt: skip
@together
def test_derivatives_up_to_order_12(f: Callable[[Variable], Variable], derivative: Callable[[int], Any]) -> Check:
    x = leaf(POINTS)
    for n, g in enumerate((yield from values(*nn.nth_derivative(f(x), x, 12))), start=1):
        expected = derivative(n)
        np.testing.assert_allclose(g, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize(("n", "error", "message"), [
    (0, ValueError, "n: must be 1 or more, got 0"), (1.5, TypeError, "n: expected an int, got 1.5"),
])  # fmt: skip
def test_nth_derivative_says_what_is_wrong(n: Any, error: type[Exception], message: str) -> None:
    x = leaf(POINTS)
    with pytest.raises(error, match=message):
        nn.nth_derivative(F.sin(x), x, n)
    with pytest.raises(TypeError, match="is int32; only floating dtypes"):
        nn.nth_derivative(F.sin(x), F.cast(x, dtype=np.int32), 1)
