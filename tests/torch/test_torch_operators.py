"""The table of PyTorch's operators, without PyTorch: each operator by its ATen name against NumPy and SciPy."""

import math

import numpy as np
import pytest
import scipy.special as sp
from numpy.lib.stride_tricks import sliding_window_view

import nngrad as nn
import nngrad.functions as F
from nngrad.torch.operators import OPERATORS, Result, Unsupported, in_dtype

RNG = np.random.default_rng(0)
X, Y, Z = RNG.normal(size=(3, 2, 3, 4))
P = RNG.uniform(0.1, 0.9, (2, 3, 4))
I, J = np.array([[0, 2, 1], [1, 1, 0]]), np.array([[3, 1, 2], [2, 2, 5]])  # noqa: E741
HALVES = np.array([-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 3.0])
T = X > 0
IMAGE, SQUARE, KERNEL = RNG.normal(size=(2, 4, 5)), RNG.normal(size=(1, 2, 4, 4)), RNG.normal(size=(3, 2, 2, 2))
V, W = RNG.normal(size=(2, 2, 5, 3)), RNG.normal(size=(2, 3, 4))


def softmax(x):
    return sp.softmax(x, -1)


def scattered(accumulate):
    y = X.copy()
    np.add.at(y, (np.array([0, 0]), slice(None), np.array([1, 1])), P[:, :, 0])
    if not accumulate:
        y[0, :, 1] = P[0, :, 0]
    return y


def replaced(at, value):
    y = X.copy()
    y[at] = value
    return y


def normed(x, over, eps=1e-5):
    return (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + eps)


def convolved(x, w):
    return np.einsum("bchwij,ocij->bohw", sliding_window_view(x, w.shape[2:], (2, 3)), w)


def transposed(x, w):
    """Of stride 2, output_padding 1: w is (in, out, ...)."""
    y = np.zeros((len(x), w.shape[1], 2 * x.shape[2] + 1, 2 * x.shape[3] + 1))
    for i in range(x.shape[2]):
        for j in range(x.shape[3]):
            y[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += np.einsum("bc,coij->boij", x[:, :, i, j], w)
    return y


def pooled(x, n, function):
    """Over blocks of 2 along the last n axes."""
    shape = [k for a in x.shape[x.ndim - n :] for k in (a // 2, 2)]
    return function(x.reshape(*x.shape[: x.ndim - n], *shape), axis=tuple(range(x.ndim - n + 1, x.ndim + n, 2)))


def doubled(x, axis):
    """To twice the size along an axis, linearly: centres of pixels, clamped at the edges."""
    size = x.shape[axis]
    places = (np.arange(2 * size) + 0.5) / 2 - 0.5
    return np.apply_along_axis(lambda row: np.interp(places, np.arange(size), row), axis, x)


def simple():
    """Operators of one array, or of two, that only compute a function of each element."""
    plain = {"digamma": sp.digamma, "erf": sp.erf, "erfc": sp.erfc, "erfinv": sp.erfinv, "lgamma": sp.gammaln,
             "rsqrt": lambda x: x**-0.5, "sigmoid": sp.expit, "neg": np.negative,
             "log_sigmoid": sp.log_expit, "relu": lambda x: np.maximum(x, 0), "silu": lambda x: x * sp.expit(x),
             "mish": lambda x: x * np.tanh(np.log1p(np.exp(x)))}  # fmt: skip
    for name, formula in plain.items():
        yield name, (P,), formula(P)
    for name in ("acos", "asin", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2",
                 "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh", "asinh"):  # fmt: skip
        full = name.replace("a", "arc", 1) if name[0] == "a" else name
        yield name, (P,), getattr(np, full)(P)
    yield "acosh", (P + 1,), np.arccosh(P + 1)
    for name, formula in {"abs": np.abs, "ceil": np.ceil, "floor": np.floor, "round": np.round, "sign": np.sign,
                          "trunc": np.trunc}.items():  # fmt: skip
        yield name, (HALVES,), formula(HALVES)
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    yield from [("isnan", (special,), np.isnan(special)), ("isinf", (special,), np.isinf(special))]
    for name in ("alias", "clone", "contiguous", "detach", "lift_fresh_copy"):
        yield name, (X,), X
    yield "_to_copy", (X,), X.astype("float32")
    yield from [("sub", (X, Y), X - Y), ("mul", (X, 2), X * 2), ("pow", (P, Y), P**Y),
                ("atan2", (X, Y), np.arctan2(X, Y)), ("maximum", (X, Y), np.maximum(X, Y)), ("add", (I, 0.5), I + 0.5),
                ("minimum", (X, Y), np.minimum(X, Y)), ("fmod", (X, P), np.fmod(X, P)), ("div", (I, J), I / J),
                ("remainder", (X, P), np.mod(X, P)), ("where", (T, X, 0.0), np.where(T, X, 0))]  # fmt: skip
    for name in ("eq", "ne", "gt", "ge", "lt", "le"):
        full = {"eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal", "lt": "less",
                "le": "less_equal"}[name]  # fmt: skip
        yield name, (I, 1.0), getattr(np, full)(I, 1)
    for name in ("and", "or", "xor"):
        yield f"logical_{name}", (T, Y > 0), getattr(np, f"logical_{name}")(T, Y > 0)
        yield f"bitwise_{name}", (I, J), getattr(np, f"bitwise_{name}")(I, J)
    yield from [("logical_not", (T,), ~T), ("bitwise_not", (I,), ~I)]
    yield from [("clamp", (X, -0.5, 0.5), np.clip(X, -0.5, 0.5)), ("clamp", (X, 0.1), np.maximum(X, 0.1)),
                ("clamp", (X, None, 0.1), np.minimum(X, 0.1)), ("hardtanh", (X,), np.clip(X, -1, 1)),
                ("leaky_relu", (X,), np.where(T, X, X / 100)), ("gelu", (X,), X * sp.ndtr(X)),
                ("elu", (X, 2, 0.5, 3), np.where(T, X / 2, np.expm1(3 * X))), ("softplus", (X,), np.logaddexp(X, 0)),
                ("softshrink", (X,), np.sign(X) * np.maximum(np.abs(X) - 0.5, 0))]  # fmt: skip


def shaping():
    """Operators for shapes, elements by index, and reductions."""
    for name, more in {"view": [[4, 6]], "reshape": [[4, 6]]}.items():
        yield name, (X, *more), X.reshape(4, 6)
    yield from [("squeeze", (X[:1], [0]), X[0]), ("unsqueeze", (X, 1), X[:, None]),
                ("permute", (X, [2, 0, -2]), X.transpose(2, 0, 1)),
                ("expand", (P[0], [2, 3, 4]), np.stack([P[0]] * 2)), ("cat", ([X, Y], -1), np.concatenate([X, Y], -1)),
                ("repeat", (P[0], [2, 1, 3]), np.tile(P[0], (2, 1, 3))), ("flip", (X, [0, -1]), X[::-1, :, ::-1]),
                ("split_with_sizes", (X, [1, 3], -1), [X[..., :1], X[..., 1:]]),
                ("slice", (X, 2, 1, 9, 2), X[..., 1:9:2]),
                ("select", (X, -1, 2), X[..., 2]), ("diagonal", (X, 1, 1, 2), np.diagonal(X, 1, 1, 2)),
                ("constant_pad_nd", (X, [1, -1, 2, 0], 0.5),
                 np.pad(X[..., :-1], ((0, 0), (2, 0), (1, 0)), constant_values=0.5))]
    k = np.array([1, 0])
    yield "index", (X, [None, I, k[:, None]]), X[:, I, k[:, None]]
    yield "index_put", (X, [np.array([0, 0]), None, np.array([1, 1])], P[:, :, 0], True), scattered(True)
    yield "index_put", (X, [k[1:], None, k[:1]], P[:1, :, 0]), scattered(False)
    yield from [("index_select", (X, 1, k), X[:, k]),
                ("gather", (X, 1, I[:, None]), np.take_along_axis(X[..., :3], I[:, None], 1)),
                ("slice_scatter", (X, P[:, :2], 1, 0, 3, 2), replaced(np.s_[:, 0:3:2], P[:, :2])),
                ("embedding", (P[0], I), P[0][I])]
    for name, function in {"sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min}.items():
        yield name, (X, [0, -1]), function(X, (0, 2))
    yield from [("max", (X,), X.max()), ("min", (X,), X.min()), ("any", (T, 1), T.any(1)),
                ("all", (T, 1, True), T.all(1, keepdims=True)),
                ("argmax", (X, -1), X.argmax(-1)), ("argmin", (X,), X.argmin()),
                ("max.dim", (X, 1), [X.max(1), X.argmax(1)]),
                ("min.dim", (X, 1, True), [X.min(1, keepdims=True), X.argmin(1)[:, None]]),
                ("sort", (X, 1, True), [-np.sort(-X, 1), np.argsort(-X, 1)]),
                ("topk", (X, 2), [-np.sort(-X)[..., :2], np.argsort(-X)[..., :2]]),
                ("var", (X, [1]), X.var(1, ddof=1)),
                ("linalg_vector_norm", (X, 3, [2]), (np.abs(X)**3).sum(2) ** (1 / 3)),
                ("linalg_vector_norm", (X, math.inf), np.abs(X).max()), ("cumsum", (X, 1), X.cumsum(1)),
                ("cumprod", (X, -1), X.cumprod(-1)),
                ("_softmax", (X, -1, False), softmax(X)), ("_log_softmax", (X, 1, False), sp.log_softmax(X, 1))]


def layers():
    """Products, convolutions, pooling, resizing, normalisation and constants."""
    a, b, c = X[0], Y[0].T, P[0, :, :3]
    yield from [("mm", (a, b), a @ b), ("bmm", (X, W.swapaxes(1, 2)), X @ W.swapaxes(1, 2)),
                ("addmm", (c, a, b), c + a @ b), ("addmv", (c[0], a, b[:, 0]), c[0] + a @ b[:, 0])]
    padded = np.pad(SQUARE, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = convolved(padded, KERNEL) + X[0, 0, :3, None, None]
    yield "convolution", (SQUARE, KERNEL, X[0, 0, :3], [1], [1, 1], [1], False, [0], 1), y
    halves = [convolved(padded[:, i : i + 1], KERNEL[i : i + 1, :1]) for i in (0, 1)]
    yield "convolution", (SQUARE, KERNEL[:2, :1], None, [1], [1], [1], False, [0], 2), np.concatenate(halves, 1)
    yield "convolution", (SQUARE, KERNEL[:2], None, [2], [0], [1], True, [1], 1), transposed(SQUARE, KERNEL[:2])
    for n in (1, 2, 3):
        x = RNG.normal(size=(2, 3, *[4, 2, 4][:n]))
        ones = (x, [2] * n)
        yield from [(f"avg_pool{n}d", ones, pooled(x, n, np.mean)),
                    (f"max_pool{n}d_with_indices", ones, [pooled(x, n, np.max)])]
        half = (x, [a // 2 for a in x.shape[2:]])
        yield from [(f"_adaptive_avg_pool{n}d", half, pooled(x, n, np.mean)),
                    (f"adaptive_max_pool{n}d", half, [pooled(x, n, np.max)])]
    yield "upsample_nearest2d", (SQUARE, [8, 8], [2.0, 2.0]), np.repeat(np.repeat(SQUARE, 2, 2), 2, 3)
    yield "upsample_bilinear2d", (SQUARE, [8, 8], False, [2.0, 2.0]), doubled(doubled(SQUARE, 2), 3)
    scale, shift = P[0, :2, 0], P[1, :2, 0]
    by_channel = scale[:, None, None], shift[:, None, None]
    yield "native_layer_norm", (X, [4], P[0, 0], P[1, 0], 1e-5), [normed(X, 2) * P[0, 0] + P[1, 0]]
    yield "native_group_norm", (V, scale, shift, 2, 2, 15, 2, 1e-5), [normed(V, (2, 3)) * by_channel[0] + by_channel[1]]
    y, mean, var = normed(V, (0, 2, 3)) * by_channel[0] + by_channel[1], V.mean((0, 2, 3)), V.var((0, 2, 3), ddof=1)
    new = [y, None, None, 0.9 * shift + 0.1 * mean, 0.9 * scale + 0.1 * var]
    for name in ("_functional", ""):
        yield f"_native_batch_norm_legit{name}", (V, scale, shift, shift, scale, True, 0.1, 1e-5), new
    yield "_native_batch_norm_legit.no_stats", (V, scale, shift, True, 0.1, 1e-5), [y, None, None, None, None]
    fixed = (V - by_channel[1]) / np.sqrt(by_channel[0] + 1e-5) * by_channel[0] + by_channel[1]
    given = (V, scale, shift, shift, scale, 0.1, 1e-5)
    yield "_native_batch_norm_legit_no_training", given, [fixed, None, None, None, None]
    for form in ("full", "full_like"):
        yield form, (X, 2.5), np.full(X.shape, 2.5)
    yield from [("scalar_tensor", (2.5,), np.array(2.5)), ("arange", (1, 8, 3), np.arange(1, 8, 3)),
                ("empty", ([2, 3],), np.zeros((2, 3))),
                ("dropout", (X, 0.5, False), X), ("native_dropout", (X, 1, True), [0 * X])]


DRAWN = {
    "rand": ((), 0.5, 1 / 12), "rand_like": ((), 0.5, 1 / 12), "randn": ((), 0, 1), "randn_like": ((), 0, 1),
    "uniform": ((X, 1, 3), 2, 1 / 3), "normal_functional": ((X, 1, 2), 1, 4), "randint": ((5,), 2, 2),
    "randint.low": ((1, 6), 3, 2), "bernoulli": ((np.full((40, 50), 0.3),), 0.3, 0.21),
    "bernoulli.p": ((X, 0.3), 0.3, 0.21),
    "dropout": ((np.ones((40, 50)), 0.25, True), 1, 1 / 3),
}  # fmt: skip
"""Random operators with arguments, mean and variance."""


def applied(name, out, given):
    """The operator on Variables for arrays."""
    def of(x):
        if isinstance(x, list):
            return list(map(of, x))
        return nn.Variable.from_numpy_array(x) if isinstance(x, np.ndarray) else x

    made = OPERATORS[name](Result(out.shape, out.dtype.name), *map(of, given))
    return made if isinstance(made, list | tuple) else [made]


@pytest.mark.parametrize("cases", [simple, shaping, layers])
def test_values(cases):
    pairs = []
    for name, given, wanted in cases():
        listed = wanted if isinstance(wanted, list) else [wanted]
        made = applied(f"aten.{name}", np.asarray(listed[0]), given)
        for y, w in zip(made, listed, strict=True):
            pairs += [] if w is None else [(name, in_dtype(y, np.asarray(w).dtype.name), w)]
    nn.forward_all([y for _, y, _ in pairs])
    for name, y, w in pairs:
        assert y.shape == np.shape(w), name
        np.testing.assert_allclose(y.d, w, rtol=1e-5 if y.dtype == "float32" else 1e-9, atol=1e-12, err_msg=name)


def test_draws_have_the_mean_and_variance_of_pytorchs():
    nn.seed(1)
    made = {name: applied(f"aten.{name}", np.zeros((40, 50)), given)[0] for name, (given, _, _) in DRAWN.items()}
    nn.forward_all(list(made.values()))
    for name, (_, mean, var) in DRAWN.items():
        y = made[name].d.astype(float)
        off = 6 * math.sqrt(max(var, var**2) / y.size)
        np.testing.assert_allclose([y.mean(), y.var()], [mean, var], atol=off, err_msg=name)


def test_every_operator_of_the_table_is_tested():
    tested = {f"aten.{name}" for cases in (simple, shaping, layers) for name, _, _ in cases()}
    assert tested | {f"aten.{name}" for name in DRAWN} | {"nngrad.stop"} == OPERATORS.keys()


def test_derivatives_where_a_choice_is_made():
    """PyTorch's at the corners: 0 for abs and hardtanh, 1 for clamp; and none behind `detach` and at padding_idx."""
    corners = {"abs": ((), [-1, 0, 1]), "hardtanh": ((-1, 1), [0, 1, 0]), "clamp": ((-1, 1), [1, 1, 1])}
    for name, (given, wanted) in corners.items():
        x = nn.Variable.from_numpy_array(np.array([-1.0, 0.0, 1.0]))
        y = OPERATORS[f"aten.{name}"](Result(x.shape, "float64"), x, *given)
        np.testing.assert_array_equal(nn.grad([y], [x])[0].d, wanted)
    w, i = nn.Variable.from_numpy_array(P[0]), nn.Variable.from_numpy_array(I)
    rows = OPERATORS["aten.embedding"](Result((2, 3, 4), "float64"), w, i, 1)
    stopped = OPERATORS["nngrad.stop"](Result(w.shape, "float64"), w)
    (g,) = nn.grad([F.sum(rows) + F.sum(w * stopped)], [w])
    np.testing.assert_array_equal(g.d, P[0] + np.array([2, 0, 1])[:, None])


@pytest.mark.parametrize(("name", "given", "message"), [
    ("embedding", (P[0], I, -1, True), "scale_grad_by_freq"),
    ("avg_pool1d", (X, 2, 2, 0, False, True, 3), "divisor_override"),
    ("_adaptive_avg_pool1d", (X, [3]), "does not divide"), ("linalg_vector_norm", (X, 0), "of order 0"),
])  # fmt: skip
def test_refusals(name, given, message):
    with pytest.raises(Unsupported, match=message):
        applied(f"aten.{name}", np.zeros((2, 3, 3)), given)
