"""Quantisers and layers with quantised weights: values in every mode, what `forward()` writes, and training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.graph import Variable
from tests.refusals import refused
from tests.together import Test, at_once

from_ = Variable.from_numpy_array
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _empty() -> None:
    nn.clear_parameters()
    nn.seed(0)


def leaf(*values: Any, dtype: str = "float32") -> Variable:
    return from_(np.array(values, dtype), need_grad=True)


def gradient(y: Variable, x: Variable) -> Any:
    (g,) = nn.grad(F.sum(y), [x])
    return g.d.tolist()


# ---------------------------------------------------------------- values in every mode

VALUES: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("binary_sigmoid", {}, [-1, 0, NAN, 1e-30], [0, 0, 0, 1]),
    ("binary_tanh", {}, [-1, 0, NAN, 1e-30], [-1, -1, -1, 1]),
    ("fixed_point_quantize", {}, [0.03125, -0.03125, 9, -INF, NAN], [0.0625, -0.0625, 7.9375, -7.9375, NAN]),
    ("fixed_point_quantize", {"sign": False, "n": 2, "delta": 1}, [-1, 0.5, 2.4, 7], [0, 1, 2, 3]),
    ("fixed_point_quantize", {"quantize": False}, [-1, 0.01, 90], [-1, 0.01, 90]),
    ("pow2_quantize", {}, [3, 1.4143, 1.4142, -0.7, 0, NAN], [2, 2, 1, -0.5, 0, NAN]),
    ("pow2_quantize", {"n": 4, "m": 0}, [0.0883, 0.0884, 0.1767, -0.1768, -5], [0, 0.125, 0.125, -0.25, -1]),
    ("pow2_quantize", {"n": 3, "m": 0, "with_zero": False}, [0, 0.2, -0.01, -3], [0.125, 0.25, -0.125, -1]),
    ("pow2_quantize", {"n": 3, "m": 0, "sign": False}, [-3, 0.6, 0.05], [0, 0.5, 0]),
    ("pow2_quantize", {"n": 2, "m": 0, "sign": False, "with_zero": False}, [-3, 0, 0.6], [0.125, 0.125, 0.5]),
    ("pow2_quantize", {"quantize": False}, [-3, 0.6], [-3, 0.6]),
    ("prune", {}, [1, -2, 3, -4], [0, 0, 3, -4]),
    ("prune", {"rate": 0.0}, [1, -2, 0], [1, -2, 0]),
    ("prune", {"rate": 1.0}, [1, -2, 3], [0, 0, 0]),
    ("prune", {"rate": 0.5}, [2, -2, 2, 1], [2, -2, 2, 0]),
]


@at_once
@pytest.mark.parametrize(("name", "arguments", "x", "expected"), VALUES)
def test_values(name: str, arguments: dict[str, Any], x: list[float], expected: list[float]) -> Test:
    (found,) = yield (getattr(F, name)(leaf(*x), **arguments),)
    np.testing.assert_array_equal(found, np.array(expected, "f"))


GRADIENTS: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("binary_sigmoid", {}, [-1, -0.9, 0, 0.9, 1], [0, 0.5, 0.5, 0.5, 0]),
    ("binary_tanh", {}, [-1, -0.9, 0, 0.9, 1], [0, 1, 1, 1, 0]),
    ("fixed_point_quantize", {}, [-8, -7.9375, 0.01, 7.9375, 8], [0, 1, 1, 1, 0]),
    ("fixed_point_quantize", {"sign": False}, [-0.1, 0, 15.9375, 16], [0, 1, 1, 0]),
    ("fixed_point_quantize", {"ste_fine_grained": False}, [-9, 0.1, 9], [1, 1, 1]),
    ("pow2_quantize", {}, [-2.9, -2.8, 0, 0.01, 2.8, 2.9], [0, 1, 1, 1, 1, 0]),
    ("pow2_quantize", {"sign": False}, [-0.1, 0, 2.8, 2.9], [0, 1, 1, 0]),
    ("pow2_quantize", {"ste_fine_grained": False}, [-2.9, 2.9], [1, 1]),
    ("prune", {}, [1, -2, 3], [1, 1, 1]),
]


@at_once
@pytest.mark.parametrize(("name", "arguments", "x", "expected"), GRADIENTS)
def test_gradients_at_the_ends_of_ranges(
    name: str, arguments: dict[str, Any], x: list[float], expected: list[float]
) -> Test:
    given = leaf(*x)
    (slope,) = yield nn.grad(F.sum(getattr(F, name)(given, **arguments)), given)
    assert slope.tolist() == expected
    assert not nn.registry[name].exact


def test_a_quantised_value_at_order_2_is_what_the_rest_has() -> None:
    """d/dx of y^3 is 3 y^2 as if y were x, and of that 6 y."""
    x = leaf(0.4, -1.3)
    y = F.fixed_point_quantize(x, delta=0.25)
    (g,) = nn.grad(F.sum(y**3), [x])
    (gg,) = nn.grad(F.sum(g), [x])
    np.testing.assert_allclose(g.d, 3 * y.d**2)
    np.testing.assert_allclose(gg.d, 6 * y.d)


# ---------------------------------------------------------------- ranges


def ranged(x: Variable, low: float, high: float, levels: float = 255, **options: Any) -> tuple[Any, Any, Any]:
    ends = [from_(np.full((1,) * x.ndim, v, x.dtype), need_grad=k < 2) for k, v in enumerate((low, high, 0, levels))]
    return F.min_max_quantize(x, *ends, **options), ends[0], ends[1]


@pytest.mark.parametrize(("low", "high"), [(-0.8, 1.1), (0.3, 2.0), (-3.0, -1.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.5)])
def test_zero_is_a_level_of_every_range(low: float, high: float) -> None:
    y, *_ = ranged(leaf(0.0, -100.0, 100.0), low, high, 15)
    step = (max(high, low + 0.01) - low) / 15
    zero, least, largest = y.d
    assert zero == 0
    assert least <= 0 <= largest
    np.testing.assert_allclose(largest - least, 15 * step, rtol=1e-4)
    np.testing.assert_allclose(least / step, np.round(least / step), atol=1e-3)


def test_a_range_follows_the_data_only_in_a_forward() -> None:
    x = leaf(-1.0, 3.0)
    y, low, high = ranged(x, -6, 6, x_min_max=True)
    assert (low.d, high.d) == (-6, 6)
    _ = y.d
    assert (low.d, high.d) == (-6, 6)
    y.forward()
    assert (low.d, high.d) == (-1, 3)
    y, low, high = ranged(x, -6, 6, x_min_max=True, ema=True, decay=0.75)
    for expected in ((-4.75, 5.25), (-3.8125, 4.6875)):
        y.forward()
        np.testing.assert_allclose((low.d.item(), high.d.item()), expected)
    y, low, high = ranged(leaf(2.0, 2.0), -6, 6, x_min_max=True, eps=0.5)
    y.forward()
    assert (low.d, high.d) == (2, 2.5)


def test_where_the_gradient_of_a_range_goes() -> None:
    x = leaf(-9.0, -0.5, 0.5, 9.0, 10.0)
    for options, gx, ends in (({}, [0, 1, 1, 0, 0], (1, 2)), ({"ste_fine_grained": False}, [1] * 5, (1, 2)),
                              ({"x_min_max": True}, [1, 1, 1, 1, 0], (0, 0)), ({"ema": True}, [0, 1, 1, 0, 0], (0, 0))):
        y, low, high = ranged(x, -1, 1, **options)  # that of x itself is moved, so that 10 is above it
        assert gradient(y, x) == gx
        assert (gradient(y, low), gradient(y, high)) == ([ends[0]], [ends[1]])


# ---------------------------------------------------------------- what a forward writes


def test_in_the_body_of_a_loop() -> None:
    w, signs = leaf([0.5], [-1.5]), from_(np.zeros((2, 1), "f"))
    xs = from_(np.array([[[1.0, 2.0]], [[5.0, 1.0]]], "f"))
    _, ys = F.scan(lambda _, x: (None, F.binary_connect_affine(x, w, signs)), None, xs)
    ys.forward()
    assert ys.d.ravel().tolist() == [-1, 4]
    assert signs.d.ravel().tolist() == [1, -1]
    assert gradient(ys, w) == [[6], [3]]
    signs.d = 0
    _, gs = F.scan(lambda _, x: (None, nn.grad(F.sum(F.binary_connect_affine(x, w, signs) ** 2), [w])[0]), None, xs)
    gs.forward()
    np.testing.assert_array_equal(gs.d, [[[-2], [-4]], [[40], [8]]])
    assert signs.d.ravel().tolist() == [1, -1]


# ---------------------------------------------------------------- powers of two step by step


def incremental(w: Variable, fixed: Variable, **options: Any) -> Variable:
    return F.inq_affine(from_(np.ones((1, w.shape[0]), "f")), w, fixed, **options)


def test_the_larger_half_of_what_is_left_is_fixed_step_by_step() -> None:
    w, fixed = leaf([0.9], [-0.2], [0.45], [0.01]), from_(np.zeros((4, 1), "f"))
    y = incremental(w, fixed, inq_iterations=(1, 3, 4))
    seen = []
    for _ in range(5):
        y.forward()
        seen.append((fixed.d.ravel().tolist(), w.d.ravel().tolist()))
        np.testing.assert_allclose(y.d.sum(), w.d.sum(), rtol=1e-6)
        w.d = w.d * np.float32(0.9)  # as a solver does
    w1, w2, w3 = (np.array([[-0.2, 0.01]]) * 0.9 ** np.array([[1], [2], [3]])).tolist()
    assert seen[0] == ([0, 0, 0, 0], pytest.approx([0.9, -0.2, 0.45, 0.01]))
    assert seen[1] == ([1, 0, 1, 0], pytest.approx([1, w1[0], 0.5, w1[1]]))
    assert seen[2] == ([1, 0, 1, 0], pytest.approx([1, w2[0], 0.5, w2[1]]))
    assert seen[3] == ([1, 1, 1, 0], pytest.approx([1, -0.125, 0.5, w3[1]]))
    assert seen[4] == ([1, 1, 1, 1], [1, -0.125, 0.5, 0])


@pytest.mark.parametrize("bits", [2, 3, 5])
def test_codes_are_the_nearest_powers_of_two(bits: int) -> None:
    values = np.random.default_rng(bits).standard_normal((200, 1)).astype("f")
    w = leaf(*values)
    incremental(w, from_(np.ones((200, 1), "f")), num_bits=bits).forward()
    largest = 2.0 ** np.floor(np.log2(np.abs(values).max() / 0.75))
    codes = largest / 2.0 ** np.arange(2 ** (bits - 2))
    codes = np.concatenate([codes, -codes, [0]])
    np.testing.assert_array_equal(w.d, codes[np.argmin(np.abs(values - codes), axis=1)][:, None])


def test_a_random_half_follows_from_the_seed() -> None:
    def drawn(seed: int) -> Any:
        fixed = from_(np.zeros((64, 1), "f"))
        options = {"inq_iterations": (0, 1, 9), "selection_algorithm": "random", "seed": seed}
        y = incremental(leaf(*np.ones((64, 1))), fixed, **options)
        shares = []
        for _ in range(2):
            y.forward()
            shares.append(fixed.d.copy())
        assert 16 < shares[0].sum() < 48 < shares[1].sum() + 8 < 72
        assert (shares[1] >= shares[0]).all()
        return shares[0]

    assert (drawn(3) == drawn(3)).all()
    assert (drawn(3) != drawn(4)).any()


def test_a_training_step_refuses_weights_that_the_graph_writes() -> None:
    loss = F.sum(PF.inq_affine(leaf([1.0, 2.0]), 2, inq_iterations=(3,)))
    with pytest.raises(ValueError, match="cannot train 'inq_affine/W', which the graph itself writes to"):
        nn.train_step(loss, nn.get_parameters(), S.Sgd(0.1))


# ---------------------------------------------------------------- what is refused

X, ONE = leaf([1.0, 2.0]), np.zeros((1, 1), "f")
W = leaf([1.0], [2.0])
FAILING: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, "must be between 2 and 32 bits, including 1 for sign, got 1", lambda: F.fixed_point_quantize(X, n=1)),
    (ValueError, "must be between 3 and 32 bits, including 2 for sign and with_zero", lambda: F.pow2_quantize(X, n=2)),
    (ValueError, "rate must be between 0 and 1, got 1.5", lambda: F.prune(X, rate=1.5)),
    (ValueError, "qr_max must have the shape of qr_min", lambda: F.min_max_quantize(X, ONE, X, ONE, ONE)),
    (ValueError, "dtype must be int8 or uint8, got int16", lambda: F.quantize_linear(X, ONE, ONE, dtype="int16")),
    (TypeError, "scale must have a floating dtype, got", lambda: F.dequantize_linear(X, np.ones((1, 1), np.int8), ONE)),
    (TypeError, "x must have the dtype of y, float32", lambda: F.straight_through(X, np.ones((1, 2), np.int32))),
    (ValueError, "binary_weight must have the shape of weight", lambda: F.binary_connect_affine(X, W, X)),
    (ValueError, r"alpha must have 1.*got \(2,\)", lambda: F.binary_weight_affine(X, W, W.d, np.ones(2, "f"))),
    (ValueError, "indicator_fixedweights must have the shape of", lambda: F.inq_affine(X, W, X)),
]


test_errors = refused(FAILING)
