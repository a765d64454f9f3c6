"""The cases: small graphs of each kind of derivative, of which nothing is drawn and nothing is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF

Build = Callable[[], list[nn.Variable]]
ACTIVATIONS = (F.tanh, F.sigmoid, F.gelu, F.softplus)
ORDERS = (1, 2, 3, 4)


def cases() -> Iterator[tuple[str, Build]]:
    """Each case's name, and what builds its graph."""
    for f in ACTIVATIONS:
        for order in ORDERS:
            yield f"{f.name} network, derivative {order}", lambda f=f, order=order: _derivative(f, order)
        yield f"{f.name} network, gradient penalty", lambda f=f: _penalty(lambda x: _network(x, f), (5, 3))
    for operator in (nn.laplacian, nn.hessian, nn.jacobian, nn.hessian_diagonal, nn.bilaplacian):
        yield f"tanh network, {operator.__name__}", lambda o=operator: [o(_network(x := _points(), F.tanh), x)]
    yield "tanh network, Hessian times a vector", _hessian_vector
    yield "tanh network, derivative 6", lambda: _derivative(F.tanh, 6)
    for recompute in ("sqrt", "auto"):
        yield f"deep network, recomputed by {recompute!r}", lambda r=recompute: _deep(r)
    yield "convolutional network, gradients", lambda: _gradients(F.mean(_convolutional(_images()) ** 2))
    yield "convolutional network, gradient penalty", lambda: _penalty(_convolutional, (2, 1, 6, 6))
    yield "batch normalisation, gradient penalty", lambda: _penalty(_normalised, (6, 4))
    yield "layer normalisation, gradient penalty", lambda: _penalty(_layer_normalised, (6, 4))
    yield "attention, gradients", lambda: _gradients(F.mean(_attention(_sequence()) ** 2))
    yield "attention, gradient penalty", lambda: _penalty(_attention, (5, 2, 8))
    for order in (1, 2, 3):
        yield f"scan, derivative {order}", lambda order=order: _scan(order)
    yield "while loop by steps, derivative 2", _for_loop
    yield "meta-gradient through 3 steps", _meta
    yield "cross entropy, derivative 2", _cross_entropy
    yield "function of JAX, derivative 3", _of_jax
    yield "root, gradient", _root


def _filled(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.sin(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape).astype(np.float32)


def _leaf(*shape: int) -> nn.Variable:
    return nn.Variable.from_numpy_array(_filled(*shape), need_grad=True)


def _points() -> nn.Variable:
    return _leaf(5, 3)


def _images() -> nn.Variable:
    return _leaf(2, 1, 6, 6)


def _sequence() -> nn.Variable:
    return _leaf(5, 2, 8)


def _network(x: nn.Variable, f: Any) -> nn.Variable:
    h = f(PF.affine(x, 8, name="a"))
    return PF.affine(f(PF.affine(h, 8, name="b")), 1, name="c")


def _convolutional(x: nn.Variable) -> nn.Variable:
    h = F.average_pooling(F.leaky_relu(PF.convolution(x, 4, (3, 3), name="a")), (2, 2))
    return PF.affine(h, 1, name="b")


def _normalised(x: nn.Variable) -> nn.Variable:
    return PF.affine(F.tanh(PF.batch_normalization(PF.affine(x, 8, name="a"), name="bn")), 1, name="b")


def _layer_normalised(x: nn.Variable) -> nn.Variable:
    return PF.affine(F.tanh(PF.layer_normalization(PF.affine(x, 8, name="a"), name="ln")), 1, name="b")


def _attention(x: nn.Variable) -> nn.Variable:
    return PF.multi_head_attention(x, x, x, num_heads=2, name="a")[0]


def _parameters() -> list[nn.Variable]:
    return list(nn.get_parameters().values())


def _gradients(loss: nn.Variable) -> list[nn.Variable]:
    return nn.grad([loss], _parameters())


def _derivative(f: Any, order: int) -> list[nn.Variable]:
    x = _points()
    y = F.sum(_network(x, f))
    for _ in range(order):
        (g,) = nn.grad([y], [x])
        y = F.sum(g)
    return [g]


def _penalty(critic: Callable[[nn.Variable], nn.Variable], shape: tuple[int, ...]) -> list[nn.Variable]:
    x = _leaf(*shape)
    (slope,) = nn.grad([F.sum(critic(x))], [x])
    return _gradients(F.mean((F.sum(slope**2, axis=1) ** 0.5 - 1) ** 2))


def _hessian_vector() -> list[nn.Variable]:
    loss = F.mean(_network(_points(), F.tanh) ** 2)
    parameters = _parameters()
    return nn.hvp([loss], parameters, [nn.Variable.from_numpy_array(_filled(*p.shape)) for p in parameters])


def _deep(recompute: str) -> list[nn.Variable]:
    h = _leaf(4, 8)
    for i in range(8):
        h = F.tanh(PF.affine(h, 8, name=str(i)))
    return nn.grad([F.mean(h**2)], _parameters(), recompute=recompute)


def _scan(order: int) -> list[nn.Variable]:
    w = _leaf(8, 8)

    def body(h: nn.Variable, x: nn.Variable) -> tuple[nn.Variable, nn.Variable]:
        h = F.tanh(F.affine(h, w) + x)
        return h, h

    y = F.sum(F.scan(body, _leaf(2, 8), _leaf(6, 2, 8))[1] ** 2)
    for _ in range(order):
        (g,) = nn.grad([y], [w])
        y = F.sum(g**2)
    return [g]


def _for_loop() -> list[nn.Variable]:
    x = _leaf(3)
    y = F.fori_loop(0, 4, lambda _, v: F.sin(v) * 1.1, x)
    (g,) = nn.grad([F.sum(y)], [x])
    return nn.grad([F.sum(g**2)], [x])


def _meta() -> list[nn.Variable]:
    x, t = _leaf(5, 3), nn.Variable.from_numpy_array(_filled(5, 1))
    start = w = _leaf(3, 1)
    for _ in range(3):
        (g,) = nn.grad([F.mean((F.tanh(F.affine(x, w)) - t) ** 2)], [w])
        w = w - 0.1 * g
    return nn.grad([F.mean((F.tanh(F.affine(x, w)) - t) ** 2)], [start])


def _cross_entropy() -> list[nn.Variable]:
    x, t = _leaf(4, 5), nn.Variable.from_numpy_array(np.array([[0], [3], [1], [4]]))
    (g,) = nn.grad([F.mean(F.softmax_cross_entropy(x, t))], [x])
    return nn.grad([F.sum(g**2)], [x])


def _of_jax() -> list[nn.Variable]:
    x = _leaf(5)
    y = F.sum(nn.from_jax(lambda v: jnp.tanh(jnp.sin(v) * v))(x))
    for _ in range(3):
        (g,) = nn.grad([y], [x])
        y = F.sum(g)
    return [g]


def _root() -> list[nn.Variable]:
    a = nn.Variable.from_numpy_array(np.array([2.0, 3.0], np.float32), need_grad=True)
    (found, *_) = nn.root(lambda v: v**2 - a, nn.Variable.from_numpy_array(np.ones(2, np.float32)))
    return nn.grad([F.sum(found)], [a])
