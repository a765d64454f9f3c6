"""Loops: values and derivatives against `jax.lax`, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad.autodiff.walk import Grad
from nngrad.graph import Variable
from tests.oracle import check, compiled_cheaply, runner
from tests.slow import slow_but
from tests.together import Check, compared, together

RNG = np.random.default_rng(0)
T, N = 4, 3
X, C, W = RNG.standard_normal((T, 2, N)), RNG.standard_normal((2, N)), RNG.standard_normal((N, N)) * 0.5


def leaf(values: Any, dtype: Any = np.float64, need_grad: bool = True) -> Variable:
    """A leaf with these values."""
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad)


# ---------------------------------------------------------------- values and derivatives, to order 3


class Both(NamedTuple):
    """One way to write a function for nngrad and for JAX: F or jnp, and F.scan or lax.scan."""

    tanh: Any
    sin: Any
    exp: Any
    sum: Any
    scan: Any
    where: Any
    less: Any
    stop: Any


OURS = Both(F.tanh, F.sin, F.exp, F.sum, F.scan, F.where, F.less, F.unlink)
THEIRS = Both(jnp.tanh, jnp.sin, jnp.exp, jnp.sum, lax.scan, jnp.where, jnp.less, lax.stop_gradient)


def recurrent(m: Both, x: Any, c: Any, w: Any) -> Any:
    """One carry, what is scanned, and what is captured."""
    return m.scan(lambda h, x: (lambda y: (y, y * y))(m.tanh(h @ w + x)), c, x)


def backwards(m: Both, x: Any, c: Any, w: Any) -> Any:
    """From the last slice to the first."""
    return m.scan(lambda h, x: (m.sin(h @ w) * x, h), c, x, reverse=True)


def unrolled(m: Both, x: Any, c: Any, w: Any) -> Any:
    """Several steps as one."""
    return m.scan(lambda h, x: (m.sin(h) @ w + x, None), c, x, unroll=2)[0]


def several_carries(m: Both, x: Any, c: Any, w: Any) -> Any:
    """A pytree of carries, one of which turns into another."""
    def step(carry: Any, x: Any) -> Any:
        return {"a": carry["b"] * m.sin(carry["a"]), "b": carry["a"] + x @ w}, (carry["b"], {"z": x * carry["a"]})
    last, (b, z) = m.scan(step, {"a": c, "b": c * 0.5}, x)
    return last["a"], last["b"], b, z["z"]


def integer_carry(m: Both, x: Any, c: Any, w: Any) -> Any:
    """A counter among the carries, on which something depends."""
    def step(carry: Any, x: Any) -> Any:
        i, h = carry
        return (i + 1, m.where(m.less(i, 2), m.sin(h) @ w, h * x)), h
    return m.scan(step, (np.int32(0), c), x)[1]


def without_slices(m: Both, x: Any, c: Any, w: Any) -> Any:
    """Nothing is scanned."""
    return m.scan(lambda h, _: (m.tanh(h @ w) + x[0], h), c, None, length=3)


def without_carry(m: Both, x: Any, c: Any, w: Any) -> Any:
    """Nothing is carried."""
    return m.scan(lambda _, x: (None, m.exp(x * 0.3) @ w), None, x)[1]


def passed_on(m: Both, x: Any, c: Any, w: Any) -> Any:
    """What goes in comes out: a carry, a slice, and what is captured."""
    return m.scan(lambda h, x: ((h[1], h[0], x), (h[0], x, w, h[0])), (c, c * c, c), x)


def captured_in_the_middle(m: Both, x: Any, c: Any, w: Any) -> Any:
    """What is captured is computed before, and is used after."""
    v = m.sin(w)
    return m.sum(m.scan(lambda h, x: (m.tanh(h @ v) * x, None), c, x)[0]) * m.sum(v)


def constant_within(m: Both, x: Any, c: Any, w: Any) -> Any:
    """What depends on nothing that changes from step to step."""
    return m.scan(lambda h, x: (h @ m.exp(w) * 0.1 + x, m.sum(w * w)), c, x)


def nested(m: Both, x: Any, c: Any, w: Any) -> Any:
    """A loop in a loop, over the same rows."""
    def inner(h: Any, row: Any) -> Any:
        return m.tanh(h + row) * row, h
    def step(h: Any, x: Any) -> Any:
        last, stack = m.scan(inner, h[0], x @ w)
        return h * 0.5 + m.sin(last), stack
    return m.scan(step, c, x)


def stopped(m: Both, x: Any, c: Any, w: Any) -> Any:
    """A part through which no gradient goes."""
    return m.scan(lambda h, x: (m.tanh(h @ w) * m.stop(m.sin(h)) + x, h), c, x)


def stacked_only(m: Both, x: Any, c: Any, w: Any) -> Any:
    """The last carry is not read."""
    return m.scan(lambda h, x: (h * 0.9 + x, m.sin(h) @ w), c, x)[1]


SCANS = [recurrent, backwards, unrolled, several_carries, integer_carry, without_slices, without_carry, passed_on,
         captured_in_the_middle, constant_within, nested, stopped, stacked_only]  # fmt: skip


def flat(function: Callable[..., Any], m: Both) -> Callable[..., tuple[Any, ...]]:
    """The results as a tuple."""
    return lambda *xs: tuple(jax.tree.leaves(function(m, *xs)))


@pytest.mark.parametrize("function", SCANS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("length", slow_but([T], [0, 1, T]))
@together
def test_scan_to_order_3(function: Callable[..., Any], length: int) -> Check:
    if function is without_slices and length == 0:
        return  # it reads the first slice
    orders, numeric = 3 if length == T else 1, function is not stopped
    yield from compared(flat(function, OURS), flat(function, THEIRS), [X[:length], C, W], orders, numeric=numeric)


# ---------------------------------------------------------------- forward, and by whatever route is taken


def results_of(function: Callable[..., Any], *leaves: Variable) -> list[Variable]:
    """The floating results of a function for nngrad."""
    return [y for y in flat(function, OURS)(*leaves) if y.spec.differentiable]


# ---------------------------------------------------------------- how many loops


def loss_of(x: Variable, c: Variable, w: Variable) -> Variable:
    """A number that a recurrent network gives."""
    h, ys = recurrent(OURS, x, c, w)
    return F.sum(F.sin(h)) + F.sum(ys * ys)


def test_a_tangent_ends_where_its_carry_is_set_anew() -> None:
    c, x = leaf(C), leaf(X)
    (first, second), ys = F.scan(lambda h, x: ((F.cos(x), h[1] * F.sin(h[0])), h[0] * x), (c, c * c), x)
    found = nn.jvp([first, second, ys], c, np.ones_like(C))

    def theirs(c: Any) -> Any:
        (first, second), ys = lax.scan(lambda h, x: ((jnp.cos(x), h[1] * jnp.sin(h[0])), h[0] * x), (c, c * c), X)
        return first, second, ys

    with jax.enable_x64(True):
        _, expected = jax.jvp(theirs, (C,), (np.ones_like(C),))
    for t, by_jax in zip(found, expected, strict=True):
        np.testing.assert_allclose(t.d, by_jax, rtol=1e-12, atol=1e-15)
    assert not found[0].d.any() and found[1].d.any() and not found[2].d[1:].any()


def test_loops_are_told_apart_by_what_their_carries_become() -> None:
    """Several loops that start alike: as one, each with its own results."""
    x, c = leaf(X), leaf(C)
    loops = [F.scan(lambda h, x, k=k: ((h[0] * k + x, h[1] + h[0]), h[1]), (c, c), x) for k in (1.0, 1.0, 2.0)]
    outputs = [y for (a, b), ys in loops for y in (a, b, ys)]
    nn.forward_all(outputs)
    for k, ((a, b), ys) in zip((1.0, 1.0, 2.0), loops, strict=True):
        with jax.enable_x64(True):
            start = jnp.asarray(C)
            expected = lax.scan(lambda h, x, k=k: ((h[0] * k + x, h[1] + h[0]), h[1]), (start, start), X)
        for ours, theirs in zip((a, b, ys), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours.d, theirs)


# ---------------------------------------------------------------- what is in a body


def test_a_gradient_in_a_body() -> None:
    """Steps of gradient descent, and the gradient of where they lead."""
    def ours(c: Any, w: Any) -> Any:
        def step(p: Any, _: Any) -> Any:
            (g,) = nn.grad(F.sum(F.sin(p @ w) ** 2), p)
            return p - 0.1 * g, F.sum(g * g)
        return F.scan(step, c, length=3)

    def theirs(c: Any, w: Any) -> Any:
        def step(p: Any, _: Any) -> Any:
            g = jax.grad(lambda p: jnp.sum(jnp.sin(p @ w) ** 2))(p)
            return p - 0.1 * g, jnp.sum(g * g)
        return lax.scan(step, c, None, length=3)

    check(ours, theirs, [C, W], 3)


def test_what_is_drawn_outside_is_the_same_at_each_step() -> None:
    noise = F.randn(shape=(3,))
    ys = F.map(lambda x: x + noise, Variable((5, 3)))
    assert len(np.unique(ys.d)) == 3


def test_64_bits_within_a_body_alone() -> None:
    ys = F.map(lambda x: F.cast(F.cast(x, "float64") * (1 + 2.0**-40) - x, "float32"), leaf(np.ones(3), np.float32))
    np.testing.assert_array_equal(ys.d, np.full(3, 2.0**-40, np.float32))


def test_numbers_and_arrays_in_the_carry_take_the_dtype_of_the_variables() -> None:
    (a, b), _ = F.scan(lambda carry, x: ((carry[0] + F.sum(x), carry[1] * 2.0), None), (0.0, np.ones(2)), leaf(X))
    assert (a.dtype, b.dtype) == (np.float64, np.float64)
    np.testing.assert_allclose(a.d, X.sum())


# ---------------------------------------------------------------- with the rest of nngrad


def test_backward_training_and_jax() -> None:
    x, c, w = leaf(X), leaf(C), leaf(W)
    y = loss_of(x, c, w)
    expected = nn.grad(y, w)[0].d
    y.forward()
    y.backward()
    np.testing.assert_allclose(w.g, expected)
    with jax.enable_x64(True):
        run = nn.to_jax(y, [x, c, w])
        np.testing.assert_allclose(compiled_cheaply(run)(X, C, W), y.d)
    np.testing.assert_allclose(nn.hvp(y, w, W)[0].d, nn.jvp(nn.grad(y, w), w, W)[0].d)


def test_derivatives_of_all_kinds_and_recomputation() -> None:
    x, c, w = leaf(X), leaf(C), leaf(W)
    last = F.scan(lambda h, x: (F.tanh(h @ w + x), None), c, x)[0]
    with jax.enable_x64(True):
        def theirs(c: Any) -> Any:
            return lax.scan(lambda h, x: (jnp.tanh(h @ W + x), None), c, X)[0]
        expected = jax.jacobian(theirs)(jnp.asarray(C))
    np.testing.assert_allclose(nn.jacobian(last, c, batched=False).d, expected, atol=1e-12)
    (gw,) = nn.grad(loss_of(x, c, w), w)
    (again,) = nn.grad(loss_of(x, c, w), w, recompute="sqrt")
    np.testing.assert_allclose(again.d, gw.d)
    with nn.recompute():
        marked = loss_of(x, c, w)
    np.testing.assert_allclose(nn.grad(marked, w)[0].d, gw.d)


def test_op_by_op_and_at_once() -> None:
    x, c, w = leaf(X), leaf(C), leaf(W)
    y = loss_of(x, c, w)
    (gw,) = nn.grad(y, w)
    expected = gw.d
    seen: list[str] = []
    gw.forward(function_post_hook=lambda f: seen.append(f.name))
    np.testing.assert_allclose(gw.d, expected)
    assert seen.count("scan_of_body") == 2
    with nn.auto_forward():
        (eager,) = nn.grad(loss_of(x, c, w), w)
        np.testing.assert_allclose(eager.d, expected)
    with nn.simplify(False):
        np.testing.assert_allclose(nn.grad(nn.grad(y, w)[0], w)[0].d, nn.grad(gw, w)[0].d)


def test_gradients_stop_where_the_user_says() -> None:
    x, c, w = leaf(X), leaf(C), leaf(W)

    def step(h: Variable, x: Variable) -> Any:
        with nn.no_grad():
            scale = F.exp(h)
        return F.sin(h @ w) * scale + x, None

    (gc,) = nn.grad(F.sum(F.scan(step, c, x)[0]), c)

    def theirs(c: Any) -> Any:
        return jnp.sum(lax.scan(lambda h, x: (jnp.sin(h @ W) * lax.stop_gradient(jnp.exp(h)) + x, None), c, X)[0])

    with jax.enable_x64(True):
        np.testing.assert_allclose(gc.d, jax.grad(theirs)(jnp.asarray(C)))
    assert nn.grad(F.sum(F.scan(step, c, x)[0]), c, stop_gradients=[c], unreachable="none") is not None


def test_fori_loop_and_map() -> None:
    c, w = leaf(C), leaf(W)
    check(lambda c: F.fori_loop(2, 5, lambda i, h: F.sin(h) * F.cast(i, "float64"), c),
          lambda c: lax.fori_loop(2, 5, lambda i, h: jnp.sin(h) * i, c), [C], 3)  # fmt: skip
    assert F.fori_loop(3, 3, lambda i, h: h * 2, c).d.tolist() == C.tolist()
    check(lambda x, w: F.map(lambda row: (F.tanh(row @ w), row), x),
          lambda x, w: lax.map(lambda row: (jnp.tanh(row @ w), row), x), [X, W], 3)  # fmt: skip
    del w


# ---------------------------------------------------------------- what is refused


def bad(body: Callable[..., Any], init: Any = None, xs: Any = None, **options: Any) -> Callable[[], Any]:
    """A call that is to be refused."""
    start = Variable((2, 3)) if init is None else init
    return lambda: F.scan(body, start, Variable((4, 3)) if xs is None else xs, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (bad(lambda h, x: (h[0], x)), ValueError, r"keep the type of carry, float32\[2, 3\], got float32\[3\]"),
        (bad(lambda h, x: (F.cast(h, "float64"), x)), TypeError, r"carry, float32\[2, 3\], got float64\[2, 3\]"),
        (
            bad(lambda h, x: ({"a": h["a"], "b": F.sum(h["b"])}, x), {"a": Variable(()), "b": Variable((2,))}),
            ValueError, r"the body must keep the type of carry\['b'\], float32\[2\], got float32\[\]",
        ),
        (
            bad(lambda h, x: (h, x[0]), xs=(Variable((4, 3)), Variable((5, 3)))),
            ValueError, r"xs\[1\] must have 4 slices along axis 0, like xs\[0\], got 5",
        ),
        (lambda: F.scan(lambda h, x: (h, x), Variable(())), ValueError, "length, the number of steps, is required"),
        (lambda: F.fori_loop(0, 2.5, lambda i, h: h, Variable(())), TypeError, "upper must be an int, got 2.5"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_what_leaves_a_body_otherwise_has_no_value() -> None:
    left: list[Variable] = []
    F.scan(lambda h, x: (left.append(F.sin(h)) or h, None), leaf(C), leaf(X))  # type: ignore[func-returns-value]
    with pytest.raises(ValueError, match="do not store Variables of the body outside it"):
        float(F.sum(left[0]))


# ---------------------------------------------------------------- random bodies


UNARY = ("sin", "tanh", "half", "square")
BINARY = ("add", "mul", "matmul", "where")


def applied(m: Both, name: str, a: Any, b: Any) -> Any:
    """One step of a random body."""
    unary = {"sin": m.sin, "tanh": m.tanh, "half": lambda a: a * 0.5, "square": lambda a: m.tanh(a) * a}
    if name in unary:
        return unary[name](a)
    binary = {
        "add": lambda: a + b, "mul": lambda: a * m.sin(b), "matmul": lambda: m.tanh(a @ b),
        "where": lambda: m.where(m.less(m.sum(a), 0.0), a, b),
    }  # fmt: skip
    return binary[name]()


@st.composite
def random_bodies(draw: st.DrawFn) -> Callable[..., Any]:
    """A function of a scanned array, a first carry, and a captured matrix, with loops of random bodies in it."""
    carries = draw(st.integers(1, 3))
    steps = draw(st.lists(
        st.tuples(st.sampled_from(UNARY + BINARY), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=5,
    ))  # fmt: skip
    after = draw(st.lists(st.integers(0, 30), min_size=carries, max_size=carries))
    stacked = draw(st.lists(st.integers(0, 30), max_size=2))
    reverse, inner, counts = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())

    def function(m: Both, x: Any, c: Any, w: Any) -> Any:
        outside = m.sin(w)

        def body(carry: Any, x: Any) -> Any:
            i, carry = carry
            values = [*carry, x, w, outside]
            for name, a, b in steps:
                values.append(applied(m, name, values[a % len(values)], values[b % len(values)]))
            if inner:
                last = m.scan(lambda h, row: (m.tanh(h * row + values[-1][0]), None), values[0][0], values[-1])[0]
                values.append(values[-1] * last)
            values += [m.where(m.less(i, 1), values[-1], x)] if counts else []
            return (i + 1, [values[k % len(values)] for k in after]), [values[k % len(values)] for k in stacked]

        (_, last), ys = m.scan(body, (np.int32(0), [c * (k + 1) for k in range(carries)]), x, reverse=reverse)
        return [*last, *ys]

    return function


@settings(max_examples=12, deadline=None)
@given(function=random_bodies(), length=st.sampled_from([0, 1, 3]), seed=st.integers(0, 1000))
def test_random_bodies_to_order_2(function: Callable[..., Any], length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((length, N, N)), rng.standard_normal((N, N)), rng.standard_normal((N, N)) * 0.5]
    check(flat(function, OURS), flat(function, THEIRS), arrays, 2, numeric=False, rtol=1e-8)


@settings(max_examples=8, deadline=None)
@given(function=random_bodies(), seed=st.integers(0, 1000))
def test_random_bodies_by_every_route(function: Callable[..., Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    leaves = [leaf(rng.standard_normal(shape) * 0.5) for shape in ((2, N, N), (N, N), (N, N))]
    y = F.add_n(*[F.sum(F.sin(y)) for y in results_of(function, *leaves)])
    chosen = F.add_n(*[F.sum(g * g) for g in nn.grad(y, leaves)])
    plain = F.add_n(*[F.sum(g * g) for g in Grad()([y], leaves, [None])])
    ours, theirs = runner([nn.grad(chosen, leaves), Grad()([plain], leaves, [None])], [])([])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * max(1.0, float(np.max(np.abs(b), initial=0))))
