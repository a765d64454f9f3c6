"""Derivatives that authors set: what their rules are told, where they are met, and what they may refuse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from nngrad.extend import functions_of
from tests.slow import slow_but_every


@pytest.fixture(autouse=True)
def _in_64_bits() -> Any:
    with jax.enable_x64(True):
        yield


def compare(f: Callable[..., Any], *args: Any, orders: int = 3) -> None:
    """Gradients of these orders by the first argument are those of JAX."""
    ours = theirs = f
    for _ in range(orders):
        ours, theirs = nj.grad(ours), jax.grad(theirs)
        np.testing.assert_allclose(ours(*args), theirs(*args), rtol=1e-12)


def told_by_vjp() -> tuple[Callable[..., Any], list[Any]]:
    """`x * y` whose gradient by an input that does not move is wrong, and the notes of what its rules were told."""
    told: list[Any] = []

    @jax.custom_vjp
    def product(x: Any, y: Any) -> Any:
        return x * y, jnp.sin(x)

    def forward(x: Any, y: Any) -> Any:
        moves = x.perturbed, y.perturbed
        told.append(moves)
        return product(x.value, y.value), (x.value, y.value, jnp.where(jnp.array(moves), 1.0, 100.0))

    def backward(kept: Any, cotangents: Any) -> Any:
        x, y, factors = kept
        g, h = cotangents
        told.append(tuple([type(c).__name__ == "SymbolicZero" for c in cotangents]))
        g = jnp.zeros_like(x) if type(g).__name__ == "SymbolicZero" else g
        h = jnp.zeros_like(x) if type(h).__name__ == "SymbolicZero" else h
        return factors[1] * y * g + h * jnp.cos(x), factors[0] * x * g

    product.defvjp(forward, backward, symbolic_zeros=True)
    return product, told


def told_by_jvp() -> Callable[..., Any]:
    """`x * y` whose tangent is 100 times too large where one input alone moves."""

    @jax.custom_jvp
    def product(x: Any, y: Any) -> Any:
        return x * y

    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (tx, ty) = primals, tangents
        still = [type(t).__name__ == "SymbolicZero" for t in tangents]
        factor = 100.0 if any(still) else 1.0
        tx, ty = [jnp.zeros_like(x) if s else t for s, t in zip(still, tangents, strict=True)]
        return product(x, y), factor * (tx * y + x * ty)

    product.defjvp(rule, symbolic_zeros=True)
    return product


def test_a_vjp_rule_is_told_which_inputs_move_and_what_arrives() -> None:
    product, told = told_by_vjp()
    compare(lambda x, y: product(x, y)[0] ** 2, 0.7, 1.3, orders=2)
    compare(lambda x, y: product(y, x)[0] ** 2, 0.7, 1.3, orders=2)
    compare(lambda x, y: product(jnp.sin(x), x * y)[0] ** 2, 0.7, 1.3, orders=2)
    told.clear()
    nj.grad(lambda x: product(x, 2.0)[0] ** 2)(0.7)
    assert set(told) == {(True, False), (False, True)}


def test_a_jvp_rule_is_told_which_inputs_move() -> None:
    product = told_by_jvp()
    compare(lambda x, y: product(x, y) ** 2, 0.7, 1.3)
    compare(lambda x, y: product(x**2, x * y) ** 2, 0.7, 1.3)
    compare(lambda x, y: product(jnp.sin(x), jax.lax.stop_gradient(x)) ** 2, 0.7, 1.3)
    compare(lambda x, y: product(y, x), 0.7, 1.3)


def test_what_moves_differs_from_order_to_order() -> None:
    product = told_by_jvp()

    def mixed(grad: Any, first: int, second: int) -> Any:
        return grad(lambda *at: grad(lambda x, y: jnp.sin(product(x, y)) * x, first)(*at), second)(0.7, 1.3)

    for first in (0, 1):
        for second in (0, 1):
            np.testing.assert_allclose(mixed(nj.grad, first, second), mixed(jax.grad, first, second), rtol=1e-12)
    tangents = [j.jvp(lambda x: product(x, 2.0) * x, (0.7,), (0.3,))[1] for j in (nj, jax)]
    np.testing.assert_allclose(*tangents, rtol=1e-12)
    pushed = [
        j.grad(lambda y, j=j: j.jvp(lambda x: product(x, y) * x * y, (0.7,), (0.3,))[1])(1.3) for j in (nj, jax)
    ]
    np.testing.assert_allclose(*pushed, rtol=1e-12)


def test_gradients_move_in_forward_mode() -> None:
    """As in JAX: not by the gradient of a gradient, of which loops would need two more."""
    told, at, along = told_by_jvp(), (0.7, 1.3), (0.3, -0.4)

    def function(x: Any, y: Any) -> Any:
        return jnp.sin(told(x, y)) * x

    x, y = [nn.Variable.from_numpy_array(np.asarray(v), need_grad=True) for v in at]
    (gx,) = nn.grad(F.jax_function(function)(x, y), x)
    (t,) = nn.jvp(gx, [x, y], [np.asarray(v) for v in along])
    np.testing.assert_allclose(t.d, jax.jvp(jax.grad(function), at, along)[1], rtol=1e-12)
    assert not any([f.args["fun"].name.count("gradient") > 1 for f in functions_of([t]) if "fun" in f.args])


@pytest.mark.parametrize("within", ["scan", "vmap"])
def test_rules_are_told_what_moves_within_loops_branches_and_maps(within: str) -> None:
    product = told_by_jvp()
    scales = jnp.array([0.3, 0.5])

    def f(x: Any, y: Any) -> Any:
        if within == "scan":
            return jax.lax.scan(lambda c, s: (product(c, s * y), c), x, scales)[0]
        return jax.vmap(lambda s: product(x * s, y))(scales).sum()

    compare(f, 0.7, 1.3)


def test_a_rule_may_refuse_inputs_that_do_not_move() -> None:
    @jax.custom_jvp
    def still(x: Any) -> Any:
        return x + 0.0

    @still.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        raise RuntimeError("nobody may differentiate this")

    def f(x: Any, y: Any) -> Any:
        held = still(jnp.stack([y, y]))
        return jax.lax.while_loop(lambda c: c[1] < 2, lambda c: (c[0] * held[0], c[1] + 1), (1.0, 0))[0] * x**3

    compare(f, 0.7, 1.3)
    compare(lambda x, y: still(y) * jnp.sin(x), 0.7, 1.3)
    with pytest.raises(RuntimeError, match="nobody may differentiate this"):
        nj.grad(lambda x: still(x) * x)(0.7)
    assert float(nj.grad(lambda x: still(2.0) * x)(0.7)) == 2.0


def clipped() -> Callable[..., Any]:
    """The identity whose gradient is clipped: from the second order on JAX differentiates what `fwd` gives."""
    identity = jax.custom_vjp(lambda x: x * 1.0)
    identity.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))
    return lambda x, y: identity(jnp.sin(x) * y * 3) * identity(x) ** 2


def straight_through() -> Callable[..., Any]:
    """Rounding, with a tangent that the rule's value has not."""
    rounded = jax.custom_jvp(lambda x: jnp.round(2 * x))
    rounded.defjvp(lambda primals, tangents: (jnp.round(2 * primals[0]), 2 * tangents[0]))
    return lambda x, y: rounded(jnp.sin(x) * y) * rounded(y * x) ** 2 * jnp.sin(x)


def scaled() -> Callable[..., Any]:
    """A product of which one tangent is three times too large, and the rule's value is not."""
    product = jax.custom_jvp(lambda x, y: jnp.sin(x) * y)
    product.defjvp(lambda p, t: (jnp.sin(p[0]) * p[1], 3 * t[0] * p[1] + t[1] * p[0]))
    return lambda x, y: product(x, y) ** 2 * product(y, x)


RULES: dict[str, Callable[[], Callable[..., Any]]] = {
    "clipped": clipped, "straight through": straight_through, "scaled": scaled,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "within"),
    slow_but_every(10, product(RULES, ["calls", "checkpoint", "jit", "scan", "vmap"])),
)
def test_the_next_derivative_is_of_what_the_rule_gives(rule: str, within: str) -> None:
    function = RULES[rule]()

    def f(x: Any) -> Any:
        if within == "scan":
            return jax.lax.scan(lambda c, a: (c + function(a, c), c), 0.2, x)[0]
        if within == "vmap":
            return jax.vmap(function)(x, x[::-1]).sum()
        kinds = {"checkpoint": jax.checkpoint, "jit": jax.jit}
        each = kinds.get(within, lambda f: f)(function)
        return each(x[0], each(x[1], x[2]))

    def total(gradient: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: jnp.sin(gradient(x)).sum()

    x, theirs = jnp.array([0.3, 0.5, 0.9]), jax.grad(total(jax.grad(f)))
    for outer in (nj, jax):
        np.testing.assert_allclose(outer.grad(total(nj.grad(f)))(x), theirs(x), rtol=1e-11, err_msg=outer.__name__)
    if within == "calls":
        third = [m.grad(total(m.grad(total(m.grad(f)))))(x) for m in (nj, jax)]
        np.testing.assert_allclose(*third, rtol=1e-11)


@pytest.mark.parametrize("rule", ["clipped", "scaled"])
def test_all_transformations_take_the_values_of_rules(rule: str) -> None:
    function = RULES[rule]()

    def hessian(m: Any) -> Any:
        if rule == "clipped":  # there is no forward mode for it
            return m.jacrev(m.jacrev(function, (0, 1)), (0, 1))(0.7, 1.3)
        return m.hessian(function, (0, 1))(0.7, 1.3), m.jacfwd(m.jacrev(function), 1)(0.7, 1.3)

    def of_parts(m: Any) -> Any:
        def part(x: Any) -> Any:
            value, pull = m.vjp(function, x, 1.3)
            return value * pull(x)[1]

        return m.grad(part)(0.7), m.vjp(m.grad(function), 0.7, 1.3)[1](1.0)

    def mixed(m: Any) -> Any:
        return m.grad(m.grad(function, 1), 0)(0.7, 1.3), jax.vmap(m.grad(m.grad(function), 1))(*jnp.ones((2, 3)))

    for each in (hessian, of_parts, mixed):
        for a, b in zip(jax.tree.leaves(each(nj)), jax.tree.leaves(each(jax)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, err_msg=each.__name__)


def within_a_map(m: Any, kind: str) -> Callable[..., Any]:
    """A derivative of a function whose rule reads a value of the map that it is called in."""

    def mapped(z: Any) -> Any:
        def each(x: Any) -> Any:
            @jax.custom_jvp
            def product(y: Any) -> Any:
                return x * y

            product.defjvp(lambda primals, tangents: (x * primals[0], 3 * x * tangents[0]))
            return product(z)

        return jax.vmap(each)(jnp.arange(3.0))

    if kind == "linearize":
        return lambda z: m.linearize(mapped, z)[1](2.0)
    return m.hessian(lambda z: (mapped(z) ** 2).sum())


@pytest.mark.parametrize("kind", ["linearize", "hessian"])
def test_rules_that_read_values_of_a_map_are_left_to_jax(kind: str) -> None:
    ours, theirs = within_a_map(nj, kind)(0.7), within_a_map(jax, kind)(0.7)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "alone": lambda h, x: h(2 * x),
    "scan": lambda h, x: jax.lax.scan(lambda s, t: (s + h(x * t), None), 0.0, jnp.arange(2.0))[0],
    "cond": lambda h, x: jax.lax.cond(x[0] > 0, h, lambda y: jnp.sum(y), x),
    "vmap": lambda h, x: jnp.sum(jax.vmap(h)(jnp.stack([x, 2 * x]))),
}


def reading_around(kind: str, around: str, made: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function with a rule that reads an array which the function makes: one where JAX differentiates the function,
    and a tracer where that is traced first."""

    def f(x: Any) -> Any:
        c = made(x)

        if kind == "custom_vjp":
            h = jax.custom_vjp(lambda y: jnp.sum(jnp.tanh(y) * c))
            h.defvjp(lambda y: (jnp.sum(jnp.tanh(y) * c), y), lambda y, g: (1.5 * g * c * jnp.cos(y),))
        else:
            h = jax.custom_jvp(lambda y: jnp.sum(jnp.tanh(y) * c))
            h.defjvp(lambda at, along: (h(*at), jnp.sum(1.5 * along[0] * c * jnp.cos(at[0]))))
        return AROUND[around](h, x)

    return f


def of_constants(x: Any) -> Any:
    return jnp.sin(jnp.arange(3.0))


def of_arguments(x: Any) -> Any:
    return jnp.cos(jnp.argsort(x))


POINT = np.array([0.3, -0.2, 0.7])


def second(m: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The gradient of the square of the gradient."""
    derived: Callable[[Any], Any] = m.grad(lambda x: jnp.sum(m.grad(f)(x) ** 2))
    return derived


@pytest.mark.parametrize(
    ("kind", "around", "made"),
    slow_but_every(10, product(["custom_vjp", "custom_jvp"], AROUND, [of_constants, of_arguments])),
)
def test_rules_that_read_what_the_function_computes_around_them(kind: str, around: str, made: Any) -> None:
    f, x = reading_around(kind, around, made), jnp.asarray(POINT)
    builds = [lambda m: m.grad(f), lambda m: second(m, f), lambda m: jax.jit(second(m, f))]
    for build in builds[: 2 if around == "cond" else 3]:  # the last fails in JAX too, of a branch
        np.testing.assert_allclose(build(nj)(x), build(jax)(x), rtol=1e-12)
    gradient = nj.grad(f)
    gradient(x)
    assert bool(gradient.report().unopened) == (made is of_arguments)


@pytest.mark.parametrize(("kind", "around"), [("custom_vjp", "scan"), ("custom_jvp", "vmap")])
def test_what_rules_read_is_computed_at_once_where_it_is_constant(kind: str, around: str) -> None:
    f, x = reading_around(kind, around, of_constants), jnp.asarray(POINT)
    expected = second(jax, f)(x)
    for opened in (nn.from_jax, F.jax_function):
        v = nn.Variable.from_numpy_array(POINT, need_grad=True)
        (g,) = nn.grad(opened(f)(v), [v])
        np.testing.assert_allclose(nn.grad(F.sum(g**2), [v])[0].d, expected, rtol=1e-12)


@pytest.mark.parametrize(("kind", "opened"), [("custom_vjp", nn.from_jax), ("custom_jvp", F.jax_function)])
def test_what_rules_read_is_refused_where_it_depends_on_arguments(kind: str, opened: Callable[..., Any]) -> None:
    v = nn.Variable.from_numpy_array(POINT, need_grad=True)
    y = opened(lambda x, k: reading_around(kind, "alone", lambda _: jnp.cos(k))(x))(v, np.arange(3))
    np.testing.assert_allclose(y.d, np.sum(np.tanh(2 * POINT) * np.cos(np.arange(3))), rtol=1e-12)
    with pytest.raises(NotImplementedError, match=r"jax_function.*reads an array that the enclosing function computes"):
        nn.grad(y, [v])


@pytest.mark.parametrize("around", ["checkpoint", "scan"])
def test_rules_of_elements_that_hold_arrays_within_bodies(around: str) -> None:
    c = np.cos(np.arange(3.0))
    ruled = jax.custom_jvp(lambda y: jnp.sin(y) * c)
    ruled.defjvp(lambda at, along: (ruled(*at), 1.5 * jnp.cos(at[0]) * (c + jnp.arange(3.0)) * along[0]))

    def f(m: Any) -> Callable[[Any], Any]:
        if around == "checkpoint":
            held: Callable[[Any], Any] = jax.checkpoint(lambda x: ruled(x * x))
            return held
        if m is jax:  # without the loop, in which JAX forgets rules from the second order on
            return lambda x: 0.5 * ruled(0.5 * ruled(x * x) * x)
        return lambda x: jax.lax.scan(lambda h, _: (0.5 * ruled(h * x), None), x, None, length=2)[0]

    def total(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: jnp.sum(jnp.sin(f(x)))

    theirs = second(jax, total(f(jax)))(POINT)
    for m in (jax, nj)[around == "scan" :]:
        np.testing.assert_allclose(second(m, total(f(nj)))(POINT), theirs, rtol=1e-12)
    np.testing.assert_allclose(jax.vjp(f(nj), POINT)[1](POINT)[0], jax.vjp(f(jax), POINT)[1](POINT)[0], rtol=1e-12)


HELD: dict[str, Callable[[Any], Any]] = {
    "NumPy's": lambda x: np.cos(np.arange(3.0)),
    "made within": of_constants,
}


@pytest.mark.parametrize(("held", "within"), [("NumPy's", "jit and vmap"), ("made within", "nothing")])
def test_rules_that_hold_arrays_under_maps(held: str, within: str) -> None:
    """JAX makes inputs of what rules hold where it traces again, and breaks a call that is differentiated by these."""

    def f(x: Any) -> Any:
        c = HELD[held](x)
        body = lambda h, a: jnp.sin(h) * a * c  # noqa: E731
        ruled = jax.custom_vjp(body)
        ruled.defvjp(lambda h, a: (ruled(h, a), (h, a)), lambda kept, g: jax.vjp(body, *kept)[1](1.5 * g))
        if within == "nothing":
            return jnp.sum(jnp.cos(ruled(x, x[::-1])) * x)
        return jnp.sum(jax.vmap(jax.jit(ruled))(jnp.stack([x, 2 * x]), jnp.stack([x[::-1], x])) ** 2)

    xs = jnp.stack([POINT, 0.5 * POINT])
    for build in (lambda m: m.grad(f), lambda m: second(m, f)):
        np.testing.assert_allclose(jax.vmap(build(nj))(xs), jax.vmap(build(jax))(xs), rtol=1e-12)


def test_errors_of_the_users_stay_errors() -> None:
    def fails(x: Any) -> Any:
        raise LookupError("of the user's")

    with pytest.raises(LookupError, match="of the user's"):
        nj.grad(fails)(0.7)

    @jax.custom_jvp
    def wrong(x: Any) -> Any:
        return x**2

    wrong.defjvp(lambda primals, tangents: (wrong(*primals), jnp.stack(tangents)))
    with pytest.raises(TypeError, match="Custom JVP rule must produce primal and tangent outputs"):
        nj.jvp(wrong, (0.7,), (1.0,))


def test_a_rule_that_jax_cannot_differentiate_once_it_is_mapped() -> None:
    """Its value does not depend on the point, its tangent does: JAX maps the one along no axis and the other along the
    first. The map of the derivative exists all the same."""

    @jax.custom_jvp
    def nothing(x: Any) -> Any:
        return np.zeros(x.shape, x.dtype)

    @nothing.defjvp
    def along(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return nothing(x), jnp.cos(x) * t

    x = jnp.arange(3.0)
    np.testing.assert_allclose(jax.jit(jax.vmap(nj.grad(nothing)))(x), np.cos(x), rtol=1e-15)
    np.testing.assert_allclose(jax.vmap(nj.grad(nj.grad(nothing)))(x), -np.sin(x), rtol=1e-15)


@pytest.mark.parametrize("function", [jnp.logaddexp, jax.scipy.special.xlogy])
def test_a_map_lines_up_rows_of_one_input_with_elements_of_another(function: Callable[..., Any]) -> None:
    x, y = np.random.default_rng(0).uniform(1, 2, (3, 3)), np.array([1.0, 1.5, 2.0])
    compare(lambda t: jnp.sum(jnp.sin(jax.vmap(function)(t * x, y))), 1.0)


AMONG: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "scan": lambda f, x: jax.lax.scan(lambda h, t: (f(h, x[::-1] * t), None), x, jnp.arange(1.0, 3.0))[0],
    "checkpoint": lambda f, x: jax.checkpoint(lambda h: f(h, x[::-1]))(x),
}


@pytest.mark.parametrize("around", AMONG)
def test_rules_with_arrays_that_do_not_call_the_function_are_jaxs_at_each_order(around: str) -> None:
    held = np.sin(np.arange(3.0) + 1)
    f = jax.custom_vjp(lambda h, a: jnp.sin(h) * a * held)
    f.defvjp(
        lambda h, a: (jnp.sin(h) * a * held, (h, a)),
        lambda k, g: (jnp.tanh(g) * jnp.cos(k[0]) * k[1] * held, g * jnp.sin(k[0]) * held),
    )

    def nested(m: Any, order: int) -> Callable[..., Any]:
        g = m.grad(lambda x: jnp.sum(AMONG[around](f, x) * jnp.cos(jnp.arange(3.0))))
        return g if order == 1 else m.grad(lambda x: jnp.sum(jnp.sin(nested(m, order - 1)(x))))

    x = jnp.array([0.3, -0.7, 1.1])
    for order in (1, 2):
        np.testing.assert_allclose(nested(nj, order)(x), nested(jax, order)(x), rtol=1e-10)
