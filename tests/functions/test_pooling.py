"""Pooling beyond what the sample table says: shapes, dtypes, ties, and the messages for wrong arguments."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.oracle import compiled_cheaply
from tests.together import Test, at_once

POOLINGS = ["max_pooling", "average_pooling", "sum_pooling"]


@at_once
@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("stride, pad, expected", [
    ((1, 1, 2), (0, 1, 0), (3, 5, 3)), ((2, 1, 1), (1, 0, 1), (2, 4, 7)),
])
def test_windows_begin_in_x_or_before_it_where_borders_count(name: str, stride: Any, pad: Any, expected: Any) -> Test:
    """Each against the elements that it holds, one window after another."""
    x = np.random.default_rng(0).standard_normal((3, 4, 6))
    (y,) = yield (getattr(F, name)(x, (2, 2, 2), stride, ignore_border=False, pad=pad),)
    assert y.shape == expected
    for place in np.ndindex(expected):
        begins = [i * s - p for i, s, p in zip(place, stride, pad, strict=True)]
        held = x[tuple(slice(max(b, 0), b + 2) for b in begins)]
        counted = np.prod([min(b + 2, n + p) - b for b, n, p in zip(begins, x.shape, pad, strict=True)])
        expect = {"max_pooling": held.max(), "sum_pooling": held.sum(), "average_pooling": held.sum() / counted}[name]
        np.testing.assert_allclose(y[place], expect, rtol=1e-6)


@at_once
@pytest.mark.parametrize("kernel, stride, pad, ignore_border", [
    ((2, 2), (2, 2), (0, 0), True), ((3, 3), (1, 2), (1, 1), True), ((2, 3), (2, 2), (0, 1), False),
])
def test_one_maximum_of_equals_gets_the_gradient(kernel: Any, stride: Any, pad: Any, ignore_border: bool) -> Test:
    """The first one, so that as much leaves as arrives; and what is taken is what is added, transposed."""
    x = nn.Variable.from_numpy_array(np.ones((1, 5, 6), np.float32), need_grad=True)
    arguments = {"kernel": kernel, "stride": stride, "pad": pad, "ignore_border": ignore_border}
    y = F.max_pooling(x, **arguments)
    (gx,) = nn.grad([y], [x])
    g = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    slope, taken, added = yield (
        gx, F.max_pooling_select(g, x, **arguments), F.max_pooling_backward(dy, x, **arguments)
    )
    assert slope.sum() == y.size and slope[0, 0, 0] >= 1
    np.testing.assert_allclose(np.sum(taken * dy), np.sum(g * added), rtol=1e-4)


@at_once
def test_minus_infinity_is_a_maximum_too() -> Test:
    x = nn.Variable.from_numpy_array(np.full((1, 2, 2), -np.inf, np.float32), need_grad=True)
    (gx,) = yield nn.grad([F.max_pooling(x, kernel=(2, 2), pad=(1, 1), stride=(1, 1))], [x])
    assert gx.sum() == 9


@at_once
def test_integers() -> Test:
    x = np.arange(8).reshape(2, 4)
    found = yield [getattr(F, name)(x, kernel=2) for name in POOLINGS]
    for y, expected in zip(found, ([[1, 3], [5, 7]], [[0.5, 2.5], [4.5, 6.5]], [[1, 5], [9, 13]]), strict=True):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("argument, given", [
    ("kernel", {"kernel": ()}),
    ("stride", {"kernel": (2, 2), "stride": (1, 1, 1)}),
    ("pad", {"kernel": (2, 2), "pad": (1, 1, 1)}),
])
def test_wrong_arguments_are_named(name: str, argument: str, given: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=argument):
        getattr(F, name)(nn.Variable((2, 5, 5)), **given)


@pytest.mark.parametrize("given", [{"pad": 3}, {"pad": 2, "stride": 1, "ignore_border": False}])
def test_windows_without_elements(given: dict[str, Any]) -> None:
    x = nn.Variable((2, 5, 5))
    for call in (F.max_pooling, lambda *a, **k: F.average_pooling(*a, including_pad=False, **k)):
        with pytest.raises(ValueError, match="pad"):
            call(x, kernel=(2, 2), **given)
    assert np.isfinite(F.average_pooling(x, kernel=(2, 2), **given).d).all()


WINDOWS: list[tuple[Any, Any, Any, bool]] = [
    ((2, 2), (2, 2), (0, 0), True), ((3, 2), (1, 2), (1, 0), True), ((2, 3), (3, 2), (0, 1), False),
    ((1, 2), (2, 1), (0, 0), True), ((3,), (2,), (0,), False), ((2, 2, 2), (1, 2, 2), (0, 1, 0), True),
]


def test_few_places_and_many_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows whose places are looked at one by one, and those that XLA goes through, with ties, infinities and NaN."""
    rng = np.random.default_rng(0)
    cases = []
    for (*window, ignore_border), last in itertools.product(WINDOWS, (False, True)):
        arguments = dict(zip(("kernel", "stride", "pad"), window, strict=True))
        arguments |= {"ignore_border": ignore_border, "channel_last": last}
        sizes = {1: (7,), 2: (7, 6), 3: (4, 5, 4)}[len(window[0])]
        shape = (2, *sizes, 3) if last else (2, 3, *sizes)
        x = rng.choice(np.array([-np.inf, -1, 0, 1, np.inf, np.nan], np.float32), shape)
        pooled = F.max_pooling(nn.Variable(shape), **arguments).shape
        g, dy = (rng.integers(-5, 5, each).astype("f") for each in (shape, pooled))
        cases.append((arguments, (x, dy, g)))

    def results() -> list[list[np.ndarray]]:
        def all_three(arguments: dict[str, Any], x: Any, dy: Any, g: Any) -> list[Any]:
            return [F.max_pooling.forward(x, **arguments), F.max_pooling_backward.forward(dy, x, **arguments),
                    F.max_pooling_select.forward(g, x, **arguments)]

        every = [arguments for arguments, _ in cases]
        together = compiled_cheaply(lambda given: [all_three(*each) for each in zip(every, *given, strict=True)])
        given = zip(*[arrays for _, arrays in cases], strict=True)
        return [list(map(np.asarray, each)) for each in together(tuple(map(list, given)))]

    few = results()
    monkeypatch.setattr("nngrad.functions.pooling.MOST_SLICES", 0)
    monkeypatch.setattr("nngrad.functions.pooling_windows.MOST_SLICES", 0)
    for (arguments, _), ones, others in zip(cases, few, results(), strict=True):
        for a, b in zip(ones, others, strict=True):
            np.testing.assert_array_equal(a, b, str(arguments))
