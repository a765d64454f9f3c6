"""What gradients should be: nested `jax.vjp` of a reference, and differences of neighbouring points.

At each order the gradient of a random projection of the order before is taken with respect to all
floating inputs:  s0 = <f(x), r0>,  g1 = ds0/dx,  s1 = <g1, r1>,  g2 = ds1/dx,  ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nngrad.autodiff.walk import Grad
from nngrad.execution.executable import quick_options
from nngrad.extend import Variable, linearize, lower

Arrays = list[np.ndarray]


def compiled_cheaply(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, compiled as the first tier is: for what runs a few times on tiny arrays."""
    return jax.jit(f, compiler_options=quick_options() if jax.default_backend() == "cpu" else None)


def by_jax(f: Callable[..., Any], *arrays: Any) -> Any:
    """What `f` gives for the arrays, with 64-bit types and as one executable, as arrays of NumPy."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, compiled_cheaply(f)(*map(jnp.asarray, arrays)))


def as_tuple(y: Any) -> tuple[Any, ...]:
    """`y` as a tuple of outputs."""
    return tuple(y) if isinstance(y, tuple | list) else (y,)


def is_floating(x: Any) -> bool:
    """Whether gradients can reach `x`."""
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def projections(rng: np.random.Generator, outputs: Sequence[Any], inputs: Sequence[Any], orders: int) -> list[Arrays]:
    """Random directions for the outputs (order 0) and for the gradients (each order after it)."""
    first = [rng.standard_normal(y.shape) if is_floating(y) else None for y in outputs]
    rest = [[rng.standard_normal(x.shape) for x in inputs if is_floating(x)] for _ in range(orders - 1)]
    return [first, *rest]


def gradients_of(h: Callable[..., Any], rs: Arrays) -> Callable[..., tuple[Any, ...]]:
    """The gradients of `<h(x), rs>` in all of x; None in `rs` is for outputs that have none."""

    def g(*xs: Any) -> tuple[Any, ...]:
        ys, pull = jax.vjp(h, *xs)
        return pull(tuple(np.zeros(y.shape, jax.dtypes.float0) if r is None else jnp.asarray(r, y.dtype)
                          for y, r in zip(ys, rs, strict=True)))

    return g


def levels_of(f: Callable[..., Any], inputs: Sequence[Any], directions: list[Arrays]) -> Callable[..., list[Any]]:
    """`[f(x), g1, g2, ...]` by nested `jax.vjp`, as a function of the floating inputs."""
    places = [i for i, x in enumerate(inputs) if is_floating(x)]

    def at(*xs: Any) -> tuple[Any, ...]:
        full = list(inputs)
        for i, x in zip(places, xs, strict=True):
            full[i] = x
        return as_tuple(f(*full))

    def everything(*xs: Any) -> list[tuple[Any, ...]]:
        results, h = [at(*xs)], at
        for rs in directions:
            h = gradients_of(h, rs)
            results.append(h(*xs))
        return results

    return everything


def jax_orders(f: Callable[..., Any], inputs: Sequence[Any], directions: list[Arrays], orders: int) -> list[Arrays]:
    """The same, computed."""
    with jax.enable_x64(True):
        run = compiled_cheaply(levels_of(f, inputs, directions[:orders]))
        return [[np.asarray(a) for a in level] for level in run(*[jnp.asarray(x) for x in inputs if is_floating(x)])]


def nngrad_graph(
    f: Callable[..., Any], leaves: list[Variable], directions: list[Arrays], orders: int
) -> list[list[Variable]]:
    """`[f(x), g1, g2, ...]` as graphs of nngrad, by the plain walk: a faulty rule may do no harm in forward mode."""
    floating = [x for x in leaves if is_floating(x)]
    levels = [list(as_tuple(f(*leaves)))]
    for rs in directions[:orders]:
        pairs = [(y, r) for y, r in zip(levels[-1], rs, strict=True) if r is not None]
        seeds = [Variable.from_numpy_array(r.astype(y.dtype)) for y, r in pairs]
        levels.append(Grad()([y for y, _ in pairs], floating, seeds))
    return levels


def runner(levels: list[list[Variable]], leaves: list[Variable]) -> Callable[[Sequence[Any]], list[Arrays]]:
    """All levels as one executable of the leaves' arrays."""
    flat = [y for level in levels for y in level]
    linear = linearize(flat, first=leaves)
    constants = [x.cell.raw() for x in linear.leaves[len(leaves):]]

    def run(arrays: Sequence[Any]) -> list[Arrays]:
        with jax.enable_x64(True):
            results = iter([np.asarray(a) for a in compiled(*arrays, *constants)])
        return [[next(results) for _ in level] for level in levels]

    compiled = compiled_cheaply(lower(linear.program))
    return run


def arrays_of(*ys: Variable) -> Arrays:
    """The values of Variables, by one executable."""
    return runner([list(ys)], [])([])[0]


def check(f: Callable[..., Any], reference: Callable[..., Any], inputs: Arrays, orders: int, *, seed: int = 0,
          numeric: bool = True, rtol: float = 1e-9) -> None:
    """Compare `f` of Variables with `reference` of arrays at orders 0 to `orders`, and each order with
    differences of the order below."""
    rng = np.random.default_rng(seed)
    leaves = [Variable.from_numpy_array(x) for x in inputs]
    outputs = as_tuple(f(*leaves))
    directions = projections(rng, outputs, inputs, orders) if orders else []
    expected = jax_orders(reference, inputs, directions, orders)
    levels = nngrad_graph(f, leaves, directions, orders)
    run = runner(levels, leaves)
    got = run(inputs)
    check_levels(got, expected, rtol)
    if numeric and orders:
        check_differences(run, inputs, got, directions)


def check_levels(got: list[Arrays], expected: list[Arrays], rtol: float = 1e-9) -> None:
    """Compare the results of each order."""
    for order, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        assert len(ours) == len(theirs), f"order {order}: {len(ours)} results, expected {len(theirs)}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a.shape == b.shape, f"order {order}, result {i}: shape {a.shape}, expected {b.shape}"
            scale = max(1.0, float(np.max(np.abs(b.astype(float)), initial=0.0)))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=f"order {order}, result {i}")


def check_differences(run: Callable[[Sequence[Any]], list[Arrays]], inputs: Arrays, got: list[Arrays],
                      directions: list[Arrays], step: float = 1e-5, rtol: float = 1e-5) -> None:
    """Compare each order with central differences of the order below, along one random direction."""
    check_slopes(inputs, got, *[run(arrays) for arrays in stepped(inputs, step)], directions, step, rtol)


def direction(inputs: Arrays) -> list[Any]:
    """One random direction of the floating inputs, with None for the others."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal(x.shape) if is_floating(x) else None for x in inputs]


def stepped(inputs: Arrays, step: float = 1e-5) -> list[Arrays]:
    """The inputs a step ahead and a step behind, along one random direction."""
    return [[x if v is None else x + sign * step * v for x, v in zip(inputs, direction(inputs), strict=True)]
            for sign in (1, -1)]  # fmt: skip


def check_slopes(inputs: Arrays, got: list[Arrays], ahead: list[Arrays], behind: list[Arrays],
                 directions: list[Arrays], step: float = 1e-5, rtol: float = 1e-5) -> None:
    """Compare each order with the slope of the order below between a step ahead and a step behind."""
    moves = [v for v in direction(inputs) if v is not None]
    for order, rs in enumerate(directions):
        slope = sum(
            np.sum(r * (a.astype(float) - b.astype(float)))
            for r, a, b in zip(rs, ahead[order], behind[order], strict=True) if r is not None
        ) / (2 * step)
        exact = sum(np.sum(g * v) for g, v in zip(got[order + 1], moves, strict=True))
        size = sum(float(np.sum(np.abs(g * v))) for g, v in zip(got[order + 1], moves, strict=True))
        assert abs(slope - exact) <= rtol * max(1.0, size), f"order {order + 1}: differences {slope}, gradient {exact}"


