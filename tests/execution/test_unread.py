"""What nobody reads is not lowered; what is known stays known where JAX traces what is around."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj


def steps_of(text: str) -> int:
    return len(re.findall(r"= stablehlo\.", text))


def loops_in_loops(x: Any) -> Any:
    def inner(c: Any, k: Any) -> tuple[Any, None]:
        return jnp.sin(c * k) + x, None

    def outer(c: Any, k: Any) -> tuple[Any, None]:
        return jax.lax.scan(inner, c * k, jnp.arange(3.0))[0], None

    return jnp.sum(jax.lax.scan(outer, x, jnp.arange(4.0))[0])


def test_of_a_call_under_jit() -> None:
    x, gradient = jnp.asarray([0.1, 0.4]), nj.grad(loops_in_loops)
    graph, _ = gradient.graph_of(x)
    called, run = jax.jit(gradient).lower(x).as_text(), jax.jit(graph.run).lower(x).as_text()
    assert steps_of(called) <= steps_of(run)
    np.testing.assert_allclose(jax.jit(gradient)(x), jax.grad(loops_in_loops)(x), rtol=1e-5)


def test_of_a_way_on_a_platform() -> None:
    x = nn.Variable.from_numpy_array(np.ones((1, 3, 8, 8), "f"))
    w = nn.Variable.from_numpy_array(np.ones((3, 3, 3, 3), "f"))

    def step(h: nn.Variable) -> nn.Variable:
        return F.tanh(F.convolution(h, w, pad=(1, 1)))  # which a pass for CPUs changes

    once = F.sum(F.scan(lambda h, _: (step(h), None), x, length=2)[0] + step(x))
    text = jax.jit(nn.to_jax(once, [x])).lower(x.data.array).as_text()
    widest = max([len(line.split("->")[0]) for line in text.splitlines() if "stablehlo.while" in line])
    assert widest and text.count("tensor<2x1x3x8x8xf32>") == 0  # no stack of what each step computes


def test_keys_that_are_known_are_opened_under_jit() -> None:
    key = jax.random.key(3)

    def f(x: Any) -> Any:
        def step(c: Any, k: Any) -> tuple[Any, None]:
            return jnp.sin(c) * jax.random.normal(k, c.shape), None

        return jnp.sum(jax.lax.scan(step, x, jax.random.split(key, 3))[0])

    gradient, x = nj.grad(f), jnp.asarray([0.1, 0.4])
    found = jax.jit(gradient)(x)
    assert "its rule failed" not in str(gradient.report())
    np.testing.assert_allclose(found, jax.grad(f)(x), rtol=1e-5)
