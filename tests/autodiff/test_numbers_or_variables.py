"""Variables where functions take numbers: differentiated, or refused, and never taken for constants."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution.lower import linearize
from tests.oracle import as_tuple
from tests.references import drawn
from tests.samples import all_samples
from tests.slow import slow_but_every

V = nn.Variable.from_numpy_array
X = np.array([-2.3, -0.4, 0.0, 0.3, 1.7])


def _numbers_in(value: Any) -> Iterator[tuple[float, Callable[[Any], Any]]]:
    """Numbers in an argument, each with a function that puts something else in its place."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value, lambda other: other
    elif isinstance(value, tuple | list):
        for i, each in enumerate(value[:2]):
            for number, put in _numbers_in(each):
                yield number, lambda other, i=i, put=put: type(value)([*value[:i], put(other), *value[i + 1 :]])


def test_no_argument_of_any_function_takes_a_variable_for_a_constant() -> None:
    differentiated = set()
    for name, sample in {s.name: s for s in reversed(all_samples())}.items():
        function, inputs = getattr(F, name), list(map(V, drawn(sample)))
        signature = inspect.signature(function)
        filled = signature.bind_partial(*inputs).arguments
        for p in [p for p in signature.parameters.values() if p.name not in (*filled, "inplace", "n_outputs", "dst")]:
            for number, put in _numbers_in(sample.arguments.get(p.name, p.default)):
                given = V(np.array(number, np.float64 if isinstance(number, float) else np.int32))
                try:
                    y = function(*inputs, **sample.arguments | {p.name: put(given)})
                except TypeError as error:
                    assert "Variable" in str(error), f"{name}, {p.name}: {error}"
                else:
                    assert any([leaf is given for leaf in linearize(as_tuple(y)).leaves]), f"{name}, {p.name}"
                    differentiated.add(name)
    assert len(differentiated) > 30


DIFFERENTIATED: dict[str, Callable[[Any, Any], nn.Variable]] = {
    "add_scalar": F.add_scalar, "mul_scalar": F.mul_scalar, "r_sub_scalar": F.r_sub_scalar,
    "r_div_scalar": lambda x, v: F.r_div_scalar(x + 3, v), "pow_scalar": lambda x, v: F.pow_scalar(x + 3, v),
    "r_pow_scalar": F.r_pow_scalar, "maximum_scalar": F.maximum_scalar, "minimum_scalar": F.minimum_scalar,
    "softplus": F.softplus, "elu": F.elu, "leaky_relu": F.leaky_relu, "celu": lambda x, v: F.celu(x, v, axis=0),
    "selu's scale": lambda x, v: F.selu(x, scale=v), "selu's alpha": lambda x, v: F.selu(x, alpha=v),
    "huber_loss": lambda x, v: F.huber_loss(x, 0.1 * x, delta=v),
    "epsilon_insensitive_loss": lambda x, v: F.epsilon_insensitive_loss(x, 0.1 * x, v),
    "constant": lambda x, v: x * F.constant(v, (5,), "float64"), "bool_fill": lambda x, v: F.bool_fill(x, x > 0, v),
    "reset_inf": lambda x, v: F.reset_inf(x + 1 / (x * x > 0.1), v),
    "triplet": lambda x, v: F.triplet(*F.split(F.reshape(x[:3], (3, 1, 1)) * np.ones((3, 2, 4)), axis=0), margin=v),
    "contrastive": lambda x, v: F.contrastive(F.reshape(x, (5, 1)), np.ones((5, 1)), np.zeros(5), margin=v),
    "gumbel_softmax": lambda x, v: F.gumbel_softmax(F.reshape(x, (1, 5)), v, seed=3),
    "randn": lambda x, v: x * F.randn(v, 2, (5,), seed=3), "rand": lambda x, v: x * F.rand(-1, v, (5,), seed=3),
    "attention": lambda x, v: F.attention(*[F.reshape(x, (1, 1, 5, 1))] * 3, scale=v),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but_every(3, DIFFERENTIATED))
def test_the_function_of_the_number_is_differentiated(name: str) -> None:
    """The values and gradients are those of the function with numbers, and of differences between such."""
    function, at, step = DIFFERENTIATED[name], 0.65, 1e-5
    x, v = V(X, need_grad=True), V(np.array(at), need_grad=True)
    numbers = [function(x, number) for number in (at, at + step, at - step)]
    y = function(x, v)
    by_x, by_v = nn.grad(F.sum(y * y), [x, v])
    (expected,) = nn.grad(F.sum(numbers[0] * numbers[0]), x)
    nn.forward_all([*numbers, y, by_x, by_v, expected])
    squares = [float(np.sum(each.d.astype(np.float64) ** 2)) for each in numbers]
    single = name.startswith("rand") or name == "gumbel_softmax"  # draws float32
    np.testing.assert_allclose(y.d, numbers[0].d, rtol=2e-6 if single else 1e-12, atol=1e-12)
    np.testing.assert_allclose(by_x.d, expected.d, rtol=1e-5 if single else 1e-10, atol=1e-10)
    if not single:
        np.testing.assert_allclose(by_v.d, (squares[1] - squares[2]) / (2 * step), rtol=1e-7, atol=1e-8)


def test_in_bodies_and_rows() -> None:
    x, v = V(X, need_grad=True), V(np.array(0.65), need_grad=True)
    expected = [g.d for g in nn.grad(F.sum(F.huber_loss(x, 0 * x, delta=v)), [x, v])]
    scanned = F.scan(lambda delta, each: (delta, F.huber_loss(each, 0 * each, delta=delta)), v, x)[1]
    chosen = F.cond(v > 0, lambda a, b: F.huber_loss(a, 0 * a, delta=b), lambda a, b: a, x, v)
    rows = nn.vmap(lambda each: F.huber_loss(each, 0 * each, delta=v))(x)
    for y in (scanned, chosen, rows):
        for found, right in zip(nn.grad(F.sum(y), [x, v]), expected, strict=True):
            np.testing.assert_allclose(found.d, right, rtol=1e-12)
    for refused in (
        lambda: F.scan(lambda c, each: (c, F.norm(each, p=c)), v, F.reshape(x, (1, 5))),
        lambda: nn.vmap(lambda each: F.clip_grad_by_norm(x, each, 0))(x),
        lambda: F.fori_loop(0, V(np.array(3)), lambda i, c: c, x),
        lambda: F.sum(x, axis=V(np.array(0))),
        lambda: nn.solvers.Sgd(lr=v),
    ):
        with pytest.raises(TypeError, match="Variable"):
            refused()
    with pytest.raises(ValueError, match=r"^huber_loss\b.* do not broadcast"):
        F.huber_loss(x, x, delta=V(np.ones(3)))
