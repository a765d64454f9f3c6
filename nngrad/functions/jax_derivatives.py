"""JAX functions of the user's own as functions on Variables: the ops that stand for them and their derivatives.

A function f that was traced is differentiated by two ops, which are closed under differentiation. With x the inputs
that gradients reach, v1 ... vk directions in their space and y a weight for each output:

    jax_derivative(x, v1 ... vk)      = D^k f(x)[v1 ... vk]                          (f itself for k = 0)
    jax_gradient(x, v1 ... vk, y)     = the gradient of <y, D^k f(x)[v1 ... vk]> in x, or in one of the v

The derivative of the second along w is the first with one more direction, or with w in the place of a v. So only
forward-mode derivatives are nested, and reverse mode is applied once, outside, at every order.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ..graph import Array, Function, Op, Spec, Variable
from ..graph.arguments import Static
from ..graph.axes import AxisMap, Places, row_places
from ..graph.facts import unknown
from ..graph.jaxpr import ONE_WAY, primitives_in
from ..graph.spec import x64_if
from .jaxpr_structure import Positions, TracedFunction

Arrays = Sequence[Any]

_COLUMNS = 128
"""How many columns of a Jacobian forward mode computes at a time."""


class ArrayFunction(Protocol):
    """A function of arrays that is hashed by what it computes."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """Shape and dtype of each input."""

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""

    @property
    def active(self) -> Positions:
        """Which of its inputs gradients can reach."""

    @property
    def rows(self) -> Positions:
        """Which of its inputs have rows along their first axis, that are known to be independent."""

    @property
    def custom(self) -> bool:
        """Whether it has derivatives that their author has set."""

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The outputs."""

    def __hash__(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class GradientFunction:
    """`jax_gradient` as a function to be differentiated by itself: where JAX has no forward mode for `fun`."""

    fun: ArrayFunction
    order: int
    slot: int
    wrt: Positions
    columns: bool

    @property
    def name(self) -> str:
        """Its name."""
        return f"gradient of {self.fun.name}"

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """x, the directions, and the weights of the outputs."""
        return inputs_of(self.fun, self.order) + tuple([s for s in self.fun.outputs if s.differentiable])

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """A gradient for each of `wrt`."""
        return tuple([self.fun.inputs[self.fun.active[i]] for i in self.wrt])

    @property
    def active(self) -> Positions:
        """All but the inputs of `fun` that gradients do not reach."""
        return self.fun.active + tuple(range(len(self.fun.inputs), len(self.inputs)))

    @property
    def rows(self) -> Positions:
        """The same inputs, with the directions and weights that belong to rows, if all that it gives has them."""
        return row_inputs(self.fun, self.order, self.wrt)

    @property
    def custom(self) -> bool:
        """As `fun`."""
        return self.fun.custom

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return gradient(arrays, self.fun, self.order, self.slot, self.wrt, self.columns)

    def __repr__(self) -> str:
        return self.name


def inputs_of(fun: ArrayFunction, order: int) -> tuple[Spec, ...]:
    """The inputs of `jax_derivative`: those of `fun`, and the directions."""
    return fun.inputs + tuple([fun.inputs[i] for i in fun.active]) * order


def row_inputs(fun: ArrayFunction, order: int, wrt: Positions | None) -> Positions:
    """Which inputs of `jax_derivative`, or of `jax_gradient` by `wrt`, have rows that are known to be independent."""
    if not fun.rows or (wrt is not None and any([fun.active[i] not in fun.rows for i in wrt])):
        return ()
    having = [i in fun.rows for i in range(len(fun.inputs))]
    having += [i in fun.rows for i in fun.active] * order
    having += [] if wrt is None else [True] * sum([s.differentiable for s in fun.outputs])
    return tuple([i for i, has in enumerate(having) if has])


def _row_places(f: Function) -> tuple[Places, ...]:
    return row_places(f, row_inputs(f.args["fun"], f.args["order"], f.args.get("wrt")))


_ROWS = AxisMap(places=_row_places)

# ---------------------------------------------------------------- the ops


class Sized(Op):
    """An op that knows the shapes of its outputs from its arguments: nothing is traced to find them, nor remembered."""

    def infer(self, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        fun, order, *rest = arguments
        if rest:
            _, wrt, _ = rest
            return tuple([fun.inputs[fun.active[i]] for i in wrt])
        return tuple([s for s in fun.outputs if order == 0 or s.differentiable])

    def is_heavy(self, given: tuple[Spec, ...], arguments: tuple[Any, ...]) -> bool:
        """Whether the function that it stands for is: its derivatives do as much for each element."""
        fun = arguments[0]
        while isinstance(fun, GradientFunction):
            fun = fun.fun
        return bool(fun.heavy)


def sized(type_name: str) -> Callable[[Callable[..., Any]], Sized]:
    """Make a `Sized` op of a function on arrays."""
    return lambda forward: Sized(forward, type_name=type_name, multiple_results=True, cost=unknown, axes=_ROWS)


@sized("JaxFunction")
def jax_derivative(*x: Array, fun: Static, order: int = 0) -> tuple[jax.Array, ...]:
    """The derivative of a JAX function along `order` directions: D^order fun(x)[v1 ...]; the function itself for 0.

    Args:
        x: The inputs of `fun`, then for each direction one array for each of its `active` inputs.
        fun: The function, an `ArrayFunction`.
        order: How many directions there are.

    Returns:
        All outputs for order 0, else the derivatives of the floating ones.
    """
    return derivative(x, fun, order)


@sized("JaxFunctionGradient")
def jax_gradient(*x: Array, fun: Static, order: int, slot: int, wrt: Static, columns: bool) -> tuple[jax.Array, ...]:
    """The gradient of <y, D^order fun(x)[v1 ...]> in x (slot 0) or in the direction v of number `slot`.

    Args:
        x: What `jax_derivative` takes, then a weight y for each floating output.
        fun: The function, an `ArrayFunction`.
        order: How many directions there are.
        slot: In what.
        wrt: In which of the active inputs.
        columns: Whether JAX is asked for forward mode, one column of the Jacobian for each element of `wrt`;
            else for reverse mode.

    Returns:
        One array for each of `wrt`.
    """
    return gradient(x, fun, order, slot, wrt, columns)


@sized("CustomJaxFunction")
def custom_jax_derivative(*x: Array, fun: Static, order: int = 0) -> tuple[jax.Array, ...]:
    """`jax_derivative` of a function with `custom_jvp` or `custom_vjp` in it: it need not be the true one.

    Args:
        ...: As for `jax_derivative`.
    """
    return derivative(x, fun, order)


@sized("CustomJaxFunctionGradient")
def custom_jax_gradient(
    *x: Array, fun: Static, order: int, slot: int, wrt: Static, columns: bool
) -> tuple[jax.Array, ...]:
    """`jax_gradient` of a function with `custom_jvp` or `custom_vjp` in it: it need not be the true one.

    Args:
        ...: As for `jax_gradient`.
    """
    return gradient(x, fun, order, slot, wrt, columns)


def derivative(x: Arrays, fun: ArrayFunction, order: int) -> tuple[Any, ...]:
    """Returns what `jax_derivative` computes."""
    xs, directions = x[: len(fun.inputs)], _blocks(fun, x)
    if order == 0:
        return fun(*xs)
    if isinstance(fun, TracedFunction):
        fun.check_rules()
    along = _floating(fun, xs)
    for v in directions:
        along = _pushed(along, v)
    return along(*[xs[i] for i in fun.active])


def gradient(x: Arrays, fun: ArrayFunction, order: int, slot: int, wrt: Positions, columns: bool) -> tuple[Any, ...]:
    """Returns what `jax_gradient` computes."""
    if isinstance(fun, TracedFunction):
        fun.check_rules()
    count = len(inputs_of(fun, order))
    given, ys = list(x[:count]), x[count:]
    first = len(fun.inputs) + (slot - 1) * len(fun.active)
    places = [first + i if slot else fun.active[i] for i in wrt]

    def at(*moved: Any) -> tuple[Any, ...]:
        arrays = given.copy()
        for place, array in zip(places, moved, strict=True):
            arrays[place] = array
        results = derivative(arrays, fun, order)
        return results if order else _only_floating(fun, results)

    start = [given[place] for place in places]
    if columns:
        return tuple([_by_columns(at, start, i, ys) for i in range(len(start))])
    _, pull = jax.vjp(at, *start)
    return tuple(pull(tuple(ys)))


def _by_columns(at: Callable[..., Any], start: Arrays, place: int, ys: Arrays) -> Any:
    """The gradient of <ys, at(start)> in one of its inputs by forward mode: a derivative for each element of it."""
    x = start[place]

    def element(k: Any) -> Any:
        unit = (jnp.arange(x.size) == k).astype(x.dtype).reshape(x.shape)
        v = tuple([unit if i == place else jnp.zeros_like(a) for i, a in enumerate(start)])
        _, dy = jax.jvp(at, tuple(start), v)
        y: jax.Array = functools.reduce(operator.add, [jnp.vdot(a, b) for a, b in zip(dy, ys, strict=True)])
        return y.astype(x.dtype)

    return jax.lax.map(element, jnp.arange(x.size), batch_size=_COLUMNS).reshape(x.shape)


def _floating(fun: ArrayFunction, xs: Arrays) -> Callable[..., tuple[Any, ...]]:
    """The floating outputs of `fun` as a function of its active inputs."""

    def at(*active: Any) -> tuple[Any, ...]:
        arrays = list(xs)
        for i, array in zip(fun.active, active, strict=True):
            arrays[i] = array
        return _only_floating(fun, fun(*arrays))

    return at


def _pushed(at: Callable[..., Any], v: Arrays) -> Callable[..., Any]:
    return lambda *x: jax.jvp(at, x, tuple(v))[1]


def _only_floating(fun: ArrayFunction, results: Arrays) -> tuple[Any, ...]:
    return tuple([y for y, s in zip(results, fun.outputs, strict=True) if s.differentiable])


def _blocks(fun: ArrayFunction, x: Arrays) -> list[Arrays]:
    n = len(fun.active)
    return [x[i : i + n] for i in range(len(fun.inputs), len(x), n or 1)]


# ---------------------------------------------------------------- what JAX can do


@functools.lru_cache(maxsize=512)
def by_columns(fun: ArrayFunction, order: int, slot: int) -> bool:
    """Whether the gradient takes forward mode, since JAX has no reverse mode for `fun`.

    Raises:
        NotImplementedError: It has neither.
    """
    everything = tuple(range(len(fun.active)))
    given = GradientFunction(fun, order, slot, everything, False)
    reverse = _refusal(given, given.inputs)
    if reverse is None:
        return False
    given = dataclasses.replace(given, columns=True)
    forward = _refusal(given, given.inputs)
    if forward is None:
        return True
    raise NotImplementedError(
        f"jax_function({fun.name}): JAX cannot differentiate it at order {order + 1}.\n"
        f"Reverse mode: {reverse}\nForward mode: {forward}"
    )


@functools.lru_cache(maxsize=512)
def has_derivative(fun: ArrayFunction, order: int) -> bool:
    """Whether JAX has forward mode for `fun`, `order` times nested."""
    return _refusal(lambda *x: derivative(x, fun, order), inputs_of(fun, order)) is None


def _refusal(function: Callable[..., Any], inputs: tuple[Spec, ...]) -> str | None:
    """Why JAX cannot do it; None if it can."""
    try:
        with x64_if(any([s.needs_x64 for s in inputs])):
            closed = jax.make_jaxpr(lambda *x: function(*x))(*[s.abstract() for s in inputs])
    except (TypeError, ValueError, NotImplementedError) as error:
        return str(error).split("\n")[0]
    if ONE_WAY in primitives_in(closed.jaxpr):
        return "a function with custom_vjp has no forward mode"
    return None
