"""Functions that control gradients, effects and the order of computation: sink, unlink, update, assign,
optimization_barrier, sharding_constraint, recomputed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import AnyArray, Array, Function, Op, Variable, apply, composite, op
from ..graph.arguments import Static
from ..graph.axes import AxisMap, Places
from ..graph.placement import mesh_of_program
from . import array
from .arithmetic import broadcast_pair


@op(reads=0)
def sink(*x: Array, one_input_grad: bool = True) -> jax.Array:
    """A scalar 0 that depends on all of `x`, so that they are computed and differentiated together.

    Its `forward()` computes them all. Its dtype is the promotion of the floating inputs; float32 if there are none.

    Args:
        x: One or more arrays of any shapes.
        one_input_grad: Whether the gradient at each of `x` is ones, whatever arrives at the sink. Otherwise `nn.grad`
            passes no gradient, and `backward()` of the sink starts from the `.grad` of each of `x`.
    """
    del one_input_grad
    dtypes = [value.dtype for value in x if jnp.issubdtype(value.dtype, jnp.floating)]
    return lax.full((), 0, jnp.result_type(*dtypes) if dtypes else jnp.float32)


@op(elementwise=True, diagonal=True, forwards_inputs=True, constant=True)
def unlink(x: AnyArray, /) -> jax.Array:
    """`x` unchanged; no gradient passes."""
    y: jax.Array = lax.stop_gradient(x)  # also if JAX differentiates the emitted function
    return y


@op(multiple_results=True, forwards_inputs=True)
def update(*x: Array) -> tuple[jax.Array, ...]:
    """All of `x` unchanged, each as an output.

    `with_updates` ties the leaves that `forward()` writes to the second and later outputs; applied by itself it updates
    nothing.

    Args:
        x: One or more arrays of any shapes.
    """
    return x


def _first(f: Function) -> tuple[Places, ...]:
    return tuple([tuple([a if i == 0 else None for a in range(x.ndim)]) for i, x in enumerate(f.inputs)])


@op(
    reads=1,
    fuses="in place",
    axes=AxisMap(places=_first, leading=lambda f, size, shape: {}, inputs=(0,)),
)
def optimization_barrier(*x: Array) -> jax.Array:
    """The first of `x`, bit for bit, computed after all the others.

    XLA can neither start computations from its result earlier, nor merge them with equal computations from the first of
    `x` itself. So a recomputation is not merged with the computation that it repeats.

    Args:
        x: The value to pass on, and then the values to be computed before it, of any shapes and dtypes.
    """
    y: jax.Array = lax.optimization_barrier(x)[0]
    return y


@op(elementwise=True, linear=True, fuses="in place")
def sharding_constraint(x: AnyArray, /, axes: Static) -> jax.Array:
    """`x` unchanged, sharded over axes of the mesh that it is computed on; its gradient is sharded likewise.

    `nn.shard` inserts it into the middle of a graph. Without a mesh it does nothing.

    Args:
        axes: For each axis of `x` the name of a mesh axis, several in a tuple, or None; axes left out are None. A
            single name shards the largest axis of `x` that is divisible.

    Raises:
        ValueError: The mesh has no such axis, or a size is not divisible.
    """
    mesh = mesh_of_program()
    y: jax.Array = x
    if mesh is not None:
        y = lax.with_sharding_constraint(x, mesh.sharding(mesh.resolved(axes, x.shape, "shard: a value")))
    return y


@op(elementwise=True, diagonal=True, forwards_inputs=True, reads=1)
def recomputed(x: Array, original: Array, /) -> jax.Array:
    """`x`, recomputed in place of the equal value `original`, which then need not be stored.

    Gradients pass to `original`, as if nothing had been recomputed.

    Args:
        x: The value.
        original: The equal value, of the same shape and dtype.
    """
    if x.shape != original.shape or x.dtype != original.dtype:
        raise ValueError(f"original must have the shape and dtype of x, {x.dtype}{list(x.shape)}")
    y: jax.Array = x
    return y


def computed_again(f: Function) -> tuple[Variable, Variable] | None:
    """The recomputed value and the original one, if `f` replaces one by the other; else None."""
    return (f.inputs[0], f.inputs[1]) if f.op is recomputed else None


def input_passed_on(op: Op) -> int | None:
    """For an op that only says when or where something is computed: the index of the input that it returns, or that
    equals its result. None for other ops."""
    return 1 if op is recomputed else 0 if op is optimization_barrier else None


def in_turn(leaf: Variable) -> Variable:
    """The value of a leaf that `with_updates` is about to update: as the graph's calls before this one leave it.

    So what else a call computes from the leaf follows the updates too, and not only the leaf's own new value. Gradients
    pass. A Variable that is not a leaf is returned as it is.
    """
    return leaf if leaf.parent is not None else apply(update, (leaf,), (), ((leaf, 0),))[0]


def with_updates(y: Variable, updates: Mapping[Variable, Variable]) -> Variable:
    """`y`, computed so that each `forward()` also puts new values into leaves: running statistics and the like.

    The new values are computed from what the leaves held when `forward()` was called, and are written once
    per `forward()`, however often `y` is read; reading `y` without `forward()` writes nothing. If a graph updates a
    leaf several times, the updates take place in the order of these calls, each from the result of the previous one
    (see `in_turn` for `y`). Gradients pass through to `y` and do not see the writing.

    Args:
        y: The result.
        updates: The new value of each leaf, of the leaf's shape; it is cast to the leaf's dtype.

    Returns:
        A Variable with the value of `y`.

    Raises:
        ValueError: A key is not a leaf, or its new value has another shape.
    """
    values = []
    for leaf, value in updates.items():
        if leaf.parent is not None:
            raise ValueError(f"with_updates: only leaves can be updated, got an output of {leaf.parent.op.name}")
        if value.shape != leaf.shape:
            raise ValueError(f"with_updates: the value of a leaf must have its shape, {leaf.shape}, got {value.shape}")
        values.append(array.in_dtype(value, leaf.dtype))
    effects = tuple([(leaf, i) for i, leaf in enumerate(updates, start=1)])
    result: Variable = apply(update, (y, *values), (), effects)[0]
    return result


@op(elementwise=True, diagonal=True, broadcasts=True)
def value_of(dst: Array, src: Array, /) -> jax.Array:
    """The value of `src` in the dtype of `dst`, with gradients that go to `dst`.

    Args:
        dst: The Variable that gets the gradient.
        src: The Variable that gives the value, of a shape that broadcasts with that of `dst`.
    """
    return lax.convert_element_type(broadcast_pair(dst, src)[1], dst.dtype)


@composite
def assign(dst: Array, src: Array, /) -> Variable:
    """The value of `src`, which each `forward()` of the result also writes to `dst`.

    As in nnabla, gradients go to `dst`, and none to `src`: as if the result were `dst`, which holds that value.

    Args:
        dst: A leaf.
        src: The value to write, of the shape of `dst`; it is cast to its dtype.

    Raises:
        ValueError: `dst` is not a leaf, or the shapes differ.
    """
    if dst.parent is not None:
        raise ValueError(f"dst must be a leaf, got an output of {dst.parent.op.name}")
    if dst.shape != src.shape:
        raise ValueError(f"src must have the shape of dst, {dst.shape}, got {src.shape}")
    y = value_of(dst, src)
    return with_updates(y, {dst: y})


Create = Callable[[tuple[Variable, ...]], Variable]
"""Makes an `optimization_barrier` of the value to pass on, followed by the values to compute before it."""


class Recomputation:
    """Recomputed functions, which must not start before some tokens, such as incoming gradients, are available. A
    function that reads none of these reads one of its inputs behind a barrier. Otherwise it would equal the function
    that it repeats, and the compiler would compute both once and keep the result."""

    def __init__(self, tokens: Sequence[Variable]) -> None:
        self._tokens = tuple(tokens)
        self._tied: dict[Variable, Variable] = {}

    def begun(self, inputs: Sequence[Variable], among: Iterable[int], create: Create) -> list[Variable]:
        """The inputs for such a function; the smallest of those `among` them waits for the tokens."""
        k = min(among, key=lambda k: inputs[k].spec.nbytes or math.inf)
        x = inputs[k]
        if x not in self._tied:
            self._tied[x] = create((x, *self._tokens))
        return [*inputs[:k], self._tied[x], *inputs[k + 1 :]]
