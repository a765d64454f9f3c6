"""Random branches, loops that end by a condition, and masks in and around bodies of all kinds, against JAX.

`python -m tests.autodiff.test_random_bodies --count 1000 --seed 1` tries that many of the latter.
"""

from __future__ import annotations

import argparse
import collections
import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.functions.test_loops import BINARY, OURS, THEIRS, UNARY, Both, applied
from tests.oracle import check, compiled_cheaply, runner

N = 2


class Ways(NamedTuple):
    """F and jnp, with the branches and loops of either."""

    m: Both
    cond: Any
    switch: Any
    fori_loop: Any


WAYS = Ways(OURS, F.cond, F.switch, F.fori_loop), Ways(THEIRS, lax.cond, lax.switch, lax.fori_loop)

Steps = list[tuple[str, int, int]]
STEPS = st.lists(
    st.tuples(st.sampled_from(UNARY + BINARY), st.integers(0, 30), st.integers(0, 30)), min_size=0, max_size=3
)


def run(m: Both, steps: Steps, *given: Any) -> Any:
    """What the last of some random steps gives; the first of what is given, if there are none."""
    values = list(given)
    for name, a, b in steps:
        values.append(applied(m, name, values[a % len(values)], values[b % len(values)]))
    return values[-1] if steps else values[0]


@st.composite
def random_branches(draw: st.DrawFn) -> Callable[..., Any]:
    """A function of two matrices with branches, perhaps in a loop, perhaps with branches or a loop in them."""
    branches = draw(st.lists(STEPS, min_size=1, max_size=3))
    index, looping = draw(st.integers(-1, 3)), draw(st.booleans())
    inner, within = draw(STEPS), draw(st.sampled_from(["", "cond", "loop"]))

    def function(ways: Ways, x: Any, w: Any) -> Any:
        m = ways.m
        outside = m.sin(w)

        def branch(steps: Steps) -> Callable[[Any], Any]:
            def taken(h: Any) -> Any:
                y = run(m, steps, h, w, outside)
                if within == "cond":
                    return ways.cond(m.less(m.sum(y), 0.5), lambda y: run(m, inner, y, outside), lambda y: y * y, y)
                if within == "loop":
                    return ways.fori_loop(0, 2, lambda i, y: m.tanh(run(m, inner, y, h)), y)
                return y
            return taken

        taken = [branch(steps) for steps in branches]
        if not looping:
            return ways.switch(np.int32(index), taken, x)
        numbers = np.array([0, index, 1], np.int32)
        return m.scan(lambda h, i: (m.tanh(ways.switch(i, taken, h) + 0.5 * h), h), x, numbers)

    return function


def flat(function: Callable[..., Any], ways: Ways) -> Callable[..., tuple[Any, ...]]:
    """The results as a tuple."""
    return lambda *xs: tuple(jax.tree.leaves(function(ways, *xs)))


@settings(max_examples=6, deadline=None)
@given(function=random_branches(), seed=st.integers(0, 1000))
def test_random_branches_to_order_2(function: Callable[..., Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((N, N)) * 0.5 for _ in range(2)]
    check(flat(function, WAYS[0]), flat(function, WAYS[1]), arrays, 2, numeric=False, rtol=1e-8)


@settings(max_examples=6, deadline=None)
@given(steps=STEPS, ends=st.integers(0, 3), more=st.integers(-1, 2), seed=st.integers(0, 1000))
def test_random_loops_with_a_bound_to_order_2(steps: Steps, ends: int, more: int, seed: int) -> None:
    """A counter, a carry, and what is captured; the bound may come before the condition ends the loop."""
    bound = max(0, ends + more)

    def ours(x: Any, w: Any) -> Any:
        return F.while_loop(
            lambda c: c[0] < ends, lambda c: (c[0] + 1, F.tanh(run(OURS, steps, c[1], w))), (np.int32(0), x), bound
        )[1]

    def theirs(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, min(ends, bound), lambda i, h: jnp.tanh(run(THEIRS, steps, h, w)), x)

    rng = np.random.default_rng(seed)
    check(ours, theirs, [rng.standard_normal((N, N)) * 0.5 for _ in range(2)], 2, numeric=False, rtol=1e-8)


@settings(max_examples=6, deadline=None)
@given(steps=STEPS, limit=st.floats(0.0, 3.0), seed=st.integers(0, 1000))
def test_random_loops_without_a_bound_forward_to_order_2(steps: Steps, limit: float, seed: int) -> None:
    """The condition depends on what is carried; a counter ends it in any case."""
    def loop(m: Both, while_loop: Any) -> Callable[..., Any]:
        def goes_on(c: Any) -> Any:
            return m.less(m.sum(c[1] * c[1]) + c[0] * 0.7, limit)
        return lambda x, w: while_loop(
            goes_on, lambda c: (c[0] + 1, m.tanh(run(m, steps, c[1], w)) + 0.1 * x), (np.int32(0), x)
        )[1]

    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((N, N)) * 0.5 for _ in range(2)]
    leaves = [Variable.from_numpy_array(a) for a in arrays]
    y, h = loop(OURS, F.while_loop)(*leaves), loop(THEIRS, lax.while_loop)
    with jax.enable_x64(True):
        given = tuple(map(jnp.asarray, arrays))
        for order in range(3):
            np.testing.assert_allclose(y.d, compiled_cheaply(h)(*given), rtol=1e-8, atol=1e-8, err_msg=f"order {order}")
            (y,) = nn.jvp(y, leaves, arrays)
            h = along(h, given)


def along(h: Callable[..., Any], vs: Any) -> Callable[..., Any]:
    """The derivative of a function for JAX along a direction."""
    return lambda *xs: jax.jvp(h, xs, vs)[1]


# ---------------------------------------------------------------- random masks in and around random bodies


def rows(*ys: Any) -> Any:
    """Arrays on top of each other, of what steps have given."""
    return jnp.stack(ys)


def unrolled(body: Any, carry: Any, xs: Any, reverse: bool = False) -> Any:
    """`lax.scan` without a loop: what JAX differentiates has no bodies, in which it drops rules that call their
    function."""
    ys = [None] * len(xs)
    for i in sorted(range(len(xs)), reverse=reverse):
        carry, ys[i] = body(carry, xs[i])
    return carry, None if ys[0] is None else jax.tree.map(rows, *ys)


def either(condition: Any, yes: Any, no: Any, *operands: Any) -> Any:
    """`lax.cond` without a branch."""
    return jnp.where(condition, yes(*operands), no(*operands))


def repeated(goes_on: Any, body: Any, carry: Any, bound: int) -> Any:
    """A loop with a bound, without a loop."""
    for _ in range(bound):
        carry = either(goes_on(carry), body, lambda h: h, carry)
    return carry


def our_sine(x: Any) -> Any:
    """A function whose derivative is given."""
    return nn.custom_gradient(lambda x: (F.sin(x), lambda gy: gy * F.cos(x)), exact=True)(x)


def slope(fun: Any, x: Any) -> Any:
    """The gradient of what `fun` gives of `x`, a Variable of its own: `fun` may use what it is a copy of."""
    return nn.grad(F.sum(fun(x)), x)[0]


def recomputed(fun: Any, x: Any) -> Any:
    """What `fun` gives, marked."""
    with nn.recompute():
        return fun(x)


KITS = (
    SimpleNamespace(
        tanh=F.tanh, sin=our_sine, sum=F.sum, where=F.where, log=F.log, sqrt=F.sqrt, relu=F.relu, elu=F.elu,
        selu=F.selu, leaky=F.leaky_relu, abs=F.abs, clip=F.clip, above=F.maximum_scalar, below=F.minimum_scalar,
        larger=F.maximum2, six=F.relu6, hard=F.hard_tanh, scan=F.scan, cond=F.cond, switch=F.switch, map=F.map,
        whilst=F.while_loop, fori=lambda n, step, h: F.fori_loop(0, n, lambda i, h: step(h), h), vmap=nn.vmap,
        kept=lambda f, x: nn.checkpoint(f)(x), marked=recomputed, grad=lambda f, x: slope(f, F.identity(x)),
        jacobian=lambda f, x: nn.jacobian(f(x), x, batched=False), products=lambda x: F.associative_scan(F.mul2, x),
        matrix=lambda x, shape: F.reshape(x, shape=shape), softmax=F.softmax,
    ),
    SimpleNamespace(
        tanh=jnp.tanh, sin=jnp.sin, sum=jnp.sum, where=jnp.where, log=jnp.log, sqrt=jnp.sqrt, relu=jax.nn.relu,
        elu=jax.nn.elu, selu=jax.nn.selu, leaky=lambda x: jnp.where(x > 0, x, 0.1 * x), abs=jnp.abs, clip=jnp.clip,
        above=jnp.maximum, below=jnp.minimum, larger=jnp.maximum, six=jax.nn.relu6, hard=jax.nn.hard_tanh,
        scan=unrolled, cond=either, switch=lambda i, fs, x: fs[i](x), map=lambda f, x: jnp.stack([f(s) for s in x]),
        whilst=repeated, fori=lambda n, step, h: repeated(lambda h: True, step, h, n), vmap=jax.vmap,
        kept=lambda f, x: f(x), marked=lambda f, x: f(x), grad=lambda f, x: jax.grad(lambda x: jnp.sum(f(x)))(x),
        jacobian=lambda f, x: jax.jacfwd(f)(x), products=jnp.cumprod, matrix=jnp.reshape, softmax=jax.nn.softmax,
    ),
)  # fmt: skip
"""F, and the same functions for JAX, without loops, branches and recomputation."""

MASKS: list[Callable[[Any, Any], Any]] = [
    lambda m, h: m.relu(h) ** 2, lambda m, h: m.relu(h) ** 3, lambda m, h: m.above(h, 0.07) ** 3,
    lambda m, h: m.below(h, 0.3) ** 2, lambda m, h: m.where(h > 0.1, h**3, 0.5 * h), lambda m, h: m.abs(h) ** 3,
    lambda m, h: m.elu(h) * h, lambda m, h: m.selu(h) * 0.5, lambda m, h: m.leaky(h) ** 2,
    lambda m, h: m.clip(h, -0.4, 0.6) ** 2, lambda m, h: m.larger(h, h * h - 0.2), lambda m, h: m.six(4 * h) * h,
    lambda m, h: m.hard(2 * h) * h, lambda m, h: m.where(h > 0.2, m.sqrt(m.where(h > 0.2, h, 1.0 + 0 * h)), 0 * h),
    lambda m, h: m.relu(m.tanh(h)) * m.where(h < 0.9, h, h * h), lambda m, h: m.sin(h), lambda m, h: m.tanh(h),
]  # fmt: skip
"""Functions of one element, most of which are flat, or another function, in places."""

BODIES: list[Callable[..., Any]] = [
    lambda m, f, g, h, x: m.scan(lambda c, s: (c * s, c), m.sum(h), x)[1],
    lambda m, f, g, h, x: m.scan(lambda c, s: (f(c * s + 0.3), g(c)), m.sum(x) * 0.5, h)[1],
    lambda m, f, g, h, x: m.sum(m.scan(lambda c, s: (m.tanh(f(c) * s + x), c * s), h, x)[1], 0),
    lambda m, f, g, h, x: m.sum(f(m.scan(lambda c, s: (c * s, c + x), h, x)[1]), 1),
    lambda m, f, g, h, x: m.scan(lambda c, s: (f(c) * 0.6 + s * x, None), h, x)[0],
    lambda m, f, g, h, x: m.scan(lambda c, s: (m.sin(c + s), g(c * s)), m.sum(h), x, reverse=True)[1],
    lambda m, f, g, h, x: m.scan(lambda c, s: ((c[1] * s, c[0]), f(c[0]) + c[1]), (m.sum(h), m.sum(x)), h)[1],
    lambda m, f, g, h, x: m.scan(lambda c, s: (m.scan(lambda d, r: (f(d) * r + s, None), c, x)[0], c * s), h, x)[0],
    lambda m, f, g, h, x: m.fori(2, lambda c: f(c) * 0.5 + x, h),
    lambda m, f, g, h, x: m.whilst(lambda c: m.sum(c * c) < 2.0, lambda c: g(c) * 0.7 + x + 0.2, h, 3),
    lambda m, f, g, h, x: m.cond(m.sum(h) > 0.1, lambda h: f(h) * x, lambda h: g(h) + x, h),
    lambda m, f, g, h, x: m.switch(1, [f, lambda h: g(h) * m.sum(x), f], h),
    lambda m, f, g, h, x: m.map(lambda s: f(s) * s + g(x)[0], h),
    lambda m, f, g, h, x: m.vmap(lambda s: f(s * m.sum(x)) * s)(h),
    lambda m, f, g, h, x: m.kept(lambda h: f(g(h) * x), h),
    lambda m, f, g, h, x: m.marked(lambda h: g(f(h) + x), h),
    lambda m, f, g, h, x: m.grad(lambda h: f(h * x), h),
    lambda m, f, g, h, x: m.sum(m.jacobian(lambda h: f(h) * m.sum(g(h)), h), 1),
    lambda m, f, g, h, x: m.products(m.tanh(f(h)) + 0.5),
    lambda m, f, g, h, x: m.sum(f(m.matrix(h, (N, 1)) * m.tanh(x)), 0),
    lambda m, f, g, h, x: m.sum(m.matrix(f(h), (N, 1)) * g(x), 1),
    lambda m, f, g, h, x: m.softmax(f(h)) * g(x),
    lambda m, f, g, h, x: m.scan(lambda c, s: (m.cond(c > 0.2, f, g, c) + s, f(c)), m.sum(x), h)[1],
]  # fmt: skip
"""What has a body, or repeats something; of two values in the shape (N,)."""


class Program(NamedTuple):
    """A random function of one vector, or of rows by themselves, with towers of derivatives of it."""

    steps: list[tuple[int, int, int, float]]
    """Which mask, body and further mask, and how much of the input is added, so that nothing lies at a corner."""
    towers: list[str]
    """One letter for each derivative of the one before: gradient, vjp, jvp, Hessian times a vector (S), Jacobian,
    Hessian, its diagonal, Laplacian. Every part of a tower from its start is one too."""
    batched: bool
    """Whether it is taken of two rows, mapped."""

    def of(self, m: Any, x: Any) -> Any:
        """What it computes of one vector."""
        h = x
        for mask, body, after, share in self.steps:
            f, g = functools.partial(MASKS[mask], m), functools.partial(MASKS[after], m)
            h = f(BODIES[body](m, g, f, h, x)) * 0.5 + share * x + 0.03
        return h


def order_of(tower: str) -> int:
    """How many derivatives are taken."""
    return sum([1 + (letter in "HDLS") for letter in tower])


def random_program(rng: np.random.Generator, highest: int = 4, towers: int = 5) -> Program:
    """One step or, seldom, two; and so many towers of derivatives, to the highest order."""
    steps = [
        (int(rng.integers(len(MASKS))), int(rng.integers(len(BODIES))), int(rng.integers(len(MASKS))),
         float(rng.uniform(0.1, 0.5)))
        for _ in range(1 + (rng.integers(8) == 0))
    ]  # fmt: skip
    drawn = ["".join(rng.choice(list("GGJJPVHDLS"), highest)) for _ in range(towers)]
    parts = {tower[:k] for tower in drawn for k in range(highest + 1) if order_of(tower[:k]) <= highest}
    return Program(steps, sorted(parts), bool(rng.integers(3) == 0))


def weights(shape: tuple[int, ...]) -> Any:
    """Numbers by which nothing cancels."""
    return np.cos(np.arange(math.prod(shape)) + 0.5).reshape(shape) + 0.3


def ours(program: Program, x: Variable, chunk: int | None) -> list[Variable]:
    """What each tower of a program gives."""
    own, along = program.batched, np.broadcast_to(weights((N,)), x.shape)
    found = {"": nn.vmap(functools.partial(program.of, KITS[0]))(x) if own else program.of(KITS[0], x)}
    for tower in program.towers[1:]:
        t = found[tower[:-1]]
        given = np.broadcast_to(weights(t.shape[own:]), t.shape)
        y = F.sum(t * given, axis=tuple(range(own, t.ndim)))
        made: Any = {
            "G": lambda y=y: nn.grad(F.sum(y), x),
            "V": lambda t=t, given=given: nn.vjp([t], [x], [given]),
            "P": lambda t=t: nn.jvp([t], [x], [along]),
            "S": lambda y=y: nn.hvp([y], [x], [along]),
            "J": lambda t=t: [nn.jacobian(t, x, own, chunk)],
            "H": lambda y=y: [nn.hessian(y, x, own, chunk)],
            "D": lambda y=y: [nn.hessian_diagonal(y, x, own, chunk)],
            "L": lambda y=y: [nn.laplacian(y, x, own, chunk)],
        }[tower[-1]]()  # fmt: skip
        (found[tower],) = made
    return list(found.values())


def theirs(program: Program, x: Any) -> list[Any]:
    """All derivatives of one vector to order 4, by nested `jax.jacfwd`."""
    def value(x: Any) -> tuple[Any, list[Any]]:
        y = program.of(KITS[1], x)
        return y, [y]

    def derivative(f: Callable[[Any], Any], x: Any) -> tuple[Any, list[Any]]:
        made, lower = jax.jacfwd(f, has_aux=True)(x)
        return made, [*lower, made]

    f: Callable[[Any], Any] = value
    for _ in range(max(map(order_of, program.towers))):
        f = functools.partial(derivative, f)
    return f(x)[1]


def contracted(tower: str, tensors: list[Any]) -> Any:
    """What a tower gives, from all derivatives of what it is of: the axes of these come last."""
    for letter in tower:
        ndim = tensors[0].ndim
        if letter not in "JP":
            tensors = [np.tensordot(weights(tensors[0].shape), t, ndim) for t in tensors]
        tensors = [{
            "P": lambda t: t @ weights((N,)), "S": lambda t: t @ weights((N,)),
            "D": lambda t: np.einsum("ii...->i...", t), "L": lambda t: np.einsum("ii...->...", t),
        }.get(letter, lambda t: t)(t) for t in tensors[order_of(letter) :]]  # fmt: skip
    return tensors[0]


ROUTES: dict[str, tuple[bool, int | None]] = {
    "the default": (True, None), "not simplified": (False, None), "one direction at a time": (True, 1),
}  # fmt: skip


def differences(programs: list[Program], seed: int) -> list[str]:
    """What is different, of programs that are compiled together, by any route, from what JAX gives."""
    given = np.random.default_rng(seed).standard_normal((2, N)) * 0.7
    arrays = [given, given[0]]
    leaves = [Variable.from_numpy_array(a, need_grad=True) for a in arrays]
    places: list[tuple[str, Program, str, int]] = []
    outputs: list[Variable] = []
    for route, (simplified, chunk) in ROUTES.items():
        for n, program in enumerate(programs):
            with nn.simplify(simplified):
                outputs += ours(program, leaves[not program.batched], chunk)
            places += [(route, program, tower, n) for tower in program.towers]
    (got,) = runner([outputs], leaves)(arrays)
    with jax.enable_x64(True):
        of_all = compiled_cheaply(lambda x: [jax.vmap(functools.partial(theirs, each))(x) for each in programs])
        expected = jax.tree.map(np.asarray, of_all(given))
    found = []
    for (route, program, tower, n), value in zip(places, got, strict=True):
        of_rows = [contracted(tower, [t[row] for t in expected[n]]) for row in range(2)]
        right = np.stack(of_rows) if program.batched else of_rows[0]
        size = 1 + np.max(np.abs(right), initial=0.0)
        if value.shape != right.shape or not np.max(np.abs(value - right), initial=0.0) <= 1e-9 * size:
            found.append(f"{program.steps}, {tower}, rows: {program.batched}, {route}: {value} for {right}")
    return found


def test_a_mask_over_what_a_loop_stacks_to_order_3() -> None:
    """Directions run through the loop together, and the mask leaves out rows of what it stacks."""
    assert not differences([Program([(0, 0, 16, 0.3)], ["", "D", "DG", "H", "HG", "J", "JG", "JGG"], False)], 9)


def test_random_masks_in_and_around_bodies_to_order_3() -> None:
    assert not differences([random_program(np.random.default_rng([7, n]), 3, 1) for n in range(4)], 0)


def main() -> None:
    """Try many programs, op by op or, some at a time, compiled; print what is different."""
    parser = argparse.ArgumentParser()
    for name, default in (("count", 100), ("seed", 0), ("first", 0), ("compiled", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    tried, number, kinds = 0, options.first, collections.Counter[str]()
    while tried < options.count:
        numbers = range(number, number + max(1, options.compiled))
        number = numbers.stop
        programs = [random_program(np.random.default_rng([options.seed, n])) for n in numbers]
        try:
            with jax.disable_jit(not options.compiled):
                found = differences(programs, number)
        except ValueError as error:  # a clear refusal is no wrong value
            if "cannot be shown" not in str(error):
                raise
            kinds["refused"] += 1
            continue
        for program in programs:
            kinds.update([f"order {order_of(tower)}" for tower in program.towers])
            tried += len([tower for tower in program.towers if order_of(tower) > 1])
        print(f"{number} functions, {tried} programs, {dict(kinds)}, {len(found)} different")
        print(*found, sep="\n", end="", flush=True)


if __name__ == "__main__":
    main()
