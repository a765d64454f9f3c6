"""The drop-in transformations: JAX functions in, JAX functions out, derivatives by graphs in between.

If JAX has the transformation, its arguments are the same. `fun` is a function of arrays, in pytrees; results are
`Transformed`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..derivatives.sums import bilaplacian as bilaplacian_of
from ..derivatives.sums import divergence as divergence_of
from ..derivatives.sums import laplacian as laplacian_of
from ..extend import Variable
from ..functions.docstrings import completed
from . import builds
from .builds import Options, check_alike
from .linear import Vectors, floating, linear_function
from .transformed import Build, Transformed

Argnums = int | Sequence[int]


def grad(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False,
) -> Transformed:  # fmt: skip
    """The gradient of a scalar-valued function, as `jax.grad`.

    Args:
        fun: Returns a floating array of shape (); with `has_aux` a pair of that and anything else.
        argnums: Which positional arguments to differentiate by; several give a tuple of gradients.
        has_aux: Whether `fun` returns a pair; the result is then the gradient and the second item of the pair.
        holomorphic: Whether `fun` is a holomorphic function of complex numbers. If not, the gradient of a real number
            by x + iy is, as in JAX, the one by x minus i times the one by y.
        allow_int: Whether arguments to differentiate by may also hold integers. Their gradients are zeros of JAX's
            float0.

    Raises:
        TypeError: (when it is called) The result to differentiate is not one floating number, or something in an
            argument to differentiate by is not floating.
    """
    return _derivative(builds.value_and_grad, "grad", fun, argnums, has_aux, holomorphic, allow_int)


@completed
def value_and_grad(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False,
) -> Transformed:  # fmt: skip
    """The value of a function and its gradient, as `jax.value_and_grad`.

    Args:
        has_aux: As in `grad`; the result then is `((value, auxiliary), gradient)`.
        ...: As in `grad`.
    """
    return _derivative(builds.value_and_grad, "value_and_grad", fun, argnums, has_aux, holomorphic, allow_int)


@completed
def jacobian(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Transformed:
    """The Jacobian of a function, as `jax.jacrev` and `jax.jacfwd`; the graph decides which mode is best.

    Args:
        fun: Returns a pytree of floating arrays; with `has_aux` a pair of that and anything else.
        argnums: Which positional arguments to differentiate by.
        has_aux: Whether `fun` returns a pair.
        ...: As in `grad`.

    Returns:
        The function. It returns the pytree of the results, of pytrees of the arguments, of `(*result, *argument)`.

    Raises:
        TypeError: (when it is called) Something in an argument to differentiate by is not floating.
    """
    return _derivative(builds.jacobian, "jacobian", fun, argnums, has_aux, holomorphic)


@completed
def jacfwd(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Transformed:
    """The Jacobian of a function, as `jax.jacfwd`. It is `jacobian`: the graph decides between forward and reverse
    mode.

    Args:
        ...: As in `jacobian`.
    """
    return _derivative(builds.jacobian, "jacfwd", fun, argnums, has_aux, holomorphic)


@completed
def jacrev(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False,
) -> Transformed:  # fmt: skip
    """The Jacobian of a function, as `jax.jacrev`. It is `jacobian`: the graph decides between forward and reverse
    mode.

    Args:
        allow_int: As in `grad`; for integers the Jacobian has zeros of their own dtype.
        ...: As in `jacobian`.
    """
    return _derivative(builds.jacobian, "jacrev", fun, argnums, has_aux, holomorphic, allow_int)


@completed
def hessian(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Transformed:
    """The second derivatives of a function, as `jax.hessian`.

    Args:
        fun: Returns one floating number, or a pytree of floating arrays; with `has_aux` a pair of that and anything
            else.
        ...: As in `jacobian`.

    Returns:
        The function. It returns the pytree of the results, of pytrees of the arguments, of such pytrees, of
        `(*result, *argument, *other)`.
    """
    return _derivative(builds.hessian, "hessian", fun, argnums, has_aux, holomorphic)


def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """A function's value and its directional derivative, as `jax.jvp`.

    Args:
        fun: A function of arrays.
        primals: Its arguments.
        tangents: The direction, in the structure of `primals`.
        has_aux: Whether `fun` returns a pair, whose second item is returned too.

    Raises:
        TypeError: Structures, shapes or dtypes differ, or the two are not tuples or lists of arguments.
    """
    for name, value in {"primals": primals, "tangents": tangents}.items():
        if not isinstance(value, tuple | list):
            raise TypeError(f"jvp: {name} must be a tuple with an entry for each argument of fun, got {value!r}")
    moving = Vectors.like("jvp", "tangents", tuple(primals)).moving(tuple(tangents), TypeError)
    build = Build(builds.jvp, (has_aux,), builds.of_primals)
    result: tuple[Any, ...] = Transformed(fun, build, "jvp")(tuple(primals), moving)
    return result


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """A function's value, and its derivative as a function of tangents, as `jax.linearize`.

    The function is a pytree: `jax.jit` can return it and take it. The values that the derivative needs are recomputed
    at each call, unless both are in one `jax.jit`.

    Args:
        fun: A function of arrays.
        primals: Its arguments.
        has_aux: Whether `fun` returns a pair, whose second item is returned too.

    Raises:
        TypeError: (when the function is called) The structure of tangents is not that of the arguments.
        ValueError: (when the function is called) Tangents are of other shapes or dtypes.
    """
    value = Transformed(fun, Build(builds.value), "linearize")(*primals)
    result, *auxiliary = value if has_aux else (value,)
    pushed = Transformed(fun, Build(builds.tangents, (has_aux,)), "linearize")
    takes = Vectors.like("linearize", "tangents", primals)
    try:
        along = linear_function(pushed, primals, floating(primals), takes, False)
    except Exception as error:
        return tuple(pushed.by_jax("linearize", error, primals, {}))
    return result, along, *auxiliary


def hvp(fun: Callable[..., Any], primals: Sequence[Any], vectors: Sequence[Any]) -> Any:
    """The product of a scalar-valued function's Hessian with vectors.

    Args:
        fun: A function of arrays.
        primals: Its arguments, all floating.
        vectors: In the structure of `primals`.

    Returns:
        A tuple in the structure of `primals`.

    Raises:
        TypeError: The structures differ.
    """
    check_alike("hvp", "vectors", jax.tree.structure(tuple(primals)), tuple(vectors))
    return Transformed(fun, Build(builds.hvp, (), builds.of_primals), "hvp")(tuple(primals), tuple(vectors))


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """A function's value, and the function from cotangents to gradients of the arguments, as `jax.vjp`.

    The function is a pytree: `jax.jit` can return it and take it.

    Args:
        fun: A function of arrays.
        primals: Its arguments.
        has_aux: Whether `fun` returns a pair, whose second item is returned too.

    Raises:
        ValueError: (when the function is called) Cotangents differ from the results in structure, shapes or dtypes.
    """
    value = Transformed(fun, Build(builds.value), "vjp")(*primals)
    result, *auxiliary = value if has_aux else (value,)
    pulled = Transformed(fun, Build(builds.vjp, (has_aux,)), "vjp")
    takes = Vectors.like("vjp", "cotangents", result)
    try:
        gradients = linear_function(pulled, primals, floating(result), takes, True)
    except Exception as error:
        return tuple(pulled.by_jax("vjp", error, primals, {}))
    return result, gradients, *auxiliary


def laplacian(
    fun: Callable[..., Any], argnums: int = 0, batched: bool = False, directions: int | None = None,
    kind: str = "sparse", with_gradient: bool = False,
) -> Transformed:  # fmt: skip
    """The Laplacian of a function: the sum of its second derivatives by the elements of an argument.

    Args:
        fun: Returns an array, one number or more, real or complex.
        argnums: The argument to differentiate by, one real array.
        batched: Whether its first axis is a batch of independent rows; the result is then the Laplacian of each.
        directions: How many random directions to estimate it from, as in `nn.laplacian`; the returned function then
            takes a key, which determines them, before the arguments of `fun`. None for the exact result.
        kind: Their distribution: "sparse", "rademacher" or "gaussian".
        with_gradient: Whether the function returns `(value, gradient, laplacian)`, from one pass; a ValueError with
            random `directions`, which do not give the gradient.

    Raises:
        TypeError: (when it is called) The argument or the result is not a single array.
    """
    if not with_gradient:
        return _of_rows(fun, "laplacian", laplacian_of, argnums, batched, directions, kind)
    if directions is not None:
        raise ValueError(
            "laplacian: with_gradient must be False with random directions; use nj.grad for the gradient"
        )
    return _of_rows(fun, "laplacian", _all_of_one_pass, argnums, batched, directions, kind)


@completed
def bilaplacian(
    fun: Callable[..., Any], argnums: int = 0, batched: bool = False, directions: int | None = None,
    kind: str = "sparse",
) -> Transformed:  # fmt: skip
    """The Laplacian of the Laplacian of a function.

    Args:
        ...: As in `laplacian`.
    """
    return _of_rows(fun, "bilaplacian", bilaplacian_of, argnums, batched, directions, kind)


@completed
def divergence(
    fun: Callable[..., Any], argnums: int = 0, batched: bool = False, directions: int | None = None,
    kind: str = "sparse",
) -> Transformed:  # fmt: skip
    """The divergence of a vector field: the sum of the derivatives of each component by its own coordinate.

    Args:
        fun: Returns an array of the argument's shape.
        ...: As in `laplacian`.
    """
    return _of_rows(fun, "divergence", divergence_of, argnums, batched, directions, kind)


def nth_derivative(fun: Callable[..., Any], n: int, argnums: int = 0) -> Transformed:
    """The derivative of order `n` of an elementwise function, by one argument.

    Args:
        fun: A function of one number, or of many points at once.
        n: The order, at least 1.
        argnums: The argument to differentiate by, one array.

    Raises:
        TypeError: As in `laplacian`.
        ValueError: `n` is below 1.
    """
    return Transformed(fun, Build(builds.nth_derivative, (n, argnums)), "nth_derivative")


def derivatives(fun: Callable[..., Any], wanted: Sequence[Sequence[int]]) -> Transformed:
    """Several partial derivatives of a function at once, sharing their common subexpressions.

    Args:
        fun: A function of arrays, one for each coordinate: of one point, or of many at once.
        wanted: For each derivative, the positions of the arguments to differentiate by, in turn: `[(0,), (0, 0), (1,)]`
            for u_x, u_xx and u_t of u(x, t).

    Returns:
        The function. It returns a list of the derivatives.

    Raises:
        TypeError: (when it is called) An argument or the result is not a single array.
    """
    if not isinstance(wanted, Sequence) or not all([isinstance(numbers, Sequence) for numbers in wanted]):
        raise TypeError(f"derivatives: wanted must be a list of tuples of argument positions, got {wanted!r}")
    return Transformed(fun, Build(builds.derivatives, (tuple([tuple(numbers) for numbers in wanted]),)), "derivatives")


def _all_of_one_pass(y: Variable, x: Variable, batched: bool) -> tuple[Variable, Variable, Variable]:
    return y, *laplacian_of(y, x, batched=batched, with_gradient=True)


def _derivative(
    build: Callable[..., Any], name: str, fun: Callable[..., Any], argnums: Argnums, has_aux: bool, holomorphic: bool,
    allow_int: bool = False,
) -> Transformed:  # fmt: skip
    listed = argnums if isinstance(argnums, Sequence) else (argnums,)
    if not listed or any([isinstance(n, bool) or not hasattr(n, "__index__") for n in listed]):
        raise TypeError(f"{name}: argnums must be an int or a sequence of ints, not empty, got {argnums!r}")
    numbers = tuple(map(operator.index, listed))
    chosen = numbers if isinstance(argnums, Sequence) else numbers[0]
    return Transformed(fun, Build(build, (Options(name, chosen, has_aux, holomorphic, allow_int),)), name)


def _of_rows(
    fun: Callable[..., Any], name: str, function: Callable[..., Any], argnums: int, batched: bool,
    directions: int | None, kind: str,
) -> Transformed:  # fmt: skip
    if directions is None:
        return Transformed(fun, Build(builds.of_rows, (name, function, argnums, batched)), name)
    build = Build(builds.of_drawn_directions, (name, function, argnums, batched, directions, kind), builds.after_key)
    return Transformed(fun, build, name)
