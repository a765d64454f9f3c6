"""Random programs of jax.numpy, opened: value, gradient, second and third derivative along a curve, against JAX.

`python -m tests.jax.test_random_programs 1000` tries that many.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad as nn
import nngrad.jax as nj
from nngrad.extend import Variable
from tests.oracle import compiled_cheaply

LARGEST = 24
"""Arrays of a program have at most so many elements."""


class Draw:
    """What a step of a program draws: arrays that are there, and small numbers.

    Args:
        arrays: All that the program has computed.
        numbers: What the choices follow from.
    """

    def __init__(self, arrays: list[Any], numbers: tuple[int, ...]) -> None:
        self._arrays, self._numbers = arrays, list(numbers)

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return self._numbers.pop(0) % n

    def array(self, axes: int = 0) -> Any:
        """One of the arrays, with at least so many axes."""
        x = self._arrays[-1 - self.below(len(self._arrays))]
        return x if x.ndim >= axes else jnp.reshape(x, (*[1] * (axes - x.ndim), *x.shape))

    def axis(self, x: Any) -> int:
        """One of its axes, counted from either end."""
        return self.below(2 * x.ndim) - x.ndim

    def fitting(self, x: Any) -> Any:
        """Another array in the shape of `x`, its elements repeated or left out."""
        return jnp.resize(self.array(), x.shape)

    def square(self) -> Any:
        """A matrix that has an inverse, near the identity; or two of them."""
        n = 2 + self.below(2)
        shape = (2, n, n) if self.below(2) else (n, n)
        return jnp.eye(n) + 0.2 * jnp.sin(jnp.resize(self.array(), shape))


@jax.custom_jvp
def cubed(x: Any) -> Any:
    return x**3 / 4


cubed.defjvp(lambda primals, tangents: (cubed(*primals), 0.75 * primals[0] ** 2 * tangents[0]))


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return jnp.tanh(x)


clipped.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (g * (1 - jnp.tanh(x) ** 2),))

ELEMENTWISE: list[Callable[[Any], Any]] = [
    jnp.sin, jnp.tanh, jax.nn.softplus, jax.nn.gelu, jax.nn.relu, jnp.abs, jnp.arctan, jax.nn.sigmoid, jnp.floor, cubed,
    lambda x: jnp.exp(0.3 * x), lambda x: x**2 * 0.5, lambda x: jnp.sqrt(1 + x**2), lambda x: jnp.log(2 + jnp.sin(x)),
    lambda x: 1 / (2 + x**2), lambda x: lax.stop_gradient(x), lambda x: jnp.clip(x, -1, 0.7), lambda x: -x,
    lambda x: jnp.sinh(0.2 * x), jax.scipy.special.erf, lambda x: jax.scipy.special.gammaln(2 + jnp.sin(x)),
]  # fmt: skip
PAIRS: list[Callable[[Any, Any], Any]] = [
    jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.logaddexp, jnp.hypot, jnp.arctan2,
    lambda x, y: x / (2 + y**2), lambda x, y: jnp.where(x > y, x, 2 * y), lambda x, y: (2 + jnp.sin(x)) ** y,
    lambda x, y: lax.select(x > 0.2, y, jnp.cos(x)), lambda x, y: jnp.fmod(x, 2 + jnp.sin(y)),
]  # fmt: skip
REDUCTIONS: list[Callable[..., Any]] = [
    jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.std, jax.nn.logsumexp,
    lambda x, axis, keepdims: jnp.prod(jnp.tanh(x), axis, keepdims=keepdims),
    lambda x, axis, keepdims: jnp.linalg.norm(x, axis=axis, keepdims=keepdims),
    lambda x, axis, keepdims: jnp.median(x, axis, keepdims=keepdims),
]  # fmt: skip
ALONG: list[Callable[[Any, int], Any]] = [
    jnp.cumsum, jnp.sort, jnp.flip, jnp.cumprod, jax.nn.softmax, jax.nn.log_softmax,
    lambda x, axis: jnp.roll(x, 1, axis), lambda x, axis: jnp.concatenate([x, -x], axis), lambda x, axis: jnp.diff(
        x, axis=axis, prepend=0), lambda x, axis: jnp.take(x, jnp.array([-1, 0, 0]), axis),
    lambda x, axis: lax.associative_scan(jnp.multiply, jnp.tanh(x), axis=axis % x.ndim),
    lambda x, axis: jnp.take_along_axis(x, jnp.argsort(x, axis), axis), lambda x, axis: jnp.repeat(x, 2, axis),
    lambda x, axis: jnp.stack(jnp.split(x, x.shape[axis], axis), 0).sum(1), lambda x, axis: jnp.moveaxis(x, axis, 0),
    lambda x, axis: jnp.pad(x, [(0, int(a == axis % x.ndim)) for a in range(x.ndim)], mode="edge"),
    lambda x, axis: jnp.fft.irfft(jnp.fft.rfft(x, axis=axis) * (1 + 0.5j), n=x.shape[axis], axis=axis),
    lambda x, axis: lax.cummax(x, axis % x.ndim), lambda x, axis: jax.nn.standardize(x, axis=axis, epsilon=0.1),
    lambda x, axis: lax.top_k(jnp.moveaxis(x, axis, -1), 1)[0],
]  # fmt: skip
MATRICES: list[Callable[[Any], Any]] = [
    jnp.linalg.inv, jnp.linalg.det, lambda a: jnp.linalg.slogdet(a)[1], lambda a: jnp.linalg.solve(a, a[..., :1]),
    lambda a: jnp.linalg.cholesky(a @ jnp.matrix_transpose(a)), lambda a: jnp.linalg.qr(a)[1],
    lambda a: jax.scipy.linalg.solve_triangular(a, a, lower=True), lambda a: jnp.trace(a, axis1=-2, axis2=-1),
    jnp.triu, lambda a: jnp.einsum("...ij,...kj->...ik", a, a), lambda a: jnp.linalg.matrix_power(a, 3),
    lambda a: jnp.diagonal(a, 1, -2, -1),
]  # fmt: skip


def _cond(d: Draw) -> Any:
    x, y = d.array(), d.array()
    return lax.cond(jnp.sum(x) > 0.3, lambda x: jnp.sin(x) * jnp.mean(y), lambda x: x * 0.5, x)


def _switch(d: Draw) -> Any:
    x = d.array()
    return lax.switch(jnp.argmax(x) % 3, [jnp.sin, jnp.tanh, lambda x: x * 2], x)


def _scan(d: Draw) -> Any:
    x, y = d.array(1), d.array()

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = jnp.tanh(carry + jnp.mean(row) * 0.5 + 0.1 * y)
        return carry, carry.sum() * row

    last, rows = lax.scan(step, jnp.zeros_like(y), x, reverse=bool(d.below(2)))
    return rows if d.below(2) else last


def _while(d: Draw) -> Any:
    count = d.below(3) + 1
    return lax.fori_loop(0, count, lambda i, h: jnp.sin(h) + 0.3 * i, d.array())


def _scatter(d: Draw) -> Any:
    x = d.array(1)
    at = x.at[jnp.array([0, -1, 0])]
    values = jnp.resize(d.array(), (3, *x.shape[1:]))
    return [at.add, at.subtract, at.max, at.min][d.below(4)](values)


def _scattered_once(d: Draw) -> Any:
    x = d.array(1)
    at = x.at[d.below(x.shape[0])]
    return [at.set, at.multiply][d.below(2)](jnp.resize(d.array(), x.shape[1:]))


def _gather(d: Draw) -> Any:
    x = d.array(2)
    rows = jnp.argsort(jnp.sum(x, tuple(range(1, x.ndim))))
    return [lambda: x[rows], lambda: x[:, -1], lambda: x[rows[0]], lambda: x[None, 0, ..., None], lambda: x[..., ::-1],
            lambda: x[jnp.array([[0, -1]]), 0], lambda: lax.dynamic_slice_in_dim(x, rows[-1], 1, 0),
            lambda: lax.dynamic_update_slice_in_dim(x, 2 * x[:1], rows[0], 0)][d.below(8)]()  # fmt: skip


def _product(d: Draw) -> Any:
    x, y = d.array(2), d.array(2)
    y = jnp.resize(y, (*y.shape[:-1], x.shape[-1]))
    x, y = [a.reshape(-1, a.shape[-1]) for a in (x, y)]
    return [lambda: x @ y.T, lambda: jnp.einsum("ij,kj->ikj", x, y), lambda: jnp.tensordot(x, y, (1, 1)),
            lambda: jnp.einsum("ij,kj->k", x, y), lambda: jnp.outer(x[0], y[0]), lambda: jnp.vdot(x[0], y[-1]),
            lambda: jax.vmap(jnp.dot, (None, 0))(x, y)][d.below(7)]() / 3  # fmt: skip


def _shaped(d: Draw) -> Any:
    x = d.array(2)
    return [lambda: x.reshape(-1), lambda: x.T, lambda: x.reshape(x.shape[-1], -1), lambda: jnp.swapaxes(x, 0, -1),
            lambda: jnp.expand_dims(x, 1), lambda: jnp.squeeze(x), lambda: jnp.broadcast_to(x, (2, *x.shape)),
            lambda: jnp.tile(x, 2)][d.below(8)]()  # fmt: skip


def _converted(d: Draw) -> Any:
    x = d.array()
    return [lambda: x * (x > 0), lambda: x + (10 * x).astype(jnp.int32) % 3, lambda: x * jnp.sign(x),
            lambda: jnp.round(x, 1) * x, lambda: x * jnp.sum(x > 0.1), lambda: x * jnp.any(x > 1),
            lambda: x + jnp.bitwise_and(jnp.argmin(x), 1)][d.below(7)]()  # fmt: skip


def _complex(d: Draw) -> Any:
    x = d.array()
    z = lax.complex(x, d.fitting(x))
    return [lambda: jnp.abs(z + 3), lambda: (z * jnp.conj(z + 1)).real, lambda: jnp.exp(0.3j * z).imag,
            lambda: (z / (4 + 1j + z * 0)).real, lambda: jnp.real(jnp.fft.fft(z.reshape(-1))),
            lambda: jnp.angle(5 + z)][d.below(6)]()  # fmt: skip


def _called(d: Draw) -> Any:
    x = d.array()
    return [lambda: jax.jit(lambda x: jnp.sin(x) * x)(x), lambda: jax.checkpoint(lambda x: jnp.tanh(x) ** 2)(x),
            lambda: jax.vmap(jnp.sin)(x) if x.ndim else jnp.sin(x), lambda: jax.jvp(jnp.tanh, (x,), (x,))[1],
            lambda: nj.grad(lambda x: jnp.sum(jnp.sin(x)))(x), lambda: jax.grad(lambda x: jnp.sum(cubed(x)))(x),
            lambda: clipped(x)][d.below(7)]()  # fmt: skip


STEPS: list[Callable[[Draw], Any]] = [
    lambda d: ELEMENTWISE[d.below(len(ELEMENTWISE))](d.array()),
    lambda d: (lambda x: PAIRS[d.below(len(PAIRS))](x, d.fitting(x)))(d.array()),
    lambda d: (lambda x: REDUCTIONS[d.below(len(REDUCTIONS))](x, axis=d.axis(x), keepdims=bool(d.below(2))))(
        d.array(1)),
    lambda d: (lambda x: ALONG[d.below(len(ALONG))](x, d.axis(x)))(d.array(1)),
    lambda d: MATRICES[d.below(len(MATRICES))](d.square()),
    _cond, _switch, _scan, _while, _scatter, _scattered_once, _gather, _product, _shaped, _converted, _complex, _called,
]  # fmt: skip

Program = list[tuple[int, ...]]
NUMBERS = 5
"""How many numbers a step draws at most, after that of its kind."""

PROGRAMS = st.lists(st.tuples(*[st.integers(0, 239)] * (1 + NUMBERS)), min_size=1, max_size=7)


def run(program: Program, x: Any, y: Any) -> Any:
    """What a program computes, as one number in which nothing cancels."""
    arrays = [x, y]
    for kind, *numbers in program:
        made = STEPS[kind % len(STEPS)](Draw(arrays, tuple(numbers)))
        arrays.append(made if made.size <= LARGEST else made.reshape(-1)[:LARGEST])
    total = jnp.zeros(())
    for made in arrays[2:]:
        total += jnp.sum(jnp.sin(made * 0.4 + 0.3) * (np.cos(np.arange(made.size)) + 0.5).reshape(made.shape))
    return total


def derivatives(program: Program, x: Any, y: Any, module: Any) -> Any:
    """Value, gradients, and the second and third derivative along a curve."""
    rng = np.random.default_rng(5)
    along = [rng.standard_normal(np.shape(a)) / 2 for a in (x, y)]
    function = functools.partial(run, program)

    def curve(t: Any) -> Any:
        return function(x + t * along[0], y + t * along[1])

    value, gradients = module.value_and_grad(function, (0, 1))(x, y)
    if module is nj:
        return value, *gradients, *nj.derivatives(curve, [(0, 0), (0, 0, 0)])(0.0)
    first = jax.grad(curve)  # JAX has no forward mode of functions with a custom_vjp, and of their gradients it has
    second = lambda t: jax.jvp(first, (t,), (1.0,))[1]  # noqa: E731
    return value, *gradients, *jax.jvp(second, (0.0,), (1.0,))


def check(program: Program) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 3)), rng.standard_normal(3)
    with jax.enable_x64(True):
        ours, theirs = [
            compiled_cheaply(lambda x, y, module=module: derivatives(program, x, y, module))(x, y)
            for module in (nj, jax)
        ]
        variables = [Variable.from_numpy_array(a, need_grad=True) for a in (x, y)]
        value = nn.from_jax(functools.partial(run, program))(*variables)
        gradients = compiled_cheaply(nn.to_jax([value, *nn.grad(value, variables)], variables))(x, y)
    scale = 1 + max([float(np.max(np.abs(b))) for b in theirs])
    for what, a, b in zip(("value", "by x", "by y", "second", "third"), ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10 * scale, err_msg=what)
    for a, b in zip(gradients, theirs[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * scale, err_msg="a function of Variables")


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_random_programs(program: Program) -> None:
    check(program)


def main(count: int) -> None:
    """Try so many programs, and show the smallest that fails."""
    settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)(
        given(PROGRAMS)(check)
    )()


if __name__ == "__main__":
    main(int(sys.argv[1]))
