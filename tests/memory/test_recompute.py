"""Recompute instead of keep: less memory, never more, and a compiled program that does recompute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable, functions_of
from tests.autodiff.test_properties import agree
from tests.rematerialising import (
    BATCH,
    LAYERS,
    POLICIES,
    WIDTH,
    allotted,
    chain,
    compiled,
    is_product,
    predicted,
    products,
    structure_alone,
    temporaries,
    values_of,
)
from tests.slow import slow_but_every

# ---------------------------------------------------------------- it survives the compiler

def test_the_compiled_program_computes_again_and_takes_less_memory() -> None:
    loss, weights = chain()
    plain = compiled([loss, *nn.grad(loss, weights)])
    again = compiled([loss, *nn.grad(loss, weights, recompute="sqrt")])
    assert products(plain) == 3 * LAYERS - 1
    assert products(again) > products(plain) + LAYERS / 2, "XLA has merged the recomputation with the forward pass"
    assert temporaries(again) < 0.6 * temporaries(plain)


def test_slices_of_a_sequence_are_copied_step_by_step() -> None:
    rng = np.random.default_rng(0)
    x, w, u = [Variable.from_numpy_array(rng.normal(size=shape) / 8) for shape in ((40, 64, 64), (64, 64), (64, 64))]
    h: Variable = F.constant(0, shape=(64, 64))
    for t in range(40):
        h = F.tanh(x[t] @ F.transpose(w, (1, 0)) + h @ u)
    graph = [F.sum(h**2), *nn.grad(F.sum(h**2), [w, u], recompute="sqrt")]
    assert allotted(graph) < 0.6 * x.spec.nbytes
    nn.forward_all(graph)
    in_turn = [y.d.copy() for y in graph]
    with nn.passes(without=["slices"]):
        assert allotted(graph) > 0.9 * x.spec.nbytes
        nn.forward_all(graph)
    for y, expected in zip(graph, in_turn, strict=True):
        np.testing.assert_array_equal(y.d, expected)


@pytest.mark.slow
def test_a_deep_chain_takes_logarithmic_memory() -> None:
    layers, batch, width = 400, 16, 2
    loss, weights = chain(layers, batch, width)
    plain = predicted([loss, *nn.grad(loss, weights)])
    activation = batch * width * 4

    def peak(policy: Any) -> int:
        with structure_alone():  # each would take the compiler many seconds
            return predicted([loss, *nn.grad(loss, weights, recompute=policy)])

    assert plain >= layers * activation
    assert peak("sqrt") <= 1.2 * 2 * layers**0.5 * activation
    assert peak(nn.Segments(2)) <= 0.1 * plain
    assert peak(nn.Segments(9)) <= 1.2 * np.log2(layers) * activation


def test_shared_weights_are_summed_as_they_come() -> None:
    rng = np.random.default_rng(0)
    w = Variable.from_numpy_array(rng.normal(0, 0.1, (64, 64)).astype("f"), need_grad=True)
    h = Variable.from_numpy_array(rng.normal(size=(8, 64)).astype("f"))
    for _ in range(24):
        h = F.tanh(F.affine(h, w))
    loss = F.sum(h)
    plain, again = ([loss, *nn.grad(loss, [w], recompute=p)] for p in (None, "sqrt"))
    assert temporaries(compiled(again)) < 0.4 * temporaries(compiled(plain))
    assert temporaries(compiled(again)) < 3 * w.spec.nbytes, "several products of a segment are alive"
    agree(values_of(again), values_of(plain), 1e-5)


# ---------------------------------------------------------------- never worse

@pytest.mark.parametrize("policy", slow_but_every(3, POLICIES.values()), ids=list(POLICIES))
@pytest.mark.filterwarnings("ignore:MemoryBudget")
def test_no_policy_makes_it_worse(policy: Any) -> None:
    for layers in (1, 2, 5, 12):
        loss, weights = chain(layers)
        plain = allotted([loss, *nn.grad(loss, weights)])
        assert allotted([loss, *nn.grad(loss, weights, recompute=policy)]) <= plain


def test_where_nothing_is_gained_the_plain_graph_comes_back() -> None:
    loss, weights = chain(1)
    (gw,) = nn.grad(loss, weights, recompute="sqrt")
    assert not [f for f in functions_of([gw]) if f.name in ("optimization_barrier", "recomputed")]


@pytest.mark.slow
def test_a_budget_takes_no_more_recomputation_than_it_needs() -> None:
    loss, weights = chain(24)
    plain = allotted([loss, *nn.grad(loss, weights)])

    def again(budget: float) -> tuple[int, int]:
        gradients = nn.grad(loss, weights, recompute=nn.MemoryBudget(int(budget)))
        outputs = [loss, *gradients]
        return allotted(outputs), sum(is_product(f) for f in functions_of(outputs))

    assert again(plain)[1] == 3 * 24 - 1
    some, more = again(0.7 * plain), again(0.4 * plain)
    assert some[0] <= 0.7 * plain and more[0] <= 0.4 * plain
    assert 3 * 24 - 1 < some[1] < more[1]
    with pytest.warns(RuntimeWarning, match="no plan fits in this budget") as caught:
        again(10)
        loss.forward()
        loss.backward(recompute=nn.MemoryBudget(10))
    assert [Path(w.filename).name for w in caught] == ["test_recompute.py"] * 2


def test_a_share_of_arithmetic_is_not_exceeded() -> None:
    loss, weights = chain(24)
    for share in (0.1, 0.2, 1 / 3):
        outputs = [loss, *nn.grad(loss, weights, recompute=nn.LeastMemory(share))]
        count = sum(is_product(f) for f in functions_of(outputs))
        assert 3 * 24 - 1 < count <= (3 * 24 - 1) * (1 + share)


# ---------------------------------------------------------------- what is computed again

def test_a_predicate_says_what_is_computed_again() -> None:
    loss, weights = chain()
    gradients = nn.grad(loss, weights, recompute=lambda f: f.name == "tanh")
    count = sum(is_product(f) for f in functions_of([loss, *gradients]))
    assert count == 3 * LAYERS - 1, "no product was to be computed again"


def test_marked_blocks_are_computed_again() -> None:
    plain, weights = chain()
    expected = temporaries(compiled([plain, *nn.grad(plain, weights)]))

    h = Variable((BATCH, WIDTH))
    for i in range(0, LAYERS, 3):
        with nn.recompute():
            for w in weights[i : i + 3]:
                h = F.tanh(F.affine(h, w))
    loss = F.sum(h**2)
    assert temporaries(compiled([loss, *nn.grad(loss, weights)])) < 0.7 * expected
    unmarked = nn.grad(loss, weights, recompute=False)
    assert sum(is_product(f) for f in functions_of([loss, *unmarked])) == 3 * LAYERS - 1


# ---------------------------------------------------------------- duplicates and zeros


def test_a_gradient_that_is_zero_costs_no_arithmetic() -> None:
    x, w = Variable((16, 16), need_grad=True), Variable((16, 16), need_grad=True)
    h = F.tanh(F.affine(x, w))
    gx, gw = nn.grad(F.sum(h * 0.0) + F.sum(F.unlink(h)) + F.sum(F.greater_scalar(h, val=0.5) * 0.0), [x, w])
    assert {f.name for f in functions_of([gx, gw])} <= {"constant", "identity"} and gx is not gw
    executable = compiled([gx, gw])
    assert products(executable) == 0 and not executable.cost_analysis().get("flops")


# ---------------------------------------------------------------- optimization_barrier and recomputed

@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_a_barrier_changes_no_bit(dtype: str) -> None:
    special = np.array([0, 1, -0.0, np.inf, -np.inf, np.nan, 3, 7])
    with np.errstate(invalid="ignore"):
        x = special.astype(dtype)
    for token in ([np.nan], [np.inf, 1.0], [-0.0], np.array([-1]), np.array([True]), np.zeros((0, 2))):
        y = F.optimization_barrier(Variable.from_numpy_array(x), Variable.from_numpy_array(np.asarray(token)))
        assert nn.compile(y)().tobytes() == x.tobytes()


def test_a_barrier_survives_the_compiler() -> None:
    x = Variable((32, 32))
    w = Variable((32, 32))
    y = F.affine(x, w)
    twice = F.affine(x, F.optimization_barrier(w, y))
    assert products(compiled([y + F.affine(x, w)])) == 1
    assert products(compiled([y + twice])) == 2


# ---------------------------------------------------------------- schedules and errors


@pytest.mark.parametrize(
    ("policy", "error", "match"),
    [
        (lambda: "cube", ValueError, "must be one of .*, got 'cube'"),
        (lambda: 3, TypeError, "recompute: expected None"),
        (lambda: nn.MemoryBudget(-1), ValueError, "number of bytes"),
        (lambda: nn.Segments(0), ValueError, "levels must be between 1 and 64"),
        (lambda: nn.LeastMemory(float("nan")), ValueError, "extra must be a non-negative number"),
    ],
)
def test_errors(policy: Callable[[], Any], error: type[Exception], match: str) -> None:
    loss, weights = chain(2)
    with pytest.raises(error, match=match):
        nn.grad(loss, weights, recompute=policy())
    with pytest.raises(TypeError, match="on must be True or False"), nn.recompute(2):  # type: ignore[arg-type]
        pass
