"""memory_report: predictions against the compiler, what is kept and what is computed again, and its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable
from tests.memory.test_recompute import BATCH, WIDTH, chain
from tests.slow import slow_but_every


def convolutional() -> tuple[Variable, list[Variable]]:
    """A chain of convolutions, normalised over the batch."""
    axes = (0, 2, 3)
    h, weights = Variable((4, 4, 16, 16)), []
    for _ in range(4):
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


def residual(layers: int = 8) -> tuple[Variable, list[Variable]]:
    """Dense residual blocks: what arrives at a block is read within it, and added after it."""
    h, weights = Variable((128, 32)), []
    for _ in range(layers):
        u, w = (Variable((32, 32), need_grad=True) for _ in range(2))
        h = h + F.affine(F.relu(F.affine(h, u)), w)
        weights += [u, w]
    return F.sum(h**2), weights


def attentive(layers: int = 2, batch: int = 4, length: int = 32, width: int = 32) -> tuple[Variable, list[Variable]]:
    """Normalised self-attention with residual connections."""
    h, weights = Variable((batch, length, width)), []
    for _ in range(layers):
        wq, wk, wv, wo = (Variable((width, width), need_grad=True) for _ in range(4))
        n = F.layer_normalization(h, batch_axis=(0, 1))
        q, k, v = (F.affine(n, w, base_axis=2) for w in (wq, wk, wv))
        weighted = F.batch_matmul(F.softmax(F.batch_matmul(q, k, transpose_b=True), axis=2), v)
        h = h + F.affine(weighted, wo, base_axis=2)
        weights += [wq, wk, wv, wo]
    return F.sum(h**2), weights


def recurrent(steps: int = 16, width: int = 32, batch: int = 32) -> tuple[Variable, list[Variable]]:
    """A gated recurrence: its weight is used at every step."""
    w = Variable((width, 2 * width), need_grad=True)
    h = Variable((batch, width))
    for _ in range(steps):
        z = F.affine(h, w)
        gate = F.sigmoid(z[:, :width])
        h = gate * h + (1 - gate) * F.tanh(z[:, width:])
    return F.sum(h**2), [w]


CASES: dict[str, Callable[[], tuple[Variable, list[Variable]]]] = {
    "dense": chain,
    "rectified": rectified,
    "convolutional": convolutional,
    "residual": residual,
    "attentive": attentive,
    "recurrent": recurrent,
}


@pytest.mark.parametrize("case", slow_but_every(4, CASES.values()), ids=list(CASES))
def test_the_prediction_ranks_as_the_compiler_does(case: Any) -> None:
    """What recomputation saves by the prediction, it saves as compiled."""
    loss, weights = case()
    plain, again = (nn.memory_report([loss, *nn.grad(loss, weights, recompute=p)]) for p in (False, "sqrt"))
    assert plain.compiled is not None and again.compiled is not None
    assert again.peak < plain.peak and again.compiled < plain.compiled
    assert again.peak / plain.peak == pytest.approx(again.compiled / plain.compiled, rel=0.35)


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


def test_a_leaf_takes_no_temporaries() -> None:
    report = nn.memory_report(Variable((3,)))
    assert report.peak == 0 and report.leaves == 12 and str(report)


def test_only_variables_have_a_report() -> None:
    with pytest.raises(TypeError, match=r"outputs\[1\]"):
        nn.memory_report([Variable(()), 3])  # type: ignore[list-item]
