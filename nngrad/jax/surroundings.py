"""Values that a function closes over from JAX's traces around it.

In `jax.jit(lambda params, x: nj.grad(lambda x: model(params, x))(x))`, `params` are such values: tracers of that one
trace, which no graph can hold. Each becomes an input of the graph, after the arguments.

Also JAX's conventions for derivatives by complex numbers and integers, and for weak types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import functions as F
from ..extend import Variable, dtype_of, placeholder, spec_of
from ..functions.traced import ByIdentity, Trace, is_key
from .values import ComplexPair, Keys, Value, constant_of, implementation_of, is_complex, is_pair


class ArgumentKinds(NamedTuple):
    """The structure and avals of a function's arguments, as a cache key."""

    tree: Any
    described: tuple[Any, ...]
    needs_x64: bool
    axes: Hashable
    """JAX's named axes under which it was traced."""


class Surroundings:
    """The tracers that a function closes over, their Variables in a graph, and the function's traces.

    The function is not traced again when its graph is rebuilt for other Variables: its tracers may belong to a trace
    that has ended.
    """

    def __init__(self) -> None:
        self.tracers: list[Any] = []
        self.acts = False
        """True if the function prints, or calls functions on the host for their side effects."""
        self.variables: list[Variable] = []
        """The Variable of each tracer; for random keys, of their data."""
        self._values: dict[int, Value] = {}
        self._instead: dict[int, Variable] = {}
        self._parts: dict[int, tuple[Any, Any, Any]] = {}
        """Tracers of complex numbers, with the tracers of their real and imaginary parts that replace them."""
        self.weak: dict[int, Variable] = {}
        """Variables of weakly typed arrays, whose dtype gives way to others'."""
        self.traces: dict[ArgumentKinds, Trace] = {}

    @property
    def key(self) -> Hashable:
        """A cache key of what the function computes, in which closed-over tracers are numbered."""
        places = {id(tracer): i for i, tracer in enumerate(self.tracers)}
        parts = []
        for kind, trace in self.traces.items():
            structure, constants, results = trace.key
            numbered = [places.get(id(c.value), c) if isinstance(c, ByIdentity) else c for c in constants]
            parts.append((kind, structure, tuple(numbered), results))
        return tuple(parts)

    def held_by(self, variables: Sequence[Variable]) -> Surroundings:
        """A copy with other Variables, which may have one more leading axis."""
        other = Surroundings()
        other.traces, other._parts = self.traces, self._parts
        for tracer, first, x in zip(self.tracers, self.variables, variables, strict=True):
            other._add(tracer, x)
            other._instead[id(first)] = x
        return other

    def now_held_by(self, x: Variable) -> Variable:
        """The Variable that replaces `x`, with which the function was traced."""
        return self._instead.get(id(x), x)

    def arrays(self) -> list[Any]:
        """The arrays to pass in for `variables`."""
        return [jax.random.key_data(t) if is_key(t) else t for t in self.tracers]

    def value_of(self, tracer: Any) -> Value:
        """The value of a tracer in the graph."""
        if is_complex(tracer):
            if id(tracer) not in self._parts:
                self._parts[id(tracer)] = tracer, jax.lax.real(tracer), jax.lax.imag(tracer)
            return ComplexPair(*map(self.value_of, self._parts[id(tracer)][1:]))
        if id(tracer) not in self._values:
            described = jax.eval_shape(jax.random.key_data, tracer) if is_key(tracer) else tracer
            self._add(tracer, placeholder(spec_of(tuple(described.shape), dtype_of(described.dtype)), "nngrad.jax"))
        return self._values[id(tracer)]

    def are_weak(self, variables: Sequence[Variable], like: Iterable[bool]) -> None:
        """Mark Variables as weakly typed where `like` says so. If a weak and a strong result are one Variable, both are
        weak."""
        self.weak.update([(id(x), x) for x, weak in zip(variables, like, strict=True) if weak])

    def traced(self, kind: ArgumentKinds, trace: Callable[[], Trace]) -> Trace:
        """The trace for arguments of a kind; `trace` is called once for each kind."""
        if kind not in self.traces:
            self.traces[kind] = trace()
        return self.traces[kind]

    def _add(self, tracer: Any, x: Variable) -> None:
        self.tracers.append(tracer)
        self.variables.append(x)
        value = Keys(x, implementation_of(tracer), tuple(tracer.shape)) if is_key(tracer) else x
        self._values[id(tracer)] = value


_around: ContextVar[Surroundings | None] = ContextVar("surroundings", default=None)


@contextlib.contextmanager
def taking_from(surroundings: Surroundings) -> Iterator[Surroundings]:
    """Let functions opened in this scope take closed-over tracers from `surroundings`."""
    token = _around.set(surroundings)
    try:
        yield surroundings
    finally:
        _around.reset(token)


_pulled: ContextVar[list[Variable]] = ContextVar("inputs_of_reverse_mode")


@contextlib.contextmanager
def noting_reverse_mode() -> Iterator[list[Variable]]:
    """The Variables by which functions are differentiated in reverse mode in this scope."""
    inputs: list[Variable] = []
    token = _pulled.set(inputs)
    try:
        yield inputs
    finally:
        _pulled.reset(token)


def note_reverse_mode(inputs: Iterable[Any]) -> None:
    """Note that a function is differentiated in reverse mode by those of `inputs` that are floating Variables."""
    _pulled.get([]).extend([x for x in inputs if isinstance(x, Variable) and x.spec.differentiable])


def surroundings_of_now() -> Surroundings | None:
    """The surroundings of the current scope; None while a function is opened for Variables."""
    return _around.get()


def value_of_constant(constant: Any) -> Value:
    """The value of an array that a function closes over."""
    around = _around.get()
    if around is None or not isinstance(constant, jax.core.Tracer):
        return constant_of(constant)
    return around.value_of(constant)

# ---------------------------------------------------------------- derivatives by complex numbers and integers


def conjugate(tree: Any) -> Any:
    """Convert complex gradients to JAX's convention, or back: by x + iy it is that by x minus i times that by y."""

    def of(value: Any) -> Any:
        return ComplexPair(value.real, F.mul_scalar(value.imaginary, val=-1.0)) if is_pair(value) else value

    return jax.tree.map(of, tree, is_leaf=lambda value: isinstance(value, ComplexPair | WithoutTangent))


def like(others: Sequence[Variable], derivatives: Sequence[Variable]) -> Sequence[Variable]:
    """Derivatives, weakly typed where the Variables they belong to are."""
    around = surroundings_of_now()
    if around is not None:
        around.are_weak(derivatives, [id(x) in around.weak for x in others])
    return derivatives


def is_whole(x: Any) -> bool:
    """True if `x` is a Variable of integers or booleans."""
    return isinstance(x, Variable) and not x.spec.differentiable


@jax.tree_util.register_pytree_node_class
class WithoutTangent:
    """The gradient with respect to integers: a pytree without leaves, which becomes JAX's float0 array when results
    become arrays.

    Args:
        shape: The shape of the integers.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def tree_flatten(self) -> tuple[tuple[()], tuple[int, ...]]:
        """No leaves, and the shape."""
        return (), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, ...], leaves: Any) -> Any:
        """The float0 array."""
        del leaves
        return np.zeros(shape, jax.dtypes.float0)
