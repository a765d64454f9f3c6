"""The drop-in transformations, computed on Variables.

Each takes the function on Variables, its arguments, and which of these have a row axis. With a row axis the function is
evaluated at all points at once, and derivatives are per point. A result that cannot be computed so raises `NotByRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from .. import functions as F
from ..derivatives.matrices import hessian as hessian_of
from ..derivatives.matrices import jacobian as jacobian_of
from ..derivatives.partials import derivatives as derivatives_of
from ..derivatives.partials import nth_derivative as nth_derivative_of
from ..derivatives.products import hvp as hvp_of
from ..derivatives.products import jvp as jvp_of
from ..derivatives.products import vjp as vjp_of
from ..extend import Variable
from ..extend import grad as grad_of
from ..functions.array import in_dtype
from ..functions.traced import KeyData
from .authors_rules import by_their_rules
from .rows import NotByRows, RowAxes
from .surroundings import WithoutTangent, conjugate, is_whole, like, note_reverse_mode
from .values import ComplexPair, is_pair

Argnums = int | tuple[int, ...]


class Options(NamedTuple):
    """What a transformation that JAX has too is given: its own name, and JAX's arguments."""

    name: str
    argnums: Argnums
    has_aux: bool
    holomorphic: bool
    allow_int: bool


def value_and_grad(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, options: Options) -> Any:
    """The gradient, after the value unless the name is grad, with the auxiliary output of `fun` if it has one."""
    name, argnums, has_aux, holomorphic, allow_int = options
    chosen = _chosen(name, args, argnums)
    if holomorphic:
        _check_complex(name, "arguments to differentiate by", chosen)
    leaves, tree = jax.tree.flatten(chosen)
    moving = [x for x in leaves if not (allow_int and is_whole(x))]
    _check_floating(name, moving)
    rows.check(moving)
    note_reverse_mode(moving)
    y, auxiliary = _with_auxiliary(name, fun(*args, **kwargs), has_aux)
    if holomorphic:
        _check_complex(name, "results", y)
    number = y.real if holomorphic else y  # d(u + iv)/dz = u_x - i u_y
    _check_number(name, number, rows)
    derivatives = like(moving, grad_of(number, moving) if moving else [])
    (y, auxiliary), derivatives = _by_rules((y, auxiliary), moving, derivatives)
    in_order = iter(derivatives)
    gradients = [WithoutTangent(x.shape) if allow_int and is_whole(x) else next(in_order) for x in leaves]
    gradient = conjugate(jax.tree.unflatten(tree, gradients))
    if name == "grad":
        return (gradient, auxiliary) if has_aux else gradient
    return ((y, auxiliary) if has_aux else y), gradient


def _check_complex(name: str, what: str, tree: Any) -> None:
    for leaf in jax.tree.leaves(tree, is_leaf=is_pair):
        if not is_pair(leaf):
            raise TypeError(f"{name}: with holomorphic=True, {what} must be complex, got {getattr(leaf, 'spec', leaf)}")


def _by_rules(results: Any, moving: Sequence[Variable], derivatives: Sequence[Variable]) -> tuple[Any, list[Variable]]:
    """Results and derivatives with the values that custom rules give them, for the next transformation."""
    leaves, tree = jax.tree.flatten(results)
    ys = [y for y in leaves if isinstance(y, Variable)]
    new_values = list(like([*ys, *derivatives], by_their_rules(ys, moving, [*ys, *derivatives])))
    values = iter(new_values)
    again = jax.tree.unflatten(tree, [next(values) if isinstance(y, Variable) else y for y in leaves])
    return again, new_values[len(ys) :]


def jacobian(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, options: Options) -> Any:
    """The Jacobian, block by block. The name decides the dtypes of the blocks and which complex numbers are allowed, as
    in jax.jacfwd and jax.jacrev."""
    name, _, has_aux, holomorphic, _ = options
    every, tree = _floating(args, options)
    leaves = [x for x in every if not is_whole(x)]
    if name != "jacfwd":
        note_reverse_mode(leaves)
    y, auxiliary = _with_auxiliary(name, fun(*args, **kwargs), has_aux)
    results, tree_of_results = jax.tree.flatten(y, is_leaf=is_pair)
    if holomorphic:
        _check_complex(name, "results", y)
    else:
        complex_in = any(map(is_pair, jax.tree.leaves(tree.unflatten(every), is_leaf=is_pair)))
        complex_out = any(map(is_pair, results))
        if (complex_in or name == "jacrev") and (complex_out or name == "jacfwd") and (complex_in or complex_out):
            shown = "arguments" if complex_in else "results"
            raise TypeError(f"{name}: {shown} are complex; for a holomorphic fun pass holomorphic=True")
    parts = jax.tree.leaves(y)
    rows.check_independent(parts, leaves)
    found_rows = _jacobian(parts, leaves, rows) if leaves else [()] * len(parts)
    pairs = iter(zip(parts, found_rows, strict=True))

    def blocks() -> Any:
        """The blocks of the next part of a result."""
        part, row = next(pairs)
        of_leaves = iter([_block(block, x, part, name) for block, x in zip(row, leaves, strict=True)])
        return tree.unflatten([_zeros(part, x, rows) if is_whole(x) else next(of_leaves) for x in every])

    def of(result: Any) -> Any:
        """The blocks of a result; they are complex if the result or the arguments are."""
        return jax.tree.map(ComplexPair, blocks(), blocks()) if is_pair(result) else conjugate(blocks())

    whole = jax.tree.unflatten(tree_of_results, [of(result) for result in results])
    auxiliary, _ = _by_rules(auxiliary, leaves, [])
    return (whole, auxiliary) if has_aux else whole


def _zeros(y: Variable, x: Variable, rows: RowAxes) -> Variable:
    """The Jacobian of y by integers: zeros of the integer dtype, as in JAX."""
    shape = (*y.shape, *x.shape[len(rows.shape) :])
    return F.constant(val=0, shape=shape, dtype=x.dtype)


def _block(block: Variable, x: Variable, y: Variable, name: str) -> Variable:
    """A block of the Jacobian of y by x, in the dtype that JAX's mode gives it."""
    dtype = {"jacfwd": y, "jacrev": x}.get(name, block).dtype
    converted = in_dtype(block, dtype)
    return like([y if name == "jacfwd" else x], [converted])[0]


def _jacobian(parts: list[Variable], leaves: list[Variable], rows: RowAxes) -> list[list[Variable]]:
    """The blocks for each result, with the values that custom rules give them."""
    blocks = jacobian_of(parts, leaves, batched=rows.size is not None)
    in_order = iter(by_their_rules(parts, leaves, [block for row in blocks for block in row]))
    return [[next(in_order) for _ in leaves] for _ in parts]


def hessian(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, options: Options) -> Any:
    """The Hessian, block by block."""
    _, _, has_aux, holomorphic, _ = options
    leaves, tree = _floating(args, options)
    note_reverse_mode(leaves)
    if any(map(is_pair, jax.tree.leaves(tree.unflatten(leaves), is_leaf=is_pair))):
        raise TypeError("hessian: an argument is complex; for a holomorphic fun pass holomorphic=True")
    y, auxiliary = _with_auxiliary("hessian", fun(*args, **kwargs), has_aux)
    results, tree_of_results = jax.tree.flatten(y, is_leaf=is_pair)
    if holomorphic:
        _check_complex("hessian", "results", y)
    elif any(map(is_pair, results)):
        raise TypeError("hessian: the results are complex; for a holomorphic fun pass holomorphic=True")
    parts = jax.tree.leaves(y)
    _check_floating("hessian", parts, "results")
    rows.check_independent(parts, leaves)
    if isinstance(y, Variable | ComplexPair) and y.shape == rows.shape:
        second = [_hessian(part, leaves, rows) for part in parts]
    else:
        second = [_jacobian(row, leaves, rows) for row in _jacobian(parts, leaves, rows)]
    auxiliary, _ = _by_rules(auxiliary, leaves, [])
    of_parts = iter([
        tree.unflatten([tree.unflatten(like([x] * len(row), row)) for x, row in zip(leaves, blocks, strict=True)])
        for blocks in second
    ])  # fmt: skip

    def of(result: Any) -> Any:
        blocks = next(of_parts)
        return jax.tree.map(ComplexPair, blocks, next(of_parts)) if is_pair(result) else blocks

    whole = jax.tree.unflatten(tree_of_results, [of(result) for result in results])
    return (whole, auxiliary) if has_aux else whole


def _hessian(part: Variable, leaves: list[Variable], rows: RowAxes) -> list[list[Variable]]:
    """The blocks of a scalar's Hessian; with a custom rule on the path, the Jacobian of the gradient, as in JAX."""
    if by_their_rules([part], leaves, [part])[0] is part:
        return [*map(list, hessian_of(part, leaves, batched=rows.size is not None))]
    return _jacobian(by_their_rules([part], leaves, grad_of(part, leaves)), leaves, rows)


def jvp(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, has_aux: bool) -> Any:
    """The value, and its derivative along tangents of the floating arguments."""
    primals, along = args
    y, auxiliary = _with_auxiliary("jvp", fun(*primals), has_aux)
    results, tree = jax.tree.flatten(y)
    leaves = [x for x in jax.tree.leaves(primals) if not is_whole(x)]
    vectors = [rows.along(x, t) for x, t in zip(leaves, along, strict=True)]
    moving = [r for r in results if not is_whole(r)]
    derivatives = like(moving, jvp_of(moving, leaves, vectors) if leaves and moving else [*map(F.zeros_like, moving)])
    (y, auxiliary), derivatives = _by_rules((y, auxiliary), leaves, derivatives)
    moved = iter(derivatives)
    tangents = jax.tree.unflatten(tree, [WithoutTangent(r.shape) if is_whole(r) else next(moved) for r in results])
    return (y, tangents, auxiliary) if has_aux else (y, tangents)


def tangents(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, has_aux: bool) -> Any:
    """The output tangents alone."""
    return jvp(fun, args, kwargs, rows, has_aux)[1]


def of_primals(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of `fun`, for calls that pass them first and vectors after them."""
    return args[0], kwargs


def hvp(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes) -> Any:
    """The Hessian times vectors."""
    primals, along = args
    y = fun(*primals)
    _check_number("hvp", y, rows)
    leaves, tree = jax.tree.flatten(primals)
    _check_floating("hvp", leaves)
    rows.check(leaves)
    note_reverse_mode(leaves)
    vectors = [rows.along(x, t) for x, t in zip(leaves, jax.tree.leaves(along), strict=True)]
    return conjugate(jax.tree.unflatten(tree, like(leaves, hvp_of(y, leaves, vectors))))


def value(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes) -> Any:
    """The result of `fun` as differentiation sees it: with the values that custom rules give."""
    moving = [x for x in jax.tree.leaves(args) if isinstance(x, Variable) and not is_whole(x)]
    return _by_rules(fun(*args, **kwargs), moving, [])[0]


def vjp(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, has_aux: bool) -> Any:
    """Vectors times the Jacobian."""
    primals, cotangents = args
    y, _ = _with_auxiliary("vjp", fun(*primals), has_aux)
    results = [r for r in jax.tree.leaves(y) if not is_whole(r)]
    leaves, tree = jax.tree.flatten(primals)
    moving = [x for x in leaves if not is_whole(x)]
    _check_floating("vjp", moving)
    rows.check(moving)
    note_reverse_mode(moving)
    if moving and results:
        at_results = [rows.along(moving[0], t) for t in jax.tree.leaves(conjugate(cotangents))]
        in_order = iter(like(moving, by_their_rules(results, moving, vjp_of(results, moving, at_results))))
    else:
        in_order = iter(like(moving, [F.zeros_like(x) for x in moving]))
    gradients = [WithoutTangent(x.shape) if is_whole(x) else next(in_order) for x in leaves]
    return conjugate(jax.tree.unflatten(tree, gradients))


def of_rows(
    fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, name: str, operator: Callable[..., Any],
    argnums: int, batched: bool,
) -> Any:  # fmt: skip
    """Apply an operator of one array that handles the row axis itself; complex results are handled part by part."""
    y = fun(*args, **kwargs)
    ys = [_array_of(name, "what fun returns", part) for part in ([y.real, y.imaginary] if is_pair(y) else [y])]
    x = _array_of(name, f"argument {argnums}", _chosen(name, args, argnums))
    note_reverse_mode([x])
    if batched and rows.size is not None:
        raise NotByRows
    rows.check_independent(ys, [x])
    results = [operator(part, x, batched=batched or rows.size is not None) for part in ys]
    return results[0] if len(results) == 1 else jax.tree.map(ComplexPair, *results)


def of_drawn_directions(
    fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, name: str, operator: Callable[..., Variable],
    argnums: int, batched: bool, directions: int, kind: str,
) -> Any:  # fmt: skip
    """An operator of one array, estimated along random directions drawn from a key, the first argument."""
    if not args or not isinstance(args[0], KeyData | Variable):
        shown = repr(args[0]) if args else "none"
        raise TypeError(f"{name}: with directions the first argument must be a key from jax.random.key, got {shown}")
    key = args[0].data if isinstance(args[0], KeyData) else args[0]
    if rows.size is not None and rows.has(key):
        raise NotByRows  # each point needs its own directions
    if key.shape != (2,) or key.dtype.name != "uint32":
        raise TypeError(f"{name}: with directions the first argument must be a key of 'threefry2x32' (uint32[2]), "
                        f"such as from jax.random.key, got {key.spec}")

    def along(y: Variable, x: Variable, batched: bool) -> Variable:
        return operator(y, x, batched=batched, directions=directions, kind=kind, seed=key)

    return of_rows(fun, args[1:], kwargs, rows, name, along, argnums, batched)


def after_key(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of `fun` in a call that starts with a key."""
    return args[1:], kwargs


def nth_derivative(fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, n: int, argnums: int) -> Variable:
    """The derivative of order `n`."""
    y = _array_of("nth_derivative", "the result of fun", fun(*args, **kwargs))
    x = _array_of("nth_derivative", f"argument {argnums}", _chosen("nth_derivative", args, argnums))
    rows.check([x])
    note_reverse_mode([x])
    return nth_derivative_of(y, x, n)[-1]


def derivatives(
    fun: Callable[..., Any], args: Any, kwargs: Any, rows: RowAxes, wanted: tuple[tuple[int, ...], ...]
) -> list[Variable]:
    """Several partial derivatives."""
    y = _array_of("derivatives", "the result", fun(*args, **kwargs))
    by = [tuple([_array_of("derivatives", f"argument {i}", _chosen("derivatives", args, i)) for i in numbers])
          for numbers in wanted]  # fmt: skip
    rows.check([x for numbers in by for x in numbers])
    note_reverse_mode([x for numbers in by for x in numbers])
    return derivatives_of(y, by)


def _array_of(name: str, what: str, tree: Any) -> Variable:
    leaves = jax.tree.leaves(tree)
    if len(leaves) != 1 or not isinstance(leaves[0], Variable) or not leaves[0].spec.differentiable:
        raise TypeError(f"{name}: {what} must be one floating array, got {tree!r}")
    return leaves[0]


def _with_auxiliary(name: str, results: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return results, None
    if not isinstance(results, tuple | list) or len(results) != 2:
        raise TypeError(f"{name}: with has_aux fun must return a pair, got {jax.tree.structure(results)}")
    return results[0], results[1]


def _chosen(name: str, args: Any, argnums: Argnums) -> Any:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise TypeError(
                f"{name}: argnums must be positions of the {len(args)} positional arguments, got {argnums}; pass what "
                "to differentiate by as a positional argument"
            )
    chosen = tuple([args[n] for n in numbers])
    return chosen[0] if isinstance(argnums, int) else chosen


def _check_number(name: str, y: Any, rows: RowAxes) -> None:
    if not isinstance(y, Variable) or y.shape != rows.shape or not y.spec.differentiable:
        shown = y.spec if isinstance(y, Variable | ComplexPair) else jax.tree.structure(y)
        several = "; for arrays use nj.jacobian or nj.vjp" if getattr(y, "shape", ()) != rows.shape else ""
        several = "; for a holomorphic fun pass holomorphic=True" if is_pair(y) else several
        raise TypeError(f"{name}: fun must return a floating scalar, got {shown}{several}")


def _floating(args: Any, options: Options) -> tuple[list[Variable], Any]:
    """The arguments to differentiate by, checked; a holomorphic function is differentiated by the real part."""
    name, argnums, _, holomorphic, allow_int = options
    chosen = _chosen(name, args, argnums)
    if holomorphic:
        _check_complex(name, "arguments to differentiate by", chosen)
        chosen = jax.tree.map(lambda pair: pair.real, chosen, is_leaf=is_pair)
    leaves, tree = jax.tree.flatten(chosen)
    _check_floating(name, [x for x in leaves if not (allow_int and is_whole(x))])
    return leaves, tree


def _check_floating(name: str, leaves: Sequence[Any], what: str = "arguments") -> None:
    for leaf in leaves:
        if not isinstance(leaf, Variable) or not leaf.spec.differentiable:
            shown = leaf.spec if isinstance(leaf, Variable) else repr(leaf)
            if what == "results":
                raise TypeError(f"{name}: fun must return floating arrays, got {shown}")
            raise TypeError(
                f"{name}: arguments to differentiate by must be floating, got {shown}; choose others with argnums"
            )


def check_alike(name: str, what: str, wanted: Any, tree: Any, error: type[Exception] = TypeError) -> None:
    """Raise an error unless a pytree has the expected structure."""
    structure: Any = jax.tree.structure(tree)
    if structure != wanted:
        raise error(f"{name}: {what} must have the structure {wanted}, got {structure}")
