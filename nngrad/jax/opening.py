"""Open a jaxpr: translate each equation into nngrad's own functions wherever possible."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr

from .. import functions as F
from ..extend import Switched, Variable, contained, placeholder, spec_of
from ..functions.traced import CALLS, CUSTOM_RULES, called_function, count_closed_over, frozen, is_key, name_of
from .calls import graph_called
from .evaluating import closure_of, evaluated_now, may_run_now
from .pointwise import PointwiseFunction, complex_pointwise, depends_by_places, pointwise
from .primitives import COMPLEX, COMPLEX_POINTWISE, CONTROL, POINTWISE, RULES, JaxprEquation, Unsupported
from .primitives.control import Saving, stays_checkpoint
from .primitives.registry import require, variable
from .recognition import inlined_calls, recognised
from .report import Opened
from .surroundings import value_of_constant
from .values import (
    ComplexPair,
    Delayed,
    Keys,
    KnownArray,
    Value,
    complex_parts,
    implementation_of,
    is_complex,
    is_held,
    known,
    read,
)


class Opening:
    """Interprets a jaxpr, applying nngrad's functions for its equations.

    Args:
        owner: The name in errors.
        inlined: Whether functions with custom derivatives are replaced by their own equations. Derivatives are then
            wrong, and the result only serves to find out dependences.
    """

    def __init__(self, owner: str = "from_jax", inlined: bool = False) -> None:
        self.report = Opened()
        self._owner = owner
        self._inlined = inlined
        self._constants: dict[int, Any] = {}
        self._found: dict[Any, list[Value]] = {}
        self._kept: list[Any] = []  # keeps objects alive that are found by identity
        self._saving: Saving | None = None

    def run(self, jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr. Recurses into calls, which are nested a few levels deep at most."""
        values: dict[Any, Value] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        self.follow(jaxpr.eqns, values)
        return read(jaxpr.outvars, values)

    def follow(self, equations: Iterable[Any], values: dict[Any, Value]) -> None:
        """Evaluate equations, and store their results in `values`."""
        equations = list(equations)
        inlined = {} if self._inlined else inlined_calls(equations)
        for i, equation in enumerate(equations):
            results = self._results(equation, read(equation.invars, values))
            if i in inlined and not all([isinstance(v, KnownArray) for v in results]):
                opened, inputs = inlined[i]
                results = self._as_values_of(equation, opened(*read(inputs, values)))
            if self._saving is not None:
                self._saving.take(equation, results)
            values.update(zip(equation.outvars, results, strict=True))

    def constant(self, array: Any) -> Value:
        """The value of an array that the function closes over."""
        value = value_of_constant(array)
        if isinstance(value, Variable) and not isinstance(array, Tracer):
            self._constants[id(value)] = array
            self._kept.append(value)
        return value

    def run_closed(self, closed: ClosedJaxpr, args: Sequence[Value]) -> list[Value]:
        """The results of a closed jaxpr."""
        return self.run(closed.jaxpr, [known(c) for c in closed.consts], args)

    @contextlib.contextmanager
    def saving(self, saving: Saving | None = None) -> Iterator[None]:
        """Open what follows as part of a checkpoint, whose policy saves values outside loops and branches."""
        before, self._saving = self._saving, saving
        try:
            yield
        finally:
            self._saving = before

    def _results(self, equation: Any, inputs: list[Value]) -> list[Value]:
        name = name_of(equation)
        for v in (*equation.invars, *equation.outvars):
            if not isinstance(v.aval, ShapedArray):
                raise TypeError(
                    f"{self._owner}: {name} works on {v.aval}, which is not an array, so no Variable can hold it; "
                    "use F.jax_function, which keeps the whole function opaque"
                )
        if all([isinstance(v, KnownArray) for v in inputs]) and may_run_now(equation):
            return list(evaluated_now(equation, inputs))  # type: ignore[arg-type]
        is_call = name in CALLS and (self._inlined or not stays_checkpoint(equation, inputs))
        if is_call or (self._inlined and name in CUSTOM_RULES):
            return self._called(equation, inputs)
        key = (
            equation.primitive, frozen(equation.params), tuple([str(v.aval) for v in equation.outvars]),
            tuple([v.key if isinstance(v, KnownArray) else id(v) for v in inputs]),
        )  # fmt: skip
        results = self._found.get(key)
        if results is None:
            results = self._found[key] = self._translated(equation, inputs)
            self._kept.append((equation, inputs))
        return results

    def _called(self, equation: Any, inputs: list[Value]) -> list[Value]:
        parts = [complex_parts(v) if isinstance(v, KnownArray) else v for v in inputs]
        whole = None if self._inlined else self._whole(equation, parts)
        if whole is not None:
            return whole
        inner = called_function(equation)
        assert inner is not None
        return self.run_closed(inner, inputs)

    def _whole(self, equation: Any, inputs: list[Value]) -> list[Value] | None:
        """The replacement of a call recognised as a whole; None if it is not, or if tracing a custom rule raises."""
        try:
            whole = recognised(equation, inputs)
        except Exception:
            return None
        if whole is None:
            return None
        self.report.opened[name_of(equation)] += 1
        return self._as_values_of(equation, whole)

    def _translated(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """The results of an equation. If it cannot be opened, for any reason, it stays opaque."""
        before = self.report.copy()
        try:
            return self._opened(equation, inputs)
        except Unsupported as unsupported:
            reason = str(unsupported)
        except Exception as error:
            reason = f"its rule failed: {type(error).__name__}: {error}".split("\n")[0]
        self.report.go_back_to(before)
        if not any([is_held(v.aval) for v in equation.outvars]):
            return [Delayed(equation, inputs, i) for i in range(len(equation.outvars))]
        return self._opaque(equation, inputs, reason)

    def _opened(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """The results of an equation, by nngrad's own functions.

        Raises:
            Unsupported: There is no rule for it.
        """
        name = name_of(equation)
        held = all([is_held(v.aval) for v in equation.outvars])
        plain = held and not any([isinstance(v, Keys | Delayed | ComplexPair) for v in inputs])
        apply_graph = graph_called(equation)
        if apply_graph is not None and plain:  # a derivative of nngrad's own, applied to these Variables
            self.report.opened[name] += 1
            self.report.transformed += 1
            return self._as_values_of(equation, apply_graph([variable(v) for v in inputs]))
        pairs = self._of_pairs(equation, inputs)
        if pairs is not None:
            return pairs
        if name in CUSTOM_RULES:
            whole = self._whole(equation, inputs) if plain else None
            if whole is None:
                raise Unsupported("it has a custom derivative rule")
            return whole
        results: Any = None
        if plain and name in RULES:
            rule = RULES[name]
            values = [v.variable() if isinstance(v, KnownArray) and not rule.takes_known else v for v in inputs]
            results = rule.function(JaxprEquation(equation), *values)
        elif held and name in CONTROL and not any([isinstance(v, Delayed | ComplexPair) for v in inputs]):
            with self.saving():
                results = CONTROL[name](self, JaxprEquation(equation), inputs)
        require(results is not None, "it has no rule")
        self.report.opened[name] += 1
        return self._as_values_of(equation, results if isinstance(results, list) else [results])

    def _of_pairs(self, equation: Any, inputs: list[Value]) -> list[Value] | None:
        """The results of an equation on complex numbers, as pairs of Variables; None if it is not one, or has no
        rule."""
        name = name_of(equation)
        rule = COMPLEX.get(name)
        numbers = [isinstance(v, ComplexPair) or is_complex(v) for v in inputs]
        if not (any(numbers) or any([is_complex(v.aval) for v in equation.outvars])):
            return None
        if any([isinstance(v, Keys | Delayed) for v in inputs]):
            return None
        parts = [complex_parts(v) if isinstance(v, KnownArray) else v for v in inputs]
        if name in CUSTOM_RULES:
            return self._whole(equation, parts)
        if rule is None:
            return self._pair_by_elements(equation, inputs) if name in COMPLEX_POINTWISE else None
        try:
            result = rule(JaxprEquation(equation), *parts)
        except Unsupported:
            return None
        self.report.opened[name] += 1
        results = result if isinstance(result, list) else [result]
        if any([is_complex(v.aval) for v in equation.outvars]):
            return results
        return self._as_values_of(equation, results)

    def _pair_by_elements(self, equation: Any, values: list[Value]) -> list[Value] | None:
        """The results of an elementwise equation on complex numbers."""
        function, inputs, _ = closure_of(equation, values)
        pair = complex_pointwise(equation, function, inputs, _open_alone)
        if pair is None:
            return None
        self.report.opened[name_of(equation)] += 1
        return [pair]

    def _opaque(self, equation: Any, values: list[Value], reason: str) -> list[Value]:
        """The results of an equation as one opaque function; those that no Variable holds are delayed."""
        name = name_of(equation)
        alike = len({tuple(v.aval.shape) for v in (*equation.invars, *equation.outvars)}) == 1
        if self._inlined and name in POINTWISE and alike:
            return [_sum_of(equation, values)]
        if not self._inlined and not any([isinstance(v, Keys | Delayed | ComplexPair) for v in values]):
            by_elements = self._by_elements(equation, values)
            if by_elements is not None:
                self.report.opened[name] += 1
                return by_elements
        closed_over = count_closed_over(equation) if name in CUSTOM_RULES else 0
        # JAX does not differentiate such functions by the values they close over.
        fixed = [*map(self._baked, values[:closed_over]), *values[closed_over:]]
        function, inputs, names = closure_of(equation, fixed)
        held = [i for i, v in enumerate(equation.outvars) if is_held(v.aval)]

        @functools.wraps(function)
        def of_held(*arrays: Any) -> list[Any]:
            results = function(*arrays)
            return [results[i] for i in held]

        self.report.keep(equation, names, reason)
        delayed: list[Value] = [Delayed(equation, fixed, i) for i in range(len(equation.outvars))]
        for i, y in zip(held, F.jax_function(of_held)(*inputs), strict=True):
            aval = equation.outvars[i].aval
            delayed[i] = Keys(y, implementation_of(aval), aval.shape) if is_key(aval) else y
        return delayed

    def _baked(self, value: Value) -> Value:
        """The plain array of a closed-over array; other values unchanged."""
        return known(self._constants[id(value)]) if id(value) in self._constants else value

    def _by_elements(self, equation: Any, values: list[Value]) -> list[Value] | None:
        """The results of an elementwise equation; None if it is not known to be elementwise. Closed-over arrays become
        part of the function."""
        function, inputs, _ = closure_of(equation, [*map(self._baked, values)])
        results = pointwise(equation, function, inputs, functools.partial(_is_seen, equation), _open_alone)
        return None if results is None else list(results)

    @staticmethod
    def _as_values_of(equation: Any, results: Iterable[Any]) -> list[Value]:
        """Results cast to the dtypes of the equation, except booleans, which may be the numbers 0 and 1."""
        values: list[Value] = []
        for y, v in zip(results, equation.outvars, strict=True):
            if isinstance(y, Variable) and not is_key(v.aval):
                if y.shape != tuple(v.aval.shape):
                    raise AssertionError(f"{equation.primitive.name}: expected {v.aval}, the rule returned {y.spec}")
                y = y if v.aval.dtype in (bool, y.dtype) else F.cast(y, dtype=v.aval.dtype)
            values.append(y)
        return values


def _open_alone(closed: ClosedJaxpr, inputs: Sequence[Variable]) -> Variable:
    """The result of a jaxpr."""
    (y,) = Opening().run_closed(closed, inputs)
    return variable(y)


def _is_seen(equation: Any, function: PointwiseFunction) -> bool:
    """True if a function is elementwise: its primitive is known to be, or its equations and those of its derivative are
    made of elementwise functions."""
    if name_of(equation) in POINTWISE:
        return True
    return all(map(_by_places, (function.closed, function.derivative())))


@contained
def _by_places(closed: ClosedJaxpr) -> bool:
    Switched().from_now_on(alone=True)
    inputs = [placeholder(spec_of(tuple(v.shape), v.dtype), "from_jax") for v in closed.in_avals]
    (y,) = Opening(inlined=True).run_closed(closed, inputs)
    return not isinstance(y, Variable) or depends_by_places([y], inputs)


def _sum_of(equation: Any, inputs: list[Value]) -> Variable:
    """A value that depends on whatever the equation's one result depends on."""
    (y,) = [v.aval for v in equation.outvars]
    total = F.add_n(*[F.cast(variable(v), dtype=np.float32) for v in inputs])
    return F.cast(total if total.shape == y.shape else F.broadcast(total, shape=tuple(y.shape)), dtype=y.dtype)
