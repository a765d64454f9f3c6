"""Functions of the user's own: Chainer's protocol, forwards in NumPy, what works at which order, and what is said."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable, functions_of
from tests.leaves import leaf
from tests.oracle import check

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 3))


# ---------------------------------------------------------------- Chainer's protocol


class Mul(nn.nnabla.FunctionNode):
    """a * b, noting what backward is asked for."""

    asked: ClassVar[list[tuple[int, ...]]] = []

    def forward(self, a: Any, b: Any) -> Any:
        self.retain_inputs((1, 0))
        return a * b

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Variable, ...]) -> Any:
        Mul.asked.append(indexes)
        b, a = self.get_retained_inputs()
        (gy,) = grad_outputs
        return tuple([gy * (b if i == 0 else a) for i in indexes])


class TanhGrad(nn.nnabla.FunctionNode):
    """Chainer's way: the gradient is a function with a backward of its own."""

    def forward(self, y: Any, gy: Any) -> Any:
        return gy * (1 - y * y)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Variable, ...]) -> Any:
        y, gy = self.get_retained_inputs()
        (ggx,) = grad_outputs
        return -2 * gy * y * ggx, ggx * (1 - y * y)


class Tanh(nn.nnabla.FunctionNode):
    """tanh from its output."""

    def forward(self, x: Any) -> Any:
        self.retain_inputs(())
        self.retain_outputs((0,))
        return jnp.tanh(x)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Variable, ...]) -> Any:
        assert self.get_retained_inputs() == ()
        (y,) = self.get_retained_outputs()
        return TanhGrad().apply((y, grad_outputs[0]))


class Rotate(nn.nnabla.FunctionNode):
    """Two outputs and an attribute."""

    def __init__(self, angle: float) -> None:
        self.angle = angle

    def forward(self, x: Any, y: Any) -> Any:
        c, s = np.cos(self.angle), np.sin(self.angle)
        return x * c - y * s, x * s + y * c

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Variable, ...]) -> Any:
        gxs = Rotate(-self.angle)(*grad_outputs)
        return [gxs[i] for i in indexes]


@pytest.mark.parametrize(
    ("ours", "reference", "inputs"),
    [
        (Mul(), lambda a, b: a * b, [A, B]),
        (Tanh(), jnp.tanh, [A]),
        (Rotate(0.3), lambda x, y: (x * np.cos(0.3) - y * np.sin(0.3), x * np.sin(0.3) + y * np.cos(0.3)), [A, B]),
        (lambda a, b: Tanh()(Mul()(a, b)) * Rotate(1.0)(a, b)[1],
         lambda a, b: jnp.tanh(a * b) * (a * np.sin(1.0) + b * np.cos(1.0)), [A, B]),
    ],
    ids=["two inputs", "retained output", "two outputs", "together"],
)
@pytest.mark.parametrize("simplified", [True, False])
def test_function_nodes_to_order_3(ours: Any, reference: Any, inputs: Any, simplified: bool) -> None:
    with nn.simplify(simplified):
        check(ours, reference, inputs, 3)


def test_backward_is_asked_only_for_what_is_wanted_and_never_for_integers() -> None:
    a, b = leaf(A), leaf(B)
    y = Mul()(a, b)
    for inputs, indexes in (([a], (0,)), ([b], (1,)), ([a, b], (0, 1)), ([b, a], (0, 1))):
        Mul.asked.clear()
        nn.grad(y, inputs)
        assert Mul.asked == [indexes]
    Mul.asked.clear()
    b.need_grad = False
    y.forward()
    y.backward()
    assert Mul.asked == [(0,)]
    np.testing.assert_array_equal(a.g, B)
    i = Variable.from_numpy_array(np.arange(6, dtype=np.int32).reshape(2, 3))
    a = leaf(A)
    Mul.asked.clear()
    ga, gi = nn.grad(Mul()(a, i), [a, i], unreachable="none")
    assert Mul.asked == [(0,)]
    np.testing.assert_array_equal(ga.d, i.d)
    assert gi is None


# ---------------------------------------------------------------- accumulation


class Square(nn.nnabla.FunctionNode):
    """x**2; the gradient and the sum with what has arrived are one step."""

    arrived: ClassVar[list[Any]] = []

    def forward(self, x: Any) -> Any:
        return x * x

    def backward_accumulate(self, indexes: Any, grad_outputs: Any, grad_inputs: Any) -> Any:
        (x,) = self.get_retained_inputs()
        Square.arrived.append(grad_inputs[0])
        gx = FusedSquareGrad()(x, grad_outputs[0], 0.0 if grad_inputs[0] is None else grad_inputs[0])
        return (gx,)


class FusedSquareGrad(nn.nnabla.FunctionNode):
    """before + 2 x gy"""

    def forward(self, x: Any, gy: Any, before: Any) -> Any:
        return before + 2 * x * gy

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        x, gy, before = self.get_retained_inputs()
        (g,) = grad_outputs
        return [(2 * gy * g, 2 * x * g, g if before.shape == g.shape else F.sum(g))[i] for i in indexes]


@pytest.mark.parametrize("simplified", [True, False])
def test_backward_accumulate_gets_what_has_arrived(simplified: bool) -> None:
    with nn.simplify(simplified):
        check(lambda x: Square()(x) + F.exp(F.sin(x)), lambda x: x * x + jnp.exp(jnp.sin(x)), [A], 3)
        x = leaf(A)
        Square.arrived.clear()
        # exp(sin) is of higher rank, so its gradient comes first
        (gx,) = nn.grad([Square()(x), F.exp(F.sin(x))], [x])
        assert len(Square.arrived) == 1 and Square.arrived[0] is not None
        np.testing.assert_allclose(gx.d, 2 * A + np.exp(np.sin(A)) * np.cos(A), rtol=1e-12)
        assert not any(f.name in ("add2", "add_n") for f in functions_of([gx]))


class SumOfTwo(nn.nnabla.FunctionNode):
    """a + b, adding to what has arrived at each, or leaving it alone."""

    def __init__(self, lazy: bool) -> None:
        self.lazy = lazy

    def forward(self, a: Any, b: Any) -> Any:
        return a + b

    def backward_accumulate(self, indexes: Any, grad_outputs: Any, grad_inputs: Any) -> Any:
        (gy,) = grad_outputs
        if self.lazy:
            return [None] * len(indexes)
        return [gy if g is None else g + gy for g in grad_inputs]


@pytest.mark.parametrize("lazy", [True, False])
def test_an_input_that_is_there_twice_is_counted_twice_and_none_adds_nothing(lazy: bool) -> None:
    x = leaf(A)
    (gx,) = nn.grad([SumOfTwo(lazy)(x, x), F.exp(F.sin(x)) * 3], [x])
    np.testing.assert_allclose(gx.d, 3 * np.exp(np.sin(A)) * np.cos(A) + (0 if lazy else 2), rtol=1e-12)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["mul", "sum", "square", "tanh", "sin"]), st.integers(0, 9),
                          st.integers(0, 9)), min_size=1, max_size=7), st.booleans())
def test_any_graph_of_them_has_the_gradients_that_jax_has(steps: list[tuple[str, int, int]], simplified: bool) -> None:
    def build(table: dict[str, Any], x: Any) -> Any:
        values = [x]
        for name, i, j in steps:
            values.append(table[name](values[i % len(values)], values[j % len(values)]))
        return values[-1] + 0.5 * values[len(values) // 2] + values[0]

    ours = {
        "mul": Mul(), "sum": SumOfTwo(False), "square": lambda a, b: Square()(a) + b,
        "tanh": lambda a, b: Tanh()(a), "sin": lambda a, b: F.sin(a),
    }
    theirs = {
        "mul": lambda a, b: a * b, "sum": lambda a, b: a + b, "square": lambda a, b: a * a + b,
        "tanh": lambda a, b: jnp.tanh(a), "sin": lambda a, b: jnp.sin(a),
    }
    with nn.simplify(simplified):
        x = np.array([0.3, -0.7])
        check(lambda v: build(ours, v), lambda v: build(theirs, v), [x], 2, numeric=False)


# ---------------------------------------------------------------- forwards in NumPy


class HostSin(nn.nnabla.FunctionNode):
    """sin in NumPy; the gradient in F."""

    numpy = True

    def forward(self, x: Any) -> Any:
        assert type(x) is np.ndarray
        return np.sin(x)

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        return (grad_outputs[0] * HostCos()(*self.get_retained_inputs()),)


class HostCos(nn.nnabla.FunctionNode):
    """cos in NumPy, with its shape declared."""

    numpy = True

    def forward(self, x: Any) -> Any:
        return np.cos(x)

    def infer(self, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype)

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        return (-grad_outputs[0] * HostSin()(*self.get_retained_inputs()),)


class HostSplit(nn.CustomFunction):
    """Two outputs of other shapes and dtypes, in NumPy, in the other protocol."""

    numpy = True
    outputs = 2

    def forward(self, x: Any) -> Any:
        return x.sum(axis=0) * np.float64(2), np.argmax(x, axis=1)

    def backward(self, f: nn.Function, gy: Variable, _: Variable) -> Any:
        (x,) = f.inputs
        return F.broadcast(gy * 2, shape=x.shape)


def test_numpy_forwards_to_order_3() -> None:
    check(HostSin(), jnp.sin, [A], 3)
    check(lambda x: HostSplit()(F.exp(x))[0] ** 2, lambda x: (2 * jnp.exp(x).sum(axis=0)) ** 2, [A], 3)


def test_numpy_forwards_run_wherever_graphs_run() -> None:
    x = leaf(A, np.float32)
    y = F.sum(HostSin()(x) ** 2)
    y.forward()
    y.backward()
    expected = 2 * np.sin(A) * np.cos(A)
    np.testing.assert_allclose(x.g, expected, rtol=1e-5)
    seen: list[str] = []
    y.forward(function_post_hook=lambda f: seen.append(f.name))
    assert seen[0] == "HostSin"
    np.testing.assert_allclose(y.d, np.sum(np.sin(A) ** 2), rtol=1e-5)
    with nn.auto_forward():
        np.testing.assert_allclose(HostSin()(x).d, np.sin(A), rtol=1e-5)
    run = jax.jit(jax.vmap(nn.to_jax(HostSin()(x), x)))
    np.testing.assert_allclose(run(np.stack([A, B]).astype(np.float32)), np.sin(np.stack([A, B])), rtol=1e-5)


class Liar(nn.nnabla.FunctionNode):
    """Declares another shape than it computes."""

    numpy = True

    def forward(self, x: Any) -> Any:
        return x.ravel()

    def infer(self, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return x


def test_a_shape_that_was_declared_wrong_is_reported() -> None:
    y = Liar()(leaf(A, np.float32))
    with pytest.raises(Exception, match=r"Liar: output 0 must have shape \(2, 3\), as .*, got \(6,\)"):
        _ = y.d
