"""The parameters of layers: their scopes and initial values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from ..extend import Variable, as_variable, explained
from ..functions.docstrings import completed_docstring
from ..initializer import ConstantInitializer, Rng, UniformInitializer, calc_uniform_lim_glorot
from ..parallel.devices.mesh import Spec, shard_parameters
from ..parameter import Initializer, get_parameter_or_create, in_scopes, note_unnamed

Init: TypeAlias = Initializer | np.ndarray[Any, Any] | float | None
Apply: TypeAlias = Callable[[Variable], Variable] | None
ZEROS = None
"""The default initializer of parameters that start as zeros."""
ONES = ConstantInitializer(1)
USUAL = {
    "inp": "The input.",
    "w_init": "Initial W.",
    "wb_init": "Initial Wb, which the first `forward()` overwrites.",
    "b_init": "Initial b.",
    "param_init": "Initial values by name of parameter: each a function of a shape, an array or a number.",
    "fix_parameters": "Whether W and b are constants.",
    "rng": "Generator for the default `w_init`.",
    "with_bias": "Whether there is a b.",
    "apply_w": "Function that W goes through.",
    "apply_b": "Function that b goes through.",
    "quantize_w": "Whether W is quantised.",
    "quantize_b": "Whether b is quantised.",
    "quantize_zero_to": "The sign of 0.",
    "n_outputs": "Ignored.",
    "name": "Scope around that of the parameters.",
}
"""The descriptions of arguments that the docstring of a layer does not describe."""
RAISES = {"ValueError": "A shape does not fit, an argument is out of range, or a parameter has another shape already."}
RAISES_WITH_INIT = {
    "ValueError": "An argument is out of range, `param_init` names no parameter, or an existing one has another shape."
}
P = ParamSpec("P")
R = TypeVar("R")
Result = TypeVar("Result", covariant=True)


Sharding: TypeAlias = "str | Mapping[str, Spec] | None"
"""The argument `sharding`: shardings of parameters by name, or one mesh axis for all of them. None changes nothing."""


class Parametric(Protocol[P, Result]):
    """A function that also takes `name` and `sharding`."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Result: ...
    @overload
    def __call__(self, *args: Any, name: str | None, **kwargs: Any) -> Result: ...
    @overload
    def __call__(self, *args: Any, sharding: Sharding, **kwargs: Any) -> Result: ...


def parametric_function_api(
    scope_name: str | None = None, param_desc: Iterable[tuple[Any, ...]] = ()
) -> Callable[[Callable[P, R]], Parametric[P, R]]:
    """Put a function's parameters into the scope `scope_name`, and give it a last argument `name`.

    `name` is a scope around that one; None for no scope. The keyword `sharding` shards its parameters over the axes of
    a mesh: `{"W": (None, "model")}` maps names, or patterns of names, to arguments of `nn.shard`, and the name of an
    axis applies to all parameters. A first argument annotated as a Variable may also be an array, a list or a number. A
    call that raises leaves no new parameters behind.

    Args:
        scope_name: The scope; None for the function's name.
        param_desc: Parameters as nnabla describes them: name, description, shape, and whether it is trained. They are
            appended to the function's docstring.

    Raises:
        TypeError: The function has an argument `name` of its own.
    """

    def decorate(body: Callable[P, R]) -> Callable[..., R]:
        parameters = inspect.signature(body).parameters
        if "name" in parameters:
            raise TypeError(f"{body.__name__}: parametric_function_api adds the argument `name`. Remove it")
        first = next(iter(parameters.values()), None)
        described = [f"    {name} {shape}: {text}" for name, text, shape, *_ in param_desc]
        if described:
            body.__doc__ = "\n".join([body.__doc__ or body.__name__, "", "Parameters:", *described])
        converts = first is not None and first.annotation in (Variable, "Variable")
        return _parametric(body, scope_name or body.__name__, converts)

    return decorate


def own_parameters(scope_name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`parametric_function_api` for a function whose signature already has `name`, for type checkers. The function
    itself gets a Variable as its first argument, and no name."""

    def decorate(body: Callable[P, R]) -> Callable[P, R]:
        arguments = inspect.signature(body).parameters
        raises = RAISES_WITH_INIT if "param_init" in arguments else RAISES
        body.__doc__ = completed_docstring(body, arguments, USUAL, raises)
        return explained(_parametric(body, scope_name, True), composed=True)

    return decorate


def _parametric(body: Callable[..., R], scope_name: str, converts: bool) -> Callable[..., R]:
    """The decorator behind both; `converts` says whether the first argument becomes a Variable."""
    signature = inspect.signature(body)
    parameters = [p for p in signature.parameters.values() if p.name != "name"]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    name_of_scope = inspect.Parameter("name", kind, default=None, annotation="str | None")
    positions = len(parameters)
    converted = parameters[0].name if converts else None

    def run(sharding: Sharding, args: Any, kwargs: Any) -> R:
        result = body(*args, **kwargs)
        shard_parameters(sharding)
        return result

    @functools.wraps(body)
    def call(*args: Any, name: str | None = None, sharding: Sharding = None, **kwargs: Any) -> R:
        if len(args) == positions + 1 and name is None:
            *args, name = args  # type: ignore[assignment]
        if converted is not None:
            if args:
                if args[0].__class__ is not Variable:
                    args = (as_variable(args[0], converted, body.__name__), *args[1:])
            elif converted in kwargs:
                kwargs[converted] = as_variable(kwargs[converted], converted, body.__name__)
        if name is None:
            note_unnamed(scope_name)
        names = (scope_name,) if name is None else (name, scope_name)
        inp = args[0] if args else kwargs.get(converted) if converted else None
        if sharding is None:
            result: R = copy_context().run(in_scopes, names, body, args, kwargs, inp)
        else:
            result = copy_context().run(in_scopes, names, run, (sharding, args, kwargs), {}, inp)
        return result

    call.__signature__ = signature.replace(parameters=[*parameters, name_of_scope])  # type: ignore[attr-defined]
    call.unlisted = ("sharding",)  # type: ignore[attr-defined]
    return call


def parameter(name: str, shape: tuple[int, ...], init: Init, default: Initializer | None, fixed: bool) -> Variable:
    """The trainable parameter `name` of the current scope."""
    return get_parameter_or_create(name, shape, initial(init, default), True, not fixed)


def scale_and_offset(
    shape: tuple[int, ...], init: Mapping[str, Init], no_scale: bool, no_bias: bool, fixed: bool
) -> tuple[Variable | None, Variable | None]:
    """beta (initially zeros) and gamma (ones) of `shape`; None for one that is omitted."""
    beta = None if no_bias else parameter("beta", shape, init["beta"], ZEROS, fixed)
    gamma = None if no_scale else parameter("gamma", shape, init["gamma"], ONES, fixed)
    return beta, gamma


def initial(init: Init, default: Initializer | None) -> Initializer | np.ndarray[Any, Any] | None:
    """The given initializer, or the default; a number means a constant."""
    if init is None:
        return default
    return ConstantInitializer(init) if isinstance(init, int | float) else init


def glorot(inmaps: int, outmaps: int, kernel: tuple[int, ...], rng: Rng | None) -> Initializer:
    """Glorot's initializer, created only when it is called, since most calls of a layer find existing parameters."""
    return lambda shape: UniformInitializer(calc_uniform_lim_glorot(inmaps, outmaps, kernel), rng)(shape)


def reparametrized(function: Apply, w: Variable | None, name: str) -> Variable | None:
    """The result of `apply_w` or `apply_b` on a parameter; error messages start with `name`."""
    if function is None:
        return w
    if not callable(function):
        raise TypeError(f"{name} must be a function of a Variable, got {function!r}")
    return w if w is None else function(w)


def inits(param_init: Mapping[str, Init] | None, names: tuple[str, ...]) -> dict[str, Init]:
    """The initializer of each parameter, by name; None where none is given."""
    param_init = {} if param_init is None else param_init
    if not isinstance(param_init, Mapping):
        raise TypeError(f"param_init must be a dict of initializers by name, got {param_init!r}")
    unknown = sorted(set(param_init) - set(names))
    if unknown:
        raise ValueError(f"param_init has no parameter {', '.join(unknown)}; the parameters are {', '.join(names)}")
    return {name: param_init.get(name) for name in names}
