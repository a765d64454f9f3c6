"""custom_gradient: define the gradient of a function of Variables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

import jax

import nngrad.functions as F

from ..graph import NdArray, Variable, apply, as_variable, build_options
from ..graph.block import Block
from ..graph.capture import captured, placeholder
from ..graph.closing import close
from ..graph.variable import leaf_of
from .bodies.alternatives import body_with_gradient, body_with_surrogate
from .checkpoints import arguments_among

P = ParamSpec("P")
R = TypeVar("R")

_OWNER = "custom_gradient"


@overload
def custom_gradient(fun: Callable[P, Any], *, exact: bool = ...) -> Callable[P, Any]: ...
@overload
def custom_gradient(*, exact: bool = ...) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


def custom_gradient(fun: Callable[..., Any] | None = None, *, exact: bool = False) -> Any:
    """Define the gradient of a function of Variables, overriding that of its computation.

        @nn.custom_gradient
        def clipped(x):
            return x, lambda gy: F.clip(gy, -1, 1)

    This is like `tf.custom_gradient`. The gradient is a function on Variables, and is itself differentiated: so there
    are gradients of any order. It can be called in the bodies of loops.

    Args:
        fun: Returns its result, a Variable or a pytree of them, and a function. This takes the gradient at each output,
            and returns one for each Variable or array of a floating dtype among the arguments of `fun`, in order,
            without a tuple if there is only one; None stands for zero. Both may close over Variables, but `fun` passes
            no gradient to these, so a Variable that needs one must be an argument. `fun` runs once in each call, on
            Variables without values.
        exact: Whether it is the true derivative. Only then do higher derivatives use methods that rest on calculus.

    Returns:
        A function with the signature and result of `fun`; without `fun`, a decorator.

    Raises:
        TypeError: (when it is called) `fun` does not return a pair, or its second item is not a function.
        ValueError: (when it is called) A gradient differs in shape or dtype from its argument, there are too many or
            too few, or `fun` closes over a Variable that needs a gradient.
    """
    if fun is None:
        return functools.partial(custom_gradient, exact=exact)
    if not callable(fun):
        raise TypeError(f"{_OWNER}: fun must be a function of Variables, got {fun!r}")

    @functools.wraps(fun)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        inputs, floating, with_values = arguments_among(args, kwargs, _OWNER)
        seeds: list[Variable] = []
        structure: Any = None

        def flat(variables: list[Variable]) -> list[Variable]:
            nonlocal structure
            own_args, own_kwargs = with_values(variables)
            ys, structure, gradient = _pair(fun(*own_args, **own_kwargs), floating)
            seeds.extend([placeholder(y.spec, _OWNER) for y in ys])
            return [*ys, *_gradients(gradient(*seeds), [x for x in variables if x.spec.differentiable])]

        recorded = captured(flat, [x.spec for x in inputs], _OWNER, fun, often=False)
        arrived = {id(seed) for seed in seeds}
        outside = [x for x in recorded.variables if id(x) not in arrived]
        full = recorded.body
        leaves, _, results = full.opened()
        at = {id(x): y for x, y in zip(recorded.variables, leaves, strict=False)}
        variables = [y for x, y in zip(recorded.variables, leaves, strict=False) if id(x) not in arrived]
        variables += leaves[len(recorded.variables) :]
        gys = [at[id(seed)] if id(seed) in at else leaf_of(NdArray.of_spec(seed.spec)) for seed in seeds]
        body = close(results[: len(seeds)], variables)
        _check_outside(body, outside)
        first = len(outside)
        wanted = tuple([first + k for k, x in enumerate(inputs) if x.spec.differentiable])
        gradient = close(results[len(seeds) :], [*variables, *gys])
        operands, static = (*outside, *inputs, *recorded.keys), (body, gradient, wanted)
        outputs = apply(body_with_gradient, operands, static) if exact else apply(body_with_surrogate, operands, static)
        return jax.tree.unflatten(structure, outputs)

    return with_gradient


def _pair(returned: Any, floating: Any) -> tuple[list[Variable], Any, Callable[..., Any]]:
    """The result of a user's function, its structure, and its gradient function."""
    if not isinstance(returned, tuple | list) or len(returned) != 2 or not callable(returned[1]):
        raise TypeError(
            f"{_OWNER}: the function must return a pair: its result, and a function that returns the gradients"
        )
    leaves, structure = jax.tree.flatten(returned[0])
    ys = [as_variable(y, f"result {i}", _OWNER, floating) for i, y in enumerate(leaves)]
    if not ys:
        raise TypeError(f"{_OWNER}: the function returns no results")
    return ys, structure, returned[1]


def _gradients(returned: Any, inputs: list[Variable]) -> list[Variable]:
    """The results of a gradient function, one for each of the inputs."""
    several = isinstance(returned, tuple | list)
    gxs = list(returned) if several else [returned]
    if len(gxs) != len(inputs):
        raise ValueError(f"{_OWNER}: the gradient function must return {len(inputs)} gradients, got {len(gxs)}")
    policy = build_options().applying.precision
    checked = []
    for i, (x, gx) in enumerate(zip(inputs, gxs, strict=True)):
        zero = F.constant(0, shape=x.shape, dtype=x.dtype) if gx is None else gx
        y = as_variable(zero, f"gradient {i}", _OWNER, x.dtype)
        if policy is not None:
            y = policy.like(y, x.dtype)
        if y.spec is not x.spec:
            raise ValueError(f"{_OWNER}: gradient {i} must be {x.spec}, like argument {i}, got {y.spec}")
        checked.append(y)
    return checked


def _check_outside(body: Block, outside: Sequence[Variable]) -> None:
    """Raise an error if the computation closes over a Variable that needs a gradient."""
    read = {i for _, _, ins in body.steps for i in ins}.union(body.outputs)
    for i, x in enumerate(outside):
        if i in read and x.spec.differentiable and x.need_grad:
            name = f" {x.name!r}" if x.name else ""
            raise ValueError(
                f"{_OWNER}: the function reads a Variable{name} of shape {x.shape} from outside that needs a gradient, "
                "but would get none; make it an argument, or read x.get_unlinked_variable(need_grad=False)"
            )
