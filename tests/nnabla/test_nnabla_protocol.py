"""PythonFunction in nnabla's protocol: what is recorded as a graph, what is run on the host, and what is said."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable
from tests.oracle import check

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 3))


def leaf(values: Any, dtype: Any = np.float64, need_grad: bool = True) -> Variable:
    """A leaf with these values."""
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad)


class Mul2(nn.nnabla.PythonFunction):
    """The example of nnabla's documentation: F on .data and .grad."""

    def __init__(self, ctx: Any = None) -> None:
        super().__init__(ctx)

    @property
    def name(self) -> str:
        return self.__class__.__name__

    def min_outputs(self) -> int:
        return 1

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        i0, i1 = inputs[0], inputs[1]
        assert i0.shape == i1.shape, "Shapes of inputs are different."
        outputs[0].reset_shape(i0.shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        x0, x1 = inputs[0].data, inputs[1].data
        outputs[0].data.copy_from(F.mul2(x0, x1))

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        x0, x1 = inputs[0].data, inputs[1].data
        dx0, dx1 = inputs[0].grad, inputs[1].grad
        dy = outputs[0].grad
        if propagate_down[0]:
            if accum[0]:
                dx0 += F.mul2(dy, x1)
            else:
                dx0.copy_from(F.mul2(dy, x1))
        if propagate_down[1]:
            dx1 += dy * x0

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        return True


class HostMul2(Mul2):
    """The same in NumPy."""

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        outputs[0].d = inputs[0].d * inputs[1].d

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        assert not any(accum)
        if propagate_down[0]:
            inputs[0].g[...] = outputs[0].g * inputs[1].d
        if propagate_down[1]:
            inputs[1].grad.data[:] += outputs[0].grad.data * inputs[0].data.data


class HalfHostMul2(HostMul2):
    """Forward in NumPy, backward in F."""

    backward_impl = Mul2.backward_impl


class Cells(Mul2):
    """Values by way of cells and their operators, in NumPy."""

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        x0, x1, y = inputs[0].data, inputs[1].data, outputs[0].data
        assert inputs[0].d.dtype == y.dtype
        y.copy_from(x0)
        y *= x1

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        assert np.isfinite(outputs[0].g).all()
        inputs[0].grad = outputs[0].grad * inputs[1].data
        g = inputs[1].grad
        g.fill(0.0)
        g += inputs[0].data * outputs[0].grad


class MeanAndPower(nn.nnabla.PythonFunction):
    """Two outputs of other shapes, an attribute, in-place steps, a gradient from an output's data."""

    def __init__(self, power: float) -> None:
        self.power = power

    def min_outputs(self) -> int:
        return 2

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        x = inputs[0]
        assert (x.ndim, x.size, x.size_from_axis(1)) == (2, 6, 3) and x.need_grad
        outputs[0].reset_shape((), True)
        outputs[1].reset_shape(x.shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        x = inputs[0].data
        outputs[0].data.copy_from(F.mean(x))
        y = outputs[1].data
        y.zero()
        y += F.exp(x * self.power)
        y *= 2.0
        y -= 1.0
        y /= 2.0

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        dm, dy = outputs[0].grad, outputs[1].grad
        inputs[0].grad.copy_from(dm / inputs[0].size)
        dx = inputs[0].grad
        dx += dy * (outputs[1].data + 0.5) * self.power


def mul(a: Any, b: Any) -> Any:
    """The reference."""
    return a * b


@pytest.mark.parametrize(("cls", "orders"), [(Mul2, 3), (HalfHostMul2, 3), (HostMul2, 1), (Cells, 1)])
@pytest.mark.parametrize("simplified", [True, False])
def test_products(cls: Any, orders: int, simplified: bool) -> None:
    with nn.simplify(simplified):
        check(cls(), mul, [A, B], orders)
        check(lambda a, b: F.sin(cls()(a, F.exp(b))), lambda a, b: jnp.sin(a * jnp.exp(b)), [A, B], orders)


def test_two_outputs_to_order_3() -> None:
    check(MeanAndPower(0.5), lambda x: (jnp.mean(x), jnp.exp(0.5 * x) - 0.5), [A], 3)


@pytest.mark.parametrize("cls", [Mul2, HostMul2])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtypes(cls: Any, dtype: Any) -> None:
    a, b = leaf(A, dtype), leaf(B, dtype)
    y = cls()(a, b)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.d, A.astype(dtype) * B.astype(dtype))
    loss = F.sum(y)
    loss.forward()
    loss.backward()
    np.testing.assert_array_equal(a.g, B.astype(dtype))
    np.testing.assert_array_equal(b.g, A.astype(dtype))


def test_propagate_down_says_what_is_wanted() -> None:
    seen: list[Any] = []

    class Watch(Mul2):
        def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
            seen.append((propagate_down, accum))
            super().backward_impl(inputs, outputs, propagate_down, accum)

    a, b = leaf(A), leaf(B)
    nn.grad(Watch()(a, b), b)
    assert seen == [([False, True], [False, False])]


def test_a_gradient_computed_from_values_is_of_use_at_first_order() -> None:
    a, b = leaf(A), leaf(B)
    y = HostMul2()(a, b)
    (ga,) = nn.grad(y, a)
    np.testing.assert_array_equal(ga.d, B)
    with pytest.raises(nn.MissingRule) as caught:
        nn.grad(ga, b)
    message = str(caught.value)
    assert "HostMul2Gradient is part of the gradient of HostMul2 and cannot be differentiated:" in message
    assert "there is a gradient of order 1, but none of order 2" in message
    assert "HostMul2.backward_impl computes with values (.d, .g, NumPy); for gradients of any order, write" in message


def test_a_rule_in_nnablas_protocol_may_be_registered_for_it() -> None:
    class Registered(HostMul2):
        def __init__(self, power: float) -> None:
            super().__init__()
            self.power = power

        @property
        def args(self) -> dict[str, Any]:
            return {"power": self.power}

        def forward_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].d = inputs[0].d ** self.power * inputs[1].d

    def rule(gys: Any, inputs: Any, shapes: Any, outputs: Any, output_shapes: Any, power: float = 1.0) -> Any:
        (x, w), (gy,) = inputs, gys
        return [gy * w * power * x ** (power - 1), gy * x**power]

    nn.register("Registered", rule)
    check(Registered(2.0), lambda a, b: a**2 * b, [A, B], 3)

    class WithoutArgs(HostMul2):
        pass

    nn.register("WithoutArgs", lambda gys, inputs, *_: [gys[0] * inputs[1], gys[0] * inputs[0]])
    check(WithoutArgs(), mul, [A, B], 2)


# ---------------------------------------------------------------- what is said


class Faulty(Mul2):
    """Does something wrong, as it is told."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        super().setup_impl(inputs, outputs)
        if self.fault == "data in setup":
            _ = inputs[0].data

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        x, y = inputs[0].data, outputs[0].data
        if self.fault == "writes nothing":
            return
        if self.fault == "writes to an input":
            x.copy_from(x * 2)
        if self.fault == "writes to an input on the host":
            inputs[0].d[...] = 0.0
        if self.fault == "shape":
            y.copy_from(F.sum(x, axis=0))
        if self.fault == "shape on the host":
            outputs[0].d = inputs[0].d[0, :2]
        if self.fault == "reshapes":
            outputs[0].reset_shape((6,))
        if self.fault == "sets":
            self.mask = 1
        if self.fault == "random":
            y.copy_from(F.rand(shape=self_shape(inputs)))
            return
        if self.fault == "parameter":
            y.copy_from(x * leaf(A))
            return
        super().forward_impl(inputs, outputs)

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        if self.fault == "denied output":
            inputs[0].grad.copy_from(outputs[0].grad * outputs[0].data)
        if self.fault == "denied output on the host":
            inputs[0].g = outputs[0].g * outputs[0].d
        super().backward_impl(inputs, outputs, propagate_down, accum)


def self_shape(inputs: Any) -> Any:
    """The shape of the first input."""
    return inputs[0].shape


@pytest.mark.parametrize(
    ("fault", "error", "match"),
    [
        ("data in setup", RuntimeError, r"inputs\[0\].data is not available in this method"),
        ("writes nothing", ValueError, r"Faulty.forward_impl did not write to outputs\[0\].data"),
        ("writes to an input", ValueError, r"inputs\[0\].data is read-only"),
        ("writes to an input on the host", Exception, "read-only"),
        ("shape", ValueError, r"outputs\[0\].data: cannot copy shape \(3,\) to shape \(2, 3\)"),
        ("shape on the host", Exception, r"outputs\[0\].data: cannot copy shape \(2,\) to shape \(2, 3\)"),
        ("reshapes", ValueError, "here; set it in setup_impl"),
        ("sets", AttributeError, "Faulty.forward_impl set 'mask' on self"),
        ("random", ValueError, "Faulty.forward_impl draws random numbers"),
        ("parameter", ValueError, "reads a Variable that needs a gradient but is not an input"),
        ("denied output", RuntimeError, r"backward_impl reads outputs\[0\].data, but grad_depends_output_data says"),
        ("denied output on the host", Exception, r"backward_impl reads outputs\[0\].data, but grad_depends"),
    ],
)
def test_faults_are_reported(fault: str, error: Any, match: str) -> None:
    a, b = leaf(A, np.float32), leaf(B, np.float32)
    with pytest.raises(error, match=match):
        y = Faulty(fault)(a, b)
        _ = y.d, nn.grad(y, a)[0].d
