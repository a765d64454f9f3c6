"""The structure of traced JAX functions as a cache key: equal keys mean equal computations."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Hashable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from ..graph import Spec, spec_of
from ..graph.by_jax import along, back
from ..graph.jaxpr import (
    CUSTOM_RULES,
    alone,
    called_function,
    count_closed_over,
    does_much,
    equations_in,
    name_of,
    parameters_of,
    primitives_in,
    reaching_closed_over,
    rules_of,
)
from ..graph.process import unharmed
from ..graph.spec import x64_if

_SMALL = 1 << 12
"""Bytes up to which an array that is baked into a function is compared by its values, and not by identity."""

_MOST_DERIVATIVES = 4
"""Each order of some functions has another call in it whose derivative is set, so nothing is below so many."""

Positions = tuple[int, ...]
Around = tuple[Hashable, ...]
"""The structures of calls whose derivatives something was met in, one within the other."""


_jitted: WeakKeyDictionary[Jaxpr, dict[bool, Hashable]] = WeakKeyDictionary()
"""The structures of functions under `jax.jit`, without derivatives and with them. JAX traces such a function once:
its rules are taken then too."""


class ByIdentity:
    """An object compared by identity, and kept alive so that its id is not reused."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def structure_of(jaxpr: Jaxpr, derivatives: bool = True) -> tuple[Hashable, ...]:
    """Returns what `jaxpr` computes, as nested tuples without names: primitives, their parameters, and wiring. What
    authors have set as derivatives of functions inside has a part in it, if `derivatives`."""
    token = _derivatives.set({})
    try:
        return _structure_of(jaxpr, derivatives, ())
    finally:
        _derivatives.reset(token)


def _structure_of(jaxpr: Jaxpr, derivatives: bool, around: Around) -> tuple[Hashable, ...]:
    """The same of what was met `around`, in derivatives. It recurses into the functions inside (bodies of loops,
    branches), which are nested a few levels deep at most."""
    numbers: dict[Any, int] = {}
    contexts: dict[int, str] = {}

    def number(v: Any) -> Hashable:
        if isinstance(v, Literal):
            value = np.asarray(v.val)
            return str(v.aval), b"nan" if value.ndim == 0 and value != value else value.tobytes()  # every NaN is one
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
    return _by_name(eqn, derivatives, around) if known is None else known


def structure_of_called(call: Any, derivatives: bool = True) -> Hashable:
    """The structure of what a call computes."""
    inner = called_function(call)
    if inner is None or name_of(call) != "jit":
        return frozen(inner, derivatives)
    known = _jitted.setdefault(inner.jaxpr, {})
    if derivatives not in known:
        known[derivatives] = frozen(inner, derivatives)
    return known[derivatives]


def structure_of_rules(call: Any, derivatives: bool = True, around: Around = ()) -> Hashable | None:
    """What a call computes whose derivative its author has set, and what that computes. JAX makes objects of the rules
    anew in each trace, so these cannot be compared. None where what they compute does not tell all."""
    inner = called_function(call)
    if inner is None:
        return None
    computed = frozen(inner, False)
    if not derivatives:
        return computed
    derivative = None
    if computed not in around and len(around) < _MOST_DERIVATIVES:  # what it is the derivative of is not taken again
        known = _derivatives.get({})
        key = name_of(call), computed, around, rules_of(call, lambda value: frozen(value, False))
        if key not in known:
            known[key] = _derivative_in(call, (*around, computed))
        derivative = known[key]
    return (computed, derivative) if derivative is not None or around else None


_derivatives: ContextVar[dict[Hashable, Hashable]] = ContextVar("derivatives")
"""Within one structure, the derivatives that authors' rules have: programs call the same function in many places."""


READS_AROUND = (
    "a rule of jax.custom_jvp or custom_vjp reads an array that is computed around it, in the function that is "
    "transformed. Make that array an argument of the function with the rule"
)


@dataclasses.dataclass(frozen=True, slots=True)
class OfDerivative:
    """The structure of a rule that is called within a derivative."""

    structure: Hashable


def reads_around(structure: Hashable) -> bool:
    """Whether an author's rule inside reads a tracer of the trace that it was written in, or of one around that. What
    rules within derivatives read, as that of `jax.scipy.special.expn` its order, does not count: it is the derivative's
    own."""
    return any([isinstance(x, ByIdentity) and isinstance(x.value, jax.core.Tracer) for x in jax.tree.leaves(structure)])


def _by_name(eqn: Any, derivatives: bool, around: Around) -> Hashable:
    return tuple([(name, frozen(value, derivatives, around)) for name, value in sorted(eqn.params.items())])


def structure_anew(jaxpr: Jaxpr) -> tuple[Hashable, ...]:
    """The same with all rules as they are now, also of what JAX has traced once."""
    _jitted.clear()
    return structure_of(jaxpr)


def _derivative_in(call: Any, around: Around) -> Hashable | None:
    if parameters_of(call).get("symbolic_zeros"):
        return None
    try:
        closed = derivative_of(call)
    except Exception:  # there is none, as of some of JAX's own, or the rule raises whatever it does
        return None
    found = _structure_of(closed.jaxpr, True, around), tuple([key_of_array(c) for c in closed.consts])
    return OfDerivative(found) if len(around) > 1 else found


def derivative_of(call: Any) -> ClosedJaxpr:
    """The derivative of a call whose author has set it, as the rule is now: along tangents, or back from them."""
    run = jaxpr_as_fun(alone(call))
    abstract = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in call.invars]
    first, count = count_closed_over(call), len(abstract)  # no rule is for what is closed over
    forward = name_of(call) == "custom_jvp_call"
    moved = abstract[first:] if forward else [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in call.outvars]
    if forward:
        moved = [jax.ShapeDtypeStruct(v.shape, _tangent_dtype(v.dtype)) for v in moved]

    def derivative(*given: Any) -> Any:
        return (along if forward else back)(run, given[:count], range(first, count), given[count:])

    with x64_if(any([not is_opaque(v) and v.dtype.itemsize >= 8 for v in abstract])):
        closed: ClosedJaxpr = unharmed(jax.make_jaxpr(derivative))(*abstract, *moved)
    return closed


def _tangent_dtype(dtype: Any) -> Any:
    return dtype if jnp.issubdtype(dtype, jnp.inexact) else jax.dtypes.float0


def _filled_at_once(equations: list[Any], results: list[Any]) -> list[Any]:
    """The same equations, in which an array that is filled with one number is so in one step: `jax.vmap` widens such
    arrays in a step of its own for each axis."""
    filled: dict[Any, Literal] = {}
    found = []
    for equation in equations:
        if equation.primitive.name == "broadcast_in_dim" and len(equation.invars) == 1:
            (x,) = equation.invars
            number = x if isinstance(x, Literal) else filled.get(x)
            if number is not None and not getattr(number.aval, "shape", ()):
                filled[equation.outvars[0]] = number
                params = {**equation.params, "broadcast_dimensions": ()}
                equation = equation.replace(invars=[number], params=params)
        found.append(equation)
    read = {v for equation in found for v in equation.invars if not isinstance(v, Literal)}.union(
        [v for v in results if not isinstance(v, Literal)]
    )
    return [e for e in found if not e.outvars or e.outvars[0] not in filled or e.outvars[0] in read]


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
        return type(value), repr(value)  # 0.0 and -0.0 are equal, and are not the same
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
    """Whether the values of an array cannot be read, as those of random keys."""
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.extended))


def array_value(array: Any) -> Hashable:
    """The value of an array as a key; the array itself, by identity, if it cannot be read."""
    if is_opaque(array):
        return ByIdentity(array)
    values = np.ascontiguousarray(array)
    return str(values.dtype), values.shape, hashlib.sha256(values.tobytes()).digest()


def is_told_what_moves(jaxpr: Jaxpr) -> bool:
    """Whether an author's rule inside is told which inputs move, and at which results a gradient arrives."""
    return any([parameters_of(eqn).get("symbolic_zeros") for eqn in equations_in(jaxpr)])


class TracedFunction:
    """A JAX function as it was traced for inputs of certain shapes and dtypes. The arrays that it closes over are its
    first inputs, so that two which differ in nothing but these are equal, and share an executable."""

    __slots__ = (
        "_baked", "_hash", "_jaxpr", "_key", "_results", "active", "closed_over", "custom", "heavy", "inputs",
        "is_told", "name", "outputs", "reachable", "rows",
    )  # fmt: skip

    opaque = True
    """Whether it holds code of the user's, which may call functions on the host."""

    def __init__(
        self, name: str, closed: ClosedJaxpr, lifted: Positions, active: Positions, rows: Positions = (),
        structure: Hashable = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._jaxpr = closed.jaxpr
        self._baked = {i: const for i, const in enumerate(closed.consts) if i not in lifted}
        self.inputs = tuple([_spec(closed.jaxpr.constvars[i]) for i in lifted] + list(map(_spec, closed.jaxpr.invars)))
        self.outputs = tuple([_spec(v) for v in closed.jaxpr.outvars])
        self._results = tuple(range(len(self.outputs)))
        self.active = tuple([i + len(lifted) for i in active])
        self.reachable = self.active
        """The inputs that gradients may reach; `active` are fewer in what `with_moving` gives."""
        self.is_told = is_told_what_moves(closed.jaxpr)
        self.rows = tuple([i + len(lifted) for i in rows])
        self.custom = not CUSTOM_RULES.isdisjoint(primitives_in(closed.jaxpr))
        reaching = reaching_closed_over(closed.jaxpr) if self.custom else ()
        places = (*lifted, *range(len(closed.consts), len(closed.consts) + len(closed.jaxpr.invars)))
        self.closed_over = tuple([i for i, place in enumerate(places) if place in reaching])
        """The inputs of which what authors' rules inside close over is computed: JAX raises where these move."""
        self.heavy = does_much(closed.jaxpr)
        structure = structure or structure_of(closed.jaxpr)
        baked = tuple([(i, ByIdentity(c)) for i, c in self._baked.items()])
        self._key: tuple[Any, ...] = structure, self.active, self.rows, baked, self._results
        self._hash = hash(self._key)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        for array, spec in zip(arrays, self.inputs, strict=True):
            if array.dtype != spec.dtype:
                raise TypeError(
                    f"jax_function({self.name}) was traced for {spec.dtype.name} and is run with {array.dtype.name}; "
                    "switch jax_enable_x64 on where a graph in 64 bits is run by JAX's own transformations"
                )
        count = len(self._jaxpr.constvars)
        given = iter(arrays)
        consts = [self._baked[i] if i in self._baked else next(given) for i in range(count)]
        results = jax.core.eval_jaxpr(self._jaxpr, consts, *given)
        return tuple([results[i] for i in self._results])

    def with_moving(self, active: Positions, results: Positions) -> TracedFunction:
        """It as JAX sees it where these inputs alone move, and all that is read are these of its results."""
        if active == self.active and len(results) == len(self.outputs):
            return self
        narrowed = copy.copy(self)
        narrowed.active, narrowed.outputs = active, tuple([self.outputs[i] for i in results])
        narrowed._results = tuple([self._results[i] for i in results])
        narrowed._key = (self._key[0], active, self.rows, self._key[3], narrowed._results)
        narrowed._hash = hash(narrowed._key)
        return narrowed

    def check_rules(self) -> None:
        """Raise unless rules that authors have set for functions inside compute what they did where it was applied. JAX
        runs some of them where a derivative is compiled, and that would be found again for what was applied then."""
        if self.custom and self._has_changed():
            raise RuntimeError(
                f"jax_function({self.name}): a derivative that its author has set (jax.custom_vjp) computes something "
                "else than where it was applied to these Variables, and is first needed now; apply it again"
            )

    def _has_changed(self) -> bool:
        structure = self._key[0]
        if structure_anew(self._jaxpr) == structure:
            return False
        with jax.ensure_compile_time_eval():  # as it was traced where a rule reads what is computed around it
            return bool(structure_anew(self._jaxpr) != structure)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name


def _spec(v: Any) -> Spec:
    return spec_of(tuple(v.aval.shape), v.aval.dtype)
