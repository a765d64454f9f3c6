"""JAX's transformations around those of `nngrad.jax`, as the first call: against JAX alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax import lax
from jax.experimental import io_callback

import nngrad.jax as nj
from tests.slow import slow_but_every

RNG = np.random.default_rng(0)
X, ALONG = 0.3 * RNG.standard_normal((2, 16))
NEIGHBOURS = RNG.integers(0, 16, 6000).astype(np.int32)
KERNEL = RNG.standard_normal((3, 3, 1, 1))


@pytest.fixture(autouse=True)
def _in_64_bits() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def of_neighbours(x: Any) -> Any:
    return jnp.sum(jnp.sin(x[NEIGHBOURS]) * x[NEIGHBOURS[::-1]])


def of_a_long_chain(x: Any) -> Any:
    for _ in range(14):
        x = jnp.sin(x) * 1.1 + x * 0.3
    return jnp.sum(x**2)


def of_a_convolution(x: Any) -> Any:
    image = jnp.reshape(x, (1, 4, 4, 1))
    for _ in range(2):
        image = jnp.tanh(lax.conv_general_dilated(image, jnp.asarray(KERNEL, image.dtype), (1, 1), "SAME",
                                                  dimension_numbers=("NHWC", "HWIO", "NHWC")))  # fmt: skip
    return jnp.sum(image**2)


FUNCTIONS = {"neighbours": of_neighbours, "chain": of_a_long_chain, "convolution": of_a_convolution}


def gradient(module: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jnp.sum(module.grad(f)(x) ** 3)


def value_and_gradient(module: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        y, g = module.value_and_grad(f)(x)
        return y * jnp.sum(g**2)

    return run


def tangent(module: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: module.jvp(f, (x,), (jnp.asarray(ALONG),))[1]


def cotangent(module: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jnp.sum(module.vjp(f, x)[1](jnp.ones(()))[0] ** 2)


AROUND: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "jit": jax.jit,
    "grad": jax.grad,
    "grad of jit": lambda h: jax.grad(jax.jit(h)),
    "jit of vmap of grad": lambda h: jax.jit(lambda x: jax.vmap(jax.grad(h))(jnp.stack([x, 2 * x]))),
    "grad of checkpoint": lambda h: jax.grad(jax.checkpoint(h)),
    "grad of scan": lambda h: jax.grad(lambda x: lax.scan(lambda c, _: (c + h(c) / 99, None), x, length=2)[0].sum()),
    "linearize": lambda h: lambda x: jax.linearize(h, x)[1](jnp.asarray(ALONG)),
}

INNER = (gradient, value_and_gradient, tangent, cotangent)
CASES = [([*FUNCTIONS][i % 3], INNER[i % 4], around) for i, around in enumerate(AROUND)]


@pytest.mark.parametrize(("function", "inner", "around"), slow_but_every(3, CASES))
def test_a_first_call_agrees_with_jax(function: str, inner: Callable[..., Any], around: str) -> None:
    found, wanted = [AROUND[around](inner(module, lambda x: FUNCTIONS[function](x)))(X) for module in (nj, jax)]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11 * float(jnp.max(jnp.abs(wanted))))


def test_what_a_function_does_beside_is_done_once_as_in_jax() -> None:
    seen: list[float] = []

    def speaking(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), x, ordered=True)
        return lax.scan(lambda c, _: (jnp.sin(c), jax.debug.callback(lambda v: seen.append(float(v)), c, ordered=True)),
                        x, length=2)[0]  # fmt: skip

    programs: dict[str, Callable[[Any], Any]] = {
        "grad": lambda m: m.grad(speaking)(0.5),
        "jit": lambda m: jax.jit(m.value_and_grad(speaking))(0.5),
        "jvp of grad": lambda m: m.jvp(m.grad(speaking), (0.5,), (1.0,)),
        "vjp": lambda m: m.vjp(speaking, 0.5)[1](2.0),
        "linearize": lambda m: m.linearize(speaking, 0.5)[1](2.0),
        "grad around": lambda m: jax.grad(lambda x: m.grad(speaking)(x) ** 2)(0.5),
    }
    for name, program in programs.items():
        said = []
        for module in (nj, jax):
            seen.clear()
            jax.block_until_ready(program(module))
            jax.effects_barrier()
            said.append(tuple(seen))
        assert said[0] == said[1] and len(said[0]) == 3, name


def test_results_of_the_host_beside_prints_are_left_to_jax() -> None:
    def both(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x * io_callback(lambda: np.float64(2), jax.ShapeDtypeStruct((), np.float64))

    slope = nj.grad(both)
    assert slope(0.5) == 2
    (reason,) = slope.report().unopened
    assert "cannot combine io_callback with results and jax.debug.print" in reason


def test_jax_differentiates_zeta_functions_of_graphs_in_loops() -> None:
    """JAX's own has no derivative, and in loops JAX forgets rules of `custom_jvp`."""
    trigamma = nj.grad(jax.scipy.special.digamma)

    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(jax.grad(jax.grad(lambda x: lax.scan(lambda c, _: (function(c), None), x, None, length=2)[0])))

    at = np.array([0.4, 1.3, 2.6])
    expected = of(lambda x: jax.scipy.special.polygamma(1, x))(at)
    np.testing.assert_allclose(jax.jit(of(trigamma))(at), expected, rtol=1e-12)
    opened = nj.grad(jax.grad(jax.grad(trigamma)))
    np.testing.assert_allclose(opened(at[1]), scipy.special.polygamma(4, at[1]), rtol=1e-13)
    assert "100%" in str(opened.report())
