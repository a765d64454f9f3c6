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
from nngrad.graph import Variable, functions_of, leaves_of
from tests.autodiff.test_properties import SETTINGS
from tests.exact import exactly
from tests.rematerialising import allotted, in_chunks
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


def curl_of(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Curl in three dimensions."""

    def at(x: Array) -> Array:
        d = jax.jacfwd(f)(x)
        return jnp.stack([d[2, 1] - d[1, 2], d[0, 2] - d[2, 0], d[1, 0] - d[0, 1]])

    return at


class Operator(NamedTuple):
    """A differential operator, and what makes of a function of one point the function that it should give."""

    ours: Callable[..., Variable]
    theirs: Callable[[Callable[[Array], Array]], Callable[[Array], Array]]
    fields: tuple[str, ...]
    chunks: bool = True


OPERATORS = {
    "jacobian": Operator(nn.jacobian, jax.jacrev, ("1", "2", "3", "mixed")),
    "hessian": Operator(nn.hessian, lambda f: jax.hessian(lambda x: f(x)[0]), ("1",)),
    "hessian_diagonal": Operator(
        nn.hessian_diagonal, lambda f: lambda x: jnp.diagonal(jax.hessian(lambda z: f(z)[0])(x)), ("1",)
    ),
    "laplacian": Operator(nn.laplacian, laplacian_of, ("1", "2", "mixed")),
    "bilaplacian": Operator(nn.bilaplacian, lambda f: laplacian_of(laplacian_of(f)), ("1",)),
    "divergence": Operator(nn.divergence, lambda f: lambda x: jnp.trace(jax.jacfwd(f)(x)), ("3",)),
    "curl": Operator(nn.curl, curl_of, ("3",), chunks=False),
}
CASES = [(name, field, b) for name, op in OPERATORS.items() for field in op.fields for b in (True, False)]


@pytest.mark.parametrize(("name", "field", "batched"), CASES)
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
@pytest.mark.parametrize("name", [name for name, op in OPERATORS.items() if op.chunks])
@together
def test_chunks_change_nothing(name: str, batched: bool) -> Check:
    operator = OPERATORS[name]
    y, x, _ = setting(FIELDS[operator.fields[0]], batched)
    with in_chunks():
        parts = [operator.ours(y, x, batched=batched, chunk=chunk) for chunk in (1, 2, 5)]
    whole, *found = yield from values(operator.ours(y, x, batched=batched), *parts)
    for part in found:
        np.testing.assert_allclose(part, whole, rtol=1e-12, atol=1e-12)


def test_shapes() -> None:
    y, x, _ = setting(FIELDS["2"], True)
    scalar = F.reshape(F.sum(y, axis=1), shape=(4,))
    assert nn.jacobian(y, x).shape == (4, 2, 3)
    assert nn.jacobian(y, x, batched=False).shape == (4, 2, 4, 3)
    assert nn.jacobian(scalar, x).shape == (4, 3)
    assert nn.hessian(scalar, x).shape == (4, 3, 3)
    assert nn.hessian(F.sum(y), x, batched=False).shape == (4, 3, 4, 3)
    assert nn.hessian_diagonal(scalar, x).shape == (4, 3)
    assert nn.laplacian(scalar, x).shape == (4,)
    assert nn.laplacian(F.reshape(scalar, shape=(4, 1)), x).shape == (4, 1)
    image = Variable.from_numpy_array(RNG.standard_normal((2, 2, 3)))
    z = F.tanh(F.sum(image, axis=(1, 2), keepdims=True)) * image
    assert nn.jacobian(z, image).shape == (2, 2, 3, 2, 3)
    assert nn.divergence(z, image).shape == (2,)
    assert nn.laplacian(z, image).shape == (2, 2, 3)


@together
def test_a_full_jacobian_is_the_batched_one_on_its_diagonal() -> Check:
    y, x, _ = setting(FIELDS["2"], True)
    full, rows = yield from values(nn.jacobian(y, x, batched=False), nn.jacobian(y, x))
    b = np.arange(4)
    np.testing.assert_allclose(np.asarray(full)[b, :, b, :], rows, rtol=1e-12)
    np.testing.assert_allclose(np.abs(full).sum(), np.abs(rows).sum(), rtol=1e-12)


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


def test_blocks_share_what_they_have_in_common() -> None:
    a, b = (Variable.from_numpy_array(RNG.standard_normal((4, 3))) for _ in range(2))
    h = (a + b) @ Variable.from_numpy_array(W[0])
    for _ in range(6):
        h = F.tanh(h @ Variable.from_numpy_array(RNG.standard_normal((5, 5))))
    y = F.sum(h, axis=1)
    alone, both = nn.jacobian(y, a), nn.jacobian(y, [a, b])
    count = lambda ys: nn.count(list(ys)).matrix_products  # noqa: E731
    assert count(both) == count([alone]), "one pass backward for all blocks of y"


@together
def test_curl_in_two_dimensions() -> Check:
    x = Variable.from_numpy_array(RNG.standard_normal((5, 2)))
    y = F.stack(-x[:, 1] * x[:, 0], F.sin(x[:, 0]), axis=1)
    (curl,) = yield from values(nn.curl(y, x))
    np.testing.assert_allclose(curl, np.cos(x.d[:, 0]) + x.d[:, 0], rtol=1e-12)
    p = Variable.from_numpy_array([0.5, 2.0])
    assert nn.curl(p * p[::-1], p, batched=False).shape == ()


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


@together
def test_operators_without_simplification() -> Check:
    y, x, _ = setting(FIELDS["2"], True)
    simple = [nn.laplacian(y, x), nn.jacobian(y, x)]
    with nn.simplify(False):
        plain = [nn.laplacian(y, x), nn.jacobian(y, x)]
    results = yield from values(*simple, *plain)
    for a, b in zip(results[:2], results[2:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


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


@together
def test_prefixes_are_shared() -> Check:
    x = Variable.from_numpy_array(RNG.standard_normal((6, 1)))
    u = F.exp(F.sin(x))
    first, third, second = nn.derivatives(u, [x, (x, x, x), (x, x)])
    (again,) = nn.grad(first, x)
    assert second.parent in functions_of([third]) or len(functions_of([third])) < 25
    np.testing.assert_allclose(*(yield from values(second, again)), rtol=1e-12)


@together
def test_many_functions_at_the_same_points_are_differentiated_as_one() -> Check:
    functions, points, width = 7, 5, 6
    a, first, last = (RNG.standard_normal(shape) for shape in ((functions, width), (2, width), (width, width)))
    x, t = (Variable.from_numpy_array(RNG.standard_normal((points, 1))) for _ in range(2))
    w = Variable.from_numpy_array(first, need_grad=True)
    trunk = F.tanh(F.concatenate(x, t, axis=1) @ w) @ last
    u = F.sin(Variable.from_numpy_array(a) @ F.transpose(trunk, axes=(1, 0)))
    wanted = [(t,), (x,), (x, x), (t, x), (x, t), (x, x, t, x)]
    found = nn.derivatives(u, wanted)
    assert found[3] is found[4] and all([each.shape == (functions, points) for each in found])
    largest = max([spec.size for f in functions_of(found) for spec in f.specs])
    assert largest == functions * points  # and never functions * points * width
    loss = F.mean((found[0] + u * found[1] - found[2]) ** 2)

    def at(w: Any, a: Any, x: Any, t: Any) -> Any:
        return jnp.sin(a @ (jnp.tanh(jnp.stack([x, t]) @ w) @ last))

    def everywhere(order: tuple[int, ...]) -> Callable[[Any], Any]:
        f: Any = at
        for i in order:
            f = jax.grad(f, i)
        f = jax.vmap(jax.vmap(f, (None, None, 0, 0)), (None, 0, None, None))
        return lambda w: f(w, a, x.d[:, 0], t.d[:, 0])

    def loss_of(w: Any) -> Any:
        return jnp.mean((everywhere((3,))(w) + everywhere(())(w) * everywhere((2,))(w) - everywhere((2, 2))(w)) ** 2)

    *got, gradient = yield from values(*found, *nn.grad(loss, w))
    for each, entry in zip(got, wanted, strict=True):
        expected = exactly(everywhere(tuple([{x: 2, t: 3}[v] for v in entry])), first)
        np.testing.assert_allclose(each, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, exactly(jax.grad(loss_of), first), rtol=1e-9, atol=1e-12)


@together
def test_components_of_a_field_are_differentiated_by_coordinates_and_parameters_of_rows() -> Check:
    x, k = (Variable.from_numpy_array(RNG.standard_normal(shape)) for shape in ((4, 1), (1, 3)))
    u = F.sin(k * x)
    u_x, u_kx, unrelated = nn.derivatives(u, [x, (k, x), (Variable((2,), dtype=np.float64),)])
    u_x, u_kx, unrelated = yield from values(u_x, u_kx, unrelated)
    np.testing.assert_allclose(u_x, k.d * np.cos(k.d * x.d), rtol=1e-12)
    np.testing.assert_allclose(u_kx, np.cos(k.d * x.d) - k.d * x.d * np.sin(k.d * x.d), rtol=1e-10)
    assert unrelated.shape == (4, 3) and not unrelated.any()


@together
def test_variables_that_mix_rows_keep_their_order() -> Check:
    x, t = (Variable.from_numpy_array(RNG.standard_normal(3)) for _ in range(2))
    u = F.cumsum(x * t) ** 3
    xt, tx = nn.derivatives(u, [(x, t), (t, x)])
    xt, tx, as_xt, as_tx = yield from values(xt, tx, *nn.grad(nn.grad(u, x), t), *nn.grad(nn.grad(u, t), x))
    np.testing.assert_allclose(xt, as_xt, rtol=1e-12)
    np.testing.assert_allclose(tx, as_tx, rtol=1e-12)
    assert not np.allclose(xt, tx)


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


# ---------------------------------------------------------------- what is built


def test_the_laplacian_propagates_one_sum() -> None:
    """Of the products in a Laplacian only those with the first derivatives have a row for each direction; and the first
    derivative of the first product is its matrix."""
    y, x, _ = setting(FIELDS["1"], True)
    products = [f for f in functions_of([nn.laplacian(y, x)]) if f.name == "batch_matmul"]
    assert sum(f.specs[0].ndim == 3 for f in products) == 1
    assert all(f.specs[0].ndim == 2 or f.inputs[1].shape != OUT[1].shape for f in products)


def test_nothing_of_the_placeholders_is_left() -> None:
    y, x, _ = setting(FIELDS["mixed"], True)
    given_leaves = {id(leaf) for leaf in leaves_of([y])}
    for result in (nn.laplacian(y, x), nn.jacobian(y, x, chunk=2), nn.bilaplacian(y, x)):
        assert {id(leaf) for leaf in leaves_of([result])} <= given_leaves


def test_one_direction_needs_no_vectorizing() -> None:
    x = Variable.from_numpy_array(RNG.standard_normal((6, 1)))
    assert all(f.specs[0].ndim <= 2 for f in functions_of([nn.laplacian(F.sin(x) * x, x)]))


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


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    x = Variable.from_numpy_array(POINTS)
    np.testing.assert_allclose(nn.laplacian(F.sin(x), x, chunk=np.int64(2)).d, -np.sin(POINTS))
    assert len(nn.nth_derivative(F.sin(x), x, np.int64(3))) == 3


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
    with pytest.raises(TypeError, match="batched: expected True or False, got 3"):
        nn.jacobian(x, x, 3)
    with pytest.raises(TypeError, match="jacobian: y: expected a Variable, got ndarray"):
        nn.jacobian(POINTS, x)
    with pytest.raises(TypeError, match="jacobian: x is int32"):
        nn.jacobian(x, Variable.from_numpy_array(np.zeros((4, 3), np.int32)))
    with pytest.raises(ValueError, match="curl: y"):
        nn.curl(F.concatenate(x, x, axis=1), x)
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


def test_a_divergence_has_the_dtype_of_its_field() -> None:
    x = Variable.from_numpy_array(np.array([[0.5, 1.0], [2.0, 3.0]]))
    div = nn.divergence(F.cast(x * x, dtype="float32"), x)
    assert div.dtype == np.float32
    np.testing.assert_allclose(div.d, 2 * x.d.sum(axis=1), rtol=1e-6)


def test_a_smaller_chunk_takes_no_more_memory() -> None:
    rng = np.random.default_rng(0)
    x = nn.Variable.from_numpy_array(rng.normal(size=(24, 3)))
    r2 = F.sum((F.reshape(x, (24, 1, 3)) - F.reshape(x, (1, 24, 3))) ** 2, axis=2)
    energy = F.sum(F.sqrt(r2 + 1e-6))
    some, whole = (allotted([nn.hessian(energy, x, batched=False, chunk=chunk)]) for chunk in (4, None))
    assert some <= 1.1 * whole, "no direction of a pair has anything of its own"
    x = nn.Variable.from_numpy_array(rng.normal(size=(32, 24)))
    w, u = rng.normal(size=(24, 64)), rng.normal(size=(64, 64))
    y = F.sum(F.tanh(F.tanh(x @ w) @ u), axis=1)
    laplacians = [nn.laplacian(y, x, chunk=chunk) for chunk in (2, 12, None)]
    few, some, whole = (allotted([each]) for each in laplacians)
    assert few < some < whole and few < 0.3 * whole, "chunks were to run one after another"
    one, *_, other = (nn.grad(F.sum(each**2), x)[0].d for each in laplacians)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())
