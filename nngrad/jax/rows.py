"""Functions of one point applied to a batch: `jax.vmap` of what `nngrad.jax` returns.

The function is opened for all points together, and its derivatives are those of independent rows. Products of the
points with a matrix become one product, where JAX's derivatives at one point would make many small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from .. import functions as F
from ..derivatives.directions import independent_rows
from ..extend import Variable, interrupt_safe, spec_of, x64_if
from ..functions.traced import Fixed, Given, Trace
from .from_jax import PartedFunction, opened_with
from .opening import Opening
from .surroundings import value_of_constant
from .values import ComplexPair, Keys, Value, needs_x64


class NotByRows(Exception):
    """The batched graph cannot give the result; JAX maps the graph of one point instead."""


class RowAxes:
    """Which Variables have a leading row axis, with one row for each point.

    Args:
        size: The number of rows; None for one point, without such an axis.
        having: Each input Variable, and whether it has the axis.
    """

    def __init__(self, size: int | None = None, having: Iterable[tuple[Variable, bool]] = ()) -> None:
        self.size = size
        self._having = {id(x): (x, has_rows) for x, has_rows in having}

    @property
    def shape(self) -> tuple[int, ...]:
        """The row axis as a shape; empty for one point."""
        return () if self.size is None else (self.size,)

    def has(self, x: Variable) -> bool:
        """True if a Variable has the row axis."""
        if id(x) not in self._having:
            raise NotByRows
        return self._having[id(x)][1]

    def may_have(self, value: Value) -> bool:
        """True if a value is an input that has the row axis."""
        x = value.data if isinstance(value, Keys) else value.real if isinstance(value, ComplexPair) else value
        return isinstance(x, Variable) and id(x) in self._having and self._having[id(x)][1]

    def stands_for(self, x: Variable, original: Variable) -> None:
        """Give `x` the row axis if `original` has it."""
        if self.size is not None:
            self._having[id(x)] = x, self.has(original)

    def check(self, xs: Sequence[Variable]) -> None:
        """Raise NotByRows unless all of `xs` have the row axis: derivatives by shared values are not per row."""
        if self.size is not None and not all(map(self.has, xs)):
            raise NotByRows

    def check_independent(self, ys: Sequence[Variable], xs: Sequence[Variable]) -> None:
        """Raise NotByRows unless all of `xs` have the row axis and the rows of `ys` are known to be independent."""
        self.check(xs)
        if self.size is not None and not all([independent_rows(y, x) for y in ys for x in xs]):
            raise NotByRows

    def along(self, x: Variable, t: Variable) -> Variable:
        """A vector for `x`, broadcast to the shape of `x`."""
        if self.size is None or self.has(t) == self.has(x):
            return t
        if self.has(t):
            raise NotByRows
        return F.broadcast(F.reshape(t, shape=(1, *t.shape)), shape=(self.size, *t.shape))


class OpenedOverRows(PartedFunction):
    """A JAX function of one point, on Variables of a batch of points.

    Args:
        one: The function of one point.
        rows: Which Variables have the row axis.
    """

    def __init__(self, one: PartedFunction, rows: RowAxes) -> None:
        super().__init__(one.fun)
        self._points = rows

    def _described(
        self, leaf: Any, i: int, needs_x64: bool, floating: np.dtype[Any] | None
    ) -> tuple[Fixed | Given, Variable | None]:
        description, x = super()._described(leaf, i, needs_x64, floating)
        if x is not None and isinstance(leaf, Variable) and self._points.has(x):
            assert isinstance(description, Given)
            spec = description.spec
            description = description._replace(spec=spec_of(spec.shape[1:], spec.dtype))
        return description, x

    def _made(self, trace: Trace, inputs: list[Variable]) -> list[Variable]:
        closed: ClosedJaxpr = trace.function.jaxpr
        constants = [value_of_constant(c) for c in closed.consts]
        values: list[Value] = [*constants, *inputs]
        axes = tuple([0 if self._points.may_have(v) else None for v in values])
        variables = [*closed.jaxpr.constvars, *closed.jaxpr.invars]
        whole = [
            jax.ShapeDtypeStruct(v.aval.shape if axis is None else (*self._points.shape, *v.aval.shape), v.aval.dtype)
            for v, axis in zip(variables, axes, strict=True)
        ]
        count = len(constants)

        def run(*arrays: Any) -> Any:
            return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, list(arrays[:count])))(*arrays[count:])

        with x64_if(any(map(needs_x64, whole))):
            mapped = jax.vmap(run, in_axes=axes, axis_size=self._points.size)
            batched = interrupt_safe(jax.make_jaxpr(mapped))(*whole)
        return opened_with(Opening(), batched, values)
