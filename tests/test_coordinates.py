"""Nested gradients by several inputs, and by columns of one: what `nn.derivatives` gives, at what that costs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.lower import linearize
from nngrad.graph import Variable, functions_of
from nngrad.graph.thresholds import FEWEST_ASKED
from nngrad.inspection.description import describe
from nngrad.inspection.viewing.runs import lifetimes_of
from tests.oracle import arrays_of, by_jax
from tests.test_properties import SETTINGS

ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tanh": (F.tanh, jnp.tanh),
    "sin": (F.sin, jnp.sin),
    "sigmoid": (F.sigmoid, jax.nn.sigmoid),
    "softplus": (F.softplus, jax.nn.softplus),
}

Partial = tuple[int, ...]
"""The coordinates to differentiate by, in turn."""


def weights(d: int, hidden: int, seed: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) * 0.7 for shape in [(d, hidden), (hidden, hidden), (hidden, 1)]]


def network(act: Callable[[Any], Any], w: list[Any], x: Any) -> Any:
    """Two hidden layers, and an output that is not linear."""
    u = act(act(x @ w[0]) @ w[1]) @ w[2]
    return u * u + u


Form = Callable[[Callable[[Variable], Variable], Variable, list[Partial]], list[Variable]]


def nested(
    known: dict[Partial, Variable], wanted: list[Partial], step: Callable[[Variable], list[Variable]]
) -> list[Variable]:
    """Derivatives of those before them; `step` gives those of a Variable by all coordinates."""
    for partial in wanted:
        for k in range(len(partial)):
            if partial[: k + 1] not in known:
                known |= {(*partial[:k], i): g for i, g in enumerate(step(known[partial[:k]]))}
    return [known[partial] for partial in wanted]


def by_columns(u: Callable[[Variable], Variable], x: Variable, wanted: list[Partial]) -> list[Variable]:
    """The gradient by a Variable of several columns, of which one is taken."""

    def step(v: Variable) -> list[Variable]:
        (g,) = nn.grad(v, x)
        return [g[:, i : i + 1] for i in range(x.shape[1])]

    return nested({(): u(x)}, wanted, step)


def by_sums_of_columns(u: Callable[[Variable], Variable], x: Variable, wanted: list[Partial]) -> list[Variable]:
    """The same as it is written after PyTorch: of sums, and columns without an axis."""

    def step(v: Variable) -> list[Variable]:
        (g,) = nn.grad(F.sum(v), x)
        return [g[:, i] for i in range(x.shape[1])]

    return [F.reshape(v, shape=(-1, 1)) for v in nested({(): u(x)}, wanted, step)]


def by_several(u: Callable[[Variable], Variable], x: Variable, wanted: list[Partial]) -> list[Variable]:
    """The gradients by several Variables, all at once."""
    columns = [x[:, i : i + 1] for i in range(x.shape[1])]
    return nested({(): u(F.concatenate(*columns, axis=1))}, wanted, lambda v: nn.grad(v, columns))


def by_derivatives(u: Callable[[Variable], Variable], x: Variable, wanted: list[Partial]) -> list[Variable]:
    """`nn.derivatives`."""
    columns = [x[:, i : i + 1] for i in range(x.shape[1])]
    y = u(F.concatenate(*columns, axis=1))
    return nn.derivatives(y, [tuple([columns[i] for i in partial]) for partial in wanted])


FORMS: dict[str, Form] = {"several": by_several, "columns": by_columns, "sums of columns": by_sums_of_columns}


def of_jax(u: Callable[[Any], Any], partial: Partial) -> Callable[[Any], Any]:
    """A derivative at each point, by nested `jax.grad`."""
    f = lambda x: u(x)[0]  # noqa: E731

    def along(f: Callable[[Any], Any], i: int) -> Callable[[Any], Any]:
        return lambda x: jax.grad(f)(x)[i]

    for i in partial:
        f = along(f, i)
    return jax.vmap(f)


@settings(SETTINGS, max_examples=5)
@given(
    st.sampled_from(sorted(ACTIVATIONS)),
    st.sampled_from(sorted(FORMS)),
    st.integers(2, 3).flatmap(
        lambda d: st.tuples(
            st.just(d),
            st.lists(st.lists(st.integers(0, d - 1), min_size=1, max_size=4).map(tuple), min_size=1, max_size=3),
        )
    ),
)
def test_derivatives_are_those_of_jax(act: str, form: str, wanted: tuple[int, list[Partial]]) -> None:
    """Any partial derivatives to order four, and the gradient of a loss of them with respect to the weights."""
    d, partials = wanted
    ours, theirs = ACTIVATIONS[act]
    points, arrays = np.random.default_rng(d).uniform(-1, 1, (3, d)), weights(d, 3)
    x, w = Variable.from_numpy_array(points), [Variable.from_numpy_array(a, need_grad=True) for a in arrays]
    found = FORMS[form](lambda x: network(ours, w, x), x, partials)
    loss = F.add_n(*[F.sum(v * v) for v in found])
    results = arrays_of(*found, *nn.grad(loss, w[1]))

    def parts(w1: Any) -> list[Any]:
        w = [arrays[0], w1, arrays[2]]
        return [of_jax(lambda x: network(theirs, w, x), partial)(points) for partial in partials]

    expected = by_jax(
        lambda w1: [*parts(w1), jax.grad(lambda w1: sum([jnp.sum(v * v) for v in parts(w1)]))(w1)], arrays[1]
    )
    for got, want in zip(results, expected, strict=True):
        size = max(1, np.abs(want).max())
        np.testing.assert_allclose(np.reshape(got, want.shape), want, rtol=1e-9, atol=1e-9 * size)


# ---------------------------------------------------------------- what they cost

MIXED: list[Partial] = [(1,), (0, 0, 1), (0, 1, 1)]
HESSIAN: list[Partial] = [(0,), (1,), (0, 0), (0, 1), (1, 1)]


def flops(results: list[Variable], leaves: list[Variable]) -> float:
    """Floating-point operations of the compiled program."""
    arrays = [jnp.zeros(x.shape, x.dtype) for x in leaves]
    found: float = jax.jit(nn.to_jax(results, leaves)).lower(*arrays).compile().cost_analysis()["flops"]
    return found


def cost(form: Form, wanted: list[Partial], of_gradient: bool) -> float:
    """That of derivatives of a network of two coordinates, or of the gradient of a loss of them."""
    x, w = Variable((32, 2)), [Variable(a.shape, need_grad=True) for a in weights(2, 16)]
    found = form(lambda x: F.tanh(F.tanh(F.tanh(x @ w[0]) @ w[1]) @ w[1]) @ w[2], x, wanted)
    total = F.add_n(*found) + found[0] * found[-1]  # all of them are read, beside what is built on them
    return flops(nn.grad(F.mean(total * total), w) if of_gradient else [total], [x, *w])


@pytest.mark.parametrize(("wanted", "of_gradient"), [(HESSIAN, False), (MIXED, True)])
def test_each_form_costs_what_derivatives_cost(wanted: list[Partial], of_gradient: bool) -> None:
    reference = cost(by_derivatives, wanted, of_gradient)
    for form in (by_several, by_columns):
        assert cost(form, wanted, of_gradient) <= 1.03 * reference


def test_gradients_of_first_order_are_walks_back() -> None:
    """Which takes half of what two tangents take. What is differentiated again is built forward."""
    x, w = Variable((8, 2)), [Variable(a.shape) for a in weights(2, 5)]
    (g,) = nn.grad(F.sum(F.tanh(F.tanh(x @ w[0]) @ w[1]) @ w[2], axis=1), x)
    assert nn.explain(g).orders[0].mode == "reverse"
    (again,) = nn.grad(g[:, :1], x)
    assert [order.mode for order in nn.explain(again).orders] == ["forward", "forward"]
    assert nn.explain(g).orders[0].mode == "reverse"


# ---------------------------------------------------------------- what is in hand


def first_gradients(points: Any) -> tuple[list[Variable], list[Variable]]:
    x, t = [Variable.from_numpy_array(points[:, i : i + 1], need_grad=True) for i in (0, 1)]
    w = [Variable.from_numpy_array(a) for a in weights(2, 4)]
    return [x, t], nn.grad(F.tanh(F.tanh(F.concatenate(x, t, axis=1) @ w[0]) @ w[1]) @ w[2], [x, t])


def test_no_graph_is_changed() -> None:
    """What is in hand, and what is built on it, is computed as before; and so is the gradient of that."""
    points = np.random.default_rng(4).uniform(-1, 1, (3, 2))
    xs, (u_x, u_t) = first_gradients(points)
    residual = u_x * u_t
    before = functions_of([residual])
    ranks = [f.rank for f in before]
    (slope,) = nn.grad(F.sum(residual), xs[0])
    value = residual.d.copy()
    second = nn.grad(u_x, xs)
    assert functions_of([residual]) == before
    assert [f.rank for f in before] == ranks
    residual.forward()
    np.testing.assert_array_equal(residual.d, value)
    (again,) = nn.grad(F.sum(residual), xs[0])
    assert nn.explain(again).orders[0].mode == "reverse"
    np.testing.assert_array_equal(again.d, slope.d)
    assert set(functions_of(second)).isdisjoint(set(functions_of([u_x])) - set(functions_of(u_x._derived.outputs)))


LOOKS: dict[str, Callable[[list[Variable]], Any]] = {
    "read": lambda gradients: gradients[0].d,
    "forward": lambda gradients: nn.forward_all(gradients),
    "backward": lambda gradients: F.sum(gradients[0]).backward(),
    "printed": lambda gradients: [repr(gradients[0]), gradients[0]._repr_html_()],
    "counted": lambda gradients: [nn.count(gradients), nn.explain(gradients), str(nn.show(gradients))],
    "built on": lambda gradients: (gradients[0] * gradients[1]).d,
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_gradients_changes_nothing(look: str) -> None:
    """Of gradients that were looked at, the next orders are the same programs, and so is the gradient of a loss of all
    of them."""
    points = np.random.default_rng(2).uniform(-1, 1, (3, 2))

    def found(looked: bool) -> tuple[Any, list[np.ndarray]]:
        nn.executables.clear()
        xs, firsts = first_gradients(points)
        if looked:
            LOOKS[look](firsts)
        second = nn.grad(firsts[0], xs)
        if looked:
            LOOKS[look](second)
        (third,) = nn.grad(second[1], xs[1])
        (slope,) = nn.grad(F.sum((firsts[0] * firsts[1] + second[0] - third) ** 2), xs[0])
        return linearize([slope, third, *second]).program, [slope.d, third.d, second[0].d]

    (program, values), (other, expected) = found(True), found(False)
    assert program == other
    for value, same in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, same, rtol=1e-12)


def test_a_program_has_a_gradient_in_one_form() -> None:
    """By itself a first gradient is the reverse pass; with its own gradients it is what those are built on."""
    points = np.random.default_rng(3).uniform(-1, 1, (3, 2))
    xs, (u_x, u_t) = first_gradients(points)
    alone = len(linearize([u_x, u_t]).functions)
    second = nn.grad(u_x, xs)
    assert len(linearize([u_x, u_t]).functions) == alone
    apart = len(linearize([u_x, u_t]).functions) + len(linearize(second).functions)
    together = linearize([u_x * u_t, *second])
    assert len(together.functions) < apart
    assert u_x.parent not in together.functions
    both = nn.to_jax([u_x * u_t, *second], xs)(*[x.d for x in xs])
    for value, y in zip(both, [u_x * u_t, *second], strict=True):
        np.testing.assert_allclose(value, y.d, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_gradient_through_both_forms_is_that_of_one(stopped: bool) -> None:
    """Of a loss that reads a first gradient and the second that was built on the other form of it. What stops at the
    first goes through the second, which does not read it."""
    points = np.random.default_rng(5).uniform(-1, 1, (3, 2))
    slopes = []
    for simplified in (True, False):
        with nn.simplify(simplified):
            xs, (u_x, u_t) = first_gradients(points)
            (u_xx,) = nn.grad(u_x, xs[0])
            loss = F.sum(u_x**2 * u_t + u_xx * u_x)
            constant = Variable.from_numpy_array(u_x.d)
            partly = F.sum(constant**2 * u_t + u_xx * constant)
            slopes.append([g.d for g in nn.grad(loss, xs, stop_gradients=[u_x] if stopped else [])])
            if stopped:
                slopes.append([g.d for g in nn.grad(partly, xs)])
    for found in slopes[1:]:
        np.testing.assert_allclose(found, slopes[0], rtol=1e-11, atol=1e-13)


def test_what_shows_graphs_shows_both_forms() -> None:
    xs, (u_x, u_t) = first_gradients(np.random.default_rng(5).uniform(-1, 1, (3, 2)))
    (u_xx,) = nn.grad(u_x, xs[0])
    residual = u_x * u_t + u_xx
    assert {id(f) for f in describe([residual]).functions if f is not None} == {*map(id, functions_of([residual]))}
    assert lifetimes_of(describe([residual]), [residual]).peak >= 0


def test_what_is_rewired_is_no_gradient_any_more() -> None:
    points = np.random.default_rng(5).uniform(-1, 1, (3, 2))
    xs, (u_x, u_t) = first_gradients(points)
    (u_xx,) = nn.grad(u_x, xs[0])
    residual = u_x * u_t + u_xx
    expected = residual.d + (2 * xs[0].d - u_x.d) * u_t.d
    u_x.rewire_on(*nn.grad(xs[0] ** 2, xs[0]))
    residual.forward()
    np.testing.assert_allclose(residual.d, expected, rtol=1e-12)
    (by_x,) = nn.grad(F.sum(u_x**2), xs[0])
    np.testing.assert_allclose(by_x.d, 8 * xs[0].d, rtol=1e-12)


def test_a_graph_in_a_file_has_both_forms(tmp_path: Path) -> None:
    points = np.random.default_rng(5).uniform(-1, 1, (3, 2))
    xs, (u_x, u_t) = first_gradients(points)
    (u_xx,) = nn.grad(u_x, xs[0])
    residual = u_x * u_t + u_xx
    nn.save_graph(tmp_path / "u.nngraph", {"residual": residual, "u_x": u_x}, xs)
    loaded = nn.load_graph(tmp_path / "u.nngraph")
    again = [loaded.outputs["residual"], loaded.outputs["u_x"]]
    assert len(linearize(again).functions) == len(linearize([residual, u_x]).functions)
    slopes = [nn.grad(F.sum(y**2), at) for y, at in ((residual, xs), (again[0], loaded.inputs))]
    assert len(linearize(slopes[0]).functions) == len(linearize(slopes[1]).functions)
    for one, other in zip(*slopes, strict=True):
        np.testing.assert_allclose(one.d, other.d, rtol=1e-12)


def test_gradients_by_and_kept_at_a_first_gradient() -> None:
    """A first gradient that is asked for stands for itself, and one on the way keeps its own gradient."""
    points = np.random.default_rng(5).uniform(-1, 1, (3, 2))
    xs, (u_x, u_t) = first_gradients(points)
    (u_xx,) = nn.grad(u_x, xs[0])
    loss = F.sum(u_x**2 * u_t + u_xx)
    by_u_x, by_u_t = nn.grad(loss, [u_x, u_t])
    np.testing.assert_allclose(by_u_x.d, 2 * u_x.d * u_t.d, rtol=1e-12)
    np.testing.assert_allclose(by_u_t.d, u_x.d**2, rtol=1e-12)
    nn.grad(loss, xs, retain_grad=True)
    np.testing.assert_allclose(u_t.g, u_x.d**2, rtol=1e-12)


def test_rows_that_are_mixed_are_differentiated_as_before() -> None:
    x = Variable.from_numpy_array(np.random.default_rng(6).uniform(-1, 1, (3, 2)))
    w = Variable.from_numpy_array(weights(2, 4)[0])
    y = F.sum(F.tanh((x - F.mean(x, axis=0, keepdims=True)) @ w), axis=1, keepdims=True)
    (g,) = nn.grad(y, x)
    (again,) = nn.grad(g[:, :1] ** 2, x)
    assert [order.mode for order in nn.explain(again).orders] == ["reverse", "symmetric"]

    def theirs(x: Any) -> Any:
        f = lambda x: jnp.sum(jnp.tanh((x - x.mean(0, keepdims=True)) @ w.d))  # noqa: E731
        return jnp.sum(jax.grad(f)(x)[:, 0] ** 2)

    np.testing.assert_allclose(again.d, by_jax(jax.grad(theirs), x.d), rtol=1e-10, atol=1e-12)


def test_a_loop_that_builds_anew_makes_the_same_graph() -> None:
    points = np.random.default_rng(8).uniform(-1, 1, (3, 2))
    counts, slopes = [], []
    for _ in range(4):
        xs, (u_x, u_t) = first_gradients(points)
        (u_xx, u_xt), (_, u_tt) = nn.grad(u_x, xs), nn.grad(u_t, xs)
        (g,) = nn.grad(F.sum((u_xx + u_tt * u_xt - u_x * u_t) ** 2), xs[0])
        counts.append(len(functions_of([g, u_x, u_t])))
        slopes.append(g.d)
    assert len({*counts}) == 1
    for slope in slopes[1:]:
        np.testing.assert_allclose(slope, slopes[0], rtol=1e-12)
    assert counts[0] > FEWEST_ASKED


# ---------------------------------------------------------------- equal functions


def test_equal_functions_of_two_gradients_are_one_to_the_next() -> None:
    """Two calls emit the same functions; a gradient through both has the products of one."""
    x, w = Variable((8, 1)), [Variable(shape, need_grad=True) for shape in [(1, 6), (6, 6), (6, 1)]]
    u = F.tanh(F.tanh(x @ w[0]) @ w[1]) @ w[2]
    (first,), (second,) = nn.grad(u, x), nn.grad(u, x)
    assert first is not second
    of_one, of_two = (nn.count(nn.grad(F.sum(first * each), w)).by_order[2] for each in (first, second))
    assert of_two.matrix_products == of_one.matrix_products


def test_equal_functions_of_a_program_are_one_to_its_gradient() -> None:
    """A layer that is written twice has the products of one in gradients, and both have their part in their values."""
    rng = np.random.default_rng(3)
    arrays = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    x, w = (Variable.from_numpy_array(a, need_grad=True) for a in arrays)
    layers = [F.tanh(F.sin(x @ w) @ w) for _ in range(2)]
    once, twice = F.sum(layers[0] ** 2 * F.exp(layers[0])), F.sum(layers[0] ** 2 * F.exp(layers[1]))
    of_one, of_two = (nn.count(nn.grad(each, [x, w])).by_order[1] for each in (once, twice))
    assert of_two.matrix_products == of_one.matrix_products

    def theirs(x: Any, w: Any) -> Any:
        h = jnp.tanh(jnp.sin(x @ w) @ w)
        return jnp.sum(h**2 * jnp.exp(h))

    y, function = twice, theirs
    for order in (1, 2, 3):
        (g,), slope = nn.grad(y, x), jax.grad(function)
        np.testing.assert_allclose(g.d, by_jax(slope, *arrays), rtol=1e-9, atol=1e-9, err_msg=f"order {order}")
        y, function = F.sum(F.sin(g)), lambda x, w, slope=slope: jnp.sum(jnp.sin(slope(x, w)))


def test_rows_that_are_gathered_twice_are_one_to_their_gradient() -> None:
    """`F.gather` has NaN for what lies outside, which no gradient is multiplied by."""
    x, i = Variable.from_numpy_array(np.array([[0.3], [0.8], [0.1]])), np.array([2, 0, 2, 1])
    at = Variable.from_numpy_array(i)
    a, b = [F.sin(F.gather(x, at, axis=0)) for _ in range(2)]
    (g,) = nn.grad(F.sum(F.exp(a) * b), x)
    assert [f.op.name for f in functions_of([g])].count("put_points") == 1
    expected = jax.grad(lambda x: jnp.sum(jnp.exp(jnp.sin(x[i])) * jnp.sin(x[i])))
    np.testing.assert_allclose(g.d, by_jax(expected, x.d), rtol=1e-12)


def test_what_is_computed_of_equal_numbers_is_one_to_its_gradient() -> None:
    x = Variable.from_numpy_array(np.array([0.3, -0.8, 2.5]))

    def layer(other: float) -> Variable:
        return F.exp(F.maximum2(F.where(x > 0, F.sin(x), other), 0.125))

    layers = layer(0.25), layer(0.25), layer(0.5)
    once, twice, apart = (nn.grad(F.sum(layers[0] * each), x)[0] for each in layers)
    counts = [sum([f.order > 0 for f in functions_of([g])]) for g in (once, twice, apart)]
    assert counts[1] - counts[0] <= 1 < counts[2] - counts[0]  # the sum of two gradients in place of a square's
    y = np.exp(np.maximum(np.where(x.d > 0, np.sin(x.d), 0.25), 0.125))
    inside = (x.d > 0) & (np.sin(x.d) > 0.125)
    np.testing.assert_allclose(twice.d, np.where(inside, 2 * y**2 * np.cos(x.d), 0), rtol=1e-12)


def test_of_equal_functions_of_a_program_what_is_asked_for_stands_for_itself() -> None:
    x = Variable.from_numpy_array(np.array([0.3, 0.8]), need_grad=True)
    a, b = [F.sin(x) * x for _ in range(2)]
    result = F.sum(a**2 * b)
    v, slope = np.sin(x.d) * x.d, np.cos(x.d) * x.d + np.sin(x.d)
    np.testing.assert_allclose(nn.grad(result, b)[0].d, v**2, rtol=1e-12)
    np.testing.assert_allclose(nn.grad(result, x, stop_gradients=[b])[0].d, 2 * v**2 * slope, rtol=1e-12)
    np.testing.assert_allclose(nn.grad(result, x)[0].d, 3 * v**2 * slope, rtol=1e-12)
    result.forward()
    b.need_grad = False
    np.testing.assert_allclose(nn.grad(result, x)[0].d, 2 * v**2 * slope, rtol=1e-12)


@pytest.mark.parametrize(("at", "stops"), list(product(["inner", "outer"], [False, True])))
def test_what_is_asked_for_stands_for_itself(at: str, stops: bool) -> None:
    """Of two equal gradients one is an input, or a stop: what arrives at the other is not its own."""
    x = Variable.from_numpy_array(np.array([0.3, 0.8]))
    y = F.sin(x) * x
    (a,), (b,) = nn.grad(y, x), nn.grad(y, x)
    result = F.sum(a**2 * b)
    given = a if at == "inner" else b
    if stops:
        (g,) = nn.grad(result, x, stop_gradients=[given])
    else:
        (g,) = nn.grad(result, given)
    v = np.cos(x.d) * x.d + np.sin(x.d)
    slope = 2 * np.cos(x.d) - np.sin(x.d) * x.d
    by_a, by_b = 2 * v * v, v * v
    expected = (by_b if at == "inner" else by_a) * slope if stops else (by_a if at == "inner" else by_b)
    np.testing.assert_allclose(g.d, expected, rtol=1e-12)


def test_limits_of_gradients_hold_for_each() -> None:
    """Functions of two gradients that limit what arrives are not one: half of it would arrive at both."""
    x = Variable.from_numpy_array(np.array([0.5]))
    (a,), (b,) = nn.grad(x**3, x), nn.grad(x**3, x)
    clipped = [F.clip_grad_by_value(each, -1.0 * F.constant(1, (1,), np.float64), F.constant(1, (1,), np.float64))
               for each in (a, b)]
    (g,) = nn.grad(F.sum(3 * clipped[0] + 3 * clipped[1]), x)
    np.testing.assert_allclose(g.d, [2 * 6 * 0.5], rtol=1e-12)
