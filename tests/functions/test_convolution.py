"""Convolutions against sums written out element by element, and the messages for wrong arguments."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings

import nngrad as nn
import nngrad.functions as F
from nngrad.cpu.substitutes import SUBSTITUTES
from nngrad.execution.lower import by_itself
from tests.oracle import arrays_of


def direct(x: Any, w: Any, pad: Any, stride: Any, dilation: Any, group: int) -> Any:
    """Channels first, by the definition: one product at a time."""
    (batch, channels, *sizes), (out, taken, *kernel) = x.shape, w.shape
    spatial = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, p, s, d in zip(sizes, kernel, pad, stride, dilation, strict=True)
    ]
    y = np.zeros((batch, out, *spatial))
    for o in range(out):
        first = o // (out // group) * (channels // group)
        for at in itertools.product(*map(range, spatial)):
            for k in itertools.product(*map(range, kernel)):
                place = [a * s + b * d - p for a, b, s, d, p in zip(at, k, stride, dilation, pad, strict=True)]
                if all(0 <= i < n for i, n in zip(place, sizes, strict=True)):
                    part = x[(slice(None), slice(first, first + taken), *place)]
                    y[(slice(None), o, *at)] += part @ w[(o, slice(None), *k)]
    return y


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    """Shapes and arguments that fit together."""
    count = draw(st.integers(1, 3))

    def some(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    kernel, pad, stride, dilation = some(1, 3), some(0, 2), some(1, 3), some(1, 2)
    sizes = tuple(
        max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 2))
        for k, p, d in zip(kernel, pad, dilation, strict=True)
    )
    group = draw(st.integers(1, 2))
    return {
        "group": group, "pad": pad, "stride": stride, "dilation": dilation, "sizes": sizes, "kernel": kernel,
        "taken": draw(st.integers(1, 2)), "out": group * draw(st.integers(1, 2)), "batch": draw(st.integers(1, 2)),
        "last": draw(st.booleans()), "seed": draw(st.integers(0, 1000)),
    }


def arrays(c: dict[str, Any]) -> tuple[Any, Any]:
    """x and weight, channels first."""
    rng = np.random.default_rng(c["seed"])
    x = rng.standard_normal((c["batch"], c["group"] * c["taken"], *c["sizes"]))
    return x.astype(np.float32), rng.standard_normal((c["out"], c["taken"], *c["kernel"])).astype(np.float32)


def moved(a: Any, last: bool) -> Any:
    return np.moveaxis(a, 1, -1) if last else a


def steps(c: dict[str, Any]) -> dict[str, Any]:
    return {name: c[name] for name in ("pad", "stride", "dilation", "group")}


SIZES = ("sizes", "kernel", "pad", "stride", "dilation")

several = st.lists(cases(), min_size=8, max_size=8)
"""Which are one program."""


@settings(max_examples=4, deadline=None)
@given(several)
def test_convolution_is_the_sum_it_says(every: list[dict[str, Any]]) -> None:
    ys, expected = [], []
    for c in every:
        x, w = arrays(c)
        ys.append(F.convolution(moved(x, c["last"]), moved(w, c["last"]), **steps(c), channel_last=c["last"]))
        expected.append(moved(direct(x, w, **steps(c)), c["last"]))
        assert ys[-1].shape == expected[-1].shape
    for y, value in zip(arrays_of(*ys), expected, strict=True):
        np.testing.assert_allclose(y, value, atol=1e-4)


@settings(max_examples=3, deadline=None)
@given(several)
def test_deconvolution_is_the_transpose(every: list[dict[str, Any]]) -> None:
    """<convolution(x), y> = <x, deconvolution(y)>, for the x whose size output_padding names."""
    backs, products = [], []
    for c in every:
        x, w = arrays(c)
        rest = [
            (n + 2 * p - d * (k - 1) - 1) % s
            for n, k, p, s, d in zip(*[c[name] for name in SIZES], strict=True)
        ]
        forward, last = direct(x, w, **steps(c)), c["last"]
        y = np.random.default_rng(1).standard_normal(forward.shape).astype(np.float32)
        back = F.deconvolution(moved(y, last), moved(w, last), **steps(c), channel_last=last, output_padding=rest)
        assert back.shape == moved(x, last).shape
        backs.append(back)
        products.append((np.sum(forward * y), moved(x, last)))
    for back, (product, x) in zip(arrays_of(*backs), products, strict=True):
        np.testing.assert_allclose(product, np.sum(x * back), rtol=1e-3, atol=1e-3)


EXCHANGED: list[dict[str, Any]] = [
    {"sizes": (5, 5), "kernel": (5, 5), "pad": (1, 1), "stride": (1, 1), "dilation": (1, 1), "last": False},
    {"sizes": (9, 8), "kernel": (5, 4), "pad": (0, 0), "stride": (2, 2), "dilation": (1, 1), "last": True},
    {"sizes": (2, 2), "kernel": (3, 3), "pad": (1, 1), "stride": (1, 1), "dilation": (1, 1), "last": True},
    {"sizes": (4,), "kernel": (5,), "pad": (2,), "stride": (3,), "dilation": (1,), "last": False},
    {"sizes": (5, 6), "kernel": (3, 3), "pad": (1, 0), "stride": (1, 2), "dilation": (2, 2), "last": False},
]
"""With kernels of more elements than the data, or what is pulled back, have places."""


@pytest.mark.parametrize("c", EXCHANGED)
def test_compilers_for_cpus_leave_data_and_large_kernels_in_their_places(c: dict[str, Any]) -> None:
    """XLA would exchange the two and turn the data round, for which no library has a convolution."""
    c = {**c, "batch": 2, "group": 1, "taken": 2, "out": 3, "seed": 3}
    x, w = arrays(c)
    expected, last = direct(x, w, **steps(c)), c["last"]
    dy = np.random.default_rng(1).standard_normal(expected.shape).astype(np.float32)
    pulled = np.zeros_like(x)  # the transpose, an element of x at a time
    for at in np.ndindex(x.shape):
        one = np.zeros_like(x)
        one[at] = 1
        pulled[at] = np.sum(direct(one, w, **steps(c)) * dy)
    leaf = nn.Variable.from_numpy_array(moved(x, last))
    y = F.convolution(leaf, moved(w, last), **steps(c), channel_last=last)
    (back,) = nn.grad([y], [leaf], grad_outputs=[nn.Variable.from_numpy_array(moved(dy, last))])
    several = []
    for result, value in ((y, expected), (back, pulled)):
        f = result.parent
        ins = [np.asarray(v.data.data) for v in f.inputs]
        compiled = jax.jit(by_itself(f.op, f.arguments)).lower(*ins).compile()
        if jax.default_backend() == "cpu":
            assert "rhs_reversal" not in compiled.as_text()
        np.testing.assert_allclose(compiled(*ins), moved(value, last), atol=1e-4)
        several.append(SUBSTITUTES[f.op]([v.spec for v in f.inputs], f.op.named(f.arguments)))
    assert any(several)


FORMS: list[dict[str, Any]] = [
    {"sizes": (5, 6), "kernel": (3, 2), "pad": (1, 0), "stride": (1, 2), "dilation": (2, 1), "group": 3, "taken": 1,
     "out": 6, "last": False},
    {"sizes": (6,), "kernel": (3,), "pad": (2,), "stride": (2,), "dilation": (1,), "group": 2, "taken": 1, "out": 2,
     "last": True},
    {"sizes": (4, 5), "kernel": (2, 3), "pad": (0, 1), "stride": (2, 1), "dilation": (1, 1), "group": 2, "taken": 2,
     "out": 4, "last": True},
    {"sizes": (3, 3, 4), "kernel": (2, 1, 2), "pad": (1, 0, 1), "stride": (1, 1, 2), "dilation": (1, 1, 2), "group": 2,
     "taken": 2, "out": 6, "last": False},
    {"sizes": (9, 9), "kernel": (9, 8), "pad": (0, 1), "stride": (1, 1), "dilation": (1, 1), "group": 2, "taken": 2,
     "out": 2, "last": False},
    {"sizes": (4, 3), "kernel": (1, 1), "pad": (1, 0), "stride": (1, 1), "dilation": (1, 1), "group": 1, "taken": 5,
     "out": 2, "last": True},
    {"sizes": (5, 6), "kernel": (3, 2), "pad": (1, 0), "stride": (1, 2), "dilation": (2, 1), "group": 1, "taken": 3,
     "out": 17, "last": False},
    {"sizes": (4, 5), "kernel": (2, 3), "pad": (0, 1), "stride": (1, 1), "dilation": (1, 1), "group": 1, "taken": 17,
     "out": 2, "last": True},
]  # fmt: skip
"""In groups: of single channels, of a few, with large kernels; with kernels of one element; and of many channels."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forms_on_cpus_give_the_same(dtype: str) -> None:
    """The convolution against the sum, and gradients of orders 1 and 2 against those without the pass."""
    graph, leaves, sums = [], [], []
    for c in FORMS:
        x, w = (a.astype(dtype) for a in arrays({**c, "batch": 2, "seed": 0}))
        pair = [nn.Variable.from_numpy_array(moved(a, c["last"]), need_grad=True) for a in (x, w)]
        y = F.convolution(*pair, **steps(c), channel_last=c["last"])
        first = nn.grad(F.mean(y**2), pair)
        graph += [y, *first, *nn.grad(F.mean(first[0] ** 2) + F.mean(first[1] ** 2), pair)]
        leaves += pair
        sums.append(moved(direct(x, w, **steps(c)), c["last"]))
    here = nn.compile(graph, leaves)(*[v.d for v in leaves])
    with nn.passes(without=["substitute"]):
        there = nn.compile(graph, leaves)(*[v.d for v in leaves])
    close = {"rtol": 1e-10, "atol": 1e-12} if dtype == "float64" else {"rtol": 1e-3, "atol": 1e-4}
    for value, expected in zip([*here[::5], *here], [*sums, *there], strict=True):
        assert value.dtype == dtype
        np.testing.assert_allclose(value, expected, **close)


@pytest.mark.parametrize("kernel, stride, left", [
    ((16, 3, 3, 3), 2, 2), ((8, 3, 1, 1), 2, 0), ((8, 3, 3, 3), 2, 3), ((8, 8, 1, 1), 1, 0), ((8, 3, 1, 1), 1, 3),
])
def test_little_under_a_kernel_is_one_product_on_cpus(kernel: tuple[int, ...], stride: int, left: int) -> None:
    """So many of a convolution and its two gradients are left to the library."""
    x, w = nn.Variable((2, kernel[1], 9, 9), need_grad=True), nn.Variable(kernel, need_grad=True)
    y = F.convolution(x, w, stride=stride)
    text = jax.jit(nn.to_jax([y, *nn.grad(F.sum(y**2), [x, w])], [x, w])).lower(x.d, w.d).as_text()
    assert jax.default_backend() != "cpu" or text.count("stablehlo.convolution") == left


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_of_images_are_for_eigen_on_cpus(stride: int) -> None:
    """XLA would give the convolution and its gradients to YNNPACK, in computations of their own."""
    leaves = [nn.Variable(shape, need_grad=True) for shape in ((20, 18, 9, 9), (19, 18, 3, 3))]
    y = F.convolution(*leaves, stride=stride)
    function = jax.jit(nn.to_jax([y, *nn.grad(F.sum(y**2), leaves)], leaves))
    text = function.lower(*[v.d.astype(np.float32) for v in leaves]).compile().as_text()
    elsewhere, _, here = text.partition("\nENTRY")
    assert jax.default_backend() != "cpu" or (elsewhere.count(" convolution("), here.count(" convolution(")) == (0, 3)


@pytest.mark.parametrize("argument, shapes, given", [
    ("pad", ((1, 2, 5, 5), (2, 2, 3, 3)), {"pad": (1, 1, 1)}),
    ("stride", ((1, 2, 5, 5), (2, 2, 3, 3)), {"stride": 0}),
    ("dilation", ((1, 2, 5, 5), (2, 2, 3, 3)), {"dilation": (1, 0)}),
    ("group", ((1, 4, 5, 5), (3, 2, 3, 3)), {"group": 2}),
    ("weight", ((1, 3, 5, 5), (2, 2, 3, 3)), {}),
    ("channel_last", ((1, 2, 5, 5), (2, 2, 3, 3)), {"channel_last": True}),
    ("base_axis", ((1, 2, 5, 5), (2, 2, 3, 3)), {"base_axis": 4}),
    ("bias", ((1, 2, 5, 5), (2, 2, 3, 3), (3,)), {}),
])
def test_wrong_arguments_are_named(argument: str, shapes: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=argument):
        F.convolution(*map(nn.Variable, shapes), **given)


def test_a_step_as_long_as_the_kernel_in_groups() -> None:
    """Where the kernel has more elements than the result has places, XLA takes such an axis for that of the groups."""
    rng = np.random.default_rng(5)
    x, w, gy = rng.normal(size=(1, 2, 4, 3)), rng.normal(size=(4, 1, 2, 2)), rng.normal(size=(1, 4, 3, 1))
    variables = [nn.Variable.from_numpy_array(array, need_grad=True) for array in (x, w)]
    y = F.convolution(*variables, pad=(1, 0), stride=2, group=2)
    (gx,) = nn.grad([y], variables[:1], grad_outputs=[nn.Variable.from_numpy_array(gy)])
    expected = np.zeros((1, 2, 6, 3))
    for c, o, i, a, b in itertools.product(range(2), range(2), range(3), range(2), range(2)):
        expected[0, c, 2 * i + a, b] += gy[0, 2 * c + o, i, 0] * w[2 * c + o, 0, a, b]
    np.testing.assert_allclose(gx.d, expected[:, :, 1:5], rtol=1e-12)
