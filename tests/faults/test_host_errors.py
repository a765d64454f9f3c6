"""What a user's function on the host raises leaves all as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from tests.solver_states import state_arrays


class Broken(Exception):
    """What the functions below raise."""


class Host:
    """Functions on the host that raise when they are told to."""

    raises = False

    @classmethod
    def call(cls, x: np.ndarray) -> np.ndarray:
        """`x`, or an error."""
        if cls.raises:
            raise Broken("as told")
        return np.asarray(x)


@pytest.fixture(autouse=True)
def works() -> Iterator[None]:
    """The functions work at first, and afterwards."""
    Host.raises = False
    yield
    Host.raises = False


class OnHost(nn.nnabla.FunctionNode):
    """The identity, in NumPy."""

    numpy = True

    def forward(self, x: Any) -> Any:
        return Host.call(x)

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        return grad_outputs


def callback(x: Any) -> Any:
    """The identity as JAX calls it back."""
    return jax.pure_callback(Host.call, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@jax.custom_jvp
def in_jax(x: Any) -> Any:
    """The identity, called back, with a derivative."""
    return callback(x)


@in_jax.defjvp
def in_jax_jvp(primals: Any, tangents: Any) -> Any:
    return in_jax(primals[0]), tangents[0]


class InForward(nn.nnabla.FunctionNode):
    """The identity: a forward in JAX that calls back."""

    def forward(self, x: Any) -> Any:
        return callback(x)

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        return grad_outputs


FUNCTIONS: dict[str, Callable[[nn.Variable], nn.Variable]] = {
    "numpy": lambda x: OnHost()(x),
    "jax_function": lambda x: F.jax_function(in_jax)(x),
    "callback in a forward": lambda x: InForward()(x),
}


def values(w: nn.Variable, solver: Any) -> list[np.ndarray]:
    """The state of training."""
    return [np.array(w.data.view), np.array(w.grad.view), *state_arrays(solver).values()]


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("how", ["train_step", "loop"])
def test_an_error_leaves_all_as_it_was(kind: str, how: str) -> None:
    w = nn.Variable.from_numpy_array(np.arange(3.0, dtype=np.float32), need_grad=True)
    x = nn.Variable((3,))
    loss = F.sum(FUNCTIONS[kind](w * x) ** 2.0)
    solver = S.Adam(0.1)
    solver.set_parameters({"w": w})
    compiled = nn.train_step(loss, {"w": w}, solver, inputs=x) if how == "train_step" else None
    ones = np.ones(3, np.float32)

    def step() -> None:
        if compiled is not None:
            compiled(ones)
        else:
            x.d = ones
            loss.forward()
            loss.backward()
            solver.update()

    for _ in range(3):
        step()
        before = values(w, solver)
        Host.raises = True
        for _ in range(2):
            with pytest.raises(Exception, match="as told"):
                step()
        Host.raises = False
        for a, b in zip(before, values(w, solver), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_value_can_be_read_after_an_error() -> None:
    x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    y = OnHost()(x) * 2.0
    y.forward()
    Host.raises = True
    with pytest.raises(Exception, match="as told"):
        _ = y.d
    Host.raises = False
    np.testing.assert_array_equal(y.d, [2.0, 4.0])
