"""Looking into the bodies of loops and branches: text, costs, NaN, debug mode; and loops handed to JAX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import ControlOp, functions_of, results_of
from nngrad.inspection import Tally
from nngrad.inspection.nan import Checker
from nngrad.inspection.stepwise import MarkedArray, run_in_steps
from tests.functions.test_loops import OURS, SCANS, C, W, X, flat, leaf
from tests.slow import slow_but_every

T = len(X)


def line_of(text: str) -> str:
    """`file:line` of the line of this file that ends with the comment `text`."""
    with open(__file__) as file:
        return next(f"{__file__}:{i}" for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


def recurrent(x: Any, c: Any, w: Any) -> Any:
    """A loop with one product at each step."""
    return F.scan(lambda h, x: (F.tanh(h @ w + x), None), c, x)[0]


def with_bodies(outputs: Any) -> list[nn.Function]:
    """The functions of a graph that have bodies."""
    return [f for f in functions_of(outputs) if isinstance(f.op, ControlOp)]


# ---------------------------------------------------------------- a step at a time


def agrees_in_steps(f: nn.Function) -> None:
    """Compare the outputs of a function with those that it has a step at a time."""
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(x.shape) * 2, x.dtype) for x in f.inputs]
    made = run_in_steps(f, [MarkedArray(a, None) for a in arrays], Checker())
    for y, expected, spec in zip(made, results_of(f, arrays), f.specs, strict=True):
        assert (y.array.shape, y.array.dtype) == (spec.shape, spec.dtype)
        np.testing.assert_allclose(y.array, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("function", slow_but_every(2, SCANS), ids=lambda f: f.__name__)
def test_a_loop_and_its_gradient_are_the_same_a_step_at_a_time(function: Callable[..., Any]) -> None:
    leaves = [leaf(a) for a in (X, C, W)]
    ys = [y for y in flat(function, OURS)(*leaves) if y.spec.differentiable]
    gradients = nn.grad([F.sum(F.sin(y)) for y in ys], leaves)
    for f in with_bodies(gradients):
        agrees_in_steps(f)


def test_branches_and_conditions_are_the_same_a_step_at_a_time() -> None:
    x = leaf(C)
    for index in (-1, 0, 1, 7):
        y = F.switch(np.int32(index), [F.sin, lambda x: x * x], x)
        (f,) = with_bodies([y])
        arrays = [np.asarray(index, np.int32), C]
        (made,) = run_in_steps(f, [MarkedArray(a, None) for a in arrays], Checker())
        np.testing.assert_allclose(made.array, y.d)
    y = F.while_loop(lambda y: F.sum(y * y) < 50, lambda y: y * 1.5, x)
    (f,) = with_bodies([y])
    (made,) = run_in_steps(f, [MarkedArray(C, None)], Checker())
    np.testing.assert_allclose(made.array, y.d)


# ---------------------------------------------------------------- text


def test_a_loop_as_text() -> None:
    x, c, w = leaf(X), leaf(C, need_grad=False), leaf(W, need_grad=False)
    x.name, w.name = "x", "w"
    assert re.sub(" {2,}", "  ", str(nn.show(F.sum(recurrent(x, c, w))))) == re.sub(" {2,}", "  ", """\
w = leaf  float64[3, 3]
leaf0 = leaf  float64[2, 3]
x = leaf, needs a gradient  float64[4, 2, 3]
v0 = scan_of_body(w, leaf0, x)  float64[2, 3]
  body, 4 times: carry0 begins as leaf0; slice0 is a slice of x
    v1 = batch_matmul(carry0, w)  float64[2, 3]
    v2 = add2(v1, slice0)  float64[2, 3]
    v3 = tanh(v2)  float64[2, 3]
    carry0 becomes v3; v0 is v3 at the end
v4 = sum(v0)  float64[]
results: v4""")


# ---------------------------------------------------------------- costs


def test_what_is_in_loops_and_branches_counts_at_each_step_or_once() -> None:
    y = recurrent(leaf(X), leaf(C), leaf(W))
    product = 2 * 2 * 3 * 3
    assert nn.count(y).by_op["batch_matmul"] == Tally(T, T, 0, T * product, T * 8 * (6 + 9 + 6))
    assert nn.count(y).functions == 3 * T + 1
    once = nn.count(y, each_step=False)
    assert once.by_op["batch_matmul"] == Tally(1, 1, 0, product, 8 * (6 + 9 + 6))
    assert once.by_op["scan_of_body"] == Tally(1, 0, 0, 0, 0)
    assert once.functions == 4
    w = leaf(W)

    def step(h: Any, _: Any) -> Any:
        return F.scan(lambda h, _: (h @ w, None), h, length=3)[0], None

    assert nn.count(F.scan(step, w, length=5)[0]).matrix_products == 15
    y = F.cond(1, lambda w: w @ w @ w, lambda w: w @ w, w)
    assert nn.count(y).matrix_products == 2
    assert nn.count(F.while_loop(lambda y: F.sum(y) < 1, lambda y: y @ w, w)).matrix_products == 1
    with pytest.raises(TypeError, match="each_step must be True or False, got 1"):
        nn.count(y, each_step=1)  # type: ignore[arg-type]


# ---------------------------------------------------------------- NaN


BAD = np.array([4.0, 1.0, -1.0, 9.0])


def logarithms(h: Any, x: Any) -> Any:
    """A step that makes NaN of what is negative."""
    z = h + F.log(x)  # the logarithm
    return z, F.tanh(z)


def test_find_nan_names_the_step_the_function_and_the_line() -> None:
    x = leaf(BAD)
    found = nn.find_nan(F.sum(F.scan(logarithms, leaf(0.0), x)[1]))
    assert found is not None and found.function is not None and found.function.name == "scan_of_body"
    inner = found.within
    assert inner is not None and inner.function is not None
    assert (inner.kind, inner.function.name, [step.number for step in inner.steps]) == ("nan", "log", [2])
    assert inner.inputs[0].value == -1.0
    text = str(found)
    assert f"log, written at {line_of('the logarithm')}, in logarithms: z = h + F.log(x)" in text
    assert "in step 2 of the body of scan_of_body" in text


def test_find_nan_goes_into_gradients_and_loops_in_loops() -> None:
    x = leaf([1.0, 4.0, 0.0])

    def outer(h: Any, _: Any) -> Any:
        return F.scan(lambda h, x: (h + F.sqrt(x) * x, None), h, x)[0], None  # the root

    (gx,) = nn.grad(F.scan(outer, leaf(0.0), length=2)[0], x)
    found = nn.find_nan(gx)
    assert found is not None and found.within is not None and found.within.cause is not None
    cause = found.within.cause
    assert (cause.kind, cause.order, [step.number for step in cause.steps]) == ("inf", 1, [1, 2])
    assert line_of("the root") in str(cause)


def test_find_nan_in_branches_and_while_loops() -> None:
    x = leaf(-2.0)
    for y, role, number in (
        (F.cond(1, F.log, lambda x: x, x), "branch 1", None),
        (F.while_loop(lambda y: y > -5, F.log, x * -3.0), "body", 3),
    ):
        found = nn.find_nan(y)
        assert found is not None and found.within is not None
        (step,) = found.within.steps
        assert (step.role, step.number) == (role, number)
    assert nn.find_nan(F.cond(0, F.log, lambda x: x, x)) is None


@settings(max_examples=20, deadline=None)
@given(bad=st.sets(st.integers(0, 7), max_size=3), reverse=st.booleans())
def test_find_nan_finds_the_first_bad_step_that_reaches_the_result(bad: set[int], reverse: bool) -> None:
    values = np.ones(8)
    values[list(bad)] = -1.0
    y = F.scan(lambda h, x: (h * 0.5 + F.sqrt(x), None), leaf(0.0), leaf(values), reverse=reverse)[0]
    found = nn.find_nan(y)
    if not bad:
        assert found is None
        return
    assert found is not None and found.within is not None
    assert [step.number for step in found.within.steps] == [max(bad) if reverse else min(bad)]


# ---------------------------------------------------------------- debug mode


def error_of(compute: Callable[[], Any]) -> str:
    """What debug mode says."""
    with pytest.raises(FloatingPointError) as caught:
        compute()
    return str(caught.value)


def test_debug_mode_names_the_step_and_both_lines() -> None:
    with nn.debug():
        y, _ = F.scan(logarithms, leaf(0.0), leaf(BAD))  # the loop
        message = error_of(y.forward)
    first, called, *_, log, written, step, given_to = message.splitlines()
    assert first.startswith("NaN in <Scan(")
    assert called.startswith(f"  scan_of_body was called at {line_of('the loop')}")
    assert log.startswith("  NaN in <Log(float64[]) -> float64[]> (order of differentiation 0)")
    assert written.startswith(f"    log, written at {line_of('the logarithm')}, in logarithms")
    assert step == "    in step 2 of the body of scan_of_body"
    assert given_to == "    x 'slice0': finite, -1 there"


def test_debug_mode_leaves_loops_as_they_are() -> None:
    leaves = [leaf(a) for a in (X, C, W)]
    expected = [g.d for g in nn.grad(F.sum(recurrent(*leaves) ** 2), leaves)]
    with nn.debug():
        for gx, value in zip(nn.grad(F.sum(recurrent(*leaves) ** 2), leaves), expected, strict=True):
            np.testing.assert_allclose(gx.d, value, rtol=1e-12)
        x = leaf(BAD)
        masked = F.scan(lambda h, x: (h + F.where(x > 0, F.log(x), x), None), leaf(0.0), x)[0]
        assert np.isfinite(masked.d), "what does not reach a result is no error"


# ---------------------------------------------------------------- handed to JAX


def scans_in(jaxpr: Any) -> Iterator[int]:
    """The lengths of the scans in a jaxpr, and how many sines there are outside of them (as -1 each)."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["length"]
            continue
        if equation.primitive.name == "tanh":
            yield -1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from scans_in(inner)


def test_to_jax_carries_a_loop_as_one_scan() -> None:
    long = np.zeros((50, 2, 3))
    leaves = [leaf(long), leaf(C), leaf(W)]
    y = F.sum(recurrent(*leaves) ** 2)
    with jax.enable_x64(True):
        assert list(scans_in(jax.make_jaxpr(nn.to_jax(y, leaves))(long, C, W).jaxpr)) == [50]
        gradient = jax.make_jaxpr(nn.to_jax(nn.grad(y, leaves), leaves))(long, C, W)
        assert list(scans_in(gradient.jaxpr)) == [50, 50]
