"""The differential operators against JAX's, in float64; and differentiated once more."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.interpret import interpret
from nngrad.graph import Variable
from tests.autodiff.test_properties import SETTINGS
from tests.rematerialising import in_chunks
from tests.slow import slow_but_every
from tests.together import Called, Check, Wanted, together, values

Array = Any
RNG = np.random.default_rng(3)
W = [RNG.standard_normal(s) / np.sqrt(s[0]) for s in ((3, 5), (5, 4))]
OUT = {1: RNG.standard_normal((4, 1)), 2: RNG.standard_normal((4, 2)), 3: RNG.standard_normal((4, 3))}
POINTS = RNG.standard_normal((4, 3))


class Field(NamedTuple):
    """A function of points `(B, 3)` for nngrad, and of one point `(3,)` for JAX, both of weights."""

    ours: Callable[[Variable, list[Variable]], Variable]
    theirs: Callable[[Array, list[Array]], Array]


def network(outputs: int) -> Field:
    """A tanh network with `outputs` outputs."""

    def ours(x: Variable, w: list[Variable]) -> Variable:
        return F.tanh(F.tanh(x @ w[0] + 0.3) @ w[1]) @ Variable.from_numpy_array(OUT[outputs])

    def theirs(x: Array, w: list[Array]) -> Array:
        return jnp.tanh(jnp.tanh(x @ w[0] + 0.3) @ w[1]) @ OUT[outputs]

    return Field(ours, theirs)


MIXED = Field(
    lambda x, w: F.stack(
        F.softmax(x @ w[0])[:, 1] * F.sum(F.exp(F.sin(x)), axis=1), F.prod(x, axis=1) / (1 + x[:, 0] ** 2), axis=1
    ),
    lambda x, w: jnp.stack(
        [jax.nn.softmax(x @ w[0])[1] * jnp.sum(jnp.exp(jnp.sin(x))), jnp.prod(x) / (1 + x[0] ** 2)]
    ),
)
"""Ops that are mapped, reductions, slices and products of what varies."""

FIELDS = {"1": network(1), "2": network(2), "3": network(3), "mixed": MIXED}


def setting(field: Field, batched: bool) -> tuple[Variable, Variable, list[Variable]]:
    """`y`, `x` and the weights as Variables; for one point alone if not `batched`."""
    w = [Variable.from_numpy_array(a) for a in W]
    if batched:
        x = Variable.from_numpy_array(POINTS)
        return field.ours(x, w), x, w
    x = Variable.from_numpy_array(POINTS[0])
    y = field.ours(F.reshape(x, shape=(1, 3)), w)
    return F.reshape(y, shape=y.shape[1:]), x, w


def laplacian_of(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Trace of the Hessian of each output."""
    return lambda x: jnp.trace(jax.hessian(f)(x), axis1=-2, axis2=-1)


class Operator(NamedTuple):
    """A differential operator, and what makes of a function of one point the function that it should give."""

    ours: Callable[..., Variable]
    theirs: Callable[[Callable[[Array], Array]], Callable[[Array], Array]]
    fields: tuple[str, ...]


OPERATORS = {
    "jacobian": Operator(nn.jacobian, jax.jacrev, ("1", "2", "3", "mixed")),
    "hessian": Operator(nn.hessian, lambda f: jax.hessian(lambda x: f(x)[0]), ("1",)),
    "hessian_diagonal": Operator(
        nn.hessian_diagonal, lambda f: lambda x: jnp.diagonal(jax.hessian(lambda z: f(z)[0])(x)), ("1",)
    ),
    "laplacian": Operator(nn.laplacian, laplacian_of, ("1", "2", "mixed")),
    "bilaplacian": Operator(nn.bilaplacian, lambda f: laplacian_of(laplacian_of(f)), ("1",)),
    "divergence": Operator(nn.divergence, lambda f: lambda x: jnp.trace(jax.jacfwd(f)(x)), ("3",)),
}
CASES = [(name, field, b) for name, op in OPERATORS.items() for field in op.fields for b in (True, False)]


@pytest.mark.parametrize(("name", "field", "batched"), slow_but_every(3, CASES))
@together
def test_operators_are_those_of_jax_and_can_be_trained_through(name: str, field: str, batched: bool) -> Check:
    y, x, w = setting(FIELDS[field], batched)
    operator = OPERATORS[name]
    result = operator.ours(y, x, batched=batched)
    loss = F.sum(result * result)
    gradients = nn.grad(loss, [w[0], x])

    def theirs(x0: Array, w0: Array) -> Array:
        at = operator.theirs(lambda p: FIELDS[field].theirs(p, [w0, jnp.asarray(W[1])]))
        value = jax.vmap(at)(x0) if batched else at(x0)
        return jnp.sum(value * value), value

    reference = Called(jax.value_and_grad(theirs, argnums=(1, 0), has_aux=True), [[x.d, W[0]]])
    (((value, gw, gx),),), (((_, wanted), (wanted_w, wanted_x)),) = yield [Wanted([[result, *gradients]]), reference]
    if name in ("laplacian", "bilaplacian"):
        assert value.shape == y.shape
    for a, b in ((value, np.reshape(wanted, value.shape)), (gw, wanted_w), (gx, wanted_x)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", OPERATORS)
@together
def test_chunks_change_nothing(name: str, batched: bool) -> Check:
    operator = OPERATORS[name]
    y, x, _ = setting(FIELDS[operator.fields[0]], batched)
    with in_chunks():
        parts = [operator.ours(y, x, batched=batched, chunk=chunk) for chunk in (1, 2, 5)]
    whole, *found = yield from values(operator.ours(y, x, batched=batched), *parts)
    for part in found:
        np.testing.assert_allclose(part, whole, rtol=1e-12, atol=1e-12)


def blocks_setting(batched: bool) -> tuple[Callable[..., Any], list[Variable], list[Variable], Callable[..., Any]]:
    """Two functions of two arrays for JAX, of one point each if `batched`; and the same as Variables."""
    a, b = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 2, 2))
    w = RNG.standard_normal((3, 2))

    def theirs(a: Array, b: Array) -> tuple[Array, Array]:
        return jnp.sum(jnp.tanh(a @ w)[..., None] * b, axis=-1), jnp.exp(jnp.sum(a, axis=-1))

    x, z = Variable.from_numpy_array(a), Variable.from_numpy_array(b)
    y = F.sum(F.reshape(F.tanh(x @ Variable.from_numpy_array(w)), (4, 2, 1)) * z, axis=2)
    return (jax.vmap if batched else lambda f: f), [y, F.exp(F.sum(x, axis=1))], [x, z], theirs


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("forward", [True, False])
@together
def test_blocks_of_a_jacobian_are_those_of_jax(batched: bool, forward: bool) -> Check:
    each, ys, xs, theirs = blocks_setting(batched)
    if not forward:
        ys = [F.tanh(ys[1])] if batched else [F.sum(ys[0])]
    function = theirs
    if not forward:
        function = lambda a, b: (jnp.tanh(theirs(a, b)[1]) if batched else jnp.sum(theirs(a, b)[0]),)  # noqa: E731
    expected = Called(each(jax.jacobian(function, argnums=(0, 1))), [[x.d for x in xs]])
    (ours,), (blocks,) = yield [Wanted(nn.jacobian(ys, xs, batched=batched)), expected]
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, rtol=1e-10), ours, [list(row) for row in blocks])


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("chunk", [None, 2])
@together
def test_blocks_of_a_hessian_are_those_of_jax(batched: bool, chunk: int | None) -> Check:
    each, ys, xs, theirs = blocks_setting(batched)
    energy = F.sum(ys[0] ** 2, axis=1) * ys[1]
    ours = nn.hessian(energy if batched else F.sum(energy), xs, batched, chunk)

    def scalar(a: Array, b: Array) -> Array:
        y, z = theirs(a, b)
        return jnp.sum(jnp.sum(y**2, axis=-1) * z)

    expected = Called(each(jax.hessian(scalar, argnums=(0, 1))), [[x.d for x in xs]])
    (found,), (blocks,) = yield [Wanted(ours), expected]
    near = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
    jax.tree.map(near, found, [list(row) for row in blocks])
    (gradient,) = nn.grad([F.sum(ours[0][1] ** 2)], [xs[0]])
    assert gradient.shape == xs[0].shape


def test_blocks_are_arranged_as_lists_are_given() -> None:
    _, ys, (x, z), _ = blocks_setting(True)
    shapes = {
        "one": nn.jacobian(ys[0], x).shape,
        "row": [block.shape for block in nn.jacobian(ys[0], [x, z])],
        "column": [block.shape for block in nn.jacobian(ys, z)],
        "alone": [[block.shape for block in row] for row in nn.jacobian((ys[1],), (x,))],
    }
    assert shapes == {
        "one": (4, 2, 3), "row": [(4, 2, 3), (4, 2, 2, 2)], "column": [(4, 2, 2, 2), (4, 2, 2)], "alone": [[(4, 3)]],
    }  # fmt: skip
    assert len(nn.hessian(ys[1], [x])) == len(nn.hessian(ys[1], [x])[0]) == 1
    for operator, name in [(lambda: nn.jacobian([], x), "jacobian: y"), (lambda: nn.hessian(ys[1], []), "hessian: x")]:
        with pytest.raises(ValueError, match=f"{name}: expected at least one Variable, got an empty list"):
            operator()
    with pytest.raises(TypeError, match="jacobian: x: expected a Variable, got ndarray"):
        nn.jacobian(ys[0], [x, POINTS])


# ---------------------------------------------------------------- products


@together
def test_jvp_vjp_and_hvp_are_those_of_jax() -> Check:
    arrays = [RNG.standard_normal((2, 3)), RNG.standard_normal((3,))]
    vectors = [RNG.standard_normal(a.shape) for a in arrays]
    weights = [RNG.standard_normal((2, 3)), RNG.standard_normal(())]
    a, b = (Variable.from_numpy_array(v) for v in arrays)
    outputs = [F.tanh(a * b), F.sum(F.softmax(a) * b)]

    def theirs(p: Array, q: Array) -> tuple[Array, Array]:
        return jnp.tanh(p * q), jnp.sum(jax.nn.softmax(p) * q)

    def products(*given: Array) -> tuple[Any, ...]:
        primals, moves, pulls = given[:2], given[2:4], given[4:]
        gradient = jax.grad(lambda p, q: sum([jnp.sum(y) for y in theirs(p, q)]), argnums=(0, 1))
        return *(jax.jvp(f, primals, moves)[1] for f in (theirs, gradient)), jax.vjp(theirs, *primals)[1](pulls)

    xs = [a, b]
    ours = [nn.jvp(outputs, xs, vectors), nn.hvp(outputs, xs, vectors), nn.vjp(outputs, xs, weights)]
    (found,), (wanted,) = yield [Wanted(ours), Called(products, [[*arrays, *vectors, *weights]])]
    for level, expected in zip(found, wanted, strict=True):
        for got, value in zip(level, expected, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-11, atol=1e-13)


@together
def test_an_input_that_depends_on_another_moves_with_it_and_by_itself() -> Check:
    x = Variable.from_numpy_array([2.0, -1.0])
    h = x * x
    (y,) = nn.jvp(h * x, [x, h], [[1.0, 2.0], [3.0, 4.0]])
    (found,) = yield from values(y)
    np.testing.assert_allclose(found, 3 * x.d**2 * [1, 2] + x.d * [3, 4], rtol=1e-12)


@together
def test_gradients_flow_into_tangents() -> Check:
    x, t = Variable.from_numpy_array([0.5, 2.0]), Variable.from_numpy_array([1.0, -1.0])
    (y,) = nn.jvp(F.sin(x), x, t)
    (along,) = nn.jvp(F.sin(x), x, x * x)
    gx, gt, ga = yield from values(*nn.grad(y, [x, t]), *nn.grad(along, x))
    np.testing.assert_allclose(gx, -np.sin(x.d) * t.d, rtol=1e-6)
    np.testing.assert_allclose(gt, np.cos(x.d), rtol=1e-6)
    np.testing.assert_allclose(ga, -np.sin(x.d) * x.d**2 + np.cos(x.d) * 2 * x.d, rtol=1e-5)


@together
def test_what_is_not_reached_is_zero() -> Check:
    x, z = Variable.from_numpy_array(POINTS), Variable.from_numpy_array(POINTS)
    y = F.sin(z)
    results = *nn.jvp(y, x, 1.0), *nn.vjp(y, x, 1.0), *nn.hvp(y, x, 1.0), nn.laplacian(y, x), nn.jacobian(y, x)
    assert not any([a.any() for a in (yield from values(*results))])


@together
def test_leaves_that_share_data_stand_for_each_other() -> Check:
    x = Variable.from_numpy_array(POINTS)
    same = x.get_unlinked_variable()
    y = F.sum(F.sin(x), axis=1)
    graphs = nn.laplacian(y, same), nn.jvp(y, same, POINTS)[0], nn.hessian_diagonal(y, same)
    expected = -np.sin(POINTS).sum(1), (np.cos(POINTS) * POINTS).sum(1), -np.sin(POINTS)
    for a, b in zip((yield from values(*graphs)), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_operators_under_auto_forward_are_computed() -> None:
    x = Variable.from_numpy_array(POINTS)
    with nn.auto_forward():
        y = F.sum(x**3, axis=1)
        result = nn.laplacian(y, x)
        assert result.is_computed
    np.testing.assert_allclose(result.d, 6 * POINTS.sum(1), rtol=1e-12)


# ---------------------------------------------------------------- partial derivatives


@together
def test_partial_derivatives_of_a_polynomial() -> Check:
    x, t = (Variable.from_numpy_array(RNG.standard_normal((6, 1))) for _ in range(2))
    u = x**4 * t**3 + F.sin(x) * t
    u_t, u_xt, u_tx, u_xxx, u_xxt = nn.derivatives(u, [(t,), (x, t), (t, x), (x, x, x), (x, t, x)])
    assert u_xt is u_tx
    a, b = x.d, t.d
    expected = (
        3 * a**4 * b**2 + np.sin(a), 12 * a**3 * b**2 + np.cos(a), 24 * a * b**3 - np.cos(a) * b,
        36 * a**2 * b**2 - np.sin(a),
    )  # fmt: skip
    for got, wanted in zip((yield from values(u_t, u_xt, u_xxx, u_xxt)), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-11)


@st.composite
def polynomials(draw: Callable[..., Any]) -> list[tuple[int, tuple[int, int]]]:
    """Coefficients and powers of the terms of a polynomial in two variables."""
    return draw(
        st.lists(st.tuples(st.integers(-5, 5), st.tuples(st.integers(0, 4), st.integers(0, 4))), min_size=1, max_size=4)
    )


@settings(SETTINGS, max_examples=12)
@given(polynomials())
def test_laplacians_of_polynomials(terms: list[tuple[int, tuple[int, int]]]) -> None:
    """Sums of c x^p y^q, whose derivatives are known."""
    points = np.random.default_rng(0).uniform(-1, 1, (3, 2))
    x = Variable.from_numpy_array(points)
    u, v = x[:, 0], x[:, 1]
    y = F.add_n(*[c * u**p * v**q for c, (p, q) in terms])

    def derivative(dp: int, dq: int) -> Array:
        total = np.zeros(3)
        for c, (p, q) in terms:
            falling = np.prod(np.arange(p - dp + 1, p + 1)) * np.prod(np.arange(q - dq + 1, q + 1))
            if dp <= p and dq <= q:
                total += c * falling * points[:, 0] ** (p - dp) * points[:, 1] ** (q - dq)
        return total

    results = interpret([nn.laplacian(y, x), nn.bilaplacian(y, x), nn.hessian(y, x), nn.hessian_diagonal(y, x)], {})
    wanted = [
        derivative(2, 0) + derivative(0, 2),
        derivative(4, 0) + 2 * derivative(2, 2) + derivative(0, 4),
        np.stack([derivative(2, 0), derivative(1, 1), derivative(1, 1), derivative(0, 2)], 1).reshape(3, 2, 2),
        np.stack([derivative(2, 0), derivative(0, 2)], 1),
    ]
    for a, b in zip(results, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------- errors


def test_rows_that_are_not_independent_are_refused() -> None:
    x = Variable.from_numpy_array(POINTS)
    for y in (x - F.mean(x, axis=0), F.cumsum(x), x[::-1], F.transpose(x @ POINTS.T)):
        for operator in (nn.jacobian, nn.laplacian, nn.bilaplacian, nn.divergence):
            with pytest.raises(ValueError, match=r"row b of y.* cannot be shown.*batched=False"):
                operator(y, x)
    for y in (F.sum(x), x[:2]):
        with pytest.raises(ValueError, match=r"must have the same first axis.*batched=False"):
            nn.jacobian(y, x)


def test_wrong_arguments_are_named() -> None:
    x, column = Variable.from_numpy_array(POINTS), Variable.from_numpy_array(POINTS[:, :1])
    with pytest.raises(ValueError, match="y: expected one Variable, got a list of 2"):
        nn.nth_derivative([x, x], x, 2)
    with pytest.raises(ValueError, match="y: expected one Variable, got a list of 0"):
        nn.derivatives([], [(x,)])
    with pytest.raises(TypeError, match="wanted: expected a list of tuples of Variables, got NoneType"):
        nn.derivatives(x, None)
    with pytest.raises(TypeError, match="chunk: expected an int or None, got 'auto'"):
        nn.hessian(F.sum(x, axis=1), x, chunk="auto")
    with pytest.raises(ValueError, match=r"hessian: y must hold one number per row, .*, got shape \(4, 3\)"):
        nn.hessian(x * 2, x)
    with pytest.raises(ValueError, match=r"hessian_diagonal: y must hold one number.*, got shape"):
        nn.hessian_diagonal(x, x, batched=False)
    with pytest.raises(ValueError, match="chunk: must be 1 or more, got 0"):
        nn.laplacian(x, x, chunk=0)
    with pytest.raises(TypeError, match="batched must be True or False, got 3"):
        nn.jacobian(x, x, 3)
    with pytest.raises(TypeError, match="jacobian: y: expected a Variable, got ndarray"):
        nn.jacobian(POINTS, x)
    with pytest.raises(TypeError, match="jacobian: x is int32"):
        nn.jacobian(x, Variable.from_numpy_array(np.zeros((4, 3), np.int32)))
    with pytest.raises(ValueError, match="divergence: the field y must have the shape of x"):
        nn.divergence(F.sum(x, axis=1), x)
    with pytest.raises(ValueError, match=r"tangents\[0\]: must have the shape of its Variable, \(4, 3\), got \(2,\)"):
        nn.jvp(x * x, x, np.zeros(2))
    with pytest.raises(ValueError, match="vectors: expected a list with one for each of 1 Variables, got 2"):
        nn.hvp(x * x, x, [1.0, 1.0])
    with pytest.raises(TypeError, match=r"cotangents\[0\]: expected a number"):
        nn.vjp(x * x, x, None)
    with pytest.raises(ValueError, match=r"wanted\[1\] is empty"):
        nn.derivatives(x, [(x,), ()])
    with pytest.raises(ValueError, match=r"wanted\[0\]: Variables must have the same shape, got"):
        nn.derivatives(F.sum(x), [(x, Variable((2,), dtype=np.float64))])
    with pytest.raises(ValueError, match="has several values for each element of a variable of shape"):
        nn.derivatives(F.cumsum(column, axis=0) + x, [(column,)])
    with pytest.raises(TypeError, match="list of tuples"):
        nn.derivatives(x, x)
