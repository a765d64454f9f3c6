"""Linear-chain conditional random fields, composed of loops over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph import Variable, as_variable
from ..graph.leaf import as_variables
from ..graph.signatures import explained_by_name
from . import loops
from .distances import reduced_loss
from .indexing import gather, where
from .lists import pad_sequence, variables_of
from .movement import reshape
from .reduction import amax, argmax, logsumexp, sum


def _steps_of(cost: Variable, xs: list[Variable]) -> tuple[Variable, np.ndarray[Any, Any]]:
    """The scores (steps, batch, labels), and whether each chain is still running at each step."""
    labels = cost.shape[-1] if cost.ndim else 0
    if cost.shape != (labels, labels) or any(x.ndim != 2 or x.shape[1] != labels for x in xs):
        shapes = ", ".join([str(x.shape) for x in xs])
        raise ValueError(f"cost must be (labels, labels) and each of xs (batch, labels), got {cost.shape} and {shapes}")
    sizes = [x.shape[0] for x in xs]
    if sizes != sorted(sizes, reverse=True):
        raise ValueError(f"the batch size of xs must not grow from step to step, got {sizes}")
    return pad_sequence(xs, sizes[0]), np.arange(sizes[0]) < np.array(sizes)[:, None]


@explained_by_name
def crf1d(cost: Any, xs: Sequence[Any], ys: Sequence[Any], reduce: str = "mean") -> Variable:
    """Negative log-likelihood of labels in a linear-chain conditional random field (Lafferty et al., 2001).

    A path y through the labels has the score `sum over t of xs[t][y_t] + cost[y_(t-1), y_t]`. The loss is the logsumexp
    of the scores of all paths, computed by the forward algorithm (a loop), minus the score of `ys`.

    Args:
        cost: (labels, labels): the score of going from the first label to the second.
        xs: For each step the scores of the labels, (batch, labels). The batch may shrink from step to step, as
            `transpose_sequence` returns it for chains of several lengths, the longest first.
        ys: For each step the labels, (batch,).
        reduce: 'mean' over the chains, or 'no' for the loss of each.

    Raises:
        ValueError: The shapes do not fit, a batch grows, or `reduce` is neither 'mean' nor 'no'.
    """
    if reduce not in ("mean", "no"):
        raise ValueError(f"crf1d: reduce must be 'mean' or 'no', got {reduce!r}")
    cost, *emissions = as_variables([cost, *variables_of(xs, "crf1d")], ["cost", *["xs"] * len(xs)], "crf1d")
    named = variables_of(ys, "crf1d", "ys")
    scores, there = _steps_of(cost, emissions)
    if [y.shape for y in named] != [x.shape[:1] for x in emissions]:
        raise ValueError("crf1d: ys must have a label for each row of xs, shapes "
                         f"{[x.shape[:1] for x in emissions]}, got {[y.shape for y in named]}")
    labels = pad_sequence(named, scores.shape[1])
    named_scores = gather(scores, labels, axis=2, batch_dims=2)

    def step(before: Variable, x: tuple[Variable, Variable]) -> tuple[Variable, None]:
        ways = reshape(before, shape=(*before.shape, 1)) + cost
        return where(x[1], logsumexp(ways, axis=1) + x[0], before), None

    goes_on = as_variable(there[1:])
    total, _ = loops.scan(step, scores[0], (scores[1:], goes_on))
    named_scores = where(as_variable(there), named_scores, named_scores * 0)
    moves = cost[labels[:-1], labels[1:]]
    score = sum(named_scores, axis=0) + sum(where(goes_on, moves, moves * 0), axis=0)
    return reduced_loss(logsumexp(total, axis=1) - score, reduce)


@explained_by_name
def argmax_crf1d(cost: Any, xs: Sequence[Any]) -> tuple[Variable, list[Variable]]:
    """The most probable labels in a linear-chain conditional random field, by Viterbi's algorithm.

    Args:
        cost: (labels, labels), as in `crf1d`.
        xs: For each step the scores of the labels, as in `crf1d`.

    Returns:
        The highest score of each chain, (batch,), and for each step the labels, (batch,) of that step, int32.

    Raises:
        ValueError: The shapes do not fit, or a batch grows.
    """
    owner = "argmax_crf1d"
    cost, *emissions = as_variables([cost, *variables_of(xs, owner)], ["cost", *["xs"] * len(xs)], owner)
    scores, there = _steps_of(cost, emissions)
    goes_on = as_variable(there[1:])
    itself = as_variable(np.arange(cost.shape[0], dtype=np.int32))

    def step(before: Variable, x: tuple[Variable, Variable]) -> tuple[Variable, Variable]:
        ways = reshape(before, shape=(*before.shape, 1)) + cost
        from_where = where(x[1], argmax(ways, axis=1), itself)
        return where(x[1], amax(ways, axis=1) + x[0], before), from_where

    best, origins = loops.scan(step, scores[0], (scores[1:], goes_on))

    def back(label: Variable, origin: Variable) -> tuple[Variable, Variable]:
        before = gather(origin, label, axis=1, batch_dims=1)
        return before, before

    last = argmax(best, axis=1)
    _, path = loops.scan(back, last, origins, reverse=True)
    labels = [*[path[t] for t in range(len(emissions) - 1)], last]
    return amax(best, axis=1), [y[: x.shape[0]] for y, x in zip(labels, emissions, strict=True)]
