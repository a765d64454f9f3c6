"""JAX functions of the user's own on Variables: derivatives, pytrees, dtypes, and what is compiled when."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
from backward_registry import registry
from nngrad.extend import Variable, functions_of
from nngrad.functions.traced.structure import structure_of
from tests.together import Check, compared, together

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 3))
W = RNG.standard_normal((3, 3)) * 0.5


def leaf(values: Any, dtype: Any = np.float64, need_grad: bool = True) -> Variable:
    """A leaf with these values."""
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad)


# ---------------------------------------------------------------- derivatives


def dense(x: Any, w: Any) -> Any:
    """Nothing special."""
    return jnp.tanh(x @ w) * jnp.sin(x.sum())


def two_outputs(x: Any, w: Any) -> Any:
    """Two outputs, and an integer between them."""
    return jnp.exp(x * 0.3) @ w, jnp.argmax(x, axis=1), (x * x).sum()


@jax.jit
def jitted(x: Any, w: Any) -> Any:
    """Jitted, with functions that have derivatives of their own (custom_jvp) in JAX."""
    return jax.nn.softplus(x @ w) * jax.nn.relu(x)


def scanned(x: Any, w: Any) -> Any:
    """A scan with a carry and a stack of outputs."""
    return lax.scan(lambda carry, _: (jnp.tanh(carry @ w), carry.sum()), x, None, length=3)


def branched(x: Any, w: Any) -> Any:
    """A branch."""
    return lax.cond(x.sum() > 0, lambda a: jnp.sin(a @ w), lambda a: jnp.cos(a @ w), x)


def looped(x: Any, w: Any) -> Any:
    """A loop of which JAX does not know how often it turns, and which it cannot differentiate in reverse."""
    return lax.while_loop(
        lambda c: (c[0] < 3) & jnp.isfinite(c[1].sum()), lambda c: (c[0] + 1, jnp.sin(c[1]) @ w), (0, x)
    )


def unrolled(x: Any, w: Any) -> Any:
    """What `looped` computes."""
    for _ in range(3):
        x = jnp.sin(x) @ w
    return jnp.asarray(3), x


@jax.custom_vjp
def sine(x: Any) -> Any:
    """sin, with a derivative of its author's."""
    return jnp.sin(x)


sine.defvjp(lambda x: (sine(x), x), lambda x, g: (g * jnp.cos(x) * 2.0,))


def customized(x: Any, w: Any) -> Any:
    """A derivative that JAX has in reverse mode only, and that is not the true one."""
    return sine(x @ w) ** 2


@jax.custom_jvp
def skewed(x: Any) -> Any:
    """Its derivative is the gradient of nothing: second derivatives are not symmetric."""
    return x * 1.0


@skewed.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (v,) = primals, tangents
    return skewed(x), v * jnp.roll(x, 1, axis=-1) ** 2 + jnp.roll(v, 1, axis=-1) * x


def surrogate(x: Any, w: Any) -> Any:
    """Uses it."""
    return skewed(x) @ w + skewed(x)


@pytest.mark.parametrize(
    ("fun", "reference", "numeric"),
    [(dense, dense, True), (two_outputs, two_outputs, True), (jitted, jitted, True), (scanned, scanned, True),
     (branched, branched, True), (looped, unrolled, True), (customized, customized, False),
     (surrogate, surrogate, False)],
    ids=lambda value: getattr(value, "__name__", ""),
)
@together
def test_to_order_3(fun: Any, reference: Any, numeric: bool) -> Check:
    yield from compared(F.jax_function(fun), reference, [X, W], 3, numeric=numeric)


def test_derivatives_that_an_author_has_set_are_known_as_such() -> None:
    x, w = leaf(X), leaf(W)
    for fun, exact in ((dense, True), (looped, True), (customized, False), (surrogate, False)):
        y = F.jax_function(fun)(x, w)
        y = y[1] if isinstance(y, tuple) else y
        (gx,) = nn.grad(y, x)
        ops = {f.op for f in functions_of([gx]) if "JaxFunction" in f.op.type_name}
        assert ops and all(registry[op.type_name].exact is exact for op in ops)


# ---------------------------------------------------------------- what is computed


@jax.custom_jvp
def shifted_sine(x: Any) -> Any:
    """A function whose author has set its derivative, in forward mode."""
    return jnp.sin(x + 1)


shifted_sine.defjvp(lambda xs, ts: (shifted_sine(*xs), jnp.cos(xs[0] + 1) * ts[0]))


@jax.custom_vjp
def cubed(x: Any) -> Any:
    """A function whose author has set its derivative, in reverse mode alone."""
    return x**3


cubed.defvjp(lambda x: (cubed(x), x), lambda x, g: (3 * x**2 * g,))


@pytest.mark.parametrize(("fun", "plain"), [
    (lambda x: jax.nn.relu(x) ** 3 * jnp.sin(x), lambda x: jnp.maximum(x, 0) ** 3 * jnp.sin(x)),
    (jax.nn.softplus, lambda x: jnp.log1p(jnp.exp(x))),
    (shifted_sine, lambda x: jnp.sin(x + 1)),
    (cubed, lambda x: x**3),
])  # fmt: skip
def test_every_operator_takes_functions_with_derivatives_of_their_own(fun: Any, plain: Any) -> None:
    x, v, w = leaf(X), leaf(Y), RNG.standard_normal((3, 2))
    y = F.affine(F.jax_function(fun)(F.affine(x, leaf(W))), leaf(w))
    loss = F.sum(y)

    def field(a: Any) -> Any:
        return plain(a @ W) @ w

    with jax.enable_x64(True):
        matrix, point = jax.jacobian(field)(X), jnp.asarray(X)
        hessian = jax.hessian(lambda a: field(a).sum())(point)
        second = jax.jacobian(jax.jacobian(field))(point)
    near = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-11)
    near(nn.hvp(loss, x, v)[0].d, np.einsum("abcd,cd->ab", hessian, v.d))
    near(nn.hessian(loss, x, batched=False).d, hessian)
    near(nn.hessian_diagonal(loss, x, batched=False).d, np.einsum("abab->ab", hessian))
    near(nn.jacobian(y, x, batched=False).d, matrix)
    near(nn.laplacian(y, x, batched=False).d, np.einsum("abcdcd->ab", second))
    square = F.jax_function(fun)(F.affine(x, leaf(W)))
    with jax.enable_x64(True):
        near(nn.divergence(square, x, batched=False).d,
             np.einsum("abab->", jax.jacobian(lambda a: plain(a @ W))(point)))
    at = leaf([0.4, -0.3, 0.8])
    with jax.enable_x64(True):
        d = np.asarray(jax.jacobian(lambda a: plain(W @ a))(jnp.asarray(at.d)))
    near(nn.jacobian(F.jax_function(lambda a: fun(W @ a))(at), at, batched=False).d, d)


def test_a_tangent_through_custom_vjp_is_that_of_a_linear_rule() -> None:
    x = leaf(X)
    t = leaf(np.cos(X))
    (y,) = nn.jvp([F.jax_function(cubed)(x)], [x], [t])
    np.testing.assert_allclose(y.d, 3 * X**2 * np.cos(X), rtol=1e-12)


def test_a_jacobian_of_more_columns_than_are_computed_at_a_time() -> None:
    x = RNG.standard_normal(300)

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]

    a = leaf(x)
    (gx,) = nn.grad(F.jax_function(loop)(a), a)
    np.testing.assert_allclose(gx.d, np.cos(np.sin(x)) * np.cos(x), rtol=1e-12)


# ---------------------------------------------------------------- what is compiled when


def compiled(make: Any, times: int = 3) -> int:
    """How many executables it takes to run what `make` gives for 0, 1, ..."""
    misses = nn.executables.info().misses
    for k in range(times):
        y = make(k)
        (gx,) = nn.grad(y, [x for f in functions_of([y]) for x in f.inputs if x.need_grad][:1])
        _ = y.d, gx.d
    return nn.executables.info().misses - misses


def test_a_loop_that_wraps_one_function_compiles_once() -> None:
    def fun(x: Any) -> Any:
        return jax.nn.relu(x) * 1.25

    assert compiled(lambda k: F.jax_function(fun)(leaf(X + k))) == 2


def test_what_was_traced_is_found_again_as_long_as_the_function_lives() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = jnp.ones(3)

        def apply(self, x: Any) -> Any:
            return x * self.w

    model = Model()
    x = leaf(X, np.float32)
    outputs = [F.jax_function(model.apply)(x) for _ in range(3)]
    functions = [y.parent for y in outputs]
    assert len({f.args["fun"] for f in functions}) == len({f.inputs[0] for f in functions}) == 1
    del functions
    np.testing.assert_allclose(outputs[-1].d, X, rtol=1e-6)
    held = weakref.ref(outputs[0].parent.inputs[0])  # type: ignore[union-attr]
    assert held().shape == (3,)  # type: ignore[union-attr]
    del outputs, model
    gc.collect()
    assert held() is None


def test_functions_that_differ_in_the_arrays_they_close_over_share_an_executable() -> None:
    def make(k: int) -> Variable:
        w = jnp.asarray(W * k, jnp.float32)
        v = W.astype(np.float32) + k
        return F.jax_function(lambda x: jnp.tanh(x @ w) @ v)(leaf(X, np.float32))

    assert compiled(make) == 2
    for k in range(3):
        expected = np.tanh(X @ (W * k)) @ (W + k)
        np.testing.assert_allclose(make(k).d, expected, rtol=1e-4, atol=1e-5)


def test_functions_that_differ_do_not_share() -> None:
    x = leaf(X, np.float32)
    for k in (1.0, 2.0, -0.0, 0.0):
        np.testing.assert_allclose(F.jax_function(lambda x, k=k: x * k)(x).d, X * k, rtol=1e-6)
    for f, expected in ((jnp.sin, np.sin), (jnp.cos, np.cos)):
        np.testing.assert_allclose(F.jax_function(lambda x, f=f: f(x))(x).d, expected(X), rtol=1e-5)
    for axis in (0, 1):
        np.testing.assert_allclose(F.jax_function(lambda x, a=axis: jnp.cumsum(x, a))(x).d, X.cumsum(axis), rtol=1e-5)


def within_rules(fun: Any) -> Any:
    """The function with a derivative that is set by hand."""
    held = jax.custom_jvp(fun)
    held.defjvp(lambda primals, tangents: jax.jvp(fun, primals, tangents))
    return held


@pytest.mark.parametrize("around", [
    lambda fun: fun, jax.checkpoint, within_rules,
    lambda fun: lambda x: lax.fori_loop(0, 1, lambda i, h: fun(h), x),
], ids=["plain", "checkpoint", "rules", "loop"])  # fmt: skip
@pytest.mark.parametrize("wrap", [F.jax_function, nn.from_jax])
def test_what_is_captured_is_what_there_was_when_it_was_traced(wrap: Any, around: Any) -> None:
    factor = np.full(3, 2.25, np.float32)
    y = wrap(around(lambda x: x * factor))(leaf(X, np.float32))
    factor[...] = 3.0
    np.testing.assert_allclose(y.d, X * 2.25, rtol=1e-6)
    again = np.full(3, 2.25, np.float32)  # another array, of the same numbers
    np.testing.assert_allclose(wrap(around(lambda x: x * again))(leaf(X, np.float32)).d, X * 2.25, rtol=1e-6)


def closed(fun: Any, *shapes: Any) -> Any:
    """The structure of a function."""
    return structure_of(jax.make_jaxpr(fun)(*[jax.ShapeDtypeStruct(s, np.float32) for s in shapes]).jaxpr)


def test_structures_tell_constants_inside_loops_apart() -> None:
    def make(k: float) -> Any:
        return closed(lambda x: lax.fori_loop(0, 3, lambda i, c: c * k, x), (2,))

    assert make(1.0) == make(1.0) != make(2.0)
    assert make(0.0) != make(-0.0)


# ---------------------------------------------------------------- arguments and results


class Pair(NamedTuple):
    """A pytree."""

    a: Any
    b: Any


def test_pytrees_in_and_out() -> None:
    def fun(p: dict[str, Any], pair: Pair, *, shift: Any) -> Any:
        return {"y": p["w"] * pair.a + shift, "rest": [pair.b.sum(), None]}

    w, a, b = leaf(X), leaf(Y), leaf([1.0, 2.0])
    out = F.jax_function(fun)({"w": w, "n": None}, Pair(a, b), shift=leaf(0.5))
    assert out["rest"][1] is None
    np.testing.assert_allclose(out["y"].d, X * Y + 0.5, rtol=1e-12)
    gw, gb = nn.grad([out["y"], out["rest"][0]], [w, b])
    np.testing.assert_allclose(gw.d, Y)
    np.testing.assert_allclose(gb.d, [1.0, 1.0])


def test_static_arguments() -> None:
    def fun(x: Any, power: int, *, mode: str = "", function: Any = jnp.sin) -> Any:
        return function(x) ** power if mode == "" else -(x**power)

    x = leaf(X)
    for f in (F.jax_function(fun, static_argnums=1), F.jax_function(fun, static_argnums=(-1,)),
              F.jax_function(fun, static_argnames="power")):
        y = f(x, power=3) if f._static_argnames else f(x, 3)
        np.testing.assert_allclose(y.d, np.sin(X) ** 3, rtol=1e-12)
    f = F.jax_function(fun, static_argnums=1)
    np.testing.assert_allclose(f(x, 2, mode="minus").d, -(X**2), rtol=1e-12)
    np.testing.assert_allclose(f(x, 2, function=jnp.cos).d, np.cos(X) ** 2, rtol=1e-12)
    with pytest.raises(TypeError, match=r"args\[1\] is static and must be hashable, got \[2\]"):
        f(x, [2])


def test_numbers_are_as_weak_as_in_jax_and_compile_once() -> None:
    f = F.jax_function(lambda x, c: x * c)
    for dtype in (np.float16, np.float32, np.float64):
        y = f(leaf(X, dtype), 1 / 3)
        assert y.dtype == dtype
        np.testing.assert_allclose(y.d, X.astype(dtype) * dtype(1 / 3), rtol=2 * np.finfo(dtype).eps)
    assert f(leaf(X, np.float32), 2).dtype == np.float32
    i = Variable.from_numpy_array(np.arange(3, dtype=np.int32))
    assert f(i, 2).dtype == np.int32 and f(i, 0.5).dtype == np.float32
    misses = nn.executables.info().misses
    assert [float(f(leaf(1.0, np.float32), float(k)).d) for k in range(3)] == [0.0, 1.0, 2.0]
    assert nn.executables.info().misses == misses + 1


def test_integer_inputs_pass() -> None:
    table, rows = leaf(X), Variable.from_numpy_array(np.array([1, 0, 1], np.int32))
    y = F.jax_function(lambda table, rows: table[rows] ** 2)(table, rows)
    g, gi = nn.grad(y, [table, rows], unreachable="none")
    np.testing.assert_allclose(g.d, 2 * X * np.array([[1.0], [2.0]]))
    assert gi is None
    (gg,) = nn.grad(g, table)
    np.testing.assert_allclose(gg.d, 2 * np.ones_like(X) * np.array([[1.0], [2.0]]))


def test_widths_do_not_mix() -> None:
    f = F.jax_function(lambda x: jax.nn.relu(x * 2.5 + jnp.zeros(3)))
    x, wide = leaf(X, np.float32), leaf(Y)
    y = F.cast(f(x), dtype=np.float64) * wide
    assert f(x).dtype == np.float32
    np.testing.assert_allclose(y.d, np.maximum(np.float32(2.5) * X.astype(np.float32), 0) * Y, rtol=1e-6)
    (gx,) = nn.grad(y, x)
    assert gx.dtype == np.float32
    np.testing.assert_allclose(gx.d, 2.5 * (X > 0) * Y, rtol=1e-6)
    assert f(wide).dtype == np.float64
    np.testing.assert_allclose(nn.to_jax(f(wide), wide)(Y), np.maximum(2.5 * Y, 0), rtol=1e-15)
    with pytest.raises(TypeError, match=r"traced for float64, but got float32. Set jax_enable_x64"):
        jax.jit(nn.to_jax(f(wide), wide))(Y)


def test_a_random_key_that_is_closed_over() -> None:
    key = jax.random.key(0)
    f = F.jax_function(lambda x: x + jax.random.normal(key, (3,)))
    x = leaf(X, np.float32)
    np.testing.assert_allclose(f(x).d, X + np.asarray(jax.random.normal(key, (3,))), rtol=1e-5)


def test_whatever_jax_takes() -> None:
    x = leaf(X)

    class Scale:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Any) -> Any:
            return x * self.by

        def apply(self, x: Any) -> Any:
            return x + self.by

    np.testing.assert_allclose(F.jax_function(Scale(3.0))(x).d, X * 3)
    np.testing.assert_allclose(F.jax_function(Scale(3.0).apply)(x).d, X + 3)
    np.testing.assert_allclose(F.jax_function(functools.partial(jnp.add, 2.0))(x).d, X + 2)
    np.testing.assert_allclose(F.jax_function(jax.vmap(jnp.sum))(x).d, X.sum(1))
    np.testing.assert_allclose(F.jax_function(jax.grad(lambda a: jnp.sum(a**3)))(x).d, 3 * X**2)
    np.testing.assert_allclose(F.jax_function(lambda: jnp.ones(3) * 2)().d, [2.0, 2.0, 2.0])


# ---------------------------------------------------------------- what cannot be done, and what is said of it


def on_host(x: Any) -> Any:
    """JAX knows no derivative of it."""
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_what_jax_cannot_differentiate_is_said_in_its_words() -> None:
    x = leaf(X, np.float32)
    y = F.jax_function(on_host)(x)
    np.testing.assert_allclose(y.d, np.sin(X), rtol=1e-5)
    with pytest.raises(NotImplementedError) as caught:
        nn.grad(y, x)
    message = str(caught.value)
    assert "jax_function(on_host): JAX cannot differentiate it at order 1" in message
    assert "Reverse mode: Pure callbacks do not support JVP" in message
    assert "Forward mode: Pure callbacks do not support JVP" in message


@jax.custom_vjp
def once(x: Any) -> Any:
    """Differentiable once: its derivative is computed on the host."""
    return jnp.sin(x)


once.defvjp(lambda x: (once(x), x), lambda x, g: (g * on_host(x),))


def test_first_order_works_where_the_second_does_not() -> None:
    x = leaf(X, np.float32)
    (gx,) = nn.grad(F.jax_function(once)(x), x)
    np.testing.assert_allclose(gx.d, np.sin(X), rtol=1e-5)
    with pytest.raises(NotImplementedError, match=r"jax_function\(gradient of once\): JAX cannot differentiate it"):
        nn.grad(gx, x)


@pytest.mark.parametrize(
    ("fun", "error", "match"),
    [
        (lambda x: x * leaf(Y), Exception, "jax"),
        (lambda x: F.sin(x), Exception, "jax"),
        (lambda x: x @ x, TypeError, "dot_general"),
        (lambda x: x + 1j, TypeError, "output 0 has unsupported dtype complex64"),
    ],
    ids=["closes over a Variable", "F", "shapes", "complex"],
)
def test_errors_while_tracing(fun: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        F.jax_function(fun)(leaf(X, np.float32))
    if "complex" not in match:
        assert any("Pass the Variables that it needs as arguments" in note for note in caught.value.__notes__)


def test_errors_of_arguments() -> None:
    with pytest.raises(TypeError, match="fun: expected a function of JAX arrays, got 3"):
        F.jax_function(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="leaf 0 of the arguments must be a Variable, an array or a number"):
        F.jax_function(dense)(object(), leaf(W))
    assert repr(F.jax_function(dense)) == "jax_function(dense)"
    assert "Nothing special" in (F.jax_function(dense).__doc__ or "")
