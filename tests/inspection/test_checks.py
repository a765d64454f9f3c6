"""The checks of gradients are themselves checked: they pass what is right, and they fail what is wrong, and say why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.extend import Variable
from tests.refusals import refused

A = np.random.default_rng(0).standard_normal((2, 3))
B = np.random.default_rng(1).standard_normal((3, 2))


class Cube(nn.nnabla.FunctionNode):
    """x**3, with a backward that is wrong in one of many ways."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def forward(self, x: Any) -> Any:
        return x**3

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        (x,), (gy,) = self.get_retained_inputs(), grad_outputs
        return {
            "": lambda: (gy * 3 * x**2,),
            "factor": lambda: (gy * 2 * x**2,),
            "sign": lambda: (gy * -3 * x**2,),
            "one element": lambda: (gy * 3 * x**2 + np.eye(2, 3) * 1e-3 * (np.arange(3) == 1),),
            "none": lambda: (None,),
            "nan": lambda: (gy * F.sqrt(x - 10),),
            "read": lambda: (gy * 3 * x.d**2,),
            "cut": lambda: (gy * 3 * F.unlink(x) ** 2,),
            "half cut": lambda: (gy * 3 * x * F.unlink(x),),
            "quadratic in gy": lambda: (gy * gy * 3 * x**2 / F.unlink(gy),),
            "wrong later": lambda: (gy * 3 * Square()(x),),
        }[self.fault]()


class Square(nn.nnabla.FunctionNode):
    """x**2 with a gradient that is right, and has none."""

    def forward(self, x: Any) -> Any:
        return x * x

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        (x,) = self.get_retained_inputs()
        return (grad_outputs[0] * 2 * F.unlink(x),)


# ---------------------------------------------------------------- what is right passes


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_a_right_rule_passes(order: int) -> None:
    nn.checks.check_nth_backward(Cube(), A, order)


def test_functions_of_all_kinds_pass() -> None:
    nn.checks.check_double_backward(lambda x, w: (F.tanh(x @ w), F.argmax(x, axis=1), F.sum(x)), [A, B])
    nn.checks.check_backward(lambda i, x: F.embed(i, x), [np.array([0, 1, 1], np.int32), A])
    nn.checks.check_double_backward(F.jax_function(lambda x: np.pi * x**3), A, directions=1)
    nn.checks.check_double_backward(lambda x: F.dropout(x, p=0.3) ** 2, A)  # the same noise each time
    nn.checks.check_backward(lambda x: F.constant(val=1.0, shape=(2,), dtype=np.float64), A)
    nn.checks.check_nth_backward(lambda x: x**3 * 1e6 + 1e8, A, 3)
    nn.checks.check_nth_backward(lambda x: x**3 * 1e-6, A, 3)
    nn.checks.check_backward(lambda x: x * x, 3.0)
    nn.checks.check_backward(lambda x: x * x, Variable.from_numpy_array(A))
    nn.checks.check_backward(F.abs, np.array([2e-4, -3e-4]))  # near a kink, and not at it
    nn.checks.check_backward(lambda x: F.exp(30.0 * x), np.array([0.1]))
    nn.checks.check_backward(F.sqrt, np.array([1e-3, 3e-4, 1.0]))  # near an edge
    nn.checks.check_backward(lambda x: x * x, np.zeros((0, 2)))


def test_parameters_are_checked_too() -> None:
    with nn.parameter_scope("checked"):
        x = nn.Variable((2, 3))
        PF.affine(x, 4)
        params = list(nn.get_parameters().values())
        options: dict[str, Any] = {"params": params, "directions": 1}
        nn.checks.check_double_backward(lambda x: F.tanh(PF.affine(x, 4)), A, **options)
        with pytest.raises(nn.checks.GradientMismatch, match="is wrong at checked/affine/W"):
            nn.checks.check_backward(lambda x: F.tanh(F.affine(x, Cube("cut")(params[0]) * 0 + F.unlink(params[0]))), A,
                                     **options)


# ---------------------------------------------------------------- what is wrong fails


@pytest.mark.parametrize(
    ("fault", "order", "inputs", "says"),
    [
        ("factor", 1, "x[0]", "The gradient is 0.666667 times the differences in every element"),
        ("sign", 1, "x[0]", "The gradient is -1 times"),
        ("one element", 1, "x[0]", "x[0]: 1 of 6 elements are wrong"),
        ("none", 1, "x[0]", "The gradient is zero everywhere"),
        ("nan", 1, "x[0]", "The gradient is not finite"),
        ("cut", 2, "x[0]", "The gradient is zero everywhere: does something cut the graph"),
        ("half cut", 2, "x[0]", "The gradient is 0.5 times the differences in every element"),
        ("quadratic in gy", 2, "y_grad[0]", "The gradient is 2 times the differences in every element"),
        ("wrong later", 3, "x[0]", "6 of 6 elements are wrong"),
    ],
)
def test_what_is_wrong_is_reported_at_its_order(fault: str, order: int, inputs: str, says: str) -> None:
    with pytest.raises(nn.checks.GradientMismatch) as caught:
        nn.checks.check_nth_backward(Cube(fault), A, 4)
    report = str(caught.value)
    assert f"Cube(fault={fault!r}): the gradient of order {order} is wrong at {inputs}." in report
    assert says in report
    assert "direction 1 of 2, seed 0" in report
    assert "Functions on the path with rules of your own: Cube" in report
    for lower in range(1, order):
        nn.checks.check_nth_backward(Cube(fault), A, lower)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gradient_that_is_made_of_values_is_found_out(dtype: Any) -> None:
    with pytest.raises(nn.checks.GradientMismatch) as caught:
        nn.checks.check_backward(Cube("read"), A, dtype=dtype)
    report = str(caught.value)
    assert "Cube(fault='read'): the gradient of order 1 is right at this point, but wrong next to it." in report
    assert "Does backward read values, with .d or .data?" in report
    for right in (lambda x: x**4, F.sin, F.exp):
        nn.checks.check_backward(right, np.array([0.0, 1.0, 1e-4, -1e-9]), dtype=dtype)


def test_kinks_of_higher_derivatives_do_no_harm_to_lower_ones() -> None:
    for right in (lambda x: F.relu(x) ** 2, lambda x: F.abs(x) * x, lambda x: F.relu(x) ** 2 * x):
        nn.checks.check_backward(right, np.array([0.0, 1.0, 1e-4, -1e-9]))


def test_the_numbers_of_a_report_are_right() -> None:
    x, gy = np.array([2.0, -1.0]), np.array([1.0, 10.0])
    with pytest.raises(nn.checks.GradientMismatch) as caught:
        nn.checks.check_backward(Cube("factor"), x, gy)
    rows = [line.split() for line in str(caught.value).splitlines()]
    elements = {row[0]: [float(v) for v in row[1:]] for row in rows if row and row[0] in ("[0]", "[1]")}
    np.testing.assert_allclose(elements["[0]"], [12.0, 8.0, 4.0], rtol=1e-6)
    np.testing.assert_allclose(elements["[1]"], [30.0, 20.0, 10.0], rtol=1e-6)


def test_only_the_inputs_at_fault_are_named() -> None:
    class Product(nn.nnabla.FunctionNode):
        def forward(self, a: Any, b: Any) -> Any:
            return a * b

        def backward(self, indexes: Any, grad_outputs: Any) -> Any:
            a, b = self.get_retained_inputs()
            return grad_outputs[0] * b, grad_outputs[0] * a * 1.001

    with pytest.raises(nn.checks.GradientMismatch) as caught:
        nn.checks.check_backward(Product(), (A, B.T))
    report = str(caught.value)
    assert "is wrong at x[1]." in report and "The gradient is 1.001 times" in report
    nn.checks.check_backward(Product(), (A, B.T), no_grads=[False, True])
    nn.checks.check_backward(Product(), (A, B.T), rtol=1e-2)


def test_a_large_input_is_sampled() -> None:
    with pytest.raises(nn.checks.GradientMismatch, match=r"x\[0\]: 64 of 64 elements \(of 500\) are wrong"):
        nn.checks.check_backward(Cube("sign"), np.linspace(0.5, 1.5, 500))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 5), st.sampled_from([1e-4, 1e-2, 1.0]), st.integers(0, 3))
def test_one_wrong_element_is_found(place: int, amount: float, seed: int) -> None:
    wrong = np.zeros(6)
    wrong[place] = amount
    wrong = wrong.reshape(2, 3)

    def func(x: Variable) -> Variable:
        # The value is sin(x); the gradient has `wrong` in excess.
        return F.sin(x) + wrong * (x - F.unlink(x))

    index = ", ".join(map(str, np.unravel_index(place, (2, 3))))
    with pytest.raises(nn.checks.GradientMismatch, match=rf"1 of 6 elements are wrong[^\[]*\[{index}\]") as caught:
        nn.checks.check_backward(func, A, seed=seed)
    assert "is wrong at x[0]" in str(caught.value)


def test_gradients_that_have_no_rule_say_so() -> None:
    class Once(nn.nnabla.FunctionNode):
        def forward(self, x: Any) -> Any:
            return x * x

    with pytest.raises(nn.MissingRule, match="Once cannot be differentiated"):
        nn.checks.check_backward(Once(), A)


# ---------------------------------------------------------------- kinks


@pytest.mark.parametrize(
    ("func", "x", "order", "says"),
    [
        (F.relu, [1.0, 0.0, -1.0], 1, "x[0][1]: a kink: the slope is 0 on one side and"),
        (F.abs, [2.0, 1e-9], 1, "x[0][1]: a kink"),
        (lambda x: F.max(x), [1.0, 1.0], 1, "a kink"),
        (lambda x: F.round(x) * x, [0.2, 0.5], 1, "x[0][1]: a jump"),
        (lambda x: F.abs(x) * x, [1.0, 0.0], 2, "x[0][1]: a kink"),
        (F.sqrt, [1.0, 0.0], 1, "x[0][1]: an edge, next to which the function is not finite"),
    ],
)
def test_kinks_and_jumps_are_told_from_wrong_rules(func: Any, x: Any, order: int, says: str) -> None:
    with pytest.raises(nn.checks.NondifferentiableError) as caught:
        nn.checks.check_nth_backward(func, np.array(x), 2)
    assert f"cannot check the gradient of order {order}, because this point is at" in str(caught.value)
    assert says in str(caught.value)


# ---------------------------------------------------------------- arguments


test_errors_of_arguments = refused([
    (lambda: nn.checks.check_nth_backward(F.sin, A, 0), ValueError, "order: must be 1 or more, got 0"),
    (lambda: nn.checks.check_backward(F.sin, A, directions=0), ValueError, "directions: must be 1 or more, got 0"),
    (lambda: nn.checks.check_backward(F.sin, A, eps=0), ValueError, "eps: must be a finite positive number, got 0"),
    (lambda: nn.checks.check_backward(F.sin, A, atol=-1.0), ValueError, "atol: must be a finite non-negative number"),
    (lambda: nn.checks.check_backward(F.sin, A, rtol="1"), TypeError, "rtol: expected a number, got '1'"),
    (lambda: nn.checks.check_nth_backward(F.sin, A, True), TypeError, "order: expected .* got True"),
    (lambda: nn.checks.check_backward(A, A), TypeError, "func: expected a function of Variables"),
    (lambda: nn.checks.check_backward(F.sin, A, dtype="int32"), TypeError, "dtype: expected a floating dtype"),
    (lambda: nn.checks.check_backward(lambda x: F.cast(x, dtype="int32"), A), TypeError,
     "func: <lambda> returns no result of a floating dtype"),
    (lambda: nn.checks.check_backward(F.sin, np.arange(3)), ValueError, "at least one array of a floating dtype"),
    (lambda: nn.checks.check_backward(F.sin, A, no_grads=[True, False]), ValueError,
     "no_grads: expected one for each of 1 arguments, got 2"),
    (lambda: nn.checks.check_backward(F.sin, A, [A, A]), ValueError, "y_grad: expected 1, got 2"),
    (lambda: nn.checks.check_backward(F.sin, A, B), ValueError, r"y_grad\[0\]: expected shape \(2, 3\), got \(3, 2\)"),
    (lambda: nn.checks.check_double_backward(F.sin, A, None, B), ValueError,
     r"x_grad_grad\[0\]: expected shape \(2, 3\), got \(3, 2\)"),
    (lambda: nn.checks.check_backward(np.sin, A), TypeError, "loop of ufunc|Variable"),
    (lambda: nn.checks.check_backward(lambda x: x.d, A), TypeError, "output 0 must be a Variable, got ndarray"),
    (lambda: nn.checks.check_backward(F.sin, A, params=[A]), TypeError, r"params\[0\]: expected a leaf"),
])
