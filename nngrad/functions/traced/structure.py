"""The structure of traced JAX functions as a cache key: equal keys mean equal computations."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
from collections.abc import Hashable, Iterator, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxpr_as_fun

from ...graph import Spec, spec_of
from ...graph.by_jax import along, back
from ...graph.jaxpr import CUSTOM_RULES, bodies_of, does_much, equations_in, name_of, parameters_of, primitives_in
from ...graph.process import interrupt_safe
from ...graph.spec import x64_if
from .dependence import is_floating, loops_select
from .jaxprs import alone, called_function, count_closed_over

_SMALL = 1 << 12
"""Up to this many bytes, an array in a function's closure is compared by value instead of by identity."""

_MOST_DERIVATIVES = 4
"""The largest depth of nested custom derivatives. Some functions have a further call with one at each order."""

Positions = tuple[int, ...]
Around = tuple[tuple[Hashable, Any], ...]
"""The calls whose nested derivatives contain something, outermost first: structures, and functions of their rules."""


_jitted: WeakKeyDictionary[Jaxpr, dict[bool, Hashable]] = WeakKeyDictionary()
"""The structures of functions under `jax.jit`, with and without derivatives. JAX traces such a function once, and its
rules are read then too."""


class ByIdentity:
    """An object compared by identity, and kept alive so that its id is not reused."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@contextlib.contextmanager
def deriving_rules_once(anew: bool = False) -> Iterator[None]:
    """Derive each custom rule, by the identity of its functions, at most once in this scope; unless `anew`, rules that
    were derived in the scope around it are known."""
    token = _derivatives.set({} if anew else _derivatives.get({}))
    try:
        yield
    finally:
        _derivatives.reset(token)


def structure_of(jaxpr: Jaxpr, derivatives: bool = True) -> tuple[Hashable, ...]:
    """The computation of `jaxpr` as nested tuples without names: primitives, their parameters, and wiring. If
    `derivatives`, it includes the custom derivatives of functions inside."""
    with deriving_rules_once():
        return _structure_of(jaxpr, derivatives, ())


def _structure_of(jaxpr: Jaxpr, derivatives: bool, around: Around) -> tuple[Hashable, ...]:
    """The same, within the derivatives of the structures `around`. It recurses into inner functions (bodies of loops,
    branches), which are nested a few levels deep at most."""
    numbers: dict[Any, int] = {}
    contexts: dict[int, str] = {}

    def number(v: Any) -> Hashable:
        if isinstance(v, Literal):
            value = np.asarray(v.val)
            return str(v.aval), b"nan" if value.ndim == 0 and value != value else value.tobytes()  # all NaNs are equal
        return numbers.setdefault(v, len(numbers))

    def context(eqn: Any) -> str:
        ctx = getattr(eqn, "ctx", None)
        return contexts.setdefault(id(ctx), repr(ctx))

    inputs = tuple([(number(v), str(v.aval)) for v in (*jaxpr.constvars, *jaxpr.invars)])
    steps = tuple([
        (
            eqn.primitive,
            tuple([number(v) for v in eqn.invars]),
            tuple([(number(v), str(v.aval)) for v in eqn.outvars]),
            _parameters(eqn, derivatives, around),
            context(eqn),
        )
        for eqn in _filled_at_once(jaxpr.eqns, jaxpr.outvars)
    ])
    return inputs, steps, tuple([number(v) for v in jaxpr.outvars])


def _parameters(eqn: Any, derivatives: bool, around: Around) -> Hashable:
    name = name_of(eqn)
    if name == "jit" and not (derivatives and around):
        others = tuple([(key, frozen(value)) for key, value in sorted(eqn.params.items()) if key != "jaxpr"])
        return others, structure_of_called(eqn, derivatives)
    known = structure_of_rules(eqn, derivatives, around) if name in CUSTOM_RULES else None
    if known is not None:
        return known
    return tuple([(key, frozen(value, derivatives, around)) for key, value in sorted(eqn.params.items())])


def structure_of_called(call: Any, derivatives: bool = True) -> Hashable:
    """The structure of the function that a call runs."""
    inner = called_function(call)
    if inner is None or name_of(call) != "jit":
        return frozen(inner, derivatives)
    known = _jitted.setdefault(inner.jaxpr, {})
    if derivatives not in known:
        known[derivatives] = frozen(inner, derivatives)
    return known[derivatives]


def structure_of_rules(call: Any, derivatives: bool = True, around: Around = ()) -> Hashable | None:
    """The structure of a call with a custom derivative, and that of the derivative. JAX creates the rules as new
    objects in each trace, so the objects themselves cannot be compared. None if structures are not enough."""
    inner = called_function(call)
    if inner is None:
        return None
    computed = frozen(inner, False)
    if not derivatives:
        return computed
    rule, numbers = _rule_and_numbers(call)
    derivative: Hashable = numbers
    within_its_own = any([computed == outer or (rule is not None and rule is of_outer) for outer, of_outer in around])
    if not within_its_own and len(around) < _MOST_DERIVATIVES:
        known = _derivatives.get({})
        key = name_of(call), computed, around, rules_of(call)
        if key not in known:
            known[key] = _derivative_in(call, (*around, (computed, rule)))
        derivative = known[key]
    return (computed, derivative) if derivative is not None or around else None


_derivatives: ContextVar[dict[Hashable, Hashable]] = ContextVar("derivatives")
"""Cached custom derivatives within one structure: programs call the same function in many places."""


READS_AROUND = (
    "a rule of jax.custom_jvp or custom_vjp reads an array that the enclosing function computes. Pass that array as an "
    "argument of the function with the rule"
)


class StepsOnlySelect(NotImplementedError):
    """JAX's derivatives in forward mode are not those of the result: what a loop inside reads only selects."""


@dataclasses.dataclass(frozen=True, slots=True)
class OfDerivative:
    """The structure of a rule that is called within another derivative."""

    structure: Hashable


def reads_around(structure: Hashable) -> bool:
    """True if a custom rule inside reads a tracer of the enclosing trace, or of one around it. Tracers read by rules
    within derivatives do not count, such as the order of `jax.scipy.special.expn`: they belong to the derivative."""
    return any([isinstance(x, ByIdentity) and isinstance(x.value, jax.core.Tracer) for x in jax.tree.leaves(structure)])


def structure_anew(jaxpr: Jaxpr) -> tuple[Hashable, ...]:
    """The same with all rules as they are now, even in functions that JAX has already traced."""
    _jitted.clear()
    return structure_of(jaxpr)


def _derivative_in(call: Any, around: Around) -> Hashable | None:
    if parameters_of(call).get("symbolic_zeros"):
        return None
    try:
        closed = derivative_of(call)
    except Exception:  # no derivative, as in some of JAX's own functions, or the rule raises an error of its own
        return None
    structure = _structure_of(closed.jaxpr, True, around), tuple([key_of_array(c) for c in closed.consts])
    return OfDerivative(structure) if len(around) > 1 else structure


def derivative_of(call: Any) -> ClosedJaxpr:
    """The custom derivative of a call, by the rule as it is now: forward (JVP) or reverse (VJP)."""
    run = jaxpr_as_fun(alone(call))
    abstract = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in call.invars]
    forward = name_of(call) == "custom_jvp_call"
    parameters = parameters_of(call)
    lifted = _given_rule(parameters["jvp_jaxpr_fun"], 0)[1] if "jvp_jaxpr_fun" in parameters else 0
    first, count = count_closed_over(call) + lifted, len(abstract)  # rules do not differentiate the closure
    moved = abstract[first:] if forward else [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in call.outvars]
    if forward:
        floating, none = jnp.inexact, jax.dtypes.float0
        moved = [v if jnp.issubdtype(v.dtype, floating) else jax.ShapeDtypeStruct(v.shape, none) for v in moved]

    def derivative(*arrays: Any) -> Any:
        return (along if forward else back)(run, arrays[:count], range(first, count), arrays[count:])

    with x64_if(any([not is_opaque(v) and v.dtype.itemsize >= 8 for v in abstract])):
        closed: ClosedJaxpr = interrupt_safe(jax.make_jaxpr(derivative))(*abstract, *moved)
    return closed


def _filled_at_once(equations: list[Any], results: list[Any]) -> list[Any]:
    """The same equations, with each array that is filled with one number made in one step: `jax.vmap` adds a step per
    axis."""
    filled: dict[Any, Literal] = {}
    replaced = []
    for equation in equations:
        if equation.primitive.name == "broadcast_in_dim" and len(equation.invars) == 1:
            (x,) = equation.invars
            number = x if isinstance(x, Literal) else filled.get(x)
            if number is not None and not getattr(number.aval, "shape", ()):
                filled[equation.outvars[0]] = number
                params = {**equation.params, "broadcast_dimensions": ()}
                equation = equation.replace(invars=[number], params=params)
        replaced.append(equation)
    read = {v for equation in replaced for v in equation.invars if not isinstance(v, Literal)}.union(
        [v for v in results if not isinstance(v, Literal)]
    )
    return [e for e in replaced if not e.outvars or e.outvars[0] not in filled or e.outvars[0] in read]


def frozen(value: Any, derivatives: bool = True, around: Around = ()) -> Hashable:
    """A parameter of a primitive in hashable form: by value where that is safe, else by identity."""
    if isinstance(value, ClosedJaxpr):
        return _structure_of(value.jaxpr, derivatives, around), frozen(tuple(value.consts), derivatives)
    if isinstance(value, Jaxpr):
        return _structure_of(value, derivatives, around)
    if isinstance(value, tuple | list):
        return type(value), tuple([frozen(v, derivatives, around) for v in value])
    if isinstance(value, dict):
        return tuple([(frozen(k, derivatives), frozen(v, derivatives, around)) for k, v in value.items()])
    if isinstance(value, float):
        return type(value), repr(value)  # 0.0 == -0.0, but they differ
    if isinstance(value, np.ndarray | np.generic) and value.nbytes <= _SMALL:
        return str(value.dtype), value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return ByIdentity(value)
    return ByIdentity(value) if isinstance(value, jax.Array) else (type(value), value)


def key_of_array(array: Any) -> Hashable:
    """The cache key of an array in a closure: by value if it is small or writable, else by identity."""
    is_fixed = isinstance(array, jax.core.Tracer) or (isinstance(array, jax.Array) and array.nbytes > _SMALL)
    return ByIdentity(array) if is_fixed else array_value(array)


def is_opaque(array: Any) -> bool:
    """True if the values of an array cannot be read, such as those of random keys."""
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.extended))


def array_value(array: Any) -> Hashable:
    """The value of an array as a key; the array itself, by identity, if it cannot be read."""
    if is_opaque(array):
        return ByIdentity(array)
    values = np.ascontiguousarray(array)
    return str(values.dtype), values.shape, hashlib.sha256(values.tobytes()).digest()


def is_told_what_moves(jaxpr: Jaxpr) -> bool:
    """True if a custom rule inside is told which inputs move, and which results have a gradient (`symbolic_zeros`)."""
    return any([parameters_of(eqn).get("symbolic_zeros") for eqn in equations_in(jaxpr)])


class TracedFunction:
    """A JAX function traced for inputs of certain shapes and dtypes. The arrays in its closure become its first inputs,
    so functions that differ only in these arrays are equal and share an executable."""

    __slots__ = (
        "_baked", "_hash", "_jaxpr", "_key", "_results", "active", "closed_over", "custom", "heavy", "inputs",
        "is_told", "name", "outputs", "reachable",
    )  # fmt: skip

    opaque = True
    """True if it contains user code, which may call functions on the host."""

    def __init__(
        self, name: str, closed: ClosedJaxpr, lifted: Positions, active: Positions, structure: Hashable = None
    ) -> None:
        self.name = name
        self._jaxpr = closed.jaxpr
        self._baked = {i: const for i, const in enumerate(closed.consts) if i not in lifted}
        self.inputs = tuple([_spec(closed.jaxpr.constvars[i]) for i in lifted] + list(map(_spec, closed.jaxpr.invars)))
        self.outputs = tuple([_spec(v) for v in closed.jaxpr.outvars])
        self._results = tuple(range(len(self.outputs)))
        self.active = tuple([i + len(lifted) for i in active])
        self.reachable = self.active
        """The inputs that gradients may reach; `with_moving` narrows `active`."""
        self.is_told = is_told_what_moves(closed.jaxpr)
        self.custom = not CUSTOM_RULES.isdisjoint(primitives_in(closed.jaxpr))
        reaching = reaching_closed_over(closed.jaxpr) if self.custom else ()
        places = (*lifted, *range(len(closed.consts), len(closed.consts) + len(closed.jaxpr.invars)))
        self.closed_over = tuple([i for i, place in enumerate(places) if place in reaching])
        """The inputs on which the closures of custom rules inside depend: JAX raises if these move."""
        self.heavy = does_much(closed.jaxpr)
        structure = structure or structure_of(closed.jaxpr)
        baked = tuple([(i, ByIdentity(c)) for i, c in self._baked.items()])
        self._key: tuple[Any, ...] = structure, self.active, baked, self._results
        self._hash = hash(self._key)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        for array, spec in zip(arrays, self.inputs, strict=True):
            if array.dtype != spec.dtype:
                raise TypeError(
                    f"jax_function({self.name}) was traced for {spec.dtype.name}, but got {array.dtype.name}. Set "
                    "jax_enable_x64 where JAX's own transformations run a 64-bit graph"
                )
        count = len(self._jaxpr.constvars)
        remaining = iter(arrays)
        consts = [self._baked[i] if i in self._baked else next(remaining) for i in range(count)]
        results = jax.core.eval_jaxpr(self._jaxpr, consts, *remaining)
        return tuple([results[i] for i in self._results])

    def loops_select(self, only: bool = False) -> bool:
        """True if a loop of unknown length inside is decided by comparisons of the active inputs, as in a bisection;
        if `only`, whether it depends on what it reads by these alone."""
        places = [i for i in range(len(self._jaxpr.constvars) + len(self._jaxpr.invars)) if i not in self._baked]
        return loops_select(self._jaxpr, [places[i] for i in self.active], only)

    def with_moving(self, active: Positions, results: Positions) -> TracedFunction:
        """The same function, in which only the inputs `active` move and only these `results` are read."""
        if active == self.active and len(results) == len(self.outputs):
            return self
        narrowed = copy.copy(self)
        narrowed.active, narrowed.outputs = active, tuple([self.outputs[i] for i in results])
        narrowed._results = tuple([self._results[i] for i in results])
        narrowed._key = (self._key[0], active, self._key[2], narrowed._results)
        narrowed._hash = hash(narrowed._key)
        return narrowed

    def check_rules(self) -> None:
        """Raise a RuntimeError if custom rules inside have changed since the function was applied. JAX runs some rules
        only when a derivative is compiled, and the executable would be cached for the earlier rules."""
        if self.custom and self._has_changed():
            raise RuntimeError(
                f"jax_function({self.name}): its jax.custom_vjp rule has changed between the call with these Variables "
                "and now, when the rule is first needed. Call the function again"
            )

    def _has_changed(self) -> bool:
        structure = self._key[0]
        if structure_anew(self._jaxpr) == structure:
            return False
        # traced like this if a rule reads values computed around it
        with jax.ensure_compile_time_eval(), deriving_rules_once(anew=True):
            return bool(structure_anew(self._jaxpr) != structure)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name


def _spec(v: Any) -> Spec:
    return spec_of(tuple(v.aval.shape), v.aval.dtype)


# ---------------------------------------------------------------- the rules of custom derivatives


def _rule_and_numbers(call: Any) -> tuple[Any, Hashable]:
    """The function that its author gave as the rule of a call, None if JAX wraps it in another way; and the static
    arguments of a JVP, which are numbers and names. A derivative that calls the same rule again, as that of an ODE
    solver does with another right-hand side, or of a polynomial with a lower degree, says no more of it than these."""
    parameters = parameters_of(call)
    if "bwd" in parameters:
        return getattr(parameters["bwd"], "f", None), None
    rule, _ = _given_rule(parameters.get("jvp_jaxpr_fun"), 0)
    given = _closed_over(_closed_over(rule).get("fn")).get("jvp")
    arguments = [held for wrapper, held in getattr(given, "transforms", ()) if wrapper.__name__ != "_flatten_jvp"]
    numbers, tree = jax.tree.flatten(jax.tree.map(lambda x: getattr(x, "val", x), arguments))
    if given is None or not all([isinstance(x, int | float | str) for x in jax.tree.leaves(numbers)]):
        return getattr(rule, "f", None), None
    return given.f, (frozen(numbers), tree)


def _given_rule(rule: Any, count: int) -> tuple[Any, int]:
    """A JVP rule as in the trace of its author's function, and the number of leading inputs that it does not take: each
    time JAX traces a call again, it wraps the rule in one that leaves out `num_consts` more."""
    while lifted := _closed_over(_closed_over(_closed_over(rule).get("fn")).get("jvp")):
        if not {"jvp_jaxpr_fun", "num_consts"} <= lifted.keys():
            break
        rule, count = lifted["jvp_jaxpr_fun"], count + lifted["num_consts"]
    return rule, count


def _closed_over(function: Any) -> dict[str, Any]:
    """The variables in the closure of a function, or of that in a wrapper of JAX's."""
    function = getattr(function, "f", function)
    if not isinstance(function, FunctionType):
        return {}
    with contextlib.suppress(ValueError):  # an empty cell
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        return dict(zip(function.__code__.co_freevars, held, strict=True))
    return {}


def rules_of(call: Any) -> Hashable:
    """A key for the custom rules of a call. Keys are equal if the user's functions are the same, in the same wrappers
    of JAX. What JAX stores in these about one trace does not count."""
    rules = {key: value for key, value in parameters_of(call).items() if key not in _NO_RULES}
    if "jvp_jaxpr_fun" in rules:
        rule = _given_rule(rules["jvp_jaxpr_fun"], rules.get("num_consts", 0))
        rules["jvp_jaxpr_fun"], rules["num_consts"] = rule
    return tuple([(key, _wrapped(value, _MOST_WRAPPERS)) for key, value in sorted(rules.items())])


def _wrapped(value: Any, depth: int) -> Hashable:
    if isinstance(value, Jaxpr | ClosedJaxpr):  # these may contain other rules
        return value
    if type(value).__name__ in _OF_TRACES:
        return None
    inner = _held_by_wrapper(value)
    if inner is None or not depth:
        return frozen(value, False)
    return type(value).__name__, tuple([_wrapped(x, depth - 1) for x in inner])


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
    of_traces = _MEMORY if value.__name__ == "memoized" else ()
    return value.__code__, *[held for name, held in _closed_over(value).items() if name not in of_traces]


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
    reaching: set[Any] = set()
    for equation in reversed(jaxpr.eqns):
        name = name_of(equation)
        if not reaching.isdisjoint(equation.outvars) and name != "stop_gradient":
            reaching.update(_that_move(equation.invars))
        if name == "custom_vjp_call":
            reaching.update(_that_move(equation.invars[: count_closed_over(equation)]))
            continue
        for body in bodies_of(equation):
            reached, inputs = reaching_closed_over(body), equation.invars[name == "cond" :]  # a branch's index is first
            fits = name not in ("scan", "while") and len(inputs) == len(body.invars)
            reaching.update(_that_move([inputs[i] for i in reached] if fits else inputs if reached else []))
    return {i for i, v in enumerate((*jaxpr.constvars, *jaxpr.invars)) if v in reaching}


def _that_move(variables: Sequence[Any]) -> list[Var]:
    return [v for v in variables if isinstance(v, Var) and is_floating(v)]
