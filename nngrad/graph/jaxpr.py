"""Inspect jaxprs, across versions of JAX, and replace code that XLA compiles badly."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import FunctionType
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from .process import interrupt_safe
from .spec import Spec, x64_if

CUSTOM_RULES = {"custom_jvp_call", "custom_vjp_call"}
"""Primitives with a user-defined derivative."""

CALLS = {"call", "closed_call", "eval_jaxpr", "jit", "remat2", "run_state"}
"""Primitives that call a jaxpr and can be replaced by its equations."""

_OBJECTS = {
    "CheckpointName": "name", "CheckpointNameFwd": "name", "CustomJVPTraced": "custom_jvp_call",
    "CustomVJPTraced": "custom_vjp_call", "RematTraced": "remat2",
}  # fmt: skip
"""With `jax_custom_jvp3`, `jax_custom_vjp3` and `jax_remat3`, JAX uses one primitive for all of these, with an object
as its parameter. This maps the object's class to the usual primitive. Other classes also have derivatives of their own.
"""

CALL_OF_OBJECT, _DERIVATIVE_OF_OBJECT = "call_hi_primitive", "call_hi_primitive_linearized"
ONE_WAY = "custom_lin"
"""The primitive for the derivative of a function with `custom_vjp`: it can be transposed, but not run."""

_MUCH = {
    "dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated", "fft", "scan", "while", "linear_solve",
}
"""Primitives of `jax.lax` whose arithmetic per element grows with the size of the arrays."""
_LITTLE = {
    *CUSTOM_RULES, *CALLS, ONE_WAY, "add_any", "copy", "random_bits", "random_unwrap", "random_wrap", "scatter-add",
    "scatter-mul", "threefry2x32",
}
"""Primitives outside `jax.lax` that do a few operations per element, or just call functions."""


def jaxpr_for(function: Callable[..., Any], inputs: Sequence[Spec]) -> ClosedJaxpr:
    """Trace a function of arrays, in its current state, for inputs of these shapes and dtypes."""
    with x64_if(any([s.needs_x64 for s in inputs])):
        # A new function each time, since JAX caches traces by function.
        closed: ClosedJaxpr = interrupt_safe(jax.make_jaxpr(lambda *x: function(*x)))(*[s.abstract() for s in inputs])
    let_own_arrays(closed)
    return closed


def does_much(jaxpr: Jaxpr) -> bool:
    """Whether it does much arithmetic per element: products, loops, decompositions, and anything unknown."""
    names = primitives_in(jaxpr) - _LITTLE
    return not _MUCH.isdisjoint(names) or not all([hasattr(jax.lax, f"{name}_p") for name in names])


def primitives_in(jaxpr: Jaxpr) -> set[str]:
    """The names of the primitives in a jaxpr and in nested ones."""
    return {name_of(eqn) for eqn in equations_in(jaxpr)}


def name_of(equation: Any) -> str:
    """The name of an equation's primitive, normalised across versions and settings of JAX."""
    name: str = equation.primitive.name
    kind = type(equation.params.get("_prim")).__name__
    if name == _DERIVATIVE_OF_OBJECT:
        return ONE_WAY if kind == "CustomVJPTraced" else name
    if name != CALL_OF_OBJECT:
        return name
    moves = any([jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.outvars])
    return _OBJECTS.get(kind, "custom_jvp_call" if moves else "eval_jaxpr")


def parameters_of(equation: Any) -> dict[str, Any]:
    """An equation's parameters, or those of the object that it holds."""
    found: dict[str, Any] = getattr(equation.params.get("_prim"), "params", equation.params)
    return found


def called_function(equation: Any) -> ClosedJaxpr | None:
    """The jaxpr that an equation calls on its inputs; None if there is none."""
    if equation.primitive.name == CALL_OF_OBJECT:
        given = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type) for v in equation.invars]
        with x64_if(any([v.dtype.itemsize >= 8 for v in given])):
            trace = interrupt_safe(jax.make_jaxpr(lambda *x: equation.primitive.to_lojax(*x, **equation.params)))
            called: ClosedJaxpr = trace(*given)
            return called
    for name in ("jaxpr", "call_jaxpr"):
        found = equation.params.get(name)
        if isinstance(found, ClosedJaxpr | Jaxpr):
            return found if isinstance(found, ClosedJaxpr) else ClosedJaxpr(found, [])
    return None


@functools.cache
def _empty() -> Any:
    return jax.make_jaxpr(lambda: ())().jaxpr


def alone(equation: Any) -> ClosedJaxpr:
    """A jaxpr of just this equation."""
    inputs = [Var(v.aval) for v in equation.invars]
    outputs = [Var(v.aval) for v in equation.outvars]
    single: Jaxpr = _empty().replace(
        invars=inputs, outvars=outputs, eqns=[equation.replace(invars=inputs, outvars=outputs)],
        effects=equation.effects,
    )  # fmt: skip
    return ClosedJaxpr(single, [])


def count_closed_over(call: Any) -> int:
    """The number of leading inputs of a call with a custom rule that its function closes over. JAX does not
    differentiate a `custom_vjp_call` by these: it raises, and corrupts its cache for the call.

    When JAX traces such a call again, it turns them into ordinary inputs, and wraps the rule so that they get no
    gradient. These are counted too: `bwd` is a chain of JAX's functions, each of which holds the next.
    """
    count, pending = int(call.params.get("num_consts", 0)), [parameters_of(call).get("bwd")]
    while pending:
        rule = pending.pop()
        for wrapper, arguments in getattr(rule, "transforms", ()):
            if wrapper.__name__ == "_handle_consts_in_bwd":
                count += len(arguments[0])
        for cell in getattr(getattr(rule, "f", None), "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                pending += [cell.cell_contents] if type(cell.cell_contents) is type(rule) else []
    return count


def rules_of(call: Any, key_of: Callable[[Any], Hashable]) -> Hashable:
    """A key for the custom rules of a call. Keys are equal if the user's functions are the same, in the same wrappers
    of JAX. What JAX stores in these about one trace does not count.

    Args:
        call: The call.
        key_of: Maps other objects to keys for comparison.
    """
    kept = {key: value for key, value in parameters_of(call).items() if key not in _NO_RULES}
    return tuple([(key, _wrapped(value, key_of, _MOST_WRAPPERS)) for key, value in sorted(kept.items())])


def _wrapped(value: Any, key_of: Callable[[Any], Hashable], depth: int) -> Hashable:
    if isinstance(value, Jaxpr | ClosedJaxpr):  # these may contain other rules
        return value
    if type(value).__name__ in _OF_TRACES:
        return None
    inner = _held_by_wrapper(value)
    if inner is None or not depth:
        return key_of(value)
    return type(value).__name__, tuple([_wrapped(x, key_of, depth - 1) for x in inner])


def _held_by_wrapper(value: Any) -> Sequence[Any] | None:
    """The objects that a wrapper of JAX's holds; None for anything else."""
    if hasattr(value, "transforms"):
        return value.f, getattr(value, "params", ()), *value.transforms
    if isinstance(value, tuple | list):
        return value
    if type(value).__name__ == "Unhashable":  # an argument without derivatives
        return (value.val,)
    if not isinstance(value, FunctionType) or not (value.__module__ or "").startswith("jax."):
        return None
    kept = _MEMORY if value.__name__ == "memoized" else ()
    named = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    with contextlib.suppress(ValueError):  # an empty cell
        return value.__code__, *[cell.cell_contents for name, cell in named if name not in kept]
    return None


_NO_RULES = {"call_jaxpr", "jaxpr", "out_trees"}
"""The parameters of a call that hold its computation, and JAX's notes on it."""

_OF_TRACES, _MEMORY = {"DebugInfo", "DynamicJaxprTrace", "EqualStore", "Store"}, {"cells", "sentinel"}
"""What JAX's wrappers store about the trace that made them: classes of objects, and variables of memoizing
functions."""

_MOST_WRAPPERS = 24
"""How deep to look into wrappers."""


def reaching_closed_over(jaxpr: Jaxpr) -> set[int]:
    """The floating inputs that closed-over values of functions with `custom_vjp` depend on. Bodies are included, which
    are nested a few levels deep at most. If a loop contains such a function, all its inputs count."""
    found: set[Any] = set()
    for equation in reversed(jaxpr.eqns):
        name = name_of(equation)
        if not found.isdisjoint(equation.outvars) and name != "stop_gradient":
            found.update(_that_move(equation.invars))
        if name == "custom_vjp_call":
            found.update(_that_move(equation.invars[: count_closed_over(equation)]))
            continue
        for body in bodies_of(equation):
            reached, inputs = reaching_closed_over(body), equation.invars[name == "cond" :]  # a branch's index is first
            fits = name not in ("scan", "while") and len(inputs) == len(body.invars)
            found.update(_that_move([inputs[i] for i in reached] if fits else inputs if reached else []))
    return {i for i, v in enumerate((*jaxpr.constvars, *jaxpr.invars)) if v in found}


_FIXED, _MOVES, _SELECTED = 0, 1, 2
"""How a value depends on inputs: not at all, by differentiable functions, through a comparison; or, added, by both."""

_STEPS = {"ceil", "floor", "round", "sign"}
"""Elementwise primitives with floating results whose derivative is 0 wherever it exists."""


def loops_select(jaxpr: Jaxpr, active: Sequence[int], only: bool = False) -> bool:
    """Whether a `while` inside carries floating values that are selected by comparisons of what depends on the `active`
    inputs, as a bisection does: its steps move with the ends of the interval, so their derivative is not that of what
    they find. Comparisons that only end the loop do not count: the derivative of Newton's steps converges too.

    Args:
        only: Whether all that such a loop reads must select and do nothing else, as in a bisection, but not where steps
            of an adaptive length are taken or not.
    """
    found: list[tuple[bool, bool]] = []
    count = len(jaxpr.constvars) + len(jaxpr.invars)
    _dependence(jaxpr, [_MOVES if i in active else _FIXED for i in range(count)], found)
    return any([each[only] for each in found])


def _dependence(jaxpr: Jaxpr, given: Sequence[int], found: list[tuple[bool, bool]]) -> list[int]:
    """How the results depend on inputs, from how constants and inputs of the jaxpr do. For each `while` it appends to
    `found` whether values are selected in it, and whether what it reads only selects. Recurses into bodies, which are
    nested a few levels deep at most."""
    levels: dict[Any, int] = dict(zip((*jaxpr.constvars, *jaxpr.invars), given, strict=True))

    def level_of(v: Any) -> int:
        return _FIXED if isinstance(v, Literal) else levels[v]

    for equation in jaxpr.eqns:
        name, inputs = name_of(equation), [level_of(v) for v in equation.invars]
        together = _united(inputs)
        results = [_SELECTED if together and name in _STEPS else together] * len(equation.outvars)
        called = called_function(equation) if name in CALLS else None
        if name == "stop_gradient":
            results = [_FIXED]
        elif together and called is not None:
            results = _dependence(called.jaxpr, [*[_FIXED] * len(called.consts), *inputs], found)
        elif together and name == "cond":
            branches = [[*_dependence(each, inputs[1:], found)] for each in bodies_of(equation)]
            by_index = _SELECTED if inputs[0] else _FIXED
            results = [_united([by_index, *each]) for each in zip(*branches, strict=True)]
        elif together and name in ("scan", "while"):
            results = _dependence_of_loop(equation, inputs, found)
        for v, level in zip(equation.outvars, results, strict=True):
            levels[v] = level if _is_floating(v) or not level else _SELECTED
    return [level_of(v) for v in jaxpr.outvars]


def _dependence_of_loop(equation: Any, inputs: Sequence[int], found: list[tuple[bool, bool]]) -> list[int]:
    """The same for a loop. What was selected before a `while` stays the same in it, so it selects nothing there."""
    params, given = equation.params, list(inputs)
    if "body_jaxpr" not in params:
        return _after_steps(params["jaxpr"], *counts_of_scan(params), given, found)
    body, first, count = params["body_jaxpr"], int(params["body_nconsts"]), len(equation.outvars)
    moving = [level and _is_floating(v) for level, v in zip(given, equation.invars, strict=True)]
    given = [_MOVES if moves else _FIXED for moves in moving][int(params["cond_nconsts"]) :]
    results = _after_steps(body, first, count, given, found)
    read = _after_steps(body, first, count, [*given[:first], *[_FIXED] * count], [])
    floating = [*map(_is_floating, equation.outvars)]
    selects = _united([level for level, carries in zip(results, floating, strict=True) if carries]) & _SELECTED
    only = _united([level for level, carries in zip(read, floating, strict=True) if carries]) == _SELECTED
    found.append((bool(selects), only))
    return results


def _after_steps(
    body: ClosedJaxpr, first: int, count: int, given: list[int], found: list[tuple[bool, bool]]
) -> list[int]:
    """How the results of a loop depend on inputs, of which `count` from the one numbered `first` are carries."""
    given, carries = list(given), slice(first, first + count)
    while True:
        results = _dependence(body.jaxpr, [*[_FIXED] * len(body.consts), *given], found)
        after = [a | b for a, b in zip(given[carries], results[:count], strict=True)]
        if after == given[carries]:
            return results
        given[carries] = after


def _united(levels: Sequence[int]) -> int:
    return functools.reduce(operator.or_, levels, _FIXED)


def _is_floating(v: Any) -> bool:
    return bool(jnp.issubdtype(getattr(v.aval, "dtype", int), jnp.inexact))


def _that_move(variables: Sequence[Any]) -> list[Var]:
    return [v for v in variables if isinstance(v, Var) and _is_floating(v)]


def counts_of_scan(params: dict[str, Any]) -> tuple[int, int]:
    """The numbers of a scan's constant inputs and of its carries, which come next."""
    if "ft_in" not in params:
        return int(params["num_consts"]), int(params["num_carry"])
    fixed, carried, _ = params["ft_in"].unpack()
    return len(fixed), len(carried)


def constants_in(closed: ClosedJaxpr) -> list[list[Any]]:
    """The lists of constants of a jaxpr and of those nested in it."""
    inside = [x for equation in equations_in(closed.jaxpr) for x in _held_by(equation) if isinstance(x, ClosedJaxpr)]
    return [closed.consts, *[each.consts for each in inside]]


def holds_tracers(closed: ClosedJaxpr) -> bool:
    """Whether a constant in it, or nested in it, is a tracer, which is useless once its trace has ended."""
    return any([isinstance(each, jax.core.Tracer) for held in constants_in(closed) for each in held])


def let_own_arrays(closed: ClosedJaxpr) -> None:
    """Replace the NumPy arrays that a jaxpr reads by copies. JAX keeps the arrays of the function's author, who may
    write to them later; a cached function would then compute something else."""
    for held in constants_in(closed):
        held[:] = map(_own, held)
    for each in jaxprs_in(closed.jaxpr):
        for v in (*each.outvars, *[v for eqn in each.eqns for v in eqn.invars]):
            if isinstance(v, Literal):
                v.val = _own(v.val)


def _own(value: Any) -> Any:
    return copy.deepcopy(value) if type(value).__name__ == "TypedNdArray" else value


def jaxprs_in(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The jaxpr, and those nested in it."""
    pending: list[Jaxpr] = [jaxpr]
    while pending:
        found = pending.pop()
        yield found
        for eqn in found.eqns:
            pending += bodies_of(eqn)


def bodies_of(equation: Any) -> Iterator[Jaxpr]:
    """The jaxprs nested in an equation."""
    for inner in _held_by(equation):
        while not isinstance(inner, Jaxpr) and hasattr(inner, "jaxpr"):
            inner = inner.jaxpr
        if isinstance(inner, Jaxpr):
            yield inner


def _held_by(equation: Any) -> Iterator[Any]:
    """The equation's parameters, with the items of tuples and lists."""
    for value in parameters_of(equation).values():
        yield from value if isinstance(value, tuple | list) else (value,)


def equations_in(jaxpr: Jaxpr) -> Iterator[Any]:
    """The equations of a jaxpr, and of those nested in it."""
    for each in jaxprs_in(jaxpr):
        yield from each.eqns

# ---------------------------------------------------------------- code that XLA compiles badly

# Barriers that XLA's compiler for CPUs cannot look through; and loops that stack the results of each step, in one
# stretch or in segments.


def known_after(value: jax.Array, *tokens: jax.Array) -> jax.Array:
    """`value` unchanged, bit for bit, but computed after all `tokens`.

    It subtracts a zero made from one element of each token, whatever that holds (NaN included), in a way that XLA
    cannot simplify. So XLA can neither start earlier on computations from the result, nor merge them with computations
    from `value` itself. JAX's own `lax.optimization_barrier` does not last: XLA's CPU backend drops it before it
    eliminates common subexpressions.
    """
    counts = [_count(token) for token in tokens if token.size]
    if not counts:
        return value
    # A count of bits is at most 64, so it is 0 after a shift by 7; XLA does not track such bounds.
    count = functools.reduce(lax.bitwise_or, counts)
    nothing = lax.shift_right_logical(count, lax.full_like(count, 7))
    if value.dtype == jnp.bool_:
        return lax.bitwise_or(value, lax.broadcast(lax.convert_element_type(nothing, jnp.bool_), value.shape))
    # x - 0 preserves -0, which x + 0 does not.
    return lax.sub(value, lax.broadcast(lax.convert_element_type(nothing, value.dtype), value.shape))


def computed_once(function: Callable[..., jax.Array], *x: jax.Array) -> jax.Array:
    """`function(*x)`, materialised in a buffer of its own.

    XLA's CPU backend fuses elementwise operations into their consumers, and recomputes them for each element that a
    consumer reads. It does not fuse across a call that it may not inline, and such a call is as fast as a loop.
    """
    with set_xla_metadata(inlineable="false"):
        y: jax.Array = jax.jit(function, inline=False)(*x)
    return y


def _count(token: jax.Array) -> jax.Array:
    """The number of bits that are set in the first element of `token`, as uint32[]."""
    first = lax.reshape(lax.slice(token, (0,) * token.ndim, (1,) * token.ndim), ())
    if first.dtype == jnp.bool_:
        return lax.convert_element_type(first, jnp.uint32)
    bits = lax.bitcast_convert_type(first, jnp.dtype(f"uint{8 * first.dtype.itemsize}"))
    return lax.convert_element_type(lax.population_count(bits), jnp.uint32)

# ---------------------------------------------------------------- loops that stack


def in_segments(
    stretch: Callable[[Any, tuple[Any, ...], int], tuple[Any, Any]], first: Any, scanned: tuple[Any, ...], length: int,
    size: int, reverse: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """Scan over segments of `size` steps, then over the remaining steps.

    Args:
        stretch: Runs a number of steps: takes a carry, slices and the number, and returns the last carry and stacks
            with a row per step.
        first: The first carry.
        scanned: Arrays to slice along their first axes.
        length: The number of steps, at least `size`.
        size: The number of steps in a segment.
        reverse: Whether the steps go from the last slice to the first.

    Returns:
        The last carry, and the stacks.
    """
    count, rest = divmod(length, size)
    whole, after = (slice(rest, None), slice(rest)) if reverse else (slice(length - rest), slice(length - rest, None))
    cut = tuple([lax.reshape(x[whole] if rest else x, (count, size, *x.shape[1:])) for x in scanned])
    last, stacks = lax.scan(lambda carry, xs: stretch(carry, xs, size), first, cut, length=count, reverse=reverse)
    stacks = jax.tree.map(lambda y: lax.reshape(y, (y.shape[0] * y.shape[1], *y.shape[2:])), stacks)
    if rest:
        last, more = stretch(last, tuple([x[after] for x in scanned]), rest)
        stacks = jax.tree.map(lambda y, z: lax.concatenate((z, y) if reverse else (y, z), 0), stacks, more)
    return last, stacks
