"""Recurrent layers: against loops in NumPy, how many loops there are, parameters, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.graph import Variable
from nngrad.parameter import clear_parameters, get_parameter, get_parameters
from tests.leaves import leaf
from tests.oracle import check, compiled_cheaply
from tests.samples.recurrent import elman, gru, layers, lstm

RNG = np.random.default_rng(0)
GATES = {"rnn": (), "lstm": (4,), "gru": (3,)}
BIASES = {"rnn": (), "lstm": (4,), "gru": (4,)}
STATES = {"rnn": 1, "lstm": 2, "gru": 1}
CELLS = {"rnn": elman(jnp.tanh), "lstm": lstm, "gru": gru}
KINDS = list(GATES)


def arrays_for(kind: str, steps: int = 3, batch: int = 2, inputs: int = 2, size: int = 2, count: int = 1,
               directions: int = 1, bias: bool = True) -> list[Any]:  # fmt: skip
    """What a layer is given: x, the states, weight_l0, weight or None, and bias or None."""
    shapes: list[Any] = [(steps, batch, inputs), *[(count, directions, batch, size)] * STATES[kind]]
    shapes += [(directions, *GATES[kind], size, inputs + size)]
    shapes += [(count - 1, directions, *GATES[kind], size, directions * size + size) if count > 1 else None]
    shapes += [(count, directions, *BIASES[kind], size) if bias else None]
    return [None if shape is None else RNG.standard_normal(shape) for shape in shapes]


def reference(kind: str) -> Any:
    """The same layers, one step after another."""
    return layers(CELLS[kind], STATES[kind], BIASES[kind])


@settings(max_examples=6, deadline=None)
@given(
    kind=st.sampled_from(KINDS), steps=st.integers(1, 3), batch=st.integers(0, 2), inputs=st.integers(1, 2),
    size=st.integers(1, 2), count=st.integers(1, 3), directions=st.integers(1, 2), bias=st.booleans(),
)  # fmt: skip
def test_layers(kind: str, steps: int, batch: int, inputs: int, size: int, count: int, directions: int,
                bias: bool) -> None:  # fmt: skip
    arrays = arrays_for(kind, steps, batch, inputs, size, count, directions, bias)
    present = [a for a in arrays if a is not None]
    there = [a is not None for a in arrays]

    def ours(*xs: Any) -> Any:
        rest = iter(xs)
        filled = [next(rest) if t else None for t in there]
        return getattr(F, kind)(*filled, num_layers=count, bidirectional=directions == 2)

    check(ours, reference(kind), present, 1, numeric=False)


# ---------------------------------------------------------------- dropout


def test_dropout_between_layers() -> None:
    """It drops outputs of the first layer, of which the second sums up what is left."""
    nn.seed(1)
    size, ones = 50, np.ones((2, 1, 1, 50), np.float32)
    w0 = np.zeros((1, size, 1 + size), np.float32)
    w = np.concatenate([np.eye(size), np.zeros((size, size))], 1).astype(np.float32)[None, None]
    x = np.zeros((4, 1, 1), np.float32)
    b = np.stack([np.ones((1, size)), np.zeros((1, size))]).astype(np.float32)

    def outputs(**given: Any) -> Any:
        return F.rnn(x, ones, w0, w, b, num_layers=2, nonlinearity="relu", **given)[0]

    np.testing.assert_array_equal(outputs(dropout=0.5, training=False).d, 1)
    y = outputs(dropout=0.5)
    y.forward()
    first = y.d.copy()
    assert set(np.unique(first)) == {0.0, 2.0}
    assert len({tuple(row) for row in first[:, 0]}) == 4, "each step has a mask of its own"
    y.forward()
    assert (first != y.d).any(), "and each forward"


def test_a_loop_draws_a_mask_for_each_step_which_gradients_of_every_order_see() -> None:
    """Against JAX, with the masks that were drawn."""
    nn.seed(3)
    x, h, w = (leaf(RNG.standard_normal(shape)) for shape in ((4, 6), (6,), (6,)))

    def ours(h: Variable, x: Variable) -> Any:
        mask = F.dropout(F.constant(1, h.shape, "float64"), p=0.4)
        h = F.tanh(h * mask * w + x)
        return h, (h, mask)

    y, masks = F.scan(ours, h, x)[1]
    levels, gradients = F.sum(y), []
    for _ in range(3):
        gradients.append(nn.grad(levels, [x, h, w]))
        levels = F.add_n(*[F.sum(g**2) for g in gradients[-1]])
    for _ in range(2):
        nn.forward_all([masks, *[g for each in gradients for g in each]])
        assert len({tuple(row) for row in masks.d}) == 4
        with jax.enable_x64(True):
            drawn = jnp.asarray(masks.d)

            def theirs(x: Any, h: Any, w: Any, drawn: Any = drawn) -> Any:
                total = 0.0
                for each, mask in zip(x, drawn, strict=True):
                    h = jnp.tanh(h * mask * w + each)
                    total += jnp.sum(h)
                return total

            for found in gradients:
                g = jax.grad(theirs, argnums=(0, 1, 2))
                for a, b in zip(found, compiled_cheaply(g)(x.d, h.d, w.d), strict=True):
                    np.testing.assert_allclose(a.d, b, rtol=1e-9, atol=1e-11)
                theirs = lambda *xs, g=g: sum(jnp.sum(a**2) for a in g(*xs))  # noqa: E731


# ---------------------------------------------------------------- what is refused, and dtypes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((2, 2))}, "x must be of shape (steps, batch, inputs)"),
        ({"h": np.zeros((1, 1, 2, 3))}, "h must be of shape (1, 1, 2, 2)"),
        ({"c": np.zeros((1, 2, 2))}, "c must be of shape (1, 1, 2, 2)"),
        ({"weight_l0": np.zeros((1, 3, 2, 4))}, "weight_l0 must be of shape (1, 4, 2, 4)"),
        ({"weight": np.zeros((1, 1, 4, 2, 4))}, "must be None with num_layers=1"),
        ({"num_layers": 2}, "num_layers=2 requires weight"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"bias": np.zeros((1, 1, 8))}, "bias must be of shape (1, 1, 4, 2)"),
        ({"bidirectional": True}, "(2, 4, 2, 4)"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], message: str) -> None:
    names = ["x", "h", "c", "weight_l0", "weight", "bias"]
    with pytest.raises(ValueError) as error:
        F.lstm(**dict(zip(names, arrays_for("lstm"), strict=True)) | change)
    assert str(error.value).startswith("lstm: ") and message in str(error.value)


# ---------------------------------------------------------------- with parameters


@pytest.fixture
def _empty() -> None:
    clear_parameters()


@pytest.mark.usefixtures("_empty")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "directions"), [(1, 1), (2, 2), (3, 1)])
def test_parameters(kind: str, count: int, directions: int) -> None:
    arrays = arrays_for(kind, inputs=3, count=count, directions=directions)
    x, *given = [None if a is None else np.float32(a) for a in arrays]
    states, (weight_l0, weight, bias) = given[: STATES[kind]], given[STATES[kind] :]
    results = getattr(PF, kind)(x, *states, bidirectional=directions == 2, name="r")
    expected = {"weight_l0": weight_l0, "weight": weight, "bias": bias}
    shapes = {f"r/{kind}/{n}": a.shape for n, a in expected.items() if a is not None}
    assert {n: p.shape for n, p in get_parameters().items()} == shapes
    assert not get_parameter(f"r/{kind}/bias").d.any()
    own = [get_parameter(f"r/{kind}/{n}") for n in expected]
    again = getattr(F, kind)(x, *states, *own, num_layers=count, bidirectional=directions == 2)
    for outputs in (results, again):
        nn.forward_all(outputs)
    for a, b in zip(results, again, strict=True):
        np.testing.assert_array_equal(a.d, b.d)


@pytest.mark.usefixtures("_empty")
def test_initial_values() -> None:
    """Each block of a weight within Glorot's limits for its own inputs."""
    PF.lstm(np.zeros((1, 1, 100), "f4"), *[np.zeros((2, 2, 1, 20), "f4")] * 2, bidirectional=True, with_bias=False)
    assert list(get_parameters()) == ["lstm/weight_l0", "lstm/weight"]
    for name, inputs in (("weight_l0", 100), ("weight", 40)):
        w = get_parameter(f"lstm/{name}").d
        for block, n in ((w[..., :inputs], inputs), (w[..., inputs:], 20)):
            limit = (6 / (n + 20)) ** 0.5
            assert 0.95 * limit < np.abs(block).max() <= limit
    clear_parameters()
    PF.gru(np.zeros((1, 1, 2), "f4"), np.zeros((1, 1, 1, 2), "f4"), w0_init=lambda s: np.full(s, 3.0), b_init=2.0,
           fix_parameters=True)  # fmt: skip
    assert (get_parameter("gru/weight_l0").d == 3).all() and (get_parameter("gru/bias").d == 2).all()


@pytest.mark.usefixtures("_empty")
def test_a_cell_step_by_step_is_the_layer_with_its_gates_in_another_order() -> None:
    x, h, c, *_ = [np.float32(a) for a in arrays_for("lstm", inputs=3) if a is not None]
    cell = PF.LSTMCell(2, 2, h=h[0, 0], c=c[0, 0], name="cell")
    ys = [cell(x[t]) for t in range(3)]
    assert {n: p.shape for n, p in get_parameters().items()} == {
        "cell/lstm/affine/W": (5, 4, 2), "cell/lstm/affine/b": (4, 2)
    }  # fmt: skip
    w = get_parameter("cell/lstm/affine/W").d.transpose(1, 2, 0)[[0, 2, 3, 1]]  # i, o, f, g as i, f, g, o
    y, h_n, c_n = F.lstm(x, h, c, w[None])
    np.testing.assert_allclose(np.stack([each.d for each in ys]), y.d, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cell.h.d, h_n.d[0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cell.c.d, c_n.d[0, 0], rtol=1e-5, atol=1e-6)
    cell.reset_state()
    assert not cell.h.d.any() and not cell.c.d.any()
    with pytest.raises(ValueError, match="LSTMCell: state_size must be 1 or more"):
        PF.LSTMCell(2, 0)


# ---------------------------------------------------------------- packed sequences


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.booleans(), st.sampled_from([0.0, -1.5]))
def test_sequences_are_packed_and_padded(lengths: list[int], batch_first: bool, value: float) -> None:
    lengths = sorted(lengths, reverse=True)
    given_ = [leaf(RNG.standard_normal((n, 2))) for n in lengths]
    padded = F.pad_sequence(given_)
    elements, sizes = F.pack_padded_sequence(padded, lengths, batch_first=True)
    assert sizes.d.tolist() == [sum(n > t for n in lengths) for t in range(max(lengths))]
    assert elements.shape == (sum(lengths), 2)
    total = max(lengths) + 1
    x, found = F.pad_packed_sequence(
        elements, sizes, batch_first=batch_first, padding_value=value, total_length=total
    )
    assert found.d.tolist() == lengths
    rows = x.d if batch_first else x.d.swapaxes(0, 1)
    assert rows.shape == (len(lengths), total, 2)
    for row, s in zip(rows, given_, strict=True):
        np.testing.assert_array_equal(row[: len(s.d)], s.d)
        np.testing.assert_array_equal(row[len(s.d) :], value)
    for g, s in zip(nn.grad(F.sum(x**3), given_), given_, strict=True):
        np.testing.assert_allclose(g.d, 3 * s.d**2)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: F.pack_padded_sequence(np.zeros((3, 2)), [1, 3]), "lengths must be sorted in descending order"),
        (lambda: F.pad_packed_sequence(np.zeros(3), [2, 2]), "batch_sizes must add up to the 3 elements"),
        (lambda: F.pad_sequence([]), "pad_sequence: xs must not be empty"),
    ],
)
def test_what_cannot_be_packed(run: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        run()
    assert message in str(error.value)
