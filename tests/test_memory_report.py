"""memory_report: predictions against the compiler, what is kept and what is computed again, text and plot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.test_recompute import BATCH, WIDTH, chain, critic


def convolutional() -> tuple[Variable, list[Variable]]:
    """A chain of convolutions, normalised over the batch."""
    axes = (0, 2, 3)
    h, weights = Variable((4, 4, 16, 16)), []
    for _ in range(6):
        w = Variable((4, 4, 3, 3), need_grad=True)
        h = F.convolution(h, w, pad=(1, 1))
        h = h - F.mean(h, axis=axes, keepdims=True)
        h = F.tanh(h * (F.mean(h * h, axis=axes, keepdims=True) + 1e-5) ** -0.5)
        weights.append(w)
    return F.sum(h**2), weights


def rectified() -> tuple[Variable, list[Variable]]:
    """Dense layers with biases and rectifiers."""
    h, weights = Variable((256, 32)), []
    for _ in range(8):
        w, b = Variable((32, 32), need_grad=True), Variable((32,), need_grad=True)
        h = F.relu(F.affine(h, w, b))
        weights += [w, b]
    return F.mean((h - 1) ** 2), weights


CASES: dict[str, Callable[[], tuple[Variable, list[Variable]]]] = {
    "dense": chain,
    "rectified": rectified,
    "convolutional": convolutional,
    "critic": lambda: critic(None),
}


@pytest.mark.parametrize("policy", [None, "sqrt"], ids=["plain", "sqrt"])
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_prediction_is_near_what_the_compiler_allots(case: Any, policy: Any) -> None:
    loss, weights = case()
    report = nn.memory_report([loss, *nn.grad(loss, weights, recompute=policy)])
    assert report.compiled is not None
    assert report.peak == pytest.approx(report.compiled, rel=0.1)


def test_what_is_kept_and_what_is_computed_again() -> None:
    loss, weights = chain()
    plain = nn.memory_report([loss, *nn.grad(loss, weights)], compile=False)
    assert plain.compiled is None and plain.recomputed == ()
    assert (plain.kept[0].op, plain.kept[0].number) == ("tanh", len(weights))
    assert plain.kept[0].nbytes == len(weights) * BATCH * WIDTH * 4
    again = nn.memory_report([loss, *nn.grad(loss, weights, recompute="sqrt")], compile=False)
    assert again.peak < plain.peak and again.leaves == plain.leaves and again.results == plain.results
    assert 0 < again.recomputed[0].number < len(weights)
    assert "Segments(levels=1)" in again.recomputed[0].why


def test_the_text_says_it_all() -> None:
    loss, weights = chain()
    text = str(nn.memory_report([loss, *nn.grad(loss, weights, recompute="sqrt")]))
    for part in ("predicted peak", "as compiled", "leaves", "kept: ", "computed again: ", "tanh float32", "█"):
        assert part in text
    assert "computed again: nothing" in str(nn.memory_report(loss, compile=False))


def test_the_plot_is_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    report = nn.memory_report(chain(3)[0])
    report.plot(str(tmp_path / "memory.png"))
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        report.plot()


def test_a_leaf_takes_no_temporaries() -> None:
    report = nn.memory_report(Variable((3,)))
    assert report.peak == 0 and report.leaves == 12 and str(report)


def test_only_variables_have_a_report() -> None:
    with pytest.raises(TypeError, match=r"outputs\[1\]"):
        nn.memory_report([Variable(()), 3])  # type: ignore[list-item]
