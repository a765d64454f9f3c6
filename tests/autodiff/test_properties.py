"""Random graphs: nngrad against `jax.grad` of the same expression, and the simplified walk against the plain one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.interpret import interpret
from nngrad.graph import Variable

SHAPES = [(), (3,), (2, 1), (2, 3), (1, 3)]
SETTINGS = settings(
    max_examples=40, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class TwoSided(nn.CustomFunction):
    """Two outputs that share their inputs: sin(a) b and a + cos(b)."""

    outputs = 2

    def forward(self, a: Any, b: Any) -> Any:
        return jnp.sin(a) * b, a + jnp.cos(b)

    def backward(self, f: nn.Function, gp: Variable, gs: Variable) -> Any:
        a, b = f.inputs
        return F.cos(a) * b * gp + gs, F.sin(a) * gp - F.sin(b) * gs


class Operation(NamedTuple):
    """The same function for nngrad and for JAX; each gives a list of results."""

    arity: int
    ours: Callable[..., Any]
    theirs: Callable[..., Any]


OPERATIONS: dict[str, Operation] = {
    "add": Operation(2, lambda a, b: [a + b], lambda a, b: [a + b]),
    "sub": Operation(2, lambda a, b: [a - b], lambda a, b: [a - b]),
    "mul": Operation(2, lambda a, b: [a * b], lambda a, b: [a * b]),
    "scale": Operation(1, lambda a: [a * 0.5], lambda a: [a * 0.5]),
    "negate": Operation(1, lambda a: [-a], lambda a: [-a]),
    "shift": Operation(1, lambda a: [1 - a], lambda a: [1 - a]),
    "square": Operation(1, lambda a: [a**2], lambda a: [a**2]),
    "double": Operation(1, lambda a: [a + a], lambda a: [a + a]),
    "tanh": Operation(1, lambda a: [F.tanh(a)], lambda a: [jnp.tanh(a)]),
    "sin": Operation(1, lambda a: [F.sin(a)], lambda a: [jnp.sin(a)]),
    "exp of tanh": Operation(1, lambda a: [F.exp(F.tanh(a))], lambda a: [jnp.exp(jnp.tanh(a))]),
    "sum": Operation(1, lambda a: [F.sum(a)], lambda a: [jnp.sum(a)]),
    "total": Operation(
        1,
        lambda a: [F.reshape(F.sum(F.broadcast(a, shape=(2, 3)), axis=0), shape=(3,))],
        lambda a: [jnp.sum(jnp.broadcast_to(a, (2, 3)), axis=0)],
    ),
    "sum of three": Operation(3, lambda a, b, c: [F.add_n(a, b, c)], lambda a, b, c: [a + b + c]),
    "bounded quotient": Operation(2, lambda a, b: [a / (b * b + 1.5)], lambda a, b: [a / (b * b + 1.5)]),
    "two outputs": Operation(
        2, lambda a, b: list(TwoSided()(a, b)), lambda a, b: [jnp.sin(a) * b, a + jnp.cos(b)]
    ),
    "single": Operation(
        1, lambda a: [F.cast(F.cast(a, dtype=np.float32), dtype=np.float64) * 1.0 + a - a],
        lambda a: [a.astype(jnp.float32).astype(jnp.float64) * 1.0],
    ),
}


class Recipe(NamedTuple):
    """A random graph: leaves, steps on earlier values, and which values are outputs."""

    shapes: list[tuple[int, ...]]
    steps: list[tuple[str, tuple[int, ...]]]
    outputs: list[int]


@st.composite
def recipes(draw: Callable[..., Any], exact: bool = True) -> Recipe:
    """Graphs with fan-out, repeated operands and repeated outputs."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    names = sorted(set(OPERATIONS) - ({"single"} if exact else set()))
    steps, count = [], len(shapes)
    for _ in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(names))
        operands = tuple(draw(st.integers(0, count - 1)) for _ in range(OPERATIONS[name].arity))
        steps.append((name, operands))
        count += 2 if name == "two outputs" else 1
    outputs = draw(st.lists(st.integers(max(0, count - 3), count - 1), min_size=1, max_size=3))
    return Recipe(shapes, steps, outputs)


def follow(recipe: Recipe, leaves: Sequence[Any], ours: bool) -> list[Any]:
    """The outputs of a recipe. Two operands that do not broadcast to (2, 3) are never met: all shapes do."""
    values = list(leaves)
    for name, operands in recipe.steps:
        f = OPERATIONS[name].ours if ours else OPERATIONS[name].theirs
        operands_of = [values[i] for i in operands]
        if name == "two outputs":
            operands_of = [one(a, ours) for a in operands_of]
        values.extend(f(*operands_of))
    return [values[i] for i in recipe.outputs]


def one(a: Any, ours: bool) -> Any:
    """`a` in the common shape: TwoSided does not broadcast."""
    return F.broadcast(a, shape=(2, 3)) if ours else jnp.broadcast_to(a, (2, 3))


def draw_leaves(recipe: Recipe, dtype: Any = np.float64) -> list[np.ndarray[Any, Any]]:
    """Fixed numbers for the leaves."""
    rng = np.random.default_rng(len(recipe.steps))
    return [rng.uniform(-1, 1, shape).astype(dtype) for shape in recipe.shapes]


def jax_gradients(
    recipe: Recipe, arrays: Sequence[Any], upstream: Callable[[int], float]
) -> tuple[list[Any], list[Any]]:
    """Gradients of the outputs' sum, and of a sum over squares of those."""

    def total(xs: Sequence[Any]) -> Any:
        return sum(jnp.sum(y) * upstream(i) for i, y in enumerate(follow(recipe, xs, ours=False)))

    def of_first(xs: Sequence[Any]) -> Any:
        return sum(jnp.sum(g * g * 0.5 + g) for g in jax.grad(total)(xs))

    with jax.enable_x64(True), jax.disable_jit():
        xs = [jnp.asarray(x) for x in arrays]
        return jax.grad(total)(xs), jax.grad(of_first)(xs)


def our_gradients(
    recipe: Recipe, leaves: list[Variable], upstream: Callable[[int], float]
) -> tuple[list[Variable], list[Variable]]:
    """The same as graphs."""
    outputs = follow(recipe, leaves, ours=True)
    first = nn.grad(outputs, leaves, grad_outputs=[upstream(i) for i in range(len(outputs))])
    second = nn.grad([g * g * 0.5 + g for g in first], leaves)
    return first, second


def agree(ours: Sequence[Any], theirs: Sequence[Any], rtol: float) -> None:
    """Compare arrays, with a tolerance relative to the largest."""
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape and a.dtype == b.dtype
        scale = max(1.0, float(np.max(np.abs(b), initial=0)))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale)


@settings(SETTINGS, max_examples=20)
@given(recipes(), st.sampled_from([1.0, -2.0, 0.5]))
def test_gradients_are_those_of_jax(recipe: Recipe, seed: float) -> None:
    arrays = draw_leaves(recipe)
    leaves = [Variable.from_numpy_array(x) for x in arrays]
    first, second = our_gradients(recipe, leaves, lambda i: seed + i)
    expected = jax_gradients(recipe, arrays, lambda i: seed + i)
    results = interpret([*first, *second], {})
    agree(results, [*expected[0], *expected[1]], 1e-11)


@SETTINGS
@given(recipes())
def test_simplified_gradients_are_those_of_the_plain_walk(recipe: Recipe) -> None:
    leaves = [Variable.from_numpy_array(x) for x in draw_leaves(recipe)]
    simplified = our_gradients(recipe, leaves, lambda i: 1.0)
    with nn.simplify(False):
        plain = our_gradients(recipe, leaves, lambda i: 1.0)
    size = len(nn.graph.functions_of([*simplified[0], *simplified[1]]))
    assert size <= len(nn.graph.functions_of([*plain[0], *plain[1]]))
    results = interpret([*simplified[0], *simplified[1], *plain[0], *plain[1]], {})
    half = len(results) // 2
    agree(results[:half], results[half:], 1e-11)


@pytest.mark.slow
@settings(SETTINGS, max_examples=16)
@given(recipes(exact=False), st.lists(st.sampled_from([np.float32, np.float64]), min_size=3, max_size=3))
def test_mixed_dtypes_agree_and_are_kept(recipe: Recipe, dtypes: list[Any]) -> None:
    arrays = [x.astype(t) for x, t in zip(draw_leaves(recipe), dtypes, strict=False)]
    leaves = [Variable.from_numpy_array(x) for x in arrays]
    first, second = our_gradients(recipe, leaves, lambda i: 1.0)
    assert [g.dtype for g in [*first, *second]] == [x.dtype for x in arrays] * 2
    expected = jax_gradients(recipe, arrays, lambda i: 1.0)
    agree(interpret([*first, *second], {}), [*expected[0], *expected[1]], 2e-3)


@settings(SETTINGS, max_examples=12)
@given(recipes())
def test_executables_agree_with_single_ops(recipe: Recipe) -> None:
    leaves = [Variable.from_numpy_array(x, need_grad=True) for x in draw_leaves(recipe)]
    outputs = follow(recipe, leaves, ours=True)
    loss = F.add_n(*[F.sum(y) for y in outputs])
    gradients = nn.grad(loss, leaves)
    loss.forward()
    loss.backward()
    agree([x.g for x in leaves], interpret(gradients, {}), 1e-11)
    agree([loss.d], interpret([loss], {}), 1e-11)
