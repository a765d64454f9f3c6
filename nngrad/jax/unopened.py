"""Fallback to JAX's own transformations for functions that cannot be opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..functions.traced import StepsOnlySelect

TRANSFORMATIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (jax.grad, jax.value_and_grad, jax.jacfwd, jax.jacrev, jax.hessian, jax.jvp, jax.linearize, jax.vjp)
}
"""JAX's own transformations, by name."""

_all_left: ContextVar[bool] = ContextVar("all_left_to_jax", default=False)
"""True where transformations inside are also JAX's: their graphs lack the derivatives that JAX needs of them."""


def refuse_where_all_is_left() -> None:
    """Raise if the transformation around is JAX's, for which a graph is of no use.

    Raises:
        NotImplementedError: It is JAX's.
    """
    if _all_left.get():
        raise NotImplementedError("it is inside a transformation that no graph can express, so JAX does both")


def by_jax(
    name: str, failed: Exception, fun: Callable[..., Any], options: Sequence[Any], args: Any, kwargs: Any
) -> Any:
    """The result of JAX's own transformation.

    Args:
        name: The name of the build, as in `builds`, or of the transformation.
        failed: The error that nngrad raised.
        fun: The function to transform.
        options: The options of the build.
        args: The positional arguments of the call.
        kwargs: Its keyword arguments.

    Raises:
        Exception: JAX cannot do it either. This is `failed` if it says more about the same error: what is wrong with
            the arguments, in the class that JAX raises, or an exception of `fun`.
    """
    if name not in _CALLS:
        raise failed
    try:
        result = _CALLS[name](fun, options, args, kwargs)
    except Exception as error:
        theirs = error
    else:
        if isinstance(failed, StepsOnlySelect):
            raise failed
        return result
    if isinstance(theirs, NotImplementedError) and not _all_left.get():  # from a graph of an inner transformation
        before = _all_left.set(True)
        try:
            return _CALLS[name](fun, options, args, kwargs)
        except Exception as error:
            theirs = error
        finally:
            _all_left.reset(before)
    if isinstance(failed, TypeError | ValueError) and type(theirs) in (TypeError, ValueError):
        raise failed if isinstance(failed, type(theirs)) else type(theirs)(*failed.args) from failed
    if isinstance(failed, TypeError | ValueError | type(theirs)):
        raise failed
    raise theirs from failed


def _derivative(fun: Callable[..., Any], options: Sequence[Any], args: Any, kwargs: Any) -> Any:
    name, argnums, has_aux, holomorphic, allow_int = options[0]
    transformation = TRANSFORMATIONS["jacrev" if name == "jacobian" else name]
    more = {"allow_int": True} if allow_int else {}
    return transformation(fun, argnums, has_aux, holomorphic, **more)(*args, **kwargs)


def _at_a_point(name: str) -> Callable[..., Any]:
    def call(fun: Callable[..., Any], options: Sequence[Any], args: Any, kwargs: Any) -> Any:
        (has_aux,) = options
        return TRANSFORMATIONS[name](fun, *args, has_aux=has_aux)

    return call


def _jvp(fun: Callable[..., Any], options: Sequence[Any], args: Any, kwargs: Any) -> Any:
    primals, moving = args
    in_order = iter(moving)

    def tangent(x: Any) -> Any:
        if jnp.issubdtype(jnp.result_type(x), jnp.inexact):
            return next(in_order)
        return np.zeros(np.shape(x), jax.dtypes.float0)

    (has_aux,) = options
    return TRANSFORMATIONS["jvp"](fun, primals, jax.tree.map(tangent, primals), has_aux=has_aux)


_CALLS: dict[str, Callable[..., Any]] = {
    "value_and_grad": _derivative,
    "jacobian": _derivative,
    "hessian": _derivative,
    "jvp": _jvp,
    "linearize": _at_a_point("linearize"),
    "vjp": _at_a_point("vjp"),
    "value": lambda fun, options, args, kwargs: fun(*args, **kwargs),
}
