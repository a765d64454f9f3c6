"""What graphs cost, counted by hand and by XLA; and where their first NaN comes from."""

from __future__ import annotations

import itertools
import re
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable, functions_of, linearize, lower
from nngrad.inspection import Tally


def leaf(*shape: int, dtype: Any = np.float32) -> Variable:
    return Variable.from_numpy_array(np.random.default_rng(0).standard_normal(shape).astype(dtype), need_grad=True)


# ---------------------------------------------------------------- by hand


def test_a_product_and_its_gradients() -> None:
    a, b = leaf(7, 11), leaf(11, 13)
    y = F.tanh(a @ b)
    forward = nn.count(y)
    assert forward.by_op == {"batch_matmul": Tally(1, 1, 0, 2 * 7 * 11 * 13, 4 * (7 * 11 + 11 * 13 + 7 * 13)),
                             "tanh": Tally(1, 0, 0, 7 * 13, 4 * 2 * 7 * 13)}
    assert forward.total == Tally(2, 1, 0, 2002 + 91, 1244 + 728)
    assert forward.by_order == {0: forward.total}
    assert forward.constants == 0
    gradients = nn.count(nn.grad([y], [a, b]))
    assert gradients.matrix_products == 3
    assert gradients.by_op["batch_matmul"].flops == 3 * 2002
    assert gradients.by_order[0] == forward.total  # shared with the forward graph, and counted there
    assert gradients.by_order[1].matrix_products == 2


@pytest.mark.parametrize(("build", "products", "flops"), [
    (lambda: F.einsum(leaf(4, 5), leaf(5, 6), leaf(6, 7), equation="ij,jk,kl->il"), 2, 2 * 4 * 6 * 5 + 2 * 4 * 7 * 6),
    (lambda: F.einsum(leaf(4), leaf(5), equation="i,j->ij"), 0, 20),
    (lambda: F.einsum(leaf(4, 5), leaf(4, 5), equation="ij,ij->ij"), 0, 20),
    (lambda: F.einsum(leaf(4, 5), leaf(4, 5), equation="ij,ij->"), 1, 2 * 20),
    (lambda: leaf(6, 4, 5) @ leaf(6, 5, 7), 1, 2 * 6 * 4 * 5 * 7),
    (lambda: leaf(6, 4, 5) @ leaf(5, 7), 1, 2 * 6 * 4 * 5 * 7),
    (lambda: F.sum(leaf(10, 12), axis=1), 0, 10 * 11),
    (lambda: F.sum(leaf(4, 600), axis=0), 0, 3 * 600),  # and on CPUs by another way, which does not count
    (lambda: F.max(leaf(10, 12)), 0, 119),
    (lambda: F.cumsum(leaf(10, 3)), 0, 27),
    (lambda: leaf(10) ** 2, 0, 10),
    (lambda: leaf(10) ** 7, 0, 40),  # x x, x2 x, x2 x2, x4 x3
    (lambda: leaf(10) ** -1, 0, 10),
    (lambda: F.reshape(F.transpose(leaf(3, 4)), (12,))[2:5], 0, 0),
    # 7 operations count the elements of each window along an axis.
    (lambda: F.average_pooling(leaf(2, 3, 8, 8), kernel=(2, 2)), 0, 2 * 3 * 4 * 4 * (3 + 2) + 2 * 4 * 7),
    (lambda: F.dropout(leaf(8), p=0.0), 0, 0),
])
def test_by_hand(build: Any, products: int, flops: int) -> None:
    c = nn.count(build())
    assert (c.matrix_products, c.flops) == (products, flops)


def test_convolutions_and_their_gradients_count_the_same() -> None:
    """The three sides of the form multiply the same elements; zeros of margins and of dilation are not multiplied."""
    x, w = leaf(2, 6, 9, 8), leaf(4, 3, 3, 2)
    y = F.convolution(x, w, pad=(2, 1), stride=(2, 1), dilation=(1, 2), group=2)
    gradients = nn.grad([F.sum(F.sin(y))], [x, w])
    ggs = nn.grad([F.sum(F.sin(gradients[0]))], [w])
    tallies = nn.count([*gradients, *ggs]).by_op
    rows = sum(0 <= 2 * i - 2 + k < 9 for i in range(6) for k in range(3))
    columns = sum(0 <= i - 1 + 2 * k < 8 for i in range(8) for k in range(2))
    once = 2 * rows * columns * 2 * 3 * 4
    assert tallies["convolve"].convolutions + tallies["convolve_data_grad"].convolutions >= 3
    for name in ("convolve", "convolve_data_grad", "convolve_filter_grad"):
        assert tallies[name].convolutions == tallies[name].functions
        assert tallies[name].flops == once * tallies[name].functions
        assert tallies[name].matrix_products == 0


# ---------------------------------------------------------------- by XLA


def network() -> tuple[Variable, Variable, list[Variable]]:
    """A tanh network of several layers: its loss, input and parameters. No size is 1, of which XLA makes no product."""
    sizes = (50, 64, 48, 20)
    x, ws = leaf(32, 50), [leaf(m, n) for m, n in itertools.pairwise(sizes)]
    bs = [leaf(n) for n in sizes[1:]]
    h = x
    for w, b in zip(ws, bs, strict=True):
        h = F.tanh(F.affine(h, w, b))
    return F.sum(h**2), x, [*ws, *bs]


def penalised() -> list[Variable]:
    y, x, parameters = network()
    (g,) = nn.grad([y], [x])
    return nn.grad([y + F.mean(F.norm(g, axis=1))], parameters)


def input_gradient() -> list[Variable]:
    y, x, _ = network()
    return nn.grad([y], [x])


def contracted() -> list[Variable]:
    x = leaf(4, 5)
    return nn.grad([F.einsum(F.sin(x), leaf(5, 6), leaf(6, 7), equation="ij,jk,kl->il")], [x])


def third_order() -> list[Variable]:
    y, x, _ = network()
    for _ in range(3):
        (y,) = nn.grad([F.sum(y)], [x])
    return [y]


def convolutional() -> list[Variable]:
    x, w, v = leaf(2, 6, 8, 8), leaf(8, 6, 3, 3), leaf(10, 8, 3, 3)
    y = F.convolution(F.tanh(F.convolution(x, w, pad=(1, 1))), v, stride=(2, 2))
    (g,) = nn.grad([F.sum(y**2)], [x])
    return nn.grad([F.sum(g**2)], [w, v])


GRAPHS = {
    "product": lambda: [leaf(7, 11) @ leaf(11, 13)],
    "network": lambda: [network()[0]],
    "input gradient": input_gradient,
    "gradient penalty": penalised,
    "third order": third_order,
    "convolutions": convolutional,
    "einsum": contracted,
}
"""Graphs that XLA compiles as they stand."""


@pytest.mark.parametrize("name", GRAPHS)
def test_against_xla(name: str) -> None:
    """XLA counts the products in its text, and operations with transcendental ones apart. It fuses, and so computes
    some elementwise functions twice or not at all: 2%."""
    outputs = GRAPHS[name]()
    counted = nn.count(outputs)
    program = linearize(outputs).program
    compiled = jax.jit(lower(program)).lower(*[spec.abstract() for spec in program.block.inputs]).compile()
    analysis: Any = compiled.cost_analysis()
    analysis = analysis[0] if isinstance(analysis, list) else analysis
    flops = analysis.get("flops", 0) + analysis.get("transcendentals", 0)
    assert counted.matrix_products == len(re.findall(r"= \S+ dot\(", compiled.as_text()))
    assert counted.convolutions == len(re.findall(r"= \S+ convolution\(", compiled.as_text()))
    assert abs(counted.flops - flops) <= 0.02 * flops


# ---------------------------------------------------------------- what is printed


def test_the_table() -> None:
    x = leaf(40, 30)
    y = F.sum(F.tanh(x @ leaf(30, 500)))
    gradients = nn.grad([y], [x])
    lines = str(nn.count(gradients)).splitlines()
    assert lines[0].split() == ["functions", "products", "convolutions", "FLOPs", "bytes"]
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split() == ["batch_matmul", "2", "2", "-", "2.400", "M", "289,600"]
    assert [line.split()[0] for line in lines if line.startswith("order")] == ["order"] * 2
    assert lines[-1].split()[:4] == ["total", str(len(functions_of(gradients))), "2", "-"]
    assert str(nn.count(x + F.arange(0, 30))).splitlines()[-1] == "and 1 constant"


# ---------------------------------------------------------------- find_nan


def vector(*values: float) -> Variable:
    x = Variable.from_numpy_array(np.array(values), need_grad=True)
    x.name = "x"
    return x


def test_nothing_to_find() -> None:
    x = vector(1.0, 2.0)
    y = F.sum(F.log(x))
    assert nn.find_nan(y) is None
    assert nn.find_nan([y, *nn.grad([y], [x])]) is None
    assert nn.find_nan(x) is None
    assert nn.find_nan(F.argmax(x)) is None


def test_the_first_nan_of_a_gradient() -> None:
    x = vector(4.0, 0.0, 1.0)
    y = F.sum(F.sqrt(x) * x)
    (g,) = nn.grad([y], [x])
    assert nn.find_nan(y) is None
    found = nn.find_nan([y, g, F.sum(g)])
    assert found is not None
    assert found.kind == "nan"
    assert found.function is not None
    assert found.function.name == "mul2"
    assert (found.order, found.place, found.elements) == (1, (1,), 1)
    assert sorted((s.finite, s.value) for s in found.inputs) == [(False, np.inf), (True, 0.0)]
    assert found.cause is not None
    assert found.cause.function is not None
    assert (found.cause.function.name, found.cause.kind, found.cause.place) == ("pow_scalar", "inf", (1,))
    assert found.cause.inputs[0].finite
    assert str(found).splitlines() == [
        "NaN in <Mul2(float64[3], float64[3]) -> float64[3]> "
        "(order of differentiation 1, from the rule of sqrt), at [1]",
        *(f"  {s.name}: {'finite, 0' if s.finite else 'not finite, inf'} there" for s in found.inputs),
        "  made of an infinity, which comes from here:",
        "  infinity in <PowScalar(float64[3], val=-0.5) -> float64[3]> "
        "(order of differentiation 1, from the rule of sqrt), at [1]",
        "    x 'x': finite, 0 there",
    ]


def test_overflow_and_reductions() -> None:
    x = leaf(2, 3)
    found = nn.find_nan(F.sum(F.exp(x * 1e4) + 1))
    assert found is not None
    assert found.function is not None
    assert (found.kind, found.function.name) == ("inf", "exp")
    assert found.elements == int((x.d > 0).sum())
    infinite = leaf(2, 3)
    infinite.d = [[np.inf, 1, 1], [-np.inf, 1, 1]]
    found = nn.find_nan(F.sum(infinite, axis=0))
    assert found is not None
    assert found.function is not None
    assert (found.kind, found.function.name, found.place) == ("nan", "sum", (0,))
    assert found.inputs[0].value is None
    assert found.cause is not None
    assert found.cause.function is None
    assert found.cause.variable is infinite


def test_a_leaf_may_be_to_blame() -> None:
    x = vector(1.0, np.nan, np.nan)
    found = nn.find_nan(F.sum(F.exp(x)))
    assert found is not None
    assert found.function is None
    assert found.variable is x
    assert str(found) == "NaN in the leaf x, at [1] and 1 more of 3 elements"


def test_what_is_selected_away_is_no_error() -> None:
    x = vector(0.0, 1.0)
    y = F.where(x > 0, F.log(x), F.constant(0, (2,), np.float64))
    assert nn.find_nan([y, *nn.grad([y], [x])]) is None
    assert nn.find_nan(F.softmax(x + np.array([-np.inf, 0]))) is None


def test_it_looks_at_the_last_forward() -> None:
    x = vector(1.0)
    y = F.log(x)
    y.forward()
    x.d = [-1.0]
    assert nn.find_nan(y) is None
    y.forward()
    assert nn.find_nan(y) is not None


def test_random_functions_are_not_drawn_again() -> None:
    x = vector(*[0.0] * 16)
    y = F.log(F.dropout(x + 1, p=0.5))
    y.forward()
    dropped = np.isinf(y.d)
    found = nn.find_nan(y)
    assert found is not None
    assert found.elements == dropped.sum()
    assert found.place == (int(np.argmax(dropped)),)
