"""Recompute instead of keep: models of several shapes, at orders 1 and 2, beside the plain gradients and JAX's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable
from tests.oracle import compiled_cheaply
from tests.rematerialising import agree_as_one, allotted, is_product, predicted, structure_alone, values_of


class Builder:
    """Leaves of normal numbers, and the context that each part of a model is built in."""

    def __init__(self, marked: bool) -> None:
        self._rng = np.random.default_rng(4)
        self._marked = marked
        self.leaves: list[Variable] = []

    def leaf(self, *shape: int, scale: float = 0.4) -> Variable:
        """A leaf to differentiate with respect to."""
        self.leaves.append(Variable.from_numpy_array(self._rng.normal(0, scale, shape), need_grad=True))
        return self.leaves[-1]

    def part(self) -> AbstractContextManager[None]:
        """A context for a part that is computed again where the model is marked."""
        return nn.recompute(self._marked)


def attention(b: Builder) -> Variable:
    """Blocks of attention and dense layers, each normalised and added to what it reads."""
    length, width = 6, 4
    h = b.leaf(2, length, width, scale=1.0)
    for _ in range(3):
        with b.part():
            z = F.layer_normalization(h, b.leaf(1, 1, width), b.leaf(1, 1, width), batch_axis=(0, 1))
            q, k, v = (F.matmul(z, b.leaf(width, width)) for _ in range(3))
            weights = F.softmax(F.matmul(q, F.transpose(k, (0, 2, 1))) * width**-0.5, axis=-1)
            h = h + F.matmul(F.matmul(weights, v), b.leaf(width, width))
            h = h + F.matmul(F.gelu(F.matmul(h, b.leaf(width, 2 * width))), b.leaf(2 * width, width))
    return F.mean(h**2)


def normalised(b: Builder) -> Variable:
    """Convolutions with biases, normalised over the batch, every other one residual: no loss depends on the biases."""
    axes = (1, 4, 1, 1)
    h = b.leaf(4, 4, 6, 6, scale=1.0)
    for i in range(4):
        with b.part():
            z = F.convolution(h, b.leaf(4, 4, 3, 3, scale=0.2), b.leaf(4), pad=(1, 1))
            mean, variance = (Variable.from_numpy_array(np.full(axes, v)) for v in (0.0, 1.0))
            z = F.tanh(F.batch_normalization(z, b.leaf(*axes), b.leaf(*axes, scale=1.0), mean, variance))
            h = h + z if i % 2 else z
    return F.mean(h**2) + F.mean(F.sin(h[0]))


def skipping(b: Builder) -> Variable:
    """A net with pooling down, enlarging up, and each level's values read again on the way up."""
    h, skipped = b.leaf(2, 2, 8, 8, scale=1.0), []
    for _ in range(2):
        with b.part():
            h = F.softplus(F.convolution(h, b.leaf(2, 2, 3, 3), pad=(1, 1)))
            skipped.append(h)
            h = F.average_pooling(h, kernel=(2, 2))
    for skip in reversed(skipped):
        with b.part():
            h = F.unpooling(h, kernel=(2, 2))
            h = F.softplus(F.convolution(F.concatenate(h, skip, axis=1), b.leaf(2, 4, 3, 3), pad=(1, 1)))
    return F.mean(h**2)


def siamese(b: Builder) -> Variable:
    """Two inputs through the same layers, compared."""
    weights = [b.leaf(4, 4) for _ in range(6)]

    def embedded(h: Variable) -> Variable:
        for w in weights:
            with b.part():
                h = F.tanh(F.affine(h, w))
        return h

    return F.mean((embedded(b.leaf(16, 4, scale=1.0)) - embedded(b.leaf(16, 4, scale=1.0))) ** 2)


MODELS: dict[str, Callable[[Builder], Variable]] = {
    f.__name__: f for f in (attention, normalised, skipping, siamese)
}

POLICIES: dict[str, Any] = {
    "sqrt": "sqrt",
    "auto": "auto",
    "two levels": nn.Segments(2),
    "all but products": lambda f: not is_product(f) and f.name != "convolve",
    "marked": None,
}


QUICK = {"skipping", "siamese"}
"""Models that meet each policy quickly."""


def of_models(name: str, *cases: Any) -> pytest.MarkDecorator:
    """A mark that runs a test with each of these cases, the first value of which is a model."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return pytest.mark.parametrize(
        name, [pytest.param(*row, marks=() if row[0] in QUICK else pytest.mark.slow) for row in rows])


def every_other(models: Iterable[str], policies: Iterable[Any]) -> list[tuple[str, Any]]:
    """Pairs such that each model meets half of the policies, and each policy half of the models."""
    return [(m, p) for i, m in enumerate(models) for j, p in enumerate(policies) if (i + j) % 2 == 0]


SEGMENT = 1.15
"""What the first gradient computes again stays in the graph of the second, even where that keeps all: one segment at a
time, which in models as shallow as these is up to a seventh of the peak."""


class Outcome:
    """Gradients of a model and of the squares of these, by two policies; structure alone decides."""

    def __init__(self, model: str, first: Any = False, second: Any = False) -> None:
        b = Builder(marked=first is None or second is None)
        loss = MODELS[model](b)
        with structure_alone():
            self.first = nn.grad(loss, b.leaves, recompute=first)
            penalty = F.add_n(*[F.sum(g**2) for g in self.first]) + loss
            self.second = nn.grad(penalty, b.leaves, recompute=second)
        self.peaks = predicted([loss, *self.first]), predicted([penalty, *self.second])


@cache
def plain(model: str) -> tuple[Outcome, list[Any], list[Any]]:
    """Without recomputation, with the values of both orders."""
    outcome = Outcome(model)
    values = values_of([*outcome.first, *outcome.second])
    return outcome, values[: len(outcome.first)], values[len(outcome.first) :]


@of_models("model", *MODELS)
def test_plain_gradients_are_those_of_jax(model: str) -> None:
    b = Builder(False)
    loss = MODELS[model](b)
    function = nn.to_jax(loss, b.leaves)

    def f(leaves: list[Any]) -> Any:
        return function(*leaves)

    def penalty(leaves: list[Any]) -> Any:
        return sum((g**2).sum() for g in jax.grad(f)(leaves)) + f(leaves)

    _, first, second = plain(model)
    with jax.enable_x64(True):
        leaves = [x.d for x in b.leaves]
        once, twice = compiled_cheaply(lambda xs: (jax.grad(f)(xs), jax.grad(penalty)(xs)))(leaves)
    agree_as_one(first, once, 1e-11)
    agree_as_one(second, twice, 1e-11)


@of_models("model, policy", *every_other(MODELS, POLICIES))
def test_policies_change_no_gradient_and_take_no_more_memory(model: str, policy: str) -> None:
    without, first, second = plain(model)
    p = POLICIES[policy]
    outcome = Outcome(model, p, p)
    assert outcome.peaks[0] <= without.peaks[0]
    assert outcome.peaks[1] <= SEGMENT * without.peaks[1]
    values = values_of([*outcome.first, *outcome.second])
    agree_as_one(values[: len(first)], first, 1e-12)
    agree_as_one(values[len(first) :], second, 1e-12)


# ---------------------------------------------------------------- by the compiler's account

DECIDED = ("sqrt", "auto", nn.Segments(2))


def of(model: str) -> tuple[Variable, list[Variable]]:
    """The loss of a model and its leaves."""
    b = Builder(marked=False)
    return MODELS[model](b), b.leaves


@of_models("model, policy", *every_other(MODELS, DECIDED))
def test_no_policy_takes_more_memory_as_compiled(model: str, policy: Any) -> None:
    loss, leaves = of(model)
    plain, again = ([loss, *nn.grad(loss, leaves, recompute=p)] for p in (False, policy))
    assert allotted(again) <= allotted(plain)
