"""The drop-in transformations: JAX functions in, JAX functions out, derivatives by graphs in between.

Arguments are those of JAX's own where it has the transformation. `fun` is a function of arrays, in pytrees; results
are `Transformed`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..derivatives.sums import bilaplacian as bilaplacian_of
from ..derivatives.sums import divergence as divergence_of
from ..derivatives.sums import laplacian as laplacian_of
from . import builds
from .builds import check_alike
from .transformed import Build, Transformed

Argnums = int | Sequence[int]


def grad(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False,
) -> Transformed:  # fmt: skip
    """The gradient of a function that returns one number, as `jax.grad`.

    Args:
        fun: Returns a floating array of shape (); with `has_aux` a pair, of that and anything else.
        argnums: Which positional arguments to differentiate by; several give a tuple of gradients.
        has_aux: Whether `fun` returns a pair; the result then is the gradient and the second of the pair.
        holomorphic: Whether `fun` is one of complex numbers that is complex differentiable. Without it, the gradient of
            a real number by x + iy is, as in JAX, the one by x less i times that by y.
        allow_int: Whether arguments to differentiate by may hold whole numbers, too. In their place the gradient has
            zeros of JAX's float0.

    Raises:
        TypeError: (when it is called) What is differentiated is not one floating number, or something in an argument
            to differentiate by is not floating.
    """
    return Transformed(fun, Build(builds.grad, (_numbers("grad", argnums), has_aux, holomorphic, allow_int)), "grad")


def value_and_grad(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False,
) -> Transformed:  # fmt: skip
    """The value of a function and its gradient, as `jax.value_and_grad`.

    Args:
        fun: As for `grad`.
        argnums: As for `grad`.
        has_aux: As for `grad`; the result then is `((value, auxiliary), gradient)`.
        holomorphic: As for `grad`.
        allow_int: As for `grad`.

    Raises:
        TypeError: As for `grad`.
    """
    build = Build(builds.value_and_grad, (_numbers("value_and_grad", argnums), has_aux, holomorphic, allow_int))
    return Transformed(fun, build, "value_and_grad")


def jacobian(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Transformed:
    """The Jacobian of a function, as `jax.jacrev` and `jax.jacfwd`: whichever is right follows from the graph.

    Args:
        fun: Returns a pytree of floating arrays; with `has_aux` a pair, of that and anything else.
        argnums: Which positional arguments to differentiate by.
        has_aux: Whether `fun` returns a pair.
        holomorphic: As for `grad`.

    Returns:
        The function. It gives the pytree of the results, of pytrees of the arguments, of `(*result, *argument)`.

    Raises:
        TypeError: (when it is called) Something in an argument to differentiate by is not floating.
    """
    return Transformed(fun, Build(builds.jacobian, (_numbers("jacobian", argnums), has_aux, holomorphic)), "jacobian")


def hessian(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Transformed:
    """The Hessian of a function that returns one number, as `jax.hessian`.

    Args:
        fun: Returns a floating array of shape (); with `has_aux` a pair, of that and anything else.
        argnums: Which positional arguments to differentiate by.
        has_aux: Whether `fun` returns a pair.
        holomorphic: As for `grad`.

    Returns:
        The function. It gives pytrees of the arguments, of such pytrees, of `(*argument, *other)`.

    Raises:
        TypeError: As for `grad`.
    """
    return Transformed(fun, Build(builds.hessian, (_numbers("hessian", argnums), has_aux, holomorphic)), "hessian")


def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """A function's value, and its derivative in one direction, as `jax.jvp`.

    Args:
        fun: A function of arrays.
        primals: Its arguments.
        tangents: The direction, in the structure of `primals`.
        has_aux: Whether `fun` returns a pair, of which the second is handed on.

    Raises:
        TypeError: The structures differ, or the two are not tuples or lists of arguments.
    """
    for name, given in {"primals": primals, "tangents": tangents}.items():
        if not isinstance(given, tuple | list):
            raise TypeError(f"jvp: {name} must be a tuple, with an entry for each argument of fun, got {given!r}")
    return _pushed(Transformed(fun, Build(builds.jvp, (has_aux,)), "jvp"), "jvp", tuple(primals), tuple(tangents))


def _pushed(pushed: Transformed, name: str, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    """The value, its derivative along tangents, and what there is beside."""
    check_alike(name, "tangents", primals, tangents)
    y, moved, *auxiliary = pushed(primals, jax.tree.map(_without_float0, tangents))
    return y, jax.tree.map(_tangent, y, moved), *auxiliary


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """A function's value, and the function of tangents that gives its derivative along them, as `jax.linearize`.

    What the derivative needs of the value is computed again at each call, unless both are in one `jax.jit`.

    Args:
        fun: A function of arrays.
        primals: Its arguments.
        has_aux: Whether `fun` returns a pair, of which the second is handed on.

    Raises:
        TypeError: (when the function is called) The structure of tangents is not that of the arguments.
    """
    value = Transformed(fun, Build(builds.value), "linearize")(*primals)
    pushed = Transformed(fun, Build(builds.jvp, (has_aux,)), "linearize")

    def along(*tangents: Any) -> Any:
        return _pushed(pushed, "linearize", primals, tangents)[1]

    return (value[0], along, value[1]) if has_aux else (value, along)


def _without_float0(tangent: Any) -> Any:
    """A tangent as an array of a dtype that there is; that of integers has none."""
    is_none = getattr(tangent, "dtype", None) == jax.dtypes.float0
    return np.zeros(np.shape(tangent), np.int8) if is_none else tangent


def _tangent(result: Any, moved: Any) -> Any:
    moves = jnp.issubdtype(result.dtype, jnp.inexact)
    return moved if moves else np.zeros(result.shape, jax.dtypes.float0)


def hvp(fun: Callable[..., Any], primals: Sequence[Any], vectors: Sequence[Any]) -> Any:
    """The Hessian of a function that returns one number, times vectors.

    Args:
        fun: A function of arrays.
        primals: Its arguments, all floating.
        vectors: In the structure of `primals`.

    Returns:
        A tuple in the structure of `primals`.

    Raises:
        TypeError: The structures differ.
    """
    check_alike("hvp", "vectors", tuple(primals), tuple(vectors))
    return Transformed(fun, Build(builds.hvp), "hvp")(tuple(primals), tuple(vectors))


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """A function's value, and the function of cotangents that gives the gradients of the arguments, as `jax.vjp`.

    Args:
        fun: A function of arrays.
        primals: Its arguments.
        has_aux: Whether `fun` returns a pair, of which the second is handed on.

    Raises:
        TypeError: (when the function is called) The structure of cotangents is not that of the results.
    """
    value = Transformed(fun, Build(builds.value), "vjp")(*primals)
    pulled = Transformed(fun, Build(builds.vjp, (has_aux,)), "vjp")
    gradients = functools.partial(pulled, primals)
    return (value[0], gradients, value[1]) if has_aux else (value, gradients)


def laplacian(
    fun: Callable[..., Any], argnums: int = 0, batched: bool = False, directions: int | None = None,
    kind: str = "sparse",
) -> Transformed:  # fmt: skip
    """The Laplacian of a function, the sum of its second derivatives by the elements of an argument.

    Args:
        fun: Returns an array, one number or more.
        argnums: The argument to differentiate by, one array.
        batched: Whether its first axis is one of rows that are independent: then the Laplacian of each.
        directions: How many random directions to estimate it from, as in `nn.laplacian`; the function that is returned
            then takes a key before the arguments of `fun`, from which they follow. None for the exact result.
        kind: How they are distributed: "sparse", "rademacher" or "gaussian".

    Raises:
        TypeError: (when it is called) The argument or the result is no single array.
    """
    return _of_rows(fun, "laplacian", laplacian_of, argnums, batched, directions, kind)


def bilaplacian(
    fun: Callable[..., Any], argnums: int = 0, batched: bool = False, directions: int | None = None,
    kind: str = "sparse",
) -> Transformed:  # fmt: skip
    """The Laplacian of the Laplacian of a function.

    Args:
        fun: As for `laplacian`.
        argnums: As for `laplacian`.
        batched: As for `laplacian`.
        directions: As for `laplacian`.
        kind: As for `laplacian`.

    Raises:
        TypeError: As for `laplacian`.
    """
    return _of_rows(fun, "bilaplacian", bilaplacian_of, argnums, batched, directions, kind)


def divergence(
    fun: Callable[..., Any], argnums: int = 0, batched: bool = False, directions: int | None = None,
    kind: str = "sparse",
) -> Transformed:  # fmt: skip
    """The divergence of a vector field: the sum of the derivatives of each component by its own coordinate.

    Args:
        fun: Returns an array of the argument's shape.
        argnums: As for `laplacian`.
        batched: As for `laplacian`.
        directions: As for `laplacian`.
        kind: As for `laplacian`.

    Raises:
        TypeError: As for `laplacian`.
    """
    return _of_rows(fun, "divergence", divergence_of, argnums, batched, directions, kind)


def nth_derivative(fun: Callable[..., Any], n: int, argnums: int = 0) -> Transformed:
    """The derivative of order `n` by an argument of which each element of the result depends on one element.

    Args:
        fun: A function of one number, or of many points at once.
        n: The order, at least 1.
        argnums: The argument to differentiate by, one array.

    Raises:
        TypeError: As for `laplacian`.
        ValueError: `n` is below 1.
    """
    return Transformed(fun, Build(builds.nth_derivative, (n, argnums)), "nth_derivative")


def derivatives(fun: Callable[..., Any], wanted: Sequence[Sequence[int]]) -> Transformed:
    """Several partial derivatives of a function at once, which share what they have in common.

    Args:
        fun: A function of arrays, one for each coordinate: of one point, or of many at once.
        wanted: For each derivative the positions of the arguments to differentiate by, in turn: `[(0,), (0, 0), (1,)]`
            for u_x, u_xx and u_t of u(x, t).

    Returns:
        The function. It gives a list of the derivatives.

    Raises:
        TypeError: (when it is called) An argument or the result is no single array.
    """
    if not isinstance(wanted, Sequence) or not all([isinstance(each, Sequence) for each in wanted]):
        raise TypeError(f"derivatives: wanted must be a list of tuples of positions of arguments, got {wanted!r}")
    return Transformed(fun, Build(builds.derivatives, (tuple([tuple(each) for each in wanted]),)), "derivatives")


def checkpoint(fun: Callable[..., Any]) -> Transformed:
    """A function whose inner values gradients compute again, so that they need not be kept, as `jax.checkpoint`.

    Args:
        fun: A function of arrays.
    """
    return Transformed(fun, Build(builds.checkpoint), "checkpoint")


def _of_rows(
    fun: Callable[..., Any], name: str, operator: Callable[..., Any], argnums: int, batched: bool,
    directions: int | None, kind: str,
) -> Transformed:  # fmt: skip
    if directions is None:
        return Transformed(fun, Build(builds.of_rows, (name, operator, argnums, batched)), name)
    build = Build(builds.of_drawn_directions, (name, operator, argnums, batched, directions, kind))
    return Transformed(fun, build, name)


def _numbers(name: str, argnums: Argnums) -> int | tuple[int, ...]:
    listed = (argnums,) if isinstance(argnums, int) else tuple(argnums) if isinstance(argnums, Sequence) else ()
    if not listed or any([isinstance(n, bool) or not isinstance(n, int) for n in listed]):
        raise TypeError(f"{name}: argnums must be a position of an argument, or several, got {argnums!r}")
    return argnums if isinstance(argnums, int) else listed
