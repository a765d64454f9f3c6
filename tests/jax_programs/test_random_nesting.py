"""Random programs of loops, branches, rules and transformations in each other, to order 3, against JAX.

`python -m tests.jax_programs.test_random_nesting --count 1000 --first 0` tries so many, op by op: most of
the time would else be compilation. What the steps compute comes from the tables of `tests/jax/test_random_programs.py`.
"""

from __future__ import annotations

import argparse
import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad.jax as nj
from tests.jax.test_random_programs import ALONG, ELEMENTWISE, PAIRS, REDUCTIONS, Draw
from tests.slow import slow_but

from ..oracle import compiled_cheaply
from .op_by_op import evaluated

Array = Any
DEEPEST = 2
"""So many loops, branches and the like lie in each other at most."""


class Numbers:
    """Numbers for `Draw` that never end, the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def pop(self, _: int) -> int:
        """The next one."""
        return int(self._rng.integers(1 << 30))


class Drawn(Draw):
    """What a step draws, by a seed, and the whole numbers that the program is given."""

    def __init__(self, arrays: list[Array], seed: int, integers: Array) -> None:
        super().__init__(arrays, ())
        self._numbers: Any = Numbers(seed)
        self.integers = integers


class Body:
    """A function of arrays that gives one in the shape of the first, the same in each trace.

    Args:
        d: What it is drawn from.
        depth: So deep it lies.
        around: Arrays that it closes over.
    """

    def __init__(self, d: Drawn, depth: int, around: list[Array]) -> None:
        self._seed, self._integers, self._depth, self._around = d.below(1 << 30), d.integers, depth, around

    def reads(self, array: Array) -> None:
        """Close over one more array."""
        self._around.append(array)

    def __call__(self, *arrays: Array) -> Array:
        d, h = Drawn([*self._around, *arrays], self._seed, self._integers), arrays[0]
        for _ in range(1 + d.below(2)):
            nests = self._depth < DEEPEST and d.below(2)
            made = KINDS[d.below(len(KINDS))](d, h, self._depth + 1) if nests else plain(d, h)
            h = 0.7 * jnp.resize(made, h.shape) + 0.2 * h
        return h


def plain(d: Drawn, h: Array) -> Array:
    """A step without anything within."""
    table = d.below(6)
    if table == 0 and h.ndim:
        return REDUCTIONS[d.below(len(REDUCTIONS))](h, axis=d.axis(h), keepdims=True)
    if table == 1 and h.ndim:
        return ALONG[d.below(len(ALONG))](h, d.axis(h))
    if table < 4:
        return PAIRS[d.below(len(PAIRS))](h, d.fitting(h))
    return ELEMENTWISE[d.below(len(ELEMENTWISE))](h)


def within(d: Drawn, depth: int, closing: bool = True) -> Body:
    """A body that closes over an array or two that are there, and perhaps over a constant."""
    constants = [np.cos(np.arange(3) + 0.5), np.sin(np.arange(6.0)).reshape(2, 3)]
    return Body(d, depth, [*([d.array(), d.array()] if closing else []), *constants[: d.below(3)]])


def whole(d: Drawn) -> Array:
    """A whole number that is an argument, or comes of an array."""
    return [lambda: jnp.argmax(d.array()), lambda: d.integers[0], lambda: jnp.sum(d.integers) - 1][d.below(3)]()


def cond(d: Drawn, h: Array, depth: int) -> Array:
    yes, no = within(d, depth), within(d, depth)
    return lax.cond(jnp.sum(jnp.sin(h)) > 0.1 if d.below(2) else whole(d) > 1, yes, no, h)


def switch(d: Drawn, h: Array, depth: int) -> Array:
    return lax.switch(whole(d), [within(d, depth) for _ in range(1 + d.below(3))], h)


def fori(d: Drawn, h: Array, depth: int) -> Array:
    body, count = within(d, depth), 1 + d.below(3)
    return lax.fori_loop(0, count, lambda i, h: body(h, 0.1 * i * h), h)


def scan(d: Drawn, h: Array, depth: int) -> Array:
    step, beside, xs = within(d, depth), within(d, depth), jnp.atleast_1d(d.array())
    numbers = jnp.arange(len(xs))

    def one(carry: Any, given: Any) -> Any:
        (c, n), (x, k) = carry, given
        moved = step(c, jnp.resize(x, c.shape), c * (k + n))
        return (moved, n + k % 2), (beside(moved), k)

    (last, _), (rows, _) = lax.scan(one, (h, 1), (xs, numbers), reverse=bool(d.below(2)), unroll=1 + d.below(2))
    return last if d.below(2) else jnp.mean(rows, 0) + rows[0]


def until(d: Drawn, h: Array, depth: int) -> Array:
    """A loop that JAX differentiates in forward mode alone; every other time no derivative passes it."""
    body, most = within(d, depth), 1 + d.below(3)
    start = h if d.below(2) else lax.stop_gradient(h)
    return lax.while_loop(
        lambda c: (c[1] < most) & (jnp.sum(c[0] ** 2) < 40), lambda c: (body(c[0]), c[1] + 1), (start, 0)
    )[0]


def ruled(d: Drawn, depth: int) -> Body:
    """What a rule is written for. Half of these read an array that the program computes around the rule, of constants
    or of whole numbers: no derivative passes it, and it is a tracer where the program is traced first."""
    body = within(d, depth, closing=False)
    if d.below(2):
        body.reads([jnp.sin(jnp.arange(3.0)), jnp.cos(d.integers * 0.5), lax.stop_gradient(d.array())][d.below(3)])
    return body


def jvp_rule(d: Drawn, h: Array, depth: int) -> Array:
    """A function with the derivative that it has, by a rule that may call the function itself."""
    body = ruled(d, depth)
    function = jax.custom_jvp(lambda h, a: body(h, a))
    again = d.below(2)

    def rule(primals: Any, tangents: Any) -> Any:
        value, tangent = jax.jvp(lambda h, a: body(h, a), primals, tangents)
        return function(*primals) if again else value, tangent

    function.defjvp(rule)
    return function(h, d.fitting(h))


def vjp_rule(d: Drawn, h: Array, depth: int) -> Array:
    """A function with the derivative that it has, by a rule that keeps arrays or is told a whole number."""
    body, factor = ruled(d, depth), 1 + d.below(2)
    function = jax.custom_vjp(lambda n, h, a: n * body(h, a), nondiff_argnums=(0,))

    def backward(n: int, kept: Any, g: Array) -> Any:
        return jax.vjp(lambda h, a: n * body(h, a), *kept)[1](g)

    function.defvjp(lambda n, h, a: (function(n, h, a), (h, a)), backward)
    return function(factor, h, d.fitting(h)) / factor


def another_rule(d: Drawn, h: Array, depth: int) -> Array:
    """A function whose rule gives another derivative; where JAX takes rules at every order, not in loops."""
    if depth > 1:
        return vjp_rule(d, h, depth)
    if d.below(2):
        rounded = jax.custom_jvp(lambda h: jnp.round(2 * h))
        rounded.defjvp(lambda p, t: (jnp.round(2 * p[0]) * jnp.cos(p[0]), 2 * t[0]))
        return rounded(h) * h
    clip = jax.custom_vjp(lambda h: h * 1.0)
    clip.defvjp(lambda h: (h, jnp.sum(h)), lambda s, g: (jnp.clip(g, -0.3, 0.3) * s,))
    return clip(h) * clip(jnp.sin(h))


def called(d: Drawn, h: Array, depth: int) -> Array:
    body, a = within(d, depth), d.fitting(h)
    return [
        lambda: jax.jit(body)(h, a),
        lambda: jax.checkpoint(body)(h, a),
        lambda: jax.checkpoint(body, policy=jax.checkpoint_policies.dots_saveable)(h, a),
        lambda: jax.checkpoint(body, prevent_cse=False)(h, a),
        lambda: jax.jit(jax.checkpoint(jax.jit(body)))(h, a),
    ][d.below(5)]()


def mapped(d: Drawn, h: Array, depth: int) -> Array:
    body, rows = within(d, depth), jnp.stack([h, jnp.sin(h)])
    return [
        lambda: jnp.sum(jax.vmap(body)(rows, rows[::-1]), 0),
        lambda: jnp.mean(jax.vmap(body, (0, None), 1 if h.ndim else 0)(rows, h), 1 if h.ndim else 0),
        lambda: jnp.sum(lax.map(body, rows), 0),
        lambda: jnp.sum(jax.vmap(jax.vmap(body))(jnp.stack([rows, rows * 0.5])), (0, 1)),
    ][d.below(4)]()


def derived(d: Drawn, h: Array, depth: int) -> Array:
    """A derivative within the program, by JAX or by nngrad."""
    body, m = within(d, depth), (jax, nj)[d.below(2)]
    return [
        lambda: m.grad(lambda h: jnp.sum(jnp.sin(body(h))))(h),
        lambda: m.vjp(body, h)[1](h)[0],
        lambda: m.value_and_grad(lambda h: jnp.mean(body(h)))(h)[1],
    ][d.below(3)]()


def picked(d: Drawn, h: Array, depth: int) -> Array:
    """What whole numbers choose."""
    x, k = jnp.asarray(jnp.atleast_1d(d.array())), d.integers
    at = k % len(x)
    return [
        lambda: x[at] * 0.5,
        lambda: x.at[at].add(1.0),
        lambda: x * k[0],
        lambda: lax.dynamic_slice_in_dim(x, k[0], 1),
        lambda: x.at[at[0]].multiply(jnp.sum(h)),
        lambda: jnp.where(k[0] > 1, x, x**2),
    ][d.below(6)]()


Kind = Callable[[Drawn, Array, int], Array]
KINDS: list[Kind] = [
    cond, switch, fori, scan, scan, until, jvp_rule, vjp_rule, another_rule, called, mapped, derived, picked,
]  # fmt: skip


def program(seed: int, x: Array, y: Array, k: Array) -> Array:
    """What the program of a seed computes of arrays and whole numbers: as many numbers as `y` has."""
    d = Drawn([x, y, jnp.asarray(k, x.dtype) * 0.3], seed, k)
    h = [x, y, jnp.sum(x) * 0.3][d.below(3)]
    for _ in range(1 + d.below(2)):
        made = KINDS[d.below(len(KINDS))](d, h, 1)
        h = jnp.resize(made, h.shape) + 0.3 * h
    return jnp.resize(h, y.shape) * jnp.cos(jnp.arange(len(y)) + 0.5) + 0.1 * jnp.sum(jnp.sin(h))


def total(tree: Any) -> Array:
    """One number of all that is floating, in which nothing cancels."""
    leaves = [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating)]
    return sum([jnp.sum(jnp.sin(a) * (np.cos(np.arange(a.size)) + 0.5).reshape(a.shape)) for a in leaves])


Function = Callable[[Array, Array, Array], Any]


def along(f: Function, m: Any, x: Array, y: Array, k: Array) -> Any:
    """A directional derivative by `jvp`."""
    return m.jvp(lambda x, y: f(x, y, k), (x, y), (jnp.cos(x), jnp.sin(y)))[1]


def linear(f: Function, m: Any, x: Array, y: Array, k: Array) -> Any:
    """A directional derivative by `linearize`, of which the value is a part."""
    value, push = m.linearize(lambda x: f(x, y, k), x)
    return jax.tree.map(lambda a, b: a if a.dtype == jax.dtypes.float0 else a * b, value, push(jnp.cos(x)))


def pulled(f: Function, m: Any, x: Array, y: Array, k: Array) -> Any:
    """What `vjp` pulls back of the value itself."""
    value, pull = m.vjp(lambda x, y: f(x, y, k), x, y)
    return pull(value)


TOWERS: dict[str, tuple[int, Callable[[Function, Any], Function]]] = {
    "grad": (1, lambda f, m: m.grad(lambda *at: total(f(*at)))),
    "by y": (1, lambda f, m: m.grad(lambda *at: total(f(*at)), argnums=1)),
    "value and grad": (1, lambda f, m: m.value_and_grad(lambda *at: total(f(*at)), (0, 1))),
    "vjp": (1, lambda f, m: functools.partial(pulled, f, m)),
    "jvp": (1, lambda f, m: functools.partial(along, f, m)),
    "linearize": (1, lambda f, m: functools.partial(linear, f, m)),
    "jacfwd": (1, lambda f, m: m.jacfwd(f, 1)),
    "jacrev": (1, lambda f, m: m.jacrev(f, 1)),
    "hessian": (2, lambda f, m: m.hessian(lambda *at: total(f(*at)), 1)),
    "in whole numbers too": (1, lambda f, m: m.grad(lambda *at: total(f(*at)), (1, 2), allow_int=True)),
    "grad, mapped": (1, lambda f, m: lambda x, y, k: jax.vmap(
        lambda s: m.grad(lambda *at: total(f(*at)))(x * s, y, k))(jnp.array([0.5, 1.0]))),
}  # fmt: skip
"""Derivatives of a function by a module, and their orders."""


def tower(seed: int) -> list[str]:
    """Which derivatives are taken of the program of a seed, one of the other: to order 3 at most."""
    rng = np.random.default_rng([seed, 1])
    found: list[str] = []
    wanted = 1 + int(rng.integers(3))
    while (left := wanted - sum([TOWERS[name][0] for name in found])) > 0:
        found.append(str(rng.choice([name for name, (order, _) in TOWERS.items() if order <= left])))
    return found


def derivatives(seed: int, m: Any) -> Function:
    """The last of its derivatives."""
    f: Function = functools.partial(program, seed)
    for name in tower(seed):
        f = TOWERS[name][1](f, m)
    return f


def arguments(seed: int) -> tuple[Any, ...]:
    """What the program of a seed is computed of."""
    rng = np.random.default_rng([seed, 2])
    return rng.standard_normal((2, 3)), rng.standard_normal(3), rng.integers(0, 3, 3)


REFUSALS = [
    "forward-mode autodiff (jvp) to a custom_vjp", "Reverse-mode differentiation does not work", "'custom_lin'",
    "requires real-valued outputs", "Encountered an unexpected tracer", "respect to a closed-over value",
    "reads an array that the enclosing function", "Custom VJP bwd rule must produce an output with the same type",
    "unexpected JAX type (e.g. shape/dtype) for argument to VJP function", "__array__() was called on traced array",
]  # fmt: skip
"""What JAX does not differentiate, or nngrad within it, and how: words of the errors."""


def tried(seed: int, run: Callable[[Function], Callable[..., Any]]) -> str:
    """What came of the program of a seed: the same, or why there is nothing to compare; else it raises."""
    with jax.enable_x64(True):
        at = tuple(map(jnp.asarray, arguments(seed)))
        try:
            theirs = run(derivatives(seed, jax))(*at)
        except Exception as error:
            refusal = next((word for word in REFUSALS if word in str(error)), None)
            if refusal is None:
                raise AssertionError("JAX fails") from error
            return f"JAX refuses: {refusal}"
        ours = run(derivatives(seed, nj))(*at)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype == jax.dtypes.float0:
            continue
        if not np.isfinite(b).all():
            return "JAX's is not finite"
        scale = 1 + float(np.max(np.abs(b), initial=0.0))
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10 * scale)
    return "the same"


# 4: a rule with an array, under vmap; 891: all is left to JAX
@pytest.mark.parametrize("seed", slow_but([4, 891], [0, 1, 4, 891]))
def test_random_nesting(seed: int) -> None:
    assert tried(seed, compiled_cheaply) == "the same"


def vectors(x: Array) -> Array:
    """A function of three numbers to three, with a rule that reads around it, and a branch."""
    c = jnp.cos(jnp.arange(3.0))
    ruled = jax.custom_jvp(lambda y: jnp.sin(y) * c)
    ruled.defjvp(lambda at, along: (ruled(*at), 1.5 * jnp.cos(at[0]) * c * along[0]))
    return lax.cond(x[0] > 0, lambda x: ruled(x * x[::-1]), jnp.tanh, x) + 0.1 * x**2


OfVectors = Callable[[Array], Array]
TRANSFORMATIONS: dict[str, Callable[[OfVectors, Any], OfVectors]] = {
    "grad": lambda f, m: m.grad(lambda x: jnp.sum(jnp.sin(f(x)))),
    "vjp": lambda f, m: lambda x: m.vjp(f, x)[1](jnp.sin(x))[0],
    "jvp": lambda f, m: lambda x: m.jvp(f, (x,), (jnp.cos(x),))[1],
    "linearize": lambda f, m: lambda x: m.linearize(f, x)[1](x),
    "checkpoint": lambda f, m: jax.checkpoint(f),
    "vmap": lambda f, m: lambda x: jnp.sum(jax.vmap(f)(jnp.stack([x, 0.5 * x])), 0),
    "jit": lambda f, m: jax.jit(f),
    "scan": lambda f, m: lambda x: lax.scan(lambda c, _: (0.5 * f(c), None), x, None, length=2)[0],
}
"""Of functions of three numbers to three, such functions by a module."""


def nested(names: Sequence[str], modules: Sequence[Any]) -> OfVectors:
    """The transformations in each other, the last outside."""
    f = vectors
    for name, m in zip(names, modules, strict=True):
        f = TRANSFORMATIONS[name](f, m)
    return f


def check_nested(seed: int) -> bool:
    """Whether JAX does three transformations in each other, and if so that they give the same with nngrad's among them:
    inside of JAX's, outside of them, or both."""
    rng = np.random.default_rng([seed, 3])
    names, at = rng.choice(list(TRANSFORMATIONS), 3).tolist(), rng.standard_normal(3)
    modules = [(jax, nj)[i] for i in (1 + rng.integers(7) >> np.arange(3)) & 1]
    with jax.enable_x64(True):
        try:
            theirs = evaluated(nested(names, [jax] * 3))(at)
        except (jax.errors.UnexpectedTracerError, TypeError):  # the rule reads a tracer of a trace that has ended
            return False
        ours = evaluated(nested(names, modules))(at)
    told = f"seed {seed}: {names} of {[m.__name__ for m in modules]}"
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), told
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=told)
    return True


@pytest.mark.parametrize("count", [24, pytest.param(400, marks=pytest.mark.slow)])
def test_three_transformations_in_each_other(count: int) -> None:
    done = [check_nested(seed) for seed in range(count)]
    assert sum(done) > count // 2


def main() -> None:
    """Try many, op by op; print those that differ, and how many came to what."""
    parser = argparse.ArgumentParser()
    for name, default in (("count", 100), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    counts = collections.Counter[str]()
    for seed in range(options.first, options.first + options.count):
        try:
            word = tried(seed, evaluated)
        except Exception as error:  # of any kind: it is what is looked for
            word = f"DIFFERENT: {type(error).__name__}"
            print(f"{seed} {tower(seed)}: {word}: {' '.join(str(error).split())[:300]}", flush=True)
        counts[word] += 1
        if (seed + 1 - options.first) % 50 == 0:
            print(seed + 1 - options.first, dict(counts.most_common()), flush=True)


if __name__ == "__main__":
    main()
