"""The memory that a program takes by its structure: what has memory of its own, for how long, and what has not."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable, functions_of
from tests.rematerialising import allotted, predicted

ROWS, WIDTH = 64, 48
BYTES = ROWS * WIDTH * 4


def leaf(*shape: int) -> Variable:
    return Variable(shape or (ROWS, WIDTH), need_grad=True)


def temporaries(*outputs: Variable) -> int:
    """Bytes of temporaries: predicted, and found to be as the compiler has them."""
    peak = predicted(outputs)
    assert peak == allotted(outputs)
    return peak


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


def test_something_costly_is_computed_once() -> None:
    h = F.exp(leaf())
    assert temporaries(narrow(product(h * leaf()) + h)) == 3 * BYTES


def test_something_cheap_is_computed_in_each_reader() -> None:
    h = F.relu(leaf())
    assert temporaries(narrow(product(h * leaf()) + h)) == 2 * BYTES


def test_a_function_of_arrays_is_computed_once_if_something_in_memory_is_between_it_and_a_reader() -> None:
    a, b = product(leaf()), product(leaf())
    h = a + b  # read by a product of matrices, and beside the result of that
    assert temporaries(narrow(product(product(F.tanh(h)) + h) + h)) == 3 * BYTES


def test_gradients_put_what_is_repeated_first() -> None:
    """XLA takes a sum that ends with it for a function of one array, and computes it anew in each reader."""
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
def test_a_reduction_computes_what_it_reads(op: nn.graph.Op) -> None:
    assert temporaries(op(F.tanh(leaf(16, 8)), axis=1)) == 0


def test_what_a_checkpoint_computes_and_nobody_reads_takes_no_memory() -> None:
    def several(h: Variable) -> tuple[Variable, ...]:
        last, _ = F.scan(lambda c, _: (F.tanh(product(c)), None), h, length=3)
        return product(h), product(h), last

    read, *_ = nn.checkpoint(several)(leaf())
    assert temporaries(narrow(read)) == BYTES


def test_what_is_passed_on_takes_no_memory() -> None:
    assert temporaries(narrow(F.unlink(F.tanh(leaf())))) == BYTES


def calls_for_a_chain(length: int) -> int:
    """How many functions are called to look at the gradient of a chain."""
    x = Variable((2,), need_grad=True)
    y = x
    for _ in range(length):
        y = F.tanh(y * 1.01)
    outputs, calls = [y, *nn.grad(y, x)], 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        predicted(outputs)
    finally:
        sys.setprofile(before)
    return calls


def test_work_is_linear_in_the_length_of_a_chain() -> None:
    assert calls_for_a_chain(1600) < 5 * calls_for_a_chain(400)
