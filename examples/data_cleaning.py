"""Wrong labels found by a gradient through training: of a loss on clean digits, by the weight of each digit trained on.

A classifier is trained in 100 steps with momentum on handwritten digits, of which some have wrong labels. Each has a
weight in the loss. The loss of the trained classifier on other digits, with right labels, is differentiated with
respect to all these weights, through all steps of training, and the weights are learned: those of wrong labels fall.
Which labels are wrong is known here, and used to count how many were found.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import script
from hessian_spectrum import digits

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

SAMPLES, CLEAN = 600, 600
WRONG = 0.3
"""The share of labels that are replaced by another one."""
WIDTH = 32
INNER_STEPS, RATE, MOMENTUM = 100, 0.03, 0.9
STEPS = 60
BOUND = 6e-2

Array = np.ndarray[Any, Any]
Weights = list[nn.Variable]


class Digits(NamedTuple):
    """Images (n, 64) and labels (n, 1)."""

    images: Array
    labels: Array


def with_wrong_labels(of: Digits, rng: np.random.Generator) -> Digits:
    """The same, with some labels replaced."""
    chosen = rng.uniform(size=of.labels.shape) < WRONG
    return of._replace(labels=np.where(chosen, (of.labels + rng.integers(1, 10, of.labels.shape)) % 10, of.labels))


def losses_of(ws: Weights, of: Digits) -> nn.Variable:
    """The cross entropy of each digit, (n, 1)."""
    hidden, of_hidden, out, of_out = ws
    return F.softmax_cross_entropy(F.tanh(of.images @ hidden + of_hidden) @ out + of_out, of.labels)


def trained(first: list[Array], of: Digits, importance: nn.Variable) -> Weights:
    """The classifier's weights after all steps."""

    def step(state: Any, _: Any) -> Any:
        ws, ms = state
        gs = nn.grad(F.mean(importance * losses_of(ws, of)), ws)
        ms = [MOMENTUM * m + g for m, g in zip(ms, gs, strict=True)]
        return ([w - RATE * m for w, m in zip(ws, ms, strict=True)], ms), None

    still = [np.zeros_like(w) for w in first]
    (ws, _), _ = F.scan(step, (first, still), length=INNER_STEPS)
    return list(ws)


def known(ws: Weights, of: Digits) -> float:
    """The share of digits that get their label."""
    hidden, of_hidden, out, of_out = [w.d for w in ws]
    logits = np.tanh(of.images @ hidden + of_hidden) @ out + of_out
    return float(np.mean(logits.argmax(axis=1) == of.labels[:, 0]))


def solve(steps: int, out: Path) -> script.Result:
    """The error is the share of labels that are on the wrong side: right with a small weight, or wrong with a large."""
    rng = np.random.default_rng(0)
    images, labels = digits()
    order = rng.permutation(len(images))
    true, clean, unseen = [Digits(images[part], labels[part]) for part in np.split(order, [SAMPLES, SAMPLES + CLEAN])]
    seen = with_wrong_labels(true, rng)
    shapes = (64, WIDTH), (1, WIDTH), (WIDTH, 10), (1, 10)
    first = [(rng.standard_normal(s) / s[0] ** 0.5 * (s[0] > 1)).astype(np.float32) for s in shapes]
    logits = nn.Variable.from_numpy_array(np.zeros((SAMPLES, 1), np.float32), need_grad=True)
    importance = F.sigmoid(logits)
    ws = trained(first, seen, importance)
    loss = F.mean(losses_of(ws, clean))
    nn.forward_all(ws)
    before = known(ws, unseen)
    solver = S.Adam()
    losses = script.train(nn.train_step(loss, {"importance": logits}, solver), solver, 0.3, steps, every=2)
    nn.forward_all([importance, *ws])
    wrong = seen.labels != true.labels
    error = float(np.mean((importance.d < 0.5) != wrong))
    found = np.sum(wrong & (importance.d < 0.5))
    print(f"{wrong.sum()} of {SAMPLES} labels are wrong, {found} of them found")
    print(f"of other digits {before:.1%} are known before, {known(ws, unseen):.1%} after")
    draw(importance.d, wrong, losses, seen, out / "data_cleaning.png")
    return script.Result(losses, error)


def draw(importance: Array, wrong: Array, losses: list[float], seen: Digits, path: Path) -> None:
    """The weights of both kinds, the loss, and the digits with the smallest weights."""
    figure = script.figure(10, 3.2)
    left, middle, right = figure.subplots(1, 3)
    both = [importance[~wrong], importance[wrong]]
    left.hist(both, bins=20, range=(0, 1), color=[script.BLUE, script.ORANGE], label=["right", "wrong"], stacked=True)
    left.set(title="learned weights of samples", xlabel="weight", ylabel="samples")
    left.legend(title="labels", frameon=False)
    middle.plot(losses, color=script.BLUE)
    middle.set(title="loss on clean digits", xlabel="while weights are learned", ylim=(0, None))
    middle.set_xticks([])
    for axes in (left, middle):
        axes.spines[["top", "right"]].set_visible(False)
    rows, columns = 3, 5
    least = np.argsort(importance[:, 0])[: rows * columns]
    tiles = np.pad(seen.images[least].reshape(-1, 8, 8), ((0, 0), (0, 3), (0, 1)), constant_values=-1)
    right.imshow(tiles.reshape(rows, columns, 11, 9).swapaxes(1, 2).reshape(rows * 11, columns * 9), cmap="gray_r")
    for k, i in enumerate(least):
        place = k % columns * 9 + 3.5, k // columns * 11 + 9
        right.text(*place, str(seen.labels[i, 0]), color=script.ORANGE, ha="center", va="center", fontsize=9)
    right.set(title="smallest weights, with their labels")
    right.set_axis_off()
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
