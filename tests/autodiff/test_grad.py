"""The walk: what `nn.grad` does with outputs, inputs and grad_outputs, and what it says when it cannot."""

from __future__ import annotations

import gc
import weakref
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


class SumAndProduct(nn.CustomFunction):
    """Two outputs of one function: `a + b` and `a * b`."""

    outputs = 2

    def forward(self, a: Any, b: Any) -> Any:
        return a + b, a * b

    def backward(self, f: nn.Function, gs: Variable, gp: Variable) -> Any:
        a, b = f.inputs
        return gs + gp * b, gs + gp * a


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
def test_same_output_twice_counts_twice(simplified: bool) -> None:
    x = vector(0.5, 1.5)
    y = F.tanh(x)
    with nn.simplify(simplified):
        (once,), (twice,) = nn.grad(y, [x]), nn.grad([y, y], [x])
        (weighted,) = nn.grad([y, y], [x], grad_outputs=[2.0, 3.0])
    np.testing.assert_allclose(twice.d, 2 * once.d)
    np.testing.assert_allclose(weighted.d, 5 * once.d)


@FORMS
def test_each_output_of_one_function_contributes(simplified: bool) -> None:
    a, b = vector(2.0), vector(3.0)
    total, product = SumAndProduct()(a, b)
    with nn.simplify(simplified):
        assert values(nn.grad([total, product], [a, b])) == [1 + 3, 1 + 2]
        assert values(nn.grad([total], [a, b])) == [1, 1]
        assert values(nn.grad([product], [a, b])) == [3, 2]
        assert values(nn.grad([F.sin(total) * product], [a])) == [pytest.approx(3 * np.sin(5) + 6 * np.cos(5))]


def test_an_output_that_nobody_held_any_more() -> None:
    a, b = vector(2.0), vector(3.0)
    product = SumAndProduct()(a, b)[1]
    gc.collect()
    ga, gb = nn.grad([product], [a, b])
    assert values([ga, gb, *nn.grad([ga, gb], [a, b])]) == [3, 2, 1, 1]


@FORMS
def test_split(simplified: bool) -> None:
    x = Variable.from_numpy_array(np.arange(6.0).reshape(2, 3))
    first, second = F.split(x, axis=0)
    with nn.simplify(simplified):
        (gx,) = nn.grad([first, second * second], [x])
    np.testing.assert_allclose(gx.d, [[1, 1, 1], [6, 8, 10]])


@FORMS
def test_same_input_twice_gets_the_gradient_twice(simplified: bool) -> None:
    x = vector(0.5)
    with nn.simplify(simplified):
        first, second = nn.grad(F.exp(x), [x, x])
    assert first is not second
    assert first.d == second.d == np.exp(0.5)


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


@FORMS
def test_output_upstream_of_another(simplified: bool) -> None:
    x = vector(0.5)
    h = F.exp(x)
    y = F.sin(h)
    with nn.simplify(simplified):
        for outputs in ([h, y], [y, h]):
            (gx,) = nn.grad(outputs, [x])
            np.testing.assert_allclose(gx.d, h.d + np.cos(h.d) * h.d)


@FORMS
def test_leaf_as_output(simplified: bool) -> None:
    x, other = vector(2.0, 3.0), vector(1.0)
    with nn.simplify(simplified):
        assert [v.tolist() for v in values(nn.grad(x, [x, other]))] == [[1, 1], [0]]
        (gx,) = nn.grad([x, x * x], [x], grad_outputs=[5.0, None])
        np.testing.assert_array_equal(gx.d, [5 + 4, 5 + 6])


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


def test_an_unreached_intermediate_and_a_missing_rule_off_the_path_do_not_matter() -> None:
    x = vector(1.0, 2.0)
    h, y = F.exp(x), F.sin(x)
    np.testing.assert_array_equal(nn.grad(y, [h])[0].d, [0, 0])
    x, other = vector(1.0), vector(2.0)
    assert nn.grad(x * no_rule(other), x)[0].d == pytest.approx(np.sin(2.0))


@pytest.mark.parametrize("unreachable", ["zero", "raise"])
def test_an_integer_input_is_refused(unreachable: str) -> None:
    i = Variable.from_numpy_array(np.arange(3, dtype=np.int32))
    with pytest.raises(TypeError, match=r"inputs\[1\] is int32, which has no gradient.*unreachable='none'"):
        nn.grad(F.sin(i), [vector(1.0), i], unreachable=unreachable)
    assert nn.grad(F.sin(i), [i], unreachable="none") == [None]


@FORMS
def test_intermediate_variable_as_input(simplified: bool) -> None:
    x = vector(0.3, 0.6)
    h = F.sin(x)
    k = F.exp(h)
    y = k * h
    with nn.simplify(simplified):
        gh, gk, gx = nn.grad(y, [h, k, x])
    np.testing.assert_allclose(gk.d, h.d)
    np.testing.assert_allclose(gh.d, k.d + h.d * k.d)
    np.testing.assert_allclose(gx.d, gh.d * np.cos(x.d))


def test_one_variable_instead_of_lists_and_generators() -> None:
    x = vector(2.0)
    assert nn.grad(x * x, x)[0].d == 4
    assert nn.grad((y for y in [x * x]), (v for v in [x]))[0].d == 4
    assert nn.grad({"loss": x * x}.values(), {"x": x}.values())[0].d == 4


def test_returned_variables_are_distinct_from_the_users() -> None:
    x, seed = vector(2.0), vector(3.0)
    y = x + 1
    (gx,) = nn.grad(y, x, grad_outputs=[seed])
    assert gx is not seed and gx.parent is not None
    doubled = x * x
    (gx,) = nn.grad(F.exp(x) * 1.0, x)
    forward = F.exp(x)
    y = forward + 0.0
    (gx,) = nn.grad(y, x)
    assert gx is not forward and gx is not y
    a, b = vector(1.0), vector(2.0)
    ga, gb = nn.grad(a + b, [a, b])
    assert ga is not gb
    ga, gb = nn.grad(a * b, [a, b])
    assert ga is not b and gb is not a
    assert doubled.d == 4


def test_a_constant_of_the_users_is_a_variable() -> None:
    x, c = vector([1.0, 3.0]), F.constant(2.0, (1, 2), "float64")
    (gx,) = nn.grad(F.sum(x * x * c), x)
    np.testing.assert_array_equal(gx.d, 4 * x.d)
    np.testing.assert_array_equal(nn.grad(gx, c)[0].d, 2 * x.d)


def test_a_zero_gradient_is_no_input_of_another() -> None:
    x, y = vector([1.0, 3.0]), F.exp(vector([2.0]))
    first, second, third = [nn.grad(y, x)[0] for _ in range(3)]
    assert first is not third
    np.testing.assert_array_equal(nn.grad(second, third)[0].d, [[0, 0]])
    np.testing.assert_array_equal(nn.hessian(F.sum(y), first, batched=False).d, np.zeros((1, 2, 1, 2)))


@pytest.mark.parametrize("again", [
    lambda y, c: nn.grad(y, c, enable_double_backprop=False)[0],
    lambda y, c: nn.vjp(y, c, 1.0)[0],
])  # fmt: skip
def test_returned_variables_are_distinct_from_earlier_gradients(again: Any) -> None:
    x, c = vector([1.0, 2.0]), vector([3.0, 5.0])
    (first,) = nn.grad(F.sum(F.sin(x)), x)
    y = F.sum(first * c)
    second = again(y, c)  # the same as `first`, and a Variable of its own
    second.need_grad = False
    assert second is not first
    np.testing.assert_allclose(second.d, np.cos(x.d))
    np.testing.assert_allclose(nn.grad(y, x)[0].d, -np.sin(x.d) * c.d)


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


def test_gradients_have_the_dtypes_of_inputs_and_seeds_those_of_outputs() -> None:
    half, single, double = (vector(1.0, 2.0, dtype=t) for t in (np.float16, np.float32, np.float64))
    y = half * single + double * half
    assert y.dtype == np.float64
    gradients = nn.grad(y, [half, single, double])
    assert [g.dtype for g in gradients] == [np.float16, np.float32, np.float64]
    assert [g.d.tolist() for g in gradients] == [[2, 4], [1, 2], [1, 2]]
    x = vector(1.0, 2.0, dtype=np.float16)
    (gx,) = nn.grad(x * x, x, grad_outputs=np.ones(2, np.float64))
    assert gx.dtype == np.float16


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


def test_none_and_numbers_among_grad_outputs() -> None:
    x = vector(3.0)
    assert nn.grad([x * x, x], x, grad_outputs=[None, 5.0])[0].d == 11
    assert nn.grad([x * x, x], x, grad_outputs=None)[0].d == 7
    x = vector(1.0, 2.0)
    (gx,) = nn.grad(x * x, x, grad_outputs=np.array(3.0))
    np.testing.assert_array_equal(gx.d, [6, 12])


def test_a_bare_array_is_not_split_into_rows() -> None:
    x = Variable.from_numpy_array(np.arange(6.0).reshape(2, 3))
    weight = np.arange(6.0).reshape(2, 3)
    for given in (weight, jnp.asarray(weight), nn.NdArray.from_numpy_array(weight)):
        np.testing.assert_allclose(nn.grad(x * 2, x, grad_outputs=given)[0].d, 2 * weight)
    with pytest.raises(ValueError, match="grad_outputs"):
        nn.grad([x * 2, x * 3], x, grad_outputs=weight)


def test_an_ndarray_as_grad_outputs_is_read_when_it_is_needed() -> None:
    x, cell = vector(3.0), nn.NdArray.from_numpy_array(np.array([1.0]))
    (gx,) = nn.grad(x * x, x, grad_outputs=cell)
    cell.fill(2.0)
    assert gx.d == 12


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


@pytest.mark.parametrize(("outputs", "inputs", "message"), [
    (None, "x", "outputs"), ("y", None, "inputs"), ([None], "x", r"outputs\[0\]"), ("y", ["x", 1.0], r"inputs\[1\]"),
    (np.ones(2), "x", "outputs"), ("y", 3, "inputs"), ([["y", None]], "x", r"outputs\[1\]"),
])
def test_errors_of_outputs_and_inputs(outputs: Any, inputs: Any, message: str) -> None:
    x = vector(1.0)
    named = {"x": x, "y": x * x}

    def filled(given: Any) -> Any:
        if isinstance(given, list):
            return [filled(g) for g in given]
        return named[given] if isinstance(given, str) else given

    with pytest.raises(TypeError, match=message):
        nn.grad(filled(outputs), filled(inputs))


@pytest.mark.parametrize("dtype", [np.int32, np.int8, bool])
def test_integer_outputs_are_refused(dtype: Any) -> None:
    y = F.cast(vector(1.0), dtype=dtype)
    with pytest.raises(TypeError, match=r"outputs\[1\] is"):
        nn.grad([vector(1.0), y], [vector(1.0)])
    with pytest.raises(TypeError, match="only floating"):
        y.backward()


def test_gradients_stop_at_integers() -> None:
    x = vector(1.5, 2.5)
    y = F.cast(F.cast(x, dtype=np.int32), dtype=np.float64) * x
    np.testing.assert_array_equal(nn.grad(y, x)[0].d, [1, 2])


# ---------------------------------------------------------------- persistent, bound


def test_persistent_outputs() -> None:
    x = vector(2.0)
    y, z = F.exp(x), F.sin(x)
    nn.grad([y, z], x, persistent_outputs=[True, False])
    assert y.persistent and not z.persistent
    with pytest.raises(ValueError, match="persistent_outputs: expected one for each of the 2 outputs, or none, got 1"):
        nn.grad([y, z], x, persistent_outputs=[True])


def test_bind_grad_output_of_reached_and_unreached_inputs() -> None:
    x, w = vector(2.0), vector(3.0)
    gx, gw = nn.grad(x * x * w, [x, w], bind_grad_output=True)
    assert gx.data is x.grad and gw.data is w.grad
    (gx + gw).forward()
    nn.forward_all([gx, gw])
    assert (x.g, w.g) == (12, 4)
    x.d = 1.0
    assert x.g == 12
    gx.forward()
    assert (x.g, w.g) == (6, 4)
    x, other = vector(2.0), vector(3.0)
    other.g = 7.0
    _, zero = nn.grad(x * x, [x, other], bind_grad_output=True)
    zero.forward()
    assert other.g == 0


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


def test_an_error_within_a_rule_is_noted() -> None:
    @op
    def raising(x, /):
        return lax.sin(x)

    backward(raising)(lambda f, gy: gy * f.args["no such argument"])
    x = vector(1.0)
    with pytest.raises(KeyError) as caught:
        nn.grad(raising(x), x)
    assert "backward rule of raising" in "".join(caught.value.__notes__)


def test_rules_that_are_refused(replaced_rule: Any) -> None:
    with pytest.raises(ValueError, match="tanh already has a backward rule"):
        backward(F.tanh)(lambda f, gy: gy)
    with pytest.raises(KeyError, match="NoSuchOp"):
        nn.register("NoSuchOp", lambda *a: None)
    with pytest.raises(TypeError, match="rule: expected a function"):
        nn.register("Tanh", 3)  # type: ignore[arg-type]
    replaced_rule("Tanh", lambda gys, *rest: gys, exact=True)
    assert nn.registry["Tanh"].exact


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


def test_register_gives_a_rule_to_an_op_without_one(replaced_rule: Any) -> None:
    @op
    def newcomer(x, /):
        return lax.sin(x)

    backward(newcomer, exact=False)(lambda f, gy: gy * 7.0)
    assert not registry["newcomer"].exact and registry["Newcomer"] is registry["newcomer"]
    x = vector(1.0)
    assert nn.grad(newcomer(x), x)[0].d == 7
    replaced_rule("Newcomer", lambda gys, *rest: gys[0] * 8.0)
    assert nn.grad(newcomer(x), x)[0].d == 8


def test_a_users_function_does_not_take_the_name_of_one_of_nngrads() -> None:
    class Tanh(nn.CustomFunction):
        def forward(self, x: Any) -> Any:
            return x * 2

        def backward(self, f: nn.Function, gy: Variable) -> Variable:
            return gy * 2

    assert registry["Tanh"] is registry["tanh"] is registry.find(F.tanh)
    x = vector(1.0)
    assert nn.grad(Tanh()(x), x)[0].d == 2


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


@FORMS
def test_emitted_functions_know_where_they_came_from(simplified: bool) -> None:
    x = vector(0.5)
    y = F.sin(F.exp(x) * x)
    own = set(functions_of([y]))
    with nn.simplify(simplified):
        (gx,) = nn.grad(y, x)
        (ggx,) = nn.grad(gx, x)
    assert {f.order for f in own} == {0} and all(f.origin is None for f in own)
    first = [f for f in functions_of([gx]) if f not in own]
    assert {f.order for f in first} == {1}
    assert all(f.origin in own for f in first if f.origin is not None)
    cosine = next(f for f in first if f.name == "cos")
    assert cosine.origin is y.parent
    assert max(f.order for f in functions_of([ggx])) == 2
    ranks = [max([f.rank for x in f.inputs if x.parent for f in [x.parent]], default=-1) for f in functions_of([ggx])]
    assert all(below < f.rank for below, f in zip(ranks, functions_of([ggx]), strict=True))


def test_emission_reuses_the_forward_graph() -> None:
    x = vector(0.5)
    y = F.exp(x)
    (gx,) = nn.grad(y * y, x)
    assert [f.name for f in functions_of([gx])].count("exp") == 1
    with nn.simplify(False):
        (plain,) = nn.grad(F.exp(x) * F.exp(x), x)
    np.testing.assert_allclose(gx.d, plain.d)


def test_simplify_checks_its_argument_and_an_error_leaves_nothing_switched() -> None:
    with pytest.raises(TypeError, match="on: expected True or False"), nn.simplify(1):  # type: ignore[arg-type]
        pass
    x = vector(1.0)
    with pytest.raises(MissingRule):
        nn.grad(no_rule(x), x)
    assert gc.isenabled()
    first, second = x * 1.0, x * 1.0
    assert first.parent is not second.parent


def test_the_gradient_graph_goes_when_its_results_go() -> None:
    x = vector(1.0)
    (gx,) = nn.grad(F.sin(F.exp(x)), x)
    functions = [weakref.ref(f) for f in functions_of([gx])]
    del gx
    assert [ref() for ref in functions if ref() is not None] == []


def test_higher_orders_of_a_gradient_penalty() -> None:
    x, w = vector(0.3, -0.4), vector(0.5, 0.8)
    y = F.sum(F.tanh(x * w))
    (gx,) = nn.grad(y, x)
    penalty = (F.sum(gx * gx) ** 0.5 - 1.0) ** 2
    (gw,) = nn.grad(penalty, w)

    def reference(w: Any) -> Any:
        t = np.tanh(x.d * w)
        return (np.sqrt(np.sum(((1 - t * t) * w) ** 2)) - 1.0) ** 2

    step = 1e-6
    for i in range(2):
        e = step * np.eye(2)[i]
        assert gw.d[i] == pytest.approx((reference(w.d + e) - reference(w.d - e)) / (2 * step), rel=1e-6)


def test_powers_of_large_constants_are_left_to_the_graph() -> None:
    for val, slope in ((1e200, np.inf), (3.0, 27.0)):
        c = F.constant(val, (1,), "float64")
        (gc,) = nn.grad(c**3, c)  # the rule raises the constant to a power
        np.testing.assert_array_equal(gc.d, [slope])


BOX = np.array([2.0, 3.0, 4.0])
CELL = np.array([[2.0, 0.3, 0.1], [0.0, 3.0, 0.4], [0.0, 0.0, 4.0]])


@pytest.mark.parametrize("image", [
    lambda x: x - 2.5 * F.round(x / 2.5), lambda x: x - F.floor(x), lambda x: x - BOX * F.round(x / BOX),
    lambda x: x - F.round(x * 0.5) * 2.0, lambda x: x - F.floor(x / BOX + 0.5) * BOX,
    lambda x: x - CELL @ F.round(np.linalg.inv(CELL) @ x), lambda x: -1.0 * F.round(x @ np.linalg.inv(CELL)) @ CELL + x,
    lambda x: x - F.einsum("ij,j->i", CELL, F.round(F.einsum("ij,j->i", np.linalg.inv(CELL), x))),
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
    ):
        np.testing.assert_allclose(nn.grad(F.sum(function(x)), x)[0].d, slope)
