"""Programs that differ in numbers alone share an executable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.lower import linearize
from nngrad.execution.partitions import hoist_from, with_literals
from nngrad.execution.program import Program
from tests.costs import compilations
from tests.oracle import by_jax


@pytest.fixture(autouse=True)
def no_executables() -> None:
    nn.executables.clear()


def values(build: Callable[[float], nn.Variable], numbers: list[float]) -> list[np.ndarray]:
    """The values for several numbers, each of a graph of its own."""
    found = []
    for number in numbers:
        y = build(number)
        y.forward()
        found.append(y.d.copy())
    return found


@pytest.mark.parametrize(
    ("build", "reference"),
    [
        (lambda c: F.sin(nn.Variable.from_numpy_array(np.arange(3.0))) * c, lambda c: np.sin(np.arange(3.0)) * c),
        (lambda c: nn.Variable.from_numpy_array(np.arange(3.0)) ** c, lambda c: np.arange(3.0) ** c),
        (lambda c: c + F.exp(nn.Variable.from_numpy_array(np.ones(3))) / c, lambda c: c + np.exp(np.ones(3)) / c),
        (lambda c: F.constant(c, (2,), "float64") + 1.0, lambda c: np.full(2, c) + 1.0),
    ],
    ids=["product", "power", "quotient", "constant"],
)
def test_a_number_that_changes_is_compiled_once(
    build: Callable[[float], nn.Variable], reference: Callable[[float], np.ndarray]
) -> None:
    numbers = [0.3 + 0.071 * i for i in range(30)]
    with compilations() as compiled:
        found = values(build, numbers)
    assert len(compiled) == 1
    for number, value in zip(numbers, found, strict=True):
        np.testing.assert_allclose(value, reference(number), rtol=1e-13)


def test_special_numbers_are_inputs_too() -> None:
    def build(c: float) -> nn.Variable:
        return nn.Variable.from_numpy_array(np.array([1.0, -2.0], np.float32)) * c

    numbers = [0.5, 0.25, np.inf, -0.0, 1e300, np.nan]
    for number, value in zip(numbers, values(build, numbers), strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            np.testing.assert_array_equal(value, np.array([1.0, -2.0], np.float32) * np.float32(number))
        assert value.dtype == np.float32
    assert np.signbit(values(build, [-0.0])[0]).tolist() == [True, False]


def test_each_number_goes_to_its_place() -> None:
    x = nn.Variable((2,))
    y = F.exp(x * 2.5 + 0.25) * 0.75 + F.linear_combination(x, x * x, coefficients=(1, 4.5))
    block = linearize([y]).program.block
    general, numbers = hoist_from(block)
    assert sorted(numbers) == [0.25, 0.75, 2.5, 4.5]
    assert general != block
    assert with_literals(Program(general), numbers).block == block


# ---------------------------------------------------------------- indices

def test_each_element_is_read_and_differentiated_by_the_same_executable() -> None:
    given = np.linspace(0.1, 2, 9)
    x = nn.Variable.from_numpy_array(given, need_grad=True)
    y = F.concatenate(F.sin(x), x**3)
    y.need_grad = True  # in the middle of the graph that is differentiated, and kept
    with compilations() as compiled:
        read = [y[i].d for i in range(-18, 18)]
        rows = []
        for i in range(18):
            x.grad.zero()
            y[i].backward(retain_grad=True)
            rows.append(x.g.copy())
            np.testing.assert_array_equal(y.g, np.eye(18)[i])
    assert len(compiled) <= 3  # a value, its gradients, and what accumulates
    np.testing.assert_allclose(read, 2 * [*np.sin(given), *given**3], rtol=1e-14)
    np.testing.assert_allclose(rows, np.vstack([np.diag(np.cos(given)), np.diag(3 * given**2)]), rtol=1e-14)


# ---------------------------------------------------------------- numbers in bodies, and to compare with

def in_a_checkpoint(x: nn.Variable, c: float) -> nn.Variable:
    return nn.checkpoint(lambda y: nn.checkpoint(lambda z: F.tanh(z) * c)(y) + c)(x)


BODIES: dict[str, tuple[Callable[[nn.Variable, float], nn.Variable], Callable[[Any, float], Any]]] = {
    "scan": (
        lambda x, c: F.scan(lambda h, _: (F.sin(h) * c, None), x, length=2)[0],
        lambda x, c: c * jnp.sin(c * jnp.sin(x)),
    ),
    "while_loop": (
        lambda x, c: F.while_loop(lambda h: F.sum(h) < 3 + c, lambda h: h * (c + 1.5), x, bound=9),
        lambda x, c: jnp.where(jnp.sum(x) < 3 + c, x * (c + 1.5), x),
    ),
    "cond": (
        lambda x, c: F.cond(F.sum(x) > c, lambda: F.scan(lambda h, _: (h * c, None), x, length=2)[0], lambda: x / c),
        lambda x, c: jnp.where(jnp.sum(x) > c, x * c * c, x / c),
    ),
    "checkpoint": (in_a_checkpoint, lambda x, c: c * jnp.tanh(x) + c),
    "maximum": (lambda x, c: F.maximum_scalar(x, c) * x, lambda x, c: jnp.maximum(x, c) * x),
    "minimum": (lambda x, c: F.minimum_scalar(x, c) * x, lambda x, c: jnp.minimum(x, c) * x),
    "comparison": (lambda x, c: F.where(x >= c, x * x, F.sin(x)), lambda x, c: jnp.where(x >= c, x * x, jnp.sin(x))),
}


@pytest.mark.parametrize("name", BODIES)
def test_numbers_in_bodies_and_to_compare_with_are_compiled_once(name: str) -> None:
    ours, theirs = BODIES[name]
    given, numbers = np.array([0.3, 0.9, 1.7]), [0.6, 0.85, 0.77]  # on the same side of every condition

    def gradients(c: float) -> list[np.ndarray]:
        x = nn.Variable.from_numpy_array(given, need_grad=True)
        loss = F.sum(ours(x, c) ** 2)
        loss.forward()
        loss.backward()
        return [x.g.copy(), loss.d]

    first = gradients(0.7)
    with compilations() as compiled:
        found = [first, *map(gradients, numbers)]
    assert not compiled
    slope = jax.value_and_grad(lambda x, c: jnp.sum(theirs(x, c) ** 2))
    for c, (g, value) in zip([0.7, *numbers], found, strict=True):
        expected = by_jax(slope, given, c)
        np.testing.assert_allclose(value, expected[0], rtol=1e-12)
        np.testing.assert_allclose(g, expected[1], rtol=1e-12)
