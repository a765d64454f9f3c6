"""Checkpoints: derivatives against JAX, and what is kept of them as compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.exact import exactly
from tests.leaves import leaf
from tests.slow import slow_but_every

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 4)) * 0.5


def nth(order: int, value: Callable[..., Any], grad: Callable[..., Any], sin: Any, total: Any) -> Callable[..., Any]:
    """A scalar made of all gradients of order `order`, each of which depends on all of the one before."""
    if not order:
        return value
    below = nth(order - 1, value, grad, sin, total)

    def of(*args: Any) -> Any:
        first, second = grad(below, *args)
        return total(sin(first)) + total(second * second)

    return of


def ours(order: int, value: Callable[..., Any]) -> float:
    """By nngrad."""
    leaves = [leaf(X), leaf(W)]
    return float(nth(order, value, lambda f, *a: nn.grad(f(*a), a), F.sin, F.sum)(*leaves).d)


def theirs(order: int, value: Callable[..., Any]) -> float:
    """By JAX."""
    return float(exactly(nth(order, value, lambda f, *a: jax.grad(f, (0, 1))(*a), jnp.sin, jnp.sum), X, W))


def in_a_row(m: Any, checkpoint: Any, scan: Any) -> Callable[..., Any]:
    """Two checkpoints, the second of a function that reads from outside."""
    def value(x: Any, w: Any) -> Any:
        h = checkpoint(lambda a, b: m.tanh(a @ b))(x, w)
        return m.sum(checkpoint(lambda h: m.tanh(h @ w) * h)(h) ** 2)
    return value


def nested(m: Any, checkpoint: Any, scan: Any) -> Callable[..., Any]:
    """A checkpoint in a checkpoint, of pytrees."""
    def inner(a: Any) -> Any:
        return {"h": m.sin(a["h"] @ a["w"]), "w": a["w"]}
    def value(x: Any, w: Any) -> Any:
        out = checkpoint(lambda a: checkpoint(inner)(inner(a)))({"h": x, "w": w})
        return m.sum(out["h"] * out["h"]) + m.sum(out["w"])
    return value


def in_a_scan(m: Any, checkpoint: Any, scan: Any) -> Callable[..., Any]:
    """A scan of checkpointed steps."""
    def value(x: Any, w: Any) -> Any:
        step = checkpoint(lambda h, s: (m.tanh(h @ w) + s, m.sum(h * h)))
        h, ys = scan(step, x, m.stack((x, x * 0.5, x * x)) if m is jnp else F.stack(x, x * 0.5, x * x))
        return m.sum(h**3) + m.sum(m.sin(ys))
    return value


def of_a_scan(m: Any, checkpoint: Any, scan: Any) -> Callable[..., Any]:
    """A checkpoint of a scan in a scan."""
    def value(x: Any, w: Any) -> Any:
        inner = checkpoint(lambda h: scan(lambda h, _: (m.tanh(h @ w), None), h, None, length=2)[0])
        return m.sum(scan(lambda h, _: (inner(h) * 1.5, None), x, None, length=3)[0] ** 2)
    return value


CASES = [(make, order) for make in (in_a_row, nested, in_a_scan) for order in range(4)]
CASES += [(of_a_scan, order) for order in range(3)]


@pytest.mark.parametrize(("make", "order"), slow_but_every(3, CASES), ids=lambda v: getattr(v, "__name__", v))
def test_derivatives_are_those_of_the_function(make: Any, order: int) -> None:
    expected = theirs(order, make(jnp, lambda f: f, jax.lax.scan))
    assert ours(order, make(F, nn.checkpoint, F.scan)) == pytest.approx(expected, rel=1e-11)


def test_forward_mode_is_that_of_the_function() -> None:
    x, v = leaf(X), leaf(RNG.standard_normal(X.shape))
    (found,) = nn.jvp(nn.checkpoint(lambda x: F.tanh(x @ leaf(W)) * x)(x), x, v)
    with jax.enable_x64(True):
        expected = jax.jvp(lambda x: jnp.tanh(x @ W) * x, (X,), (v.d,))[1]
    np.testing.assert_allclose(found.d, expected, rtol=1e-12)


def compiled(checkpoint: Any, order: int) -> int:
    """Bytes of temporaries, in units of one activation, of 16 layers in checkpoints of 4."""
    x = Variable((256, 16))
    weights = [Variable((16, 16), need_grad=True) for _ in range(16)]

    def part(h: Any, *ws: Any) -> Any:
        for w in ws:
            h = F.tanh(F.affine(h, w))
        return h

    h = x
    for i in range(0, 16, 4):
        h = checkpoint(part)(h, *weights[i : i + 4])
    loss = F.sum(h**2)
    gradients = nn.grad(loss, weights)
    if order == 2:
        gradients = nn.grad(F.sum(gradients[0] ** 2), weights)
    nbytes = nn.memory_report([loss, *gradients]).compiled
    assert nbytes is not None
    return nbytes // (256 * 16 * 4)


@pytest.mark.parametrize("order", [1, 2])
def test_less_is_kept_as_compiled(order: int) -> None:
    assert compiled(nn.checkpoint, order) <= 0.55 * compiled(lambda f: f, order)


def test_what_is_drawn_is_drawn_once() -> None:
    x = leaf(np.ones((50, 4)))
    y = nn.checkpoint(lambda x: F.dropout(x * x, 0.5))(x)
    (g,) = nn.grad(y, x)
    nn.forward_all([y, g])
    np.testing.assert_array_equal(g.d, 2 * y.d)
    assert 0 < np.mean(y.d == 0) < 1


def test_bad_input_is_refused() -> None:
    with pytest.raises(TypeError, match="checkpoint: fun must be a function of Variables, got 3"):
        nn.checkpoint(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot read a value in the body of checkpoint"):
        nn.checkpoint(lambda x: x * float(x.d[0, 0]))(leaf(X))
