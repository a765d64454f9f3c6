"""The loops that XLA makes of a graph: what has memory of its own, and what does not."""

from __future__ import annotations

import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable, functions_of
from nngrad.remat import ways
from nngrad.remat.loops import MOST_READ, loops

ROWS, WIDTH = 64, 48
BYTES = ROWS * WIDTH * 4


def leaf(*shape: int) -> Variable:
    return Variable(shape or (ROWS, WIDTH), need_grad=True)


def temporaries(*outputs: Variable) -> int:
    """Bytes of temporaries: predicted, and found to be as the compiler has them."""
    report = nn.memory_report(outputs)
    assert report.peak == report.compiled
    return report.peak


def product(h: Variable) -> Variable:
    """Something that finds its operand in memory."""
    return F.batch_matmul(h, leaf(WIDTH, WIDTH))


def narrow(h: Variable) -> Variable:
    """The same, with a result that is too small to lend its memory to anything."""
    return F.batch_matmul(h, leaf(WIDTH, 2))


def test_what_one_loop_reads_is_computed_in_it() -> None:
    assert temporaries(F.tanh(F.exp(leaf()) + leaf()) * leaf()) == 0


def test_what_a_product_of_matrices_reads_is_in_memory() -> None:
    assert temporaries(narrow(F.tanh(leaf()))) == BYTES


@pytest.mark.parametrize(("op", "arrays"), [(F.exp, 3), (F.relu, 2)], ids=["costly", "cheap"])
def test_something_costly_is_computed_once_and_something_cheap_in_each_reader(op: nn.graph.Op, arrays: int) -> None:
    h = op(leaf())
    assert temporaries(narrow(product(h * leaf()) + h)) == arrays * BYTES


def test_a_function_of_arrays_is_computed_once_if_something_in_memory_is_between_it_and_a_reader() -> None:
    a, b = product(leaf()), product(leaf())
    h = a + b  # read by a product of matrices, and beside the result of that
    assert temporaries(narrow(product(product(F.tanh(h)) + h) + h)) == 3 * BYTES


@pytest.mark.parametrize("repeated_last", [False, True], ids=["first", "last"])
def test_a_sum_that_ends_with_a_repeated_array_counts_as_a_function_of_one(repeated_last: bool) -> None:
    """XLA computes it anew in each reader; so gradients put what is repeated first."""
    a, b, c = product(leaf()), product(leaf()), F.broadcast(leaf(1, WIDTH), (ROWS, WIDTH))
    h = F.add_n(a, b, c) if repeated_last else F.add_n(c, a, b)
    assert temporaries(narrow(product(product(F.tanh(h)) + h) + h)) == (4 if repeated_last else 3) * BYTES


def test_gradients_put_what_is_repeated_first() -> None:
    x, w = leaf(), leaf()
    (g,) = nn.grad(F.sum(F.layer_normalization(x + w, batch_axis=0) * w) + F.sum(x**2), [x])
    repeated = [f for f in functions_of([g]) if f.order and any([_is_repeated(y) for y in f.inputs])]
    sums = [f for f in repeated if f.op in (F.add_n, F.linear_combination)]
    assert sums and all([_is_repeated(f.inputs[0]) and not _is_repeated(f.inputs[-1]) for f in sums])


def _is_repeated(x: Variable) -> bool:
    return x.parent is not None and x.parent.op is F.broadcast


def test_a_loop_writes_over_what_it_is_the_last_to_read() -> None:
    assert temporaries(narrow(F.tanh(product(F.tanh(leaf()))))) == 2 * BYTES


def test_a_result_lends_its_memory_until_it_is_there() -> None:
    h = product(F.tanh(leaf()))
    assert temporaries(narrow(F.tanh(h))) == 2 * BYTES
    assert temporaries(product(F.tanh(h))) == BYTES


def test_a_view_takes_no_memory() -> None:
    h = F.tanh(product(leaf()))
    assert temporaries(F.batch_matmul(F.reshape(h, (WIDTH, ROWS)), leaf(ROWS, ROWS))) == BYTES


@pytest.mark.parametrize("op", [F.sum, F.mean, F.amax])
def test_a_reduction_of_few_elements_computes_what_it_reads(op: nn.graph.Op) -> None:
    assert temporaries(op(F.tanh(leaf(16, 8)), axis=1)) == 0


def test_no_loop_reads_endlessly_many_arrays() -> None:
    x = Variable((2,), need_grad=True)
    y = x
    for _ in range(2000):
        y = F.tanh(y * 1.01)
    (g,) = nn.grad(y, x)
    found, _ = loops([y, g], functions_of([y, g]))
    assert max([len(loop.read) for loop in found]) <= MOST_READ + 8


def test_what_was_planned_for_one_graph_costs_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    h, w = product(F.tanh(leaf())), leaf(WIDTH, WIDTH)
    nn.grad(F.sum(F.batch_matmul(F.tanh(h), w) ** 2), [w], recompute="sqrt")
    monkeypatch.setattr(ways, "predicted_peak", None)
    nn.grad(F.sum(F.batch_matmul(F.tanh(leaf()), w) ** 2), [w])
