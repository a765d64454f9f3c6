"""associative_scan against jax.lax, to order 3."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.oracle import arrays_of, by_jax


def linear(a: Any, b: Any) -> Any:
    """The steps of h' = p h + q, one after the other."""
    return {"p": b["p"] * a["p"], "q": b["p"] * a["q"] + b["q"]}


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 9), st.booleans(), st.sampled_from([0, 1, -1]), st.integers(0, 2**16))
def test_values_are_those_of_jax(count: int, reverse: bool, axis: int, seed: int) -> None:
    shape = [3, 2]
    shape.insert(axis if axis >= 0 else 3 + axis, count)
    p, q = np.random.default_rng(seed).standard_normal((2, *shape))
    leaves = {"p": Variable.from_numpy_array(p), "q": Variable.from_numpy_array(q)}
    found = F.associative_scan(linear, leaves, reverse=reverse, axis=axis)
    if count == 0:  # as the empty arrays that they are
        assert found["p"].shape == p.shape
        return
    # Its reversal knows no negative axes.
    expected = by_jax(
        lambda p, q: jax.lax.associative_scan(linear, {"p": p, "q": q}, reverse=reverse, axis=axis % 3), p, q
    )
    for found_one, name in zip(arrays_of(found["p"], found["q"]), "pq", strict=True):
        np.testing.assert_allclose(found_one, expected[name], rtol=1e-12, atol=1e-12)


def test_derivatives_to_order_3_are_those_of_a_loop() -> None:
    p, q = np.random.default_rng(1).standard_normal((2, 5))

    def by_steps(p: Any, q: Any) -> Any:
        h, total = 0.0, 0.0
        for i in range(5):
            h = p[i] * h + q[i]
            total = total + jnp.sin(h)
        return total

    leaves = [Variable.from_numpy_array(a, need_grad=True) for a in (p, q)]
    found: Any = F.sum(F.sin(F.associative_scan(linear, {"p": leaves[0], "q": leaves[1]})["q"]))
    expected: Any = by_steps
    orders, references = [], []
    for _ in range(3):
        first, second = nn.grad(found, leaves)
        found = F.sum(first**2) + F.sum(second**3)

        def of_gradients(p: Any, q: Any, below: Any = expected) -> Any:
            first, second = jax.grad(below, (0, 1))(p, q)
            return jnp.sum(first**2) + jnp.sum(second**3)

        expected = of_gradients
        orders.append(found)
        references.append(expected)
    np.testing.assert_allclose(arrays_of(*orders), by_jax(lambda p, q: [f(p, q) for f in references], p, q), rtol=1e-10)


def test_bad_input_is_refused() -> None:
    x, y = Variable((3, 2)), Variable((4, 2))
    with pytest.raises(TypeError, match="fn must be a function of two pytrees, got None"):
        F.associative_scan(None, x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the same length along axis 0, got \[3, 4\]"):
        F.associative_scan(lambda a, b: a, (x, y))
    with pytest.raises(ValueError, match=r"elems\[0\] of shape \(3, 2\)"):
        F.associative_scan(lambda a, b: a, x, axis=2)
    with pytest.raises(ValueError, match=r"fn must keep the type of leaf 0, float32\[1, 2\]"):
        F.associative_scan(lambda a, b: F.sum(a), x)
    with pytest.raises(TypeError, match="fn must keep the structure of its arguments"):
        F.associative_scan(lambda a, b: (a, b), x)
    with pytest.raises(ValueError, match="elems must contain at least one array"):
        F.associative_scan(lambda a, b: a, None)
