"""custom_gradient: a function of Variables whose gradient the user gives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

import jax

import nngrad.functions as F
from backward_registry import Rule, registry

from ...functions.bodies.alternatives import Alternatives
from ...functions.checkpoints import is_array
from ...functions.inlining import inlined
from ...functions.operands import Operand
from ...graph import Array, Function, NdArray, Variable, apply, as_variable, build_options
from ...graph.arguments import Static
from ...graph.block import Block
from ...graph.body_op import Followed, Given, Gradients, Numbers, Results, Walk
from ...graph.capture import captured, placeholder
from ...graph.closing import close
from ...graph.leaf import common_floating
from ...graph.variable import leaf_of

P = ParamSpec("P")
R = TypeVar("R")

_OWNER = "custom_gradient"


class GivenGradient(Alternatives):
    """A body whose gradient is given."""

    def inlines_to(self, arguments: tuple[Any, ...]) -> Block:
        """The body."""
        body: Block = arguments[0]
        return body

    def followed(self, f: Function, given: Given, count: int, walk: Walk) -> Followed | None:
        """Not known: the gradient may mix what the body does not."""
        return None

    def batched(self, f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results | None:
        """Mapped as it is."""
        return None

    def gradients(self, f: Function, gys: Sequence[Variable], indexes: Numbers) -> Gradients:
        """What the user's function gives"""
        _, gradient, wanted = f.arguments
        gxs: Gradients = [None] * len(f.inputs)
        for i, gx in zip(wanted, inlined(gradient, (*f.inputs, *gys)), strict=True):
            gxs[i] = gx
        return gxs


def _op(name: str, type_name: str, exact: bool) -> GivenGradient:
    def forward(*x: Array, body: Static, gradient: Static, wanted: Static) -> tuple[jax.Array, ...]:
        """A body whose gradient is given.

        Args:
            x: What it is applied to.
            body: The body.
            gradient: The gradient, of these inputs and of what arrives at each output.
            wanted: In which inputs it is.
        """
        del gradient, wanted
        results: tuple[jax.Array, ...] = body.results_of(x)
        return results

    forward.__name__ = name
    op = GivenGradient(forward, type_name=type_name, multiple_results=True, lockstep=True)
    registry.add(op, Rule(op.backward, "user", exact, __name__))
    return op


body_with_gradient = _op("body_with_gradient", "CustomGradient", True)
body_with_surrogate = _op("body_with_surrogate", "CustomSurrogate", False)


@overload
def custom_gradient(fun: Callable[P, Any], *, exact: bool = ...) -> Callable[P, Any]: ...
@overload
def custom_gradient(*, exact: bool = ...) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


def custom_gradient(fun: Callable[..., Any] | None = None, *, exact: bool = False) -> Any:
    """A function of Variables whose gradient is given, in place of that of what it computes.

        @nn.custom_gradient
        def clipped(x):
            return x, lambda gy: F.clip(gy, -1, 1)

    As `tf.custom_gradient`. The gradient is a function on Variables, and is differentiated as such: so there are
    gradients of any order. It can be called in the bodies of loops.

    Args:
        fun: Returns what it computes, a Variable or a pytree of them, and a function: that gets the gradient at each
            output, and returns one for each Variable or array of a floating dtype among the arguments of `fun`, in
            their order, alone where there is one; None stands for zero. Both may read what is outside, but no
            gradient comes from `fun` for that; so what needs one must be an argument. `fun` is run once in each call,
            on Variables without values.
        exact: Whether it is the true derivative. Only then are higher derivatives taken by ways that rest on calculus.

    Returns:
        A function that is called as `fun` is, and returns what it computes; without `fun`, a decorator.

    Raises:
        TypeError: When it is called: `fun` does not return a pair, or no function in it.
        ValueError: When it is called: a gradient has another shape or dtype than what it is the gradient of, there are
            more or fewer of them, or `fun` reads a Variable from outside that needs a gradient.
    """
    if fun is None:
        return functools.partial(custom_gradient, exact=exact)
    if not callable(fun):
        raise TypeError(f"{_OWNER}: fun must be a function of Variables, got {fun!r}")
    op = body_with_gradient if exact else body_with_surrogate

    @functools.wraps(fun)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
        places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
        floating = common_floating(leaves)
        inputs = [as_variable(leaves[i], f"argument {i}", _OWNER, floating) for i in places]
        seeds: list[Variable] = []
        structure: Any = None

        def flat(given: list[Variable]) -> list[Variable]:
            nonlocal structure
            filled = list(leaves)
            for i, x in zip(places, given, strict=True):
                filled[i] = x
            own_args, own_kwargs = jax.tree.unflatten(tree, filled)
            ys, structure, gradient = _pair(fun(*own_args, **own_kwargs), floating)
            seeds.extend([placeholder(y.spec, _OWNER) for y in ys])
            return [*ys, *_gradients(gradient(*seeds), [x for x in given if x.spec.differentiable])]

        found = captured(flat, [x.spec for x in inputs], _OWNER, fun, often=False)
        arrived = {id(seed) for seed in seeds}
        outside = [x for x in found.variables if id(x) not in arrived]
        full = found.body
        own, _, results = full.opened()
        at = {id(x): y for x, y in zip(found.variables, own, strict=False)}
        given = [y for x, y in zip(found.variables, own, strict=False) if id(x) not in arrived]
        given += own[len(found.variables) :]
        gys = [at[id(seed)] if id(seed) in at else leaf_of(NdArray.of_spec(seed.spec)) for seed in seeds]
        body = close(results[: len(seeds)], given)
        _check_outside(body, outside)
        first = len(outside)
        wanted = tuple([first + k for k, x in enumerate(inputs) if x.spec.differentiable])
        gradient = close(results[len(seeds) :], [*given, *gys])
        outputs = apply(op, (*outside, *inputs, *found.keys), (body, gradient, wanted))
        return jax.tree.unflatten(structure, outputs)

    return with_gradient


def _pair(returned: Any, floating: Any) -> tuple[list[Variable], Any, Callable[..., Any]]:
    """What a function computes, its structure, and its gradient."""
    if not isinstance(returned, tuple | list) or len(returned) != 2 or not callable(returned[1]):
        raise TypeError(
            f"{_OWNER}: the function must return a pair, its result and a function that returns the gradient"
        )
    leaves, structure = jax.tree.flatten(returned[0])
    ys = [as_variable(y, f"result {i}", _OWNER, floating) for i, y in enumerate(leaves)]
    if not ys:
        raise TypeError(f"{_OWNER}: the function computes nothing")
    return ys, structure, returned[1]


def _gradients(returned: Any, inputs: list[Variable]) -> list[Variable]:
    """What the gradient function returned, one for each of the inputs."""
    several = isinstance(returned, tuple | list)
    gxs = list(returned) if several else [returned]
    if len(gxs) != len(inputs):
        raise ValueError(f"{_OWNER}: the gradient function must return {len(inputs)} gradients, got {len(gxs)}")
    policy = build_options().applying.precision
    found = []
    for i, (x, gx) in enumerate(zip(inputs, gxs, strict=True)):
        zero = F.constant(0, shape=x.shape, dtype=x.dtype) if gx is None else gx
        y = as_variable(zero, f"gradient {i}", _OWNER, x.dtype)
        if policy is not None:
            y = policy.like(y, x.dtype)
        if y.spec is not x.spec:
            raise ValueError(f"{_OWNER}: gradient {i} is {y.spec}, but argument {i} is {x.spec}")
        found.append(y)
    return found


def _check_outside(body: Block, outside: Sequence[Variable]) -> None:
    """Raise an error if what is computed reads one of the Variables from outside that needs a gradient."""
    read = {i for _, _, ins in body.steps for i in ins}.union(body.outputs)
    for i, x in enumerate(outside):
        if i in read and x.spec.differentiable and x.need_grad:
            name = f" {x.name!r}" if x.name else ""
            raise ValueError(
                f"{_OWNER}: the function reads a Variable{name} of shape {x.shape} from outside that needs a gradient, "
                "and none would reach it; make it an argument, or read x.get_unlinked_variable(need_grad=False)"
            )
