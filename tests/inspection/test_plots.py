"""nn.plot: what is drawn is what was measured, and the spectrum is that of the Hessian."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

import nngrad as nn
import nngrad.functions as F
from nngrad.inspection.viewing.spectrum import hessian_spectrum_of
from tests.refusals import refused


def axes() -> Any:
    return Figure().add_subplot()


def variable(values: Any) -> nn.Variable:
    return nn.Variable.from_numpy_array(np.asarray(values, np.float64), need_grad=True)


def test_growth_draws_what_count_says() -> None:
    x = variable([0.3, 0.7])
    ax = nn.plot.growth(F.tanh(x), x, 3, others={"another": [3, 9]}, ax=axes())
    mine, other = ax.get_lines()
    y, expected = F.tanh(x), []
    for _ in range(3):
        (y,) = nn.grad([y], [x])
        expected.append(nn.count(y).functions)
    assert list(mine.get_ydata()) == expected
    assert list(mine.get_xdata()) == [1, 2, 3]
    assert list(other.get_ydata()) == [3, 9]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["nngrad", "another"]


def test_memory_draws_the_timeline() -> None:
    x = variable(np.ones((8, 8)))
    y = F.sum(F.tanh(F.batch_matmul(x, F.tanh(F.batch_matmul(x, x)))))
    report = nn.memory_report([y, *nn.grad([y], [x])], compile=False)
    ax = nn.plot.memory(report, ax=axes())
    drawn, peak = ax.get_lines()
    unit = 1e3
    assert np.asarray(drawn.get_ydata())[:-1] == pytest.approx(np.array(report.timeline.live) / unit)
    assert peak.get_ydata()[0] == pytest.approx(report.peak / unit)
    assert "kB" in ax.get_ylabel()


def test_a_loss_may_be_linear_in_parameters() -> None:
    a, b = variable([1.0, 2.0]), variable([3.0])
    loss = F.sum(a**2) + F.sum(b)
    both = hessian_spectrum_of(loss, [a, b], 2, 8)
    np.testing.assert_allclose([both.smallest, both.largest], [0, 2], atol=1e-12)
    nothing = hessian_spectrum_of(loss, [b], 1, 8)
    assert (nothing.smallest, nothing.largest) == (0, 0)
    nn.plot.hessian_spectrum(nothing, ax=axes())


def test_lanczos_finds_eigenvalues_and_weights() -> None:
    rng = np.random.default_rng(3)
    a = rng.normal(size=(7, 7))
    a, start = a + a.T, rng.normal(size=7)
    values, vectors = np.linalg.eigh(a)
    found = nn.lanczos(lambda v: a @ v, k=100, start=start)
    assert found.values == pytest.approx(values)
    assert found.weights == pytest.approx((vectors.T @ start / np.linalg.norm(start)) ** 2)


def test_lanczos_ends_where_there_is_no_more() -> None:
    a = np.diag([1.0, 1.0, 2.0, 2.0])
    found = nn.lanczos(lambda v: a @ v, k=10, start=np.ones(4))
    assert found.values == pytest.approx([1, 2])
    assert found.weights == pytest.approx([0.5, 0.5])
    alone = nn.lanczos(lambda v: 0 * v, k=10, start=np.ones(3))
    assert alone.values == pytest.approx([0])


def test_the_spectrum_is_that_of_the_hessian() -> None:
    rng = np.random.default_rng(5)
    w, b, x = variable(rng.normal(size=(3, 2))), variable(rng.normal(size=2)), variable(rng.normal(size=(5, 3)))
    loss = F.mean(F.tanh(F.batch_matmul(x, w) + b) ** 2)
    blocks = nn.hessian(loss, [w, b], batched=False)
    rows = [[block.d.reshape(p.size, q.size) for block, q in zip(row, (w, b), strict=True)]
            for row, p in zip(blocks, (w, b), strict=True)]  # fmt: skip
    values = np.linalg.eigvalsh(np.block(rows))
    spectrum = hessian_spectrum_of(loss, {"w": w, "b": b}, vectors=2, iterations=30)
    assert spectrum.size == len(values) == 8
    for run in spectrum.runs:
        assert run.values == pytest.approx(values)
    assert (spectrum.smallest, spectrum.largest) == pytest.approx((values[0], values[-1]))
    ax = nn.plot.hessian_spectrum(spectrum, ax=axes())
    curve = ax.get_lines()[0]
    at, density = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
    assert np.trapezoid(density, at) == pytest.approx(1, abs=0.01)


def test_gradient_norms_by_layer() -> None:
    norms = {"a/x/W": 3.0, "a/x/b": 4.0, "a/y/W": 12.0, "top": 2.0}
    bars = nn.plot.gradient_norms(norms, ax=axes())
    assert [label.get_text() for label in bars.get_yticklabels()] == ["a/x", "a/y", "top"]
    assert [bar.get_width() for bar in bars.patches] == pytest.approx([5, 12, 2])
    outer = nn.plot.gradient_norms(norms, depth=1, ax=axes())
    assert [bar.get_width() for bar in outer.patches] == pytest.approx([13, 2])


def test_gradient_norms_over_steps_and_of_parameters() -> None:
    norms = [{"a/W": 1.0, "b/W": 2.0}, {"a/W": 3.0, "b/W": 4.0}]
    ax = nn.plot.gradient_norms(norms, steps=[10, 20], ax=axes())
    assert [list(line.get_ydata()) for line in ax.get_lines()] == [[1, 3], [2, 4]]
    assert list(ax.get_lines()[0].get_xdata()) == [10, 20]
    assert len({line.get_linestyle() for line in ax.get_lines()}) == 2, "told apart without colour"
    w = variable([3.0, 4.0])
    loss = F.sum(w**2) / 2
    loss.forward()
    loss.backward()
    (bar,) = nn.plot.gradient_norms({"layer/W": w}, ax=axes()).patches
    assert bar.get_width() == pytest.approx(5)


test_what_is_wrong_is_said = refused([
    (lambda x: nn.plot.growth(x, x, quantity="function"),
     "quantity: must be one of functions.*, got 'function'; did you mean 'functions'"),
    (lambda x: nn.plot.growth(x, x, quantity=None), "quantity: must be one of functions.*, got None"),
    (lambda x: nn.plot.growth(x, x, 0), "orders: must be 1 or more, got 0"),
    (lambda x: nn.plot.hessian_spectrum(x, [x], ax=axes()), r"loss: must have shape \(\), got \(2,\)"),
    (lambda x: nn.plot.hessian_spectrum(F.sum(x), [], ax=axes()), "parameters: expected at least one"),
    (lambda x: nn.plot.hessian_spectrum(F.sum(x), [x], vectors=0, ax=axes()), "vectors: must be 1 or more"),
    (lambda x: nn.plot.gradient_norms({}), "norms: expected at least one norm"),
    (lambda x: nn.plot.gradient_norms([{"a/W": 1.0}, {"b/W": 1.0}]), "the same parameters"),
    (lambda x: nn.plot.gradient_norms([{"a/W": 1.0}], steps=[1, 2], ax=axes()), "steps: expected 1 numbers"),
    (lambda x: nn.plot.gradient_norms({"a/W": 1.0}, depth=0), "depth: must be 1 or more, got 0"),
], given=lambda: variable([1.0, 2.0]))  # fmt: skip


def test_hessians_that_are_not_finite_are_told() -> None:
    x = variable([np.nan, 1.0])
    with pytest.raises(ValueError, match=r"loss: its Hessian has NaN or infinities at these values; nn.find_nan"):
        nn.plot.hessian_spectrum(F.sum(x**3), [x], ax=axes())


test_wrong_types = refused([
    (lambda: nn.plot.gradient_norms({"a/W": "x"}), r"norms\['a/W'\]: expected a number or a parameter, got str"),
    (lambda: nn.plot.gradient_norms([3]), "norms: expected a dict"),
    (lambda: nn.plot.gradient_norms(3), "norms: expected a dict.*got int"),
    (lambda: nn.plot.gradient_norms({"a/W": 1.0}, depth="1"), "depth: expected an int, got '1'"),
    (lambda: nn.plot.growth(variable([1.0]), variable([1.0]), 2.5), "orders: expected an int, got 2.5"),
    (lambda: nn.plot.growth(variable([1.0]), variable([1.0]), others=[1, 2]), "others: expected a dict.*got list"),
    (lambda: nn.plot.gradient_norms({"a/W": 1.0}, ax=3), "ax: expected matplotlib Axes"),
], kind=TypeError)  # fmt: skip


def test_without_matplotlib_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"nn.plot needs matplotlib: pip install 'nngrad\[plot\]'"):
        nn.plot.gradient_norms({"a/W": 1.0})
