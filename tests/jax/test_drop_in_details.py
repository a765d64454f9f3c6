"""Details that programs rest on, against JAX: dtypes and weak types of results, classes of errors, options."""

from __future__ import annotations

import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj

X3 = np.ones(3, np.float32)
Calls = dict[str, Callable[[Any, Any], Any]]


def halves() -> Any:
    return jnp.full(3, 2, jnp.bfloat16)


def with_halves(x: Any) -> Any:
    """A number in the dtype of what is not weakly typed."""
    return jnp.sum(x * halves())


def array(x: Any) -> Any:
    return jnp.sin(x) * x


def pulled(y: Any, pull: Any) -> Any:
    return y, pull(y)


TRANSFORMED: Calls = {
    "grad": lambda m, x: m.grad(lambda x: jnp.sum(jnp.sin(x)))(x),
    "value_and_grad": lambda m, x: m.value_and_grad(with_halves)(x),
    "jvp": lambda m, x: m.jvp(array, (x,), (x,)),
    "vjp": lambda m, x: pulled(*m.vjp(array, x)),
    "hessian": lambda m, x: m.hessian(with_halves)(x),
    "jacfwd": lambda m, x: m.jacfwd(array)(x),
    "jacrev": lambda m, x: m.jacrev(lambda x: x * halves())(x),
    "under jit": lambda m, x: jax.jit(m.value_and_grad(with_halves))(x),
    "of a derivative": lambda m, x: m.value_and_grad(m.grad(with_halves))(x),
}
ARGUMENTS: dict[str, Callable[[], Any]] = {
    "Python": lambda: 2.0,
    "NumPy": lambda: np.float32(2),
    "bfloat16": lambda: jnp.asarray(2, jnp.bfloat16),
}


def described(tree: Any) -> Any:
    return jax.tree.structure(tree), [(a.dtype, a.weak_type, a.shape) for a in jax.tree.leaves(tree)]


@pytest.mark.parametrize(("argument", "x64"), [("Python", False), ("NumPy", True), ("bfloat16", False)])
def test_dtypes_and_weak_types(argument: str, x64: bool) -> None:
    with jax.enable_x64(x64):
        x = ARGUMENTS[argument]()
        for name, call in TRANSFORMED.items():
            ours, theirs = [call(m, x) for m in (nj, jax)]
            assert described(ours) == described(theirs), name
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
                np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=2e-2, err_msg=name)


def test_what_is_weak_gives_way() -> None:
    halved = nj.grad(lambda x: x**2)(2.0) * halves()
    assert halved.dtype == jnp.bfloat16
    assert (nj.linearize(array, 2.0)[1](1.0) * halves()).dtype == jnp.bfloat16
    mapped = jax.vmap(lambda x: nj.grad(lambda y: jnp.sum(y * x))(2.0))(halves())
    np.testing.assert_array_equal(mapped, [2, 2, 2])


def number(x: Any) -> Any:
    return jnp.sum(x**2)


BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "argnums too high": (lambda m: m.grad(number, 3)(X3), "argnums"),
    "argnums too low": (lambda m: m.grad(number, -2)(X3), "argnums"),
    "argnums no number": (lambda m: m.grad(number, 1.5)(X3), "argnums"),
    "one of argnums": (lambda m: m.value_and_grad(lambda x, y: number(x * y), (0, 2))(X3, X3), "argnums"),
    "argnums of hessian": (lambda m: m.hessian(number, 3)(X3), "hessian: argnums"),
    "an array": (lambda m: m.grad(jnp.sin)(X3), "grad: fun must return a floating scalar"),
    "a whole number": (lambda m: m.grad(jnp.argmax)(X3), "grad: fun must return a floating scalar"),
    "a complex number": (lambda m: m.grad(lambda x: number(x) * 1j)(X3), r"got complex64\[\]; for a holomorphic fun"),
    "integers": (lambda m: m.grad(lambda n: n * 1.0)(3), "argnums"),
    "integers of jacrev": (lambda m: m.jacrev(lambda n: n * 1.0)(3), "jacrev: arguments .* must be floating"),
    "holomorphic, real": (lambda m: m.grad(number, holomorphic=True)(X3), "grad: with holomorphic=True, arguments"),
    "jacfwd, complex": (lambda m: m.jacfwd(jnp.abs)(X3 + 1j), "jacfwd: arguments are complex"),
    "jacrev, to complex": (lambda m: m.jacrev(lambda x: x * 1j)(X3), "jacrev: results are complex"),
    "shape of tangents": (lambda m: m.jvp(jnp.sin, (X3,), (X3[:2],)), "leaf 0 of the tangents"),
    "dtype of tangents": (lambda m: m.jvp(jnp.sin, (X3,), (X3.astype("float16"),)), "leaf 0 of the tangents"),
    "more tangents": (lambda m: m.jvp(jnp.sin, (X3,), (X3, X3)), "tangents"),
    "no tuple": (lambda m: m.jvp(jnp.sin, X3, X3), "primals"),
    "shape of cotangents": (lambda m: m.vjp(jnp.sin, X3)[1](X3[:2]), "leaf 0 of the cotangents"),
    "dtype of cotangents": (lambda m: m.vjp(jnp.sin, X3)[1](X3.astype("float16")), "leaf 0 of the cotangents"),
    "a pair of cotangents": (lambda m: m.vjp(jnp.sin, X3)[1]((X3, X3)), "cotangents"),
    "shape of linearize": (lambda m: m.linearize(jnp.sin, X3)[1](X3[:2]), "leaf 0 of the tangents"),
    "no pair": (lambda m: m.grad(number, has_aux=True)(X3), "has_aux"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_of_the_class_of_jax(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises((TypeError, ValueError)) as theirs:
        call(jax)
    with pytest.raises((TypeError, ValueError), match=message) as ours:
        call(nj)
    assert isinstance(theirs.value, ours.type) or isinstance(ours.value, theirs.type)


def test_products_of_groups_have_derivatives_where_points_coincide() -> None:
    groups = np.array([0, 1, 0, 3, 1, 0])

    def products(x: Any) -> Any:
        return jnp.sum(jax.ops.segment_prod(x, groups, 4) ** 3)

    def one_by_one(x: Any) -> Any:
        return (x[0] * x[2] * x[5]) ** 3 + (x[1] * x[4]) ** 3 + x[3] ** 3 + 1

    x = np.array([1.5, 0.0, -2.0, 0.5, 3.0, 0.75])
    with jax.enable_x64(True):
        np.testing.assert_allclose(nj.hessian(products)(x), jax.hessian(one_by_one)(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("combine, start", [(lax.mul, 1.0), (jnp.logaddexp, -np.inf)], ids=["product", "logaddexp"])
def test_windows_reduced_by_a_function_have_second_derivatives(combine: Any, start: float) -> None:
    def windows(x: Any) -> Any:
        return jnp.sum(lax.reduce_window(x, start, combine, (2,), (2,), [(0, 1)], (1,), (3,)) ** 2)

    def written_out(x: Any) -> Any:  # pairs at a distance of 3, in steps of 2, after one more element at the end
        x = jnp.append(x, start)
        return sum(combine(x[i], x[i + 3]) ** 2 for i in (0, 2))

    with jax.enable_x64(True):
        x = np.array([0.5, -1.2, 0.8, 1.5, 0.3])
        np.testing.assert_allclose(nj.hessian(windows)(x), jax.hessian(written_out)(x), rtol=1e-12, atol=1e-14)


def with_rule(rule: Any) -> Any:
    """The sine, with a rule for its backward pass."""
    def my_sine(x: Any) -> Any:
        return jnp.sin(x)

    found = jax.custom_vjp(my_sine)
    found.defvjp(lambda x: (found(x), x), lambda x, g: (rule(x, g),))
    return found


def test_a_linear_rule_for_the_backward_pass_gives_forward_mode() -> None:
    f = with_rule(lambda x, g: jnp.cos(x) * g)
    with jax.enable_x64(True):
        np.testing.assert_allclose(nj.jvp(f, (1.0,), (2.0,))[1], 2 * np.cos(1), rtol=1e-12)
        np.testing.assert_allclose(nj.linearize(f, 1.0)[1](2.0), 2 * np.cos(1), rtol=1e-12)
        np.testing.assert_allclose(nj.jet(f, (1.0,), ([1.0, 0.0],))[1], [np.cos(1), -np.sin(1)], rtol=1e-12)
        clipped = with_rule(lambda x, g: jnp.clip(jnp.cos(x) * g, -1, 1))
        with pytest.raises(ValueError, match="my_sine: its backward rule is not linear in the incoming") as e:
            nj.jet(clipped, (1.0,), ([1.0, 0.0],))
        assert "nj.jacfwd" in str(e.value)


def test_a_function_with_a_rule_is_freed_with_all_that_was_made_of_it() -> None:
    def once(transform: Any) -> Any:
        f = with_rule(lambda x, g: jnp.cos(x) * g)
        assert np.isclose(transform(f)(0.3), np.cos(0.3))
        wrapper = functools.wraps(f)(lambda x: 2 * f(x))
        assert np.isclose(transform(wrapper)(0.3), 2 * np.cos(0.3))
        kept = [each for name, each in vars(wrapper).items() if "nngrad" in name]
        assert [pickle.loads(pickle.dumps(each)) for each in kept] == [None]
        return weakref.ref(f)

    alive = [once(nj.grad) for _ in range(3)]
    jax.clear_caches()
    gc.collect()
    assert sum([each() is not None for each in alive]) <= 1


def test_a_callback_in_a_branch_that_is_not_taken_does_not_run() -> None:
    calls: list[int] = []

    def noted(code: Any) -> Any:
        calls.append(int(code))
        return np.float32(0)

    def f(x: Any) -> Any:
        result = jax.ShapeDtypeStruct((), jnp.float32)
        call = lambda: jax.pure_callback(noted, result, np.int32(7))  # noqa: E731
        return x**3 + lax.cond(x < 1.0, call, lambda: jnp.float32(0)) + 0 * lax.cond(x < 2.0, jax.jit(call), call)

    assert nj.grad(f)(1.5) == 6.75
    assert set(calls) <= {7}
    calls.clear()

    def taken_once(x: Any) -> Any:
        return x**3 + lax.cond(x < 1.0, lambda: jax.pure_callback(noted, jax.ShapeDtypeStruct((), jnp.float32), 7),
                               lambda: jnp.float32(0))

    assert (nj.grad(taken_once)(1.5), nj.hessian(taken_once)(1.5), calls) == (6.75, 9.0, [])
    assert nj.value_and_grad(taken_once)(0.5)[0] == 0.125
    assert calls


@pytest.mark.parametrize("wrap", [F.jax_function, nn.from_jax])
def test_labels_of_64_bits_make_nothing_wider(wrap: Any) -> None:
    x = nn.Variable.from_numpy_array(np.eye(2, dtype=np.float32))
    chosen = wrap(lambda x, i: jax.nn.one_hot(i, 2) @ x)
    labels = np.array([1, 0])
    assert chosen(x, labels).dtype == chosen(x, labels.astype(np.int32)).dtype == np.float32
    assert chosen(x, nn.Variable.from_numpy_array(labels)).dtype == np.float64
    large = wrap(lambda i: i + 1)(np.array([2**40]))
    assert large.d.tolist() == [2**40 + 1]
