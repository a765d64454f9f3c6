"""Functions whose gradient the user gives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.exact import exactly
from tests.leaves import leaf

X, W = np.random.default_rng(0).standard_normal((2, 3, 2))


@nn.custom_gradient
def halved(x: Any, w: Any) -> Any:
    """A product, half of whose gradient goes to each factor, and of the first three times the square of w."""
    y = x * w
    return y, lambda gy: (0.5 * gy * w**2, 0.5 * gy * y)


@jax.custom_vjp
def halved_in_jax(x: Any, w: Any) -> Any:
    """The same in JAX."""
    return x * w


# What is computed on the way is the function itself again; else JAX differentiates it in its own way the second time.
halved_in_jax.defvjp(
    lambda x, w: (halved_in_jax(x, w), (x, w)), lambda r, gy: (0.5 * gy * r[1] ** 2, 0.5 * gy * r[0] * r[1])
)


def total(m: Any, f: Any, scan: Any, x: Any, w: Any) -> Any:
    """The function by itself, and in a loop."""
    h, _ = scan(lambda h, _: (m.sin(f(h, w)), None), x, None, length=3)
    return m.sum(h**2) + m.sum(f(m.sin(x), w) ** 3)


def test_derivatives_of_orders_0_to_3_are_those_of_what_is_given() -> None:
    leaves = [leaf(X), leaf(W)]
    found: list[Any] = [total(F, halved, F.scan, *leaves)]
    expected: list[Any] = [lambda x, w: total(jnp, halved_in_jax, jax.lax.scan, x, w)]
    for _ in range(3):
        gx, gw = nn.grad(found[-1], leaves)
        found.append(F.sum(F.sin(gx)) + F.sum(gw**2))

        def norm(x: Any, w: Any, below: Any = expected[-1]) -> Any:
            gx, gw = jax.grad(below, (0, 1))(x, w)
            return jnp.sum(jnp.sin(gx)) + jnp.sum(gw**2)

        expected.append(norm)
    nn.forward_all(found)
    for order, (y, value) in enumerate(zip(found, exactly(lambda *xs: [f(*xs) for f in expected], X, W), strict=True)):
        np.testing.assert_allclose(y.d, value, rtol=1e-10, err_msg=f"order {order}")


def test_one_that_is_exact_takes_every_route() -> None:
    @nn.custom_gradient(exact=True)
    def softplus(x: Any) -> Any:
        return F.log(1 + F.exp(x)), lambda gy: gy * F.sigmoid(x)

    x, w = leaf(X), leaf(np.eye(2))
    (g,) = nn.grad(softplus(F.sin(x @ w)), x)
    (gg,) = nn.grad(g, x)
    assert nn.explain(gg).orders[-1].mode != "reverse"
    expected = exactly(jax.vmap(jax.grad(jax.grad(lambda x: jnp.log(1 + jnp.exp(jnp.sin(x)))))), X.ravel())
    np.testing.assert_allclose(gg.d.ravel(), expected, rtol=1e-10)
    (tangent,) = nn.jvp(softplus(x), x, leaf(W))
    np.testing.assert_allclose(tangent.d, W / (1 + np.exp(-X)), rtol=1e-12)


def test_a_gradient_that_is_not_linear() -> None:
    clipped = nn.custom_gradient(lambda x: (x, lambda gy: F.minimum_scalar(F.maximum_scalar(gy, -1.0), 1.0)))
    x = leaf(X)
    (g,) = nn.grad(F.sum(clipped(x) ** 2), x)
    np.testing.assert_allclose(g.d, np.clip(2 * X, -1, 1))
    (gg,) = nn.grad(F.sum(g**2), x)
    np.testing.assert_allclose(gg.d, np.where(abs(2 * X) < 1, 8 * X, 0).clip(-1, 1))


def test_several_results_settings_and_none() -> None:
    @nn.custom_gradient
    def both(x: Any, w: Any, power: int) -> Any:
        return {"a": x**power, "b": w}, lambda ga, gb: (ga * 7, None)

    x, w = leaf(X), leaf(W)
    result = both(x, w, 2)
    np.testing.assert_allclose(result["a"].d, X**2)
    gx, gw = nn.grad(F.sum(result["a"] * result["b"]), [x, w])
    np.testing.assert_allclose(gx.d, 7 * W)
    np.testing.assert_allclose(gw.d, 0 * W)


def test_what_the_gradient_reads_from_outside_is_differentiated() -> None:
    x, scale = leaf(X), leaf(3.0)
    (g,) = nn.grad(F.sum(nn.custom_gradient(lambda x: (x, lambda gy: gy * scale))(x)), x)
    (gs,) = nn.grad(F.sum(g), scale)
    np.testing.assert_allclose(gs.d, X.size)


def test_a_mask_is_drawn_once() -> None:
    @nn.custom_gradient
    def dropped(x: Any) -> Any:
        y = F.dropout(x, 0.5)
        return y, lambda gy: gy * y

    x = leaf(np.ones((40, 4)))
    y = dropped(x)
    (g,) = nn.grad(y, x)
    nn.forward_all([y, g])
    np.testing.assert_array_equal(y.d, g.d)


def test_bad_input_is_refused() -> None:
    x, w = leaf(X), leaf(W)
    with pytest.raises(TypeError, match="fun must be a function of Variables, got 3"):
        nn.custom_gradient(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="must return a pair"):
        nn.custom_gradient(lambda x: x)(x)
    with pytest.raises(ValueError, match="must return 1 gradients, got 2"):
        nn.custom_gradient(lambda x: (x, lambda gy: (gy, gy)))(x)
    with pytest.raises(ValueError, match=r"gradient 0 must be .*, like argument 0, got"):
        nn.custom_gradient(lambda x: (x, lambda gy: F.sum(gy)))(x)
    with pytest.raises(ValueError, match=r"reads a Variable of shape .* from outside that needs a gradient"):
        nn.custom_gradient(lambda x: (x * w, lambda gy: gy))(x)
