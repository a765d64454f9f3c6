"""The list of rewriting rules: what each does, and that each can be switched off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from backward_registry import Rule, registry
from nngrad.autodiff.forward_mode import Pushforward
from nngrad.execution.interpret import interpret
from nngrad.graph import Array, Variable, functions_of, op
from nngrad.rewrite import RULES
from nngrad.rewrite.builder import emitting


def leaf(*shape: int, need_grad: bool = False) -> Variable:
    values = np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape)
    return Variable.from_numpy_array(values, need_grad=need_grad)


A, A4, B, C, M, W = leaf(3), leaf(4), leaf(3), leaf(3), leaf(4, 3), leaf(4, 2)

ROWS = Variable.from_numpy_array(np.array([[2], [0]], np.int32))


def chooser() -> Variable:
    """The unit vectors that choose two rows of four."""
    return F.one_hot(ROWS, shape=(4,), dtype=np.float64)


def number(value: float) -> Variable:
    return F.constant(value, (3,), np.float64)


def selected() -> Variable:
    """The gradient of what is selected twice by one condition, with a root between."""
    inner = F.where(B, A, C)
    (gx,) = nn.grad(F.where(B, F.sqrt(inner), C), A)
    return gx


def difference_of_carries() -> Variable:
    """The difference of two carries that start alike and change alike."""
    (a, b), _ = F.scan(lambda h, _: ((F.sin(h[0]), F.sin(h[1])), None), (A, A), length=2)
    return a - b


def tangent_of_a_sum() -> Variable:
    """What the last carry moves by, of a loop that adds to it."""
    (t,) = Pushforward()([F.scan(lambda h, x: (h + x, None), A, M)[0]], [A], [B])
    return t


SMALLER: dict[str, Callable[[], Any]] = {
    "equal-functions": lambda: [F.sin(A), F.sin(A)],
    "ones": lambda: [1.0 * A],
    "zeros": lambda: [0.0 * F.sin(A)],
    "nested-numbers": lambda: [2 * (3 * A)],
    "monomials": lambda: [A / B * F.reciprocal(A)],
    "order-of-factors": lambda: [A * B, B * A],
    "like-factors": lambda: [A**2 * A**-1],
    "powers-of-powers": lambda: [(A**2) ** 3],
    "lengths": lambda: [F.norm(A) * F.sum(F.directed(B, A, F.broadcast(F.norm(A), shape=(3,))))],
    "numbers-of-factors": lambda: [(2 * A) * (3 * B), A * B],
    "linear-combinations": lambda: [A - B + B],
    "like-terms": lambda: [A + 2 * A],
    "constant-terms": lambda: [A + number(0)],
    "sums-of-sums": lambda: [(A + B) - B],
    "common-factors": lambda: [0.5 * F.sum(2 * A + 4 * B)],
    "multiples-of-sums": lambda: [(A + 2 * B) * C, (0.5 * A + B) * C],
    "identities": lambda: [F.identity(A)],
    "idle-movements": lambda: [F.reshape(A, shape=(3,)), F.transpose(M, axes=(0, 1)), F.sum(A, axis=())],
    "equal-branches": lambda: [F.where(A, B, B)],
    "constants": lambda: [F.reshape(number(2), shape=(3, 1))],
    "numbers-out-of-linear": lambda: [F.flip(2 * A), F.flip(A)],
    "numbers-out-of-where": lambda: [0.5 * F.where(A, 2 * B, 2 * C)],
    "composed-movements": lambda: [F.reshape(F.reshape(M, shape=(12,)), shape=(3, 4))],
    "transposes-in-products": lambda: [F.batch_matmul(F.transpose(M), W)],
    "chosen-rows": lambda: [F.batch_matmul(chooser(), M)],
    "chosen-elements": lambda: [F.sum(chooser() * A4, axis=-1)],
    "sums-of-repeated": lambda: [F.sum(F.broadcast(A, shape=(4, 3)), axis=0)],
    "slices-of-joined": lambda: [F.concatenate(A4, C)[4:6]],
    "slices-of-put": lambda: [F.put_slices(A, key=((1, 3, 1),), shape=(5,))[1:4]],
    "whole-slices": lambda: [F.concatenate(A, A4)[3:]],
    "equal-carries": lambda: [difference_of_carries()],
    "unchanging-carries": lambda: [tangent_of_a_sum()],
    "masks-outermost": lambda: [selected()],
    "exact-quotients": lambda: [F.divided(A + A * B, A)],
}
"""For each rule what is smaller with it."""


def emitted(build: Callable[[], Any], without: list[str]) -> list[Variable]:
    with nn.simplify(without=without), emitting([], 1):
        results: list[Variable] = build()
    return results


def test_every_rule_has_a_graph_that_it_makes_smaller() -> None:
    assert list(SMALLER) == list(RULES)


def test_a_rule_makes_a_graph_smaller() -> None:
    graphs = {name: (emitted(build, []), emitted(build, [name])) for name, build in SMALLER.items()}
    nn.forward_all([y for both in graphs.values() for outputs in both for y in outputs])
    for name, (on, off) in graphs.items():
        assert len(functions_of(on)) < len(functions_of(off)), name
        for x, y in zip(on, off, strict=True):
            np.testing.assert_allclose(x.d, y.d, rtol=1e-14, err_msg=name)


def test_a_gradient_reuses_all_outputs_of_an_equal_function() -> None:
    for kept in (0, 1):
        g, a, b = leaf(5), leaf(3), leaf(3)
        known = F.real_fft(g)[kept]  # the other output is gone
        y = F.real_fft_transpose(a, b, size=5)
        gradients = nn.grad([y, known], [a, b], grad_outputs=[g, None])
        assert [f.name for f in functions_of([*gradients, known])].count("real_fft") == 1
        expected = np.fft.rfft(g.d)
        for gx, part in zip(gradients, (expected.real, expected.imag), strict=True):
            np.testing.assert_allclose(gx.d, part, atol=1e-14)


# ---------------------------------------------------------------- gradients


def network() -> tuple[Variable, Variable]:
    """Products, quotients, powers, sums over axes, transposes, selections and a normalisation."""
    x, w = leaf(2, 3), leaf(3, 3)
    h = F.tanh(F.affine(x, w) * 0.5) / (1 + x * x)
    scores = F.softmax(2 * F.batch_matmul(h, F.transpose(h)))
    centred = h - F.mean(h, axis=1, keepdims=True)
    normal = centred / (F.mean(centred**2, axis=1, keepdims=True) + 0.1) ** 0.5
    kept = F.where(F.greater_scalar(x, 0.9), 3 * normal, 3 * F.sqrt(x))
    return x, F.sum(F.batch_matmul(scores, kept)) + F.sum(F.relu(h - 0.2) ** 3)


def orders(x: Variable, y: Variable, without: list[str]) -> list[Variable]:
    """Orders 0 to 3."""
    levels = [y]
    with nn.simplify(without=without):
        for _ in range(3):
            levels += nn.grad([levels[-1]], [x])
    return levels


def test_gradients_without_a_rule_or_any_are_the_same() -> None:
    x, y = network()
    with_all, without_any = orders(x, y, []), orders(x, y, list(RULES))
    assert len(functions_of(without_any)) > len(functions_of(with_all))
    without = {name: orders(x, y, [name]) for name in RULES} | {"any": without_any}
    arrays = [np.asarray(a) for a in interpret([*with_all, *[y for levels in without.values() for y in levels]], {})]
    for i, name in enumerate(without, 1):
        for order, expected in enumerate(arrays[:4]):
            np.testing.assert_allclose(arrays[4 * i + order], expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max(),
                                       err_msg=f"without {name}, order {order}")  # fmt: skip


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_are_left_as_they_are(value: float) -> None:
    found = []
    for simplified in (True, False):
        with nn.simplify(simplified):
            x = Variable.from_numpy_array(np.array([-1.0, 0.0, 2.0]), need_grad=True)
            y = F.sum((x * value) * 3.0 - x * value + x**2 * 0.5)
            (g,) = nn.grad([y], [x])
            (gg,) = nn.grad([g * g * value], [x])
            found.append([np.asarray(a) for a in interpret([y, g, gg], {})])
    for ours, plain in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, plain)


def test_numbers_that_would_overflow_together_stay_where_they_are() -> None:
    """The product of the numbers has no float32, and that of the arrays is 0."""
    x, y = [Variable.from_numpy_array(np.full((2, 2), 2.0**-80, np.float32)) for _ in range(2)]
    with emitting([], 1):
        product = F.batch_matmul(x * 2.0**60, y * 2.0**60)
    (z,) = interpret([product], {})
    np.testing.assert_array_equal(z, np.full((2, 2), 2.0**-39))


def test_what_does_not_stand_for_what_is_emitted() -> None:
    """Functions with effects, constants that the user built, and what gradients stop at; all else does."""
    mean, variance = Variable.from_numpy_array(np.zeros((1, 3))), Variable.from_numpy_array(np.ones((1, 3)))
    normal = F.batch_normalization(M, C, B, mean, variance, batch_stat=True)
    stopped, sine, ones = F.cos(A).apply(need_grad=False), F.sin(A), F.constant(1.0, (3,), np.float64)
    given = {"effects": normal, "stopped": stopped, "sine": sine, "ones": ones}
    known = [y.parent for y in given.values()]
    with emitting(known, 1) as nodes:
        found = {name: nodes.known(f.op, f.inputs, f.arguments) for name, f in zip(given, known, strict=True)}
    assert known[0].effects
    assert found == {"effects": None, "stopped": None, "sine": sine, "ones": None}


# ---------------------------------------------------------------- the switch


def test_rules_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    nn.show_rewrites()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(RULES)
    assert any(line.split() == ["equal-branches", "where(c,", "x,", "x)", "=", "x", "where"] for line in lines)
    assert all(rule.formula and rule.ops for rule in RULES.values())


def test_rules_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "algebra.md").read_text()
    assert [name for name in RULES if f"`{name}`" not in text] == []


def test_the_innermost_switch_counts() -> None:
    def counts() -> int:
        with emitting([], 1):
            return len(functions_of([F.identity(1.0 * A)]))

    with nn.simplify(without=["ones"]):
        assert counts() == 1
        with nn.simplify(without=["identities"]):
            assert counts() == 1
        with nn.simplify(False):
            assert counts() == 2
        with nn.simplify():
            assert counts() == 0
        assert nn.simplify(without=["ones", "identities"])(counts)() == 2
    assert counts() == 0


# ---------------------------------------------------------------- masks where something is repeated


def test_a_mask_keeps_its_place_where_what_it_masks_is_repeated() -> None:
    """A condition of one axis would stand for rows of what has two."""
    x, w = leaf(2), Variable.from_numpy_array(np.array([[1.0, 2.0], [3.0, 4.0]]), need_grad=True)
    masked = F.where(np.array([True, False]), F.sin(x), F.constant(0, (2,), "float64"))
    for y in (w * masked, w / (1 + masked), F.mul2(F.reshape(w, shape=(2, 1, 2)), masked)):
        simplified, plain = [], []
        for kept, without in ((simplified, []), (plain, ["masks-outermost"])):
            with nn.simplify(without=without):
                (t,) = nn.jvp(y, [x], [np.array([1.0, -2.0])])
                kept += [t, *nn.grad(F.sum(t * t), [x, w])]
        for a, b in zip(simplified, plain, strict=True):
            np.testing.assert_allclose(a.d, b.d, rtol=1e-12)


@op(diagonal=True, broadcasts=True, unbounded=True)
def product_of_rows(x0: Array, x1: Array, /) -> jax.Array:
    """Rows times one row."""
    return x0 * x1


def test_a_rule_may_sum_a_masked_gradient_to_the_shape_of_what_is_repeated() -> None:
    a, b = np.array([[1.0, -2.0], [-3.0, 4.0], [5.0, 6.0]]), np.array([0.5, 2.0])
    rule = Rule(lambda f, gy: (gy * f.inputs[1], F.sum(gy * f.inputs[0], axis=0)), "user", True, __name__)
    registry.add(product_of_rows, rule)
    x, w = [Variable.from_numpy_array(values, need_grad=True) for values in (a, b)]
    gx, gw = nn.grad(F.sum(F.relu(product_of_rows(x, w))), [x, w])
    np.testing.assert_array_equal(gx.d, (a > 0) * b)
    np.testing.assert_array_equal(gw.d, np.sum((a > 0) * a, 0))


def test_what_is_carried_and_what_is_scanned_are_not_equal_at_a_step() -> None:
    """Two carries start as the very Variable that the loop goes through slice by slice."""
    def step(c: Any, s: Any) -> Any:
        return (c[0] * s, c[1] * s), c[0] + c[1] * s

    x = Variable.from_numpy_array(np.array([0.5, -0.3]))
    with emitting([], 1):
        (a, b), ys = F.scan(step, (x, x), x)
    for y, expected in ((a, [-0.075, 0.045]), (b, [-0.075, 0.045]), (ys, [[0.75, -0.45], [0.175, -0.105]])):
        np.testing.assert_allclose(y.d, expected, rtol=1e-12)
