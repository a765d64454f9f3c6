"""nj.jet against jax.experimental.jet, and against nested jax.jvp where that lacks a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.jet import jet

import nngrad.jax as nj

RANDOM = np.random.default_rng(0)
MATRIX = RANDOM.normal(size=(3, 3))
X = RANDOM.normal(size=3)
TERMS = list(RANDOM.normal(size=(6, 3)))


@pytest.fixture(autouse=True)
def _x64() -> Any:
    with jax.enable_x64(True):
        yield


def _both_know(x: Any) -> dict[str, Any]:
    """Functions that JAX's Taylor mode knows."""
    one = jnp.stack([jnp.sin(x), jnp.exp(x), jnp.tanh(x @ MATRIX), x**5, jnp.cumprod(x), jax.scipy.special.erf(x)])
    two = [jnp.log(x**2 + 1), jnp.sqrt(x**2 + 1), jnp.abs(x) ** 1.7, jax.nn.softmax(x), x / (2 + x**2), jnp.arcsinh(x)]
    return {"one": one, "two": two, "number": jax.nn.logsumexp(x), "whole": jnp.arange(3) + (x > 0)}


def _nngrad_knows(x: Any) -> Any:
    """Functions that it lacks."""
    last, stack = jax.lax.scan(lambda h, _: (jnp.sin(h @ MATRIX), h), x, None, length=3)
    chosen = jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)
    return last, stack, chosen, jnp.linalg.solve(MATRIX + jnp.diag(x), x), jnp.arctan(x), jax.nn.silu(x)


def nested(fun: Callable[..., Any], x: Any, terms: list[Any]) -> tuple[Any, list[Any]]:
    """The value and the derivatives along a curve, by nested forward mode."""
    curve = [x, *terms]
    found, of_curve = [fun(x)], fun
    for n in range(1, len(curve)):
        of_curve = (lambda f: lambda *at: jax.jvp(f, at[:-1], at[1:])[1])(of_curve)
        found.append(of_curve(*curve[: n + 1]))
    return found[0], jax.tree.map(lambda _, *own: [*own], *found)


def check(given: Any, expected: Any) -> None:
    """Equal structures, dtypes and values."""
    structure: Any = jax.tree.structure(expected)
    assert structure == jax.tree.structure(given)
    for own, other in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("order", "scaled"), [(6, True), (2, False)])
def test_as_jax_has_it(order: int, scaled: bool) -> None:
    def both(x: Any, terms: list[Any]) -> tuple[Any, Any]:
        ours, theirs = [each(_both_know, (x,), (terms,), factorial_scaled=scaled) for each in (nj.jet, jet)]
        return ours, theirs

    check(*jax.jit(both)(X, TERMS[:order]))


def test_through_what_jax_has_no_rules_for() -> None:
    ours = jax.jit(lambda x, terms: nj.jet(_nngrad_knows, (x,), (terms,)))(X, TERMS[:3])
    check(ours, jax.jit(lambda x, terms: nested(_nngrad_knows, x, terms))(X, TERMS[:3]))


def test_where_the_curve_depends_on_the_point() -> None:
    def along_itself(module: Callable[..., Any]) -> Any:
        return lambda x: module(lambda y: jnp.sin(y) * x, (x,), ((x, x * x),))[1][1]

    check(nj.grad(along_itself(nj.jet))(0.3), jax.grad(along_itself(jet))(0.3))
    check(nj.jet(along_itself(nj.jet), (0.3,), ((1.0, 2.0),)), jet(along_itself(jet), (0.3,), ((1.0, 2.0),)))


def test_under_vmap_and_with_a_function_that_stays_opaque() -> None:
    terms = np.stack(TERMS[:2])
    ours = jax.vmap(lambda x, *own: nj.jet(lambda y: jnp.tanh(MATRIX @ y), (x,), (own,)))(MATRIX, MATRIX, MATRIX)
    theirs = jax.vmap(lambda x, *own: jet(lambda y: jnp.tanh(MATRIX @ y), (x,), (own,)))(MATRIX, MATRIX, MATRIX)
    check(ours, (theirs[0], [*theirs[1]]))

    @jax.custom_jvp
    def tripled(x: Any) -> Any:
        return 2 * jnp.sin(x)

    tripled.defjvp(lambda given, along: (tripled(*given), 3 * jnp.cos(given[0]) * along[0]))
    check(nj.jet(tripled, (X,), ([*terms],)), nested(tripled, X, [*terms]))


def test_each_order_adds_a_constant_number_of_products() -> None:
    def network(x: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ MATRIX)
        return x

    def products(order: int) -> int:
        run = jax.jit(lambda x, terms: nj.jet(network, (x,), (terms,)))
        return run.lower(MATRIX, [MATRIX] * order).as_text().count("dot_general")

    assert [products(order) for order in (1, 2, 5)] == [6, 9, 18]


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: nj.jet(jnp.sin, (2,), ((1.0,),)), TypeError, "argument 0 must be floating, got 2"),
    (lambda: nj.jet(jnp.sin, 2.0, ((1.0,),)),  # type: ignore[arg-type]
     TypeError, "primals must be a tuple"),
    (lambda: nj.jet(jnp.sin, (2.0,), ((1.0,), (2.0,))), ValueError, "an entry for each of the 1 primals, got 2"),
    (lambda: nj.jet(jnp.add, (2.0, 3.0), ((1.0,), ())), ValueError, r"equally many terms .* \[1, 0\]"),
    (lambda: nj.jet(jnp.sin, (X,), ((1.0,),)), ValueError, r"term 1 of argument 0 must have the .* shape \(3,\)"),
    (lambda: nj.jet(jnp.sin, (X,), (([1.0],),)), ValueError, "term 1 of argument 0 must have the structure"),
])  # fmt: skip
def test_what_is_wrong_is_said(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^jet: .*{message}"):
        call()
