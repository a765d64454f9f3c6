"""Every fact that an op is declared with, by numbers; every sample by every route; and that a wrong fact is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
from backward_registry import backward
from nngrad.gradient.pushforward import Pushforward
from nngrad.gradient.walk import sum_of
from nngrad.graph import Op, Variable
from nngrad.graph.arguments import Axes, Static
from nngrad.graph.axes import contracts, inserts, mixes, reduces, rows, rowwise

from .facts import Case, check_diagonal, checks, near
from .oracle import as_tuple, is_floating, runner
from .samples import Sample, all_samples

OF_OPS = [sample for sample in all_samples() if isinstance(getattr(F, sample.name), Op)]


def drawn(sample: Sample) -> list[Any]:
    rng = np.random.default_rng(7)
    return [draw(rng) for draw in sample.inputs]


def case_of(sample: Sample) -> Case:
    """The sample as an application of its op."""
    each: Op = getattr(F, sample.name)
    arrays = drawn(sample)
    f = as_tuple(each(*map(Variable.from_numpy_array, arrays), **sample.arguments))[0].parent
    return Case(each, arrays, f.arguments)


@pytest.mark.parametrize("sample", OF_OPS, ids=lambda s: s.id)
def test_facts(sample: Sample) -> None:
    case = case_of(sample)
    for check in checks.values():
        check(case)


def test_every_kind_of_fact_is_shown_by_some_sample() -> None:
    cases = [case_of(sample) for sample in OF_OPS if sample.name in SHOWING]
    assert {name for name, check in checks.items() if any([check(case) for case in cases])} == set(checks)


SHOWING = {"after", "mul2", "softmax", "linear_combination", "sqrt", "tanh", "sub2", "less", "where", "reshape", "mean",
           "batch_matmul", "transpose"}


def declared(fact: str) -> list[str]:
    """Names of the ops that are declared to be something."""
    return [name for name in F.names() if isinstance(getattr(F, name), Op) and getattr(getattr(F, name), fact)]


def test_no_heavy_op_is_without_a_product() -> None:
    seen = {sample.name for sample in OF_OPS if getattr(F, sample.name).heavy and checks["cost"](case_of(sample))}
    assert seen == set(declared("heavy"))


NOT_DECLARED_DIAGONAL: dict[str, str] = {}
"""Ops whose samples all have a diagonal Jacobian and that are not declared to have, each with the reason."""


def test_no_diagonal_op_is_forgotten() -> None:
    """An op whose every sample is diagonal, and the same at all places, is declared so."""
    found = set()
    for name in F.names():
        each = getattr(F, name)
        cases = [case_of(sample) for sample in OF_OPS if sample.name == name]
        if not isinstance(each, Op) or each.diagonal or each.several or each.reads or not each.input_names:
            continue
        shown = False
        for case in cases:
            f = case.function
            if not case.floating or any([x.shape != f.specs[0].shape for x in f.inputs]) or case.arrays[0].size < 2:
                break
            copy = Op(each.forward, diagonal=True, several=each.several)
            try:
                shown = check_diagonal(case._replace(op=copy)) or shown
            except AssertionError:
                break
        else:
            if shown:
                found.add(name)
    assert found == set(NOT_DECLARED_DIAGONAL)


# ---------------------------------------------------------------- every sample by every route


@pytest.mark.parametrize("sample", [s for s in OF_OPS if s.orders and not s.surrogate and s.inputs], ids=lambda s: s.id)
def test_routes(sample: Sample) -> None:
    """Tangents of orders 1 and 2, forward, against the reference's; and nested gradients by the route that `nn.grad`
    takes, where rows or elements are shown to be independent, against those by the plain walk."""
    arrays = drawn(sample)
    leaves = [Variable.from_numpy_array(x) for x in arrays]
    moving = [x for x in leaves if is_floating(x)]
    rng = np.random.default_rng(8)
    directions = [rng.standard_normal(x.shape) for x in moving]
    tangents = [Variable.from_numpy_array(t) for t in directions]
    outputs = [y for y in as_tuple(getattr(F, sample.name)(*leaves, **sample.arguments)) if y.spec.differentiable]
    orders = min(sample.orders, 2)
    forward = [outputs]
    for _ in range(orders):
        forward.append(Pushforward()(forward[-1], moving, tangents))
    routes = []
    for options in ({}, {"aggregate": sum_of}):
        level = outputs
        for _ in range(orders):
            level = [y for x in moving for y in nn.grad(level, x, **options)]
        routes.append(level)
    first, *moved, chosen, plain = runner([*forward, *routes], leaves)(arrays)

    def at(*xs: Any) -> tuple[Any, ...]:
        given = iter(xs)
        full = [next(given) if is_floating(a) else a for a in arrays]
        return tuple([y for y in as_tuple(sample.reference(*full)) if is_floating(y)])

    def along(h: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *xs: jax.jvp(h, xs, tuple(map(jnp.asarray, directions)))[1]

    def levels(*xs: Any) -> list[Any]:
        h, results = at, []
        for _ in range(orders):
            h = along(h)
            results.append(h(*xs))
        return results

    with jax.enable_x64(True):
        theirs = jax.jit(levels)(*[jnp.asarray(a) for a in arrays if is_floating(a)])
    for order, (ours, reference) in enumerate(zip(moved, theirs, strict=True), start=1):
        for a, b in zip(ours, reference, strict=True):
            near(a, np.asarray(b), f"forward, order {order}")
    for a, b in zip(chosen, plain, strict=True):
        near(a, b, f"nested gradients, order {orders}")


# ---------------------------------------------------------------- what is wrong is found


X, Y = np.linspace(-1.1, 1.7, 6).reshape(2, 3), np.linspace(0.3, 2.0, 6).reshape(2, 3)
SQUARE = np.linspace(0.3, 2.0, 9).reshape(3, 3)
WRONG: dict[str, tuple[str, Case]] = {}


def wrong(kind: str, *arrays: Any, arguments: tuple[Any, ...] = (), **facts: Any) -> Callable[[Any], None]:
    """The decorated function as an op that is declared with facts of which one, of this kind, is wrong."""

    def enter(forward: Any) -> None:
        WRONG[forward.__name__] = kind, Case(Op(forward, **facts), list(arrays), arguments)

    return enter


@wrong("diagonal", X, diagonal=True)
def running_sum(x, /):
    return lax.cumsum(x, x.ndim - 1)


@wrong("diagonal", X, diagonal=True)
def differs_from_place_to_place(x, /):
    return x * jnp.arange(3.0)


@wrong("rows", X, arguments=(1,), axes=rowwise("()->()"))
def mixes_an_axis(x, /, axis: int):
    return jax.nn.softmax(x, axis)


@wrong("rows", X, arguments=(None,), axes=mixes("axis", none=0))
def none_is_another_axis(x, /, axis: int | None):
    return jax.nn.softmax(x, -1)


@wrong("rows", X, arguments=(1,), axes=reduces("axis"))
def reduces_and_flips(x, /, axis: int):
    return jnp.flip(x.sum(axis))


@wrong("rows", X, Y, arguments=(0,), axes=inserts("axis"))
def inserts_and_flips(*x, axis: int):
    return jnp.stack(x, axis)[:, ::-1]


@wrong("rows", SQUARE, SQUARE, axes=rows())
def sums_over_rows(a, b, /):
    return a.T @ b


@wrong("rows", SQUARE, SQUARE, axes=contracts(lambda f: (((1, 0), (1, 2)), (0, 2))))
def other_indices(a, b, /):
    return a @ b


@wrong("batching", X, axes=rowwise("()->()"))
def too_few_last_axes(x, /):
    return lax.cumsum(x, x.ndim - 1)


@wrong("batching", X, arguments=(0,), axes=mixes("axis"))
def no_heed_of_the_argument(x, /, axis: int):
    return jax.nn.softmax(x, 0)


@wrong("linear", X, linear=True)
def square(x, /):
    return x * x


@wrong("linear", X, Y, linear="each")
def linear_in_the_first_alone(a, b, /):
    return a * b * b


@wrong("linear", X, Y, linear="together")
def linear_in_each_alone(a, b, /):
    return a * b


@wrong("linear", X, Y, X, linear=(0, 1))
def linear_in_others(a, b, c, /):
    return a * b + c


@wrong("offset", X, arguments=(1.5,), linear="together", offset="val")
def adds_it_twice(x, /, val: float):
    return x + 2 * val


@wrong("weights", X, Y, arguments=((2.0, 3.0),), weights="coefficients")
def weighs_twice(*x, coefficients: Static):
    return sum([c * c * each for c, each in zip(coefficients, x, strict=True)])


@wrong("powers", X, powers=lambda f: (3,))
def another_power(x, /):
    return x * x


@wrong("bounded", Y, diagonal=True)
def root(x, /):
    return lax.sqrt(x)


backward(WRONG["root"][1].op)(lambda f, gy: gy * 0.5 * f.inputs[0] ** -0.5)


@wrong("elementwise", X, elementwise=True)
def another_dtype(x, /):
    return x.astype(jnp.float16)


@wrong("broadcasts", SQUARE, SQUARE, broadcasts=True)
def another_shape(a, b, /):
    return a[:, 0] * b[0]


@wrong("truth", X, truth=lambda x: x < 0)
def positive(x, /):
    return jnp.where(x > 0, 1.0, 0.0)


@wrong("selects", np.ones((2, 3)), X, Y, selects=True)
def above_three(c, x, y, /):
    return jnp.where(c > 3, x, y)


@wrong("view", X, view=True)
def another_order(x, /):
    return x[::-1]


@wrong("view", X, passes=True)
def passed_on_in_another_shape(x, /):
    return x.reshape(-1)


@wrong("reads", X, Y, reads=1)
def reads_both(x, y, /):
    return x + y


@wrong("reduction", X, arguments=((0,), False), axes=reduces("axis"), reduction="max")
def adds(x, /, axis: Axes, keepdims: bool = False):
    return jnp.sum(x, axis, keepdims=keepdims)


@wrong("cost", SQUARE, SQUARE)
def light_product(a, b, /):
    return a @ b


@wrong("cost", SQUARE, SQUARE, cost=lambda f: 1)
def cheap_product(a, b, /):
    return a @ b @ a


@wrong("cost", SQUARE, SQUARE, cost=lambda f: 10**9)
def dear_product(a, b, /):
    return a @ b


@wrong("moving", X, fuses="moving")
def computes(x, /):
    return x * x


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fact_is_found(name: str) -> None:
    kind, case = WRONG[name]
    with pytest.raises(AssertionError):
        checks[kind](case)


def test_every_check_is_shown_to_fail() -> None:
    assert {kind for kind, _ in WRONG.values()} == set(checks)
