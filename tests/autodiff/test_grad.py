"""The walk: what `nn.grad` does with outputs, inputs and grad_outputs, and what it says when it cannot."""

from __future__ import annotations

import gc
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
from backward_registry import MissingRule, Rule, backward, registry
from nngrad.graph import Variable, functions_of, op
from tests.leaves import vector

FORMS = pytest.mark.parametrize("simplified", [True, False], ids=["simplified", "plain"])


def values(variables: list[Variable]) -> list[Any]:
    """The values of Variables."""
    return [np.asarray(x.d) for x in variables]


@op
def no_rule(x, /):
    """An op that nobody wrote a rule for."""
    return lax.sin(x)


@op
def two_inputs_no_rule(first, second, /, power: float = 2.0):
    """Another one, with two inputs."""
    return lax.mul(first, second)


@pytest.fixture
def replaced_rule() -> Any:
    """`replace(name, rule)`, undone after the test."""
    kept: list[tuple[Any, Rule]] = []

    def replace(name: str, rule: Any, **options: Any) -> None:
        kept.append((registry.op(name), registry[name]))
        nn.register(name, rule, **options)

    yield replace
    for each, rule in reversed(kept):
        registry.add(each, rule, replace=True)


# ---------------------------------------------------------------- outputs


@FORMS
def test_output_that_is_an_input(simplified: bool) -> None:
    x = vector(0.5, 2.0)
    y = F.sin(x)
    with nn.simplify(simplified):
        gy, gx = nn.grad([y], [y, x])
        np.testing.assert_array_equal(gy.d, [1, 1])
        np.testing.assert_allclose(gx.d, np.cos(x.d))
        gy, gx = nn.grad([y * y, y], [y, x], grad_outputs=[1.0, 10.0])
        np.testing.assert_allclose(gy.d, 2 * y.d + 10)
        np.testing.assert_allclose(gx.d, (2 * y.d + 10) * np.cos(x.d))


# ---------------------------------------------------------------- inputs


@FORMS
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_unreached_inputs_give_unconnected_zeros(simplified: bool, dtype: Any) -> None:
    x, other = vector(1.0), Variable((2, 3), need_grad=True, dtype=dtype)
    with nn.simplify(simplified):
        _, zero = nn.grad(F.sin(x), [x, other])
    assert zero.shape == (2, 3) and zero.dtype == dtype
    np.testing.assert_array_equal(zero.d, np.zeros((2, 3)))
    assert all(not f.inputs or f.name == "identity" for f in functions_of([zero]))
    assert not [leaf for f in functions_of([zero]) for leaf in f.inputs if leaf.parent is None]


@pytest.mark.parametrize("unreachable", ["zero", "raise"])
def test_an_integer_input_is_refused(unreachable: str) -> None:
    i = Variable.from_numpy_array(np.arange(3, dtype=np.int32))
    with pytest.raises(TypeError, match=r"inputs\[1\] is int32, which has no gradient.*unreachable='none'"):
        nn.grad(F.sin(i), [vector(1.0), i], unreachable=unreachable)
    assert nn.grad(F.sin(i), [i], unreachable="none") == [None]


def test_need_grad_false_on_an_intermediate_stops() -> None:
    x = vector(2.0)
    h = F.exp(x)
    h.need_grad = False
    y = h * x
    assert not h.need_grad and y.need_grad
    assert nn.grad(y, x)[0].d == pytest.approx(np.exp(2.0))
    gh, gx = nn.grad(y, [h, x])
    assert (gh.d, gx.d) == (2.0, pytest.approx(np.exp(2.0)))
    h.need_grad = None
    assert nn.grad(y, x)[0].d == pytest.approx(3 * np.exp(2.0))


def test_no_grad_stops_gradients_and_need_grad_of_a_leaf_does_not() -> None:
    x = vector(2.0)
    with nn.no_grad():
        h = F.exp(x)
    assert nn.grad(h * x, x)[0].d == pytest.approx(np.exp(2.0))
    x = vector(2.0, need_grad=False)
    assert nn.grad(x * x, x)[0].d == 4


def test_broadcast_inputs_get_sums_and_outputs_of_different_shapes_are_summed() -> None:
    a = Variable.from_numpy_array(np.arange(3.0))
    b = Variable.from_numpy_array(np.arange(8.0).reshape(2, 4, 1))
    ga, gb = nn.grad(a * b, [a, b])
    np.testing.assert_array_equal(ga.d, np.full(3, 28.0))
    np.testing.assert_array_equal(gb.d, np.full((2, 4, 1), 3.0))
    x = Variable.from_numpy_array(np.arange(6.0).reshape(2, 3))
    (gx,) = nn.grad([F.sum(x * x), x * 3, F.reshape(x, (6,))], x)
    np.testing.assert_array_equal(gx.d, 2 * x.d + 4)


# ---------------------------------------------------------------- grad_outputs


@FORMS
def test_gradients_flow_into_a_grad_outputs_variable(simplified: bool) -> None:
    x, seed = vector(0.5), vector(3.0)
    with nn.simplify(simplified):
        (gx,) = nn.grad(F.sin(x), x, grad_outputs=seed)
        assert gx.d == pytest.approx(3 * np.cos(0.5))
        gx_x, gx_seed = nn.grad(gx, [x, seed])
    assert gx_x.d == pytest.approx(-3 * np.sin(0.5))
    assert gx_seed.d == pytest.approx(np.cos(0.5))


@pytest.mark.parametrize("given", [
    2, 2.0, np.float32(2), np.int64(2), [2.0, 2.0], (2, np.full((2, 3), 2.0)), [np.full((2, 3), 2.0)] * 2,
    [jnp.full((2, 3), 2.0), nn.NdArray.from_numpy_array(np.full((2, 3), 2.0, np.float16))],
    [Variable.from_numpy_array(np.full((2, 3), 2.0)), 2.0],
], ids=["int", "float", "float32", "int64", "list", "tuple", "arrays", "JAX and NdArray", "Variable"])
def test_forms_of_grad_outputs(given: Any) -> None:
    x = Variable.from_numpy_array(np.arange(6.0).reshape(2, 3))
    (gx,) = nn.grad([x * x, x], x, grad_outputs=given)
    np.testing.assert_allclose(gx.d, 4 * x.d + 2)


def test_a_bare_array_is_not_split_into_rows() -> None:
    x = Variable.from_numpy_array(np.arange(6.0).reshape(2, 3))
    weight = np.arange(6.0).reshape(2, 3)
    for given in (weight, jnp.asarray(weight), nn.NdArray.from_numpy_array(weight)):
        np.testing.assert_allclose(nn.grad(x * 2, x, grad_outputs=given)[0].d, 2 * weight)
    with pytest.raises(ValueError, match="grad_outputs"):
        nn.grad([x * 2, x * 3], x, grad_outputs=weight)


@pytest.mark.parametrize(("given", "kind", "message"), [
    ([1.0], ValueError, "grad_outputs: expected a list with one for each of the 2 outputs, got 1"),
    ([1.0] * 3, ValueError, "grad_outputs: expected a list with one for each of the 2 outputs, got 3"),
    ([None, np.ones(3)], ValueError, r"grad_outputs\[1\]: must have the shape of its output, \(2,\), got \(3,\)"),
    ([np.ones((1, 2)), None], ValueError,
     r"grad_outputs\[0\]: must have the shape of its output, \(2,\), got \(1, 2\)"),
    (["one", None], TypeError, r"grad_outputs\[0\]"),
    ([True, None], TypeError, r"grad_outputs\[0\]"),
    (True, TypeError, "grad_outputs"),
    ("one", (TypeError, ValueError), "grad_outputs"),
    ([None, {}], TypeError, r"grad_outputs\[1\]"),
    ([None, object()], TypeError, r"grad_outputs\[1\]"),
    ([None, np.array(["a", "b"])], TypeError, r"grad_outputs\[1\]"),
])
def test_errors_of_grad_outputs(given: Any, kind: Any, message: str) -> None:
    x = vector(1.0, 2.0)
    with pytest.raises(kind, match=message):
        nn.grad([x * x, x + 1], x, grad_outputs=given)


# ---------------------------------------------------------------- persistent, bound


def test_parameters_that_share_their_data() -> None:
    w = vector(2.0)
    y = F.exp(w.get_unlinked_variable(need_grad=True)) * 3.0
    (gw,) = nn.grad(y, [w])
    assert gw.d == pytest.approx(3 * np.exp(2.0))
    (ggw,) = nn.grad(gw, [w])
    assert ggw.d == pytest.approx(3 * np.exp(2.0))
    w = vector(2.0)
    a, b = w.get_unlinked_variable(), w.get_unlinked_variable()
    (gw,) = nn.grad(a * b * b, [w])
    assert gw.d == 12
    assert values(nn.grad(a * b * b, [a, b])) == [4, 8]
    assert nn.grad(gw, [w])[0].d == 12
    gw, ga = nn.grad(a * b * b, [w, a])
    assert (gw.d, ga.d) == (12, 4)


# ---------------------------------------------------------------- rules


def test_a_missing_rule_says_what_to_write() -> None:
    x = vector(1.0)
    y = F.sin(F.exp(no_rule(F.cos(x))))
    with pytest.raises(MissingRule) as caught:
        nn.grad(y, x)
    message = str(caught.value)
    assert message.startswith("cannot differentiate no_rule: it has no backward rule.")
    assert "output <- Sin <- Exp <- NoRule" in message
    assert "@backward(F.no_rule)\n    def no_rule_backward(f, gy):" in message
    assert "(x,) = f.inputs" in message and "tests/autodiff/test_grad.py" in message
    with pytest.raises(MissingRule, match=r"(?s)first, second.*None where it is zero"):
        nn.grad(two_inputs_no_rule(x, x), x)
    with pytest.raises(MissingRule, match="no_rule"):
        y.backward()


@pytest.mark.parametrize(("rule", "kind", "message"), [
    (lambda f, gy: F.sum(gy), ValueError, r"flawed: .* must return shape .*, got shape \(\)"),
    (lambda f, gy: F.broadcast(gy, shape=(3, 2)), ValueError, r"flawed: .* must return shape .*, got shape \(3, 2\)"),
    (lambda f, gy: (gy, gy), ValueError, r"one gradient for each of its 1 inputs .*, got 2"),
    (lambda f, gy: [], ValueError, r"one gradient for each of its 1 inputs .*, got 0"),
    (lambda f, gy: jnp.ones(2), TypeError, "flawed: its rule must return Variables or None, got ArrayImpl"),
    (lambda f, gy: np.ones(2), TypeError, "flawed: its rule must return Variables or None, got ndarray"),
    (lambda f, gy: 1.0, TypeError, "flawed: its rule must return Variables or None, got float"),
], ids=["shape", "rank", "two", "none", "JAX array", "NumPy array", "number"])
def test_a_wrong_rule_is_named(rule: Any, kind: Any, message: str) -> None:
    @op
    def flawed(x, /):
        return lax.sin(x)

    backward(flawed)(rule)
    x = vector(1.0, 2.0)
    with pytest.raises(kind, match=message):
        nn.grad(flawed(x), x)


def test_register_in_nnablas_protocol(replaced_rule: Any) -> None:
    seen: dict[str, Any] = {}

    def rule(grad_outputs: Any, inputs: Any, input_shapes: Any, outputs: Any, output_shapes: Any, val: float) -> Any:
        shapes = input_shapes, output_shapes
        seen.update(grad_outputs=grad_outputs, inputs=inputs, outputs=outputs, shapes=shapes, val=val)
        return grad_outputs[0] * (100 * val)

    x = Variable.from_numpy_array(np.ones((2, 3)), need_grad=True)
    y = F.sum(F.mul_scalar(x, val=2.0))
    y.backward()
    np.testing.assert_array_equal(x.g, np.full((2, 3), 2.0))
    replaced_rule("MulScalar", rule)
    assert registry["mul_scalar"].kind == "user" and not registry["mul_scalar"].exact
    np.testing.assert_array_equal(nn.grad(y, x)[0].d, np.full((2, 3), 200.0))
    assert seen["inputs"] == [x] and seen["shapes"] == ([(2, 3)], [(2, 3)]) and seen["val"] == 2.0
    x.grad.zero()
    y.forward()
    y.backward()
    np.testing.assert_array_equal(x.g, np.full((2, 3), 200.0))


def test_show_registry(capsys: pytest.CaptureFixture[str]) -> None:
    gc.collect()  # an op that goes with a class of another test goes now, and not between the lines
    nn.show_registry()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(registry)
    assert ["Tanh", "tanh", "rule", "backward_registry.activation"] in [line.split() for line in lines]


# ---------------------------------------------------------------- the emitted graph


def test_grad_end_functions_begin_the_plain_graph_and_pass_no_gradient() -> None:
    x, w = vector(0.5), vector(0.25)
    y, z = F.sin(x * w), F.exp(x)
    with nn.simplify(False):
        (gx,) = nn.grad([y, z], x)
    ends = [f for f in functions_of([gx]) if f.op is nn.GradEndFunction]
    assert len(ends) == 2
    assert all(f.info.type_name == "GradEndFunction" and f.inputs == () for f in ends)
    assert [f.outputs[0].d.tolist() for f in ends] == [[1.0], [1.0]]
    x = vector(0.5)
    with nn.simplify(False):
        (gx,) = nn.grad(F.sin(x), x)
        (ggx,) = nn.grad(gx, x)
    assert ggx.d == pytest.approx(-np.sin(0.5))


BOX = np.array([2.0, 3.0, 4.0])
CELL = np.array([[2.0, 0.3, 0.1], [0.0, 3.0, 0.4], [0.0, 0.0, 4.0]])


@pytest.mark.parametrize("image", [
    lambda x: x - 2.5 * F.round(x / 2.5), lambda x: x - F.floor(x), lambda x: x - BOX * F.round(x / BOX),
    lambda x: x - F.round(x * 0.5) * 2.0, lambda x: x - F.floor(x / BOX + 0.5) * BOX,
    lambda x: x - CELL @ F.round(np.linalg.inv(CELL) @ x), lambda x: -1.0 * F.round(x @ np.linalg.inv(CELL)) @ CELL + x,
    lambda x: x - F.einsum("ij,j->i", CELL, F.round(F.einsum("ij,j->i", np.linalg.inv(CELL), x))),
    lambda x: (x[:, None] - x) - 2.5 * F.round((x[:, None] - x) / 2.5),
    lambda x: x[0] - x[1:] - 2.5 * F.round(x[0] / 2.5 - x[1:] / 2.5),
])
def test_rounding_that_cancels_a_gradient_is_said(image: Any) -> None:
    x = Variable.from_numpy_array(np.array([0.3, 1.7, -2.6]), need_grad=True)
    y = F.sum(image(x) ** 2)
    with pytest.warns(RuntimeWarning, match=r"grad: x - c \* F\.(round|floor)\(x / c\) .*has the gradient 0") as said:
        (g,) = nn.grad(y, x)
    np.testing.assert_allclose(g.d, 0, atol=1e-12)
    assert len(said) == 1


def test_rounding_in_a_cell_whose_inverse_is_computed_is_said() -> None:
    x, cell = Variable.from_numpy_array(np.array([[0.3, 1.7, -2.6]])), Variable.from_numpy_array(CELL, need_grad=True)
    image = x - F.batch_matmul(F.round(F.batch_matmul(x, F.batch_inv(cell))), cell)
    with pytest.warns(RuntimeWarning, match=r"grad: x - c \* F\.round\(x / c\) .*has the gradient 0"):
        nn.grad(F.sum(image**2), x)


def test_rounding_that_cancels_nothing_is_not_warned_of() -> None:
    x = Variable.from_numpy_array(np.array([0.3, 1.7, -2.6]), need_grad=True)
    for function, slope in (
        (lambda x: x - 2.0 * F.unlink(F.round(x / 2.0)), 1), (lambda x: x + (F.round(x) - x), 1),
        (lambda x: x - 2.0 * F.round(x / 4.0), 0.5), (F.round, 1),
        (lambda x: x - F.round(x @ CELL) @ CELL, 1 - (CELL @ CELL).sum(axis=1)),
        (lambda x: (x - x[::-1]) - F.round(x + x[::-1]), -2),
    ):
        np.testing.assert_allclose(nn.grad(F.sum(function(x)), x)[0].d, slope)
