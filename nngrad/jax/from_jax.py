"""`from_jax`: open a JAX function, translating it into nngrad's own functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from .. import functions as F
from ..extend import (
    Block,
    Switched,
    Variable,
    apply,
    close,
    contained,
    leaves_of,
    named_axes,
    placeholder,
    spec_of,
)
from ..functions.traced import Fixed, Given, JaxFunction, Key, Trace, Traced, options_as_tuples
from .calls import acts, require_one_device
from .opening import Opening
from .report import Opened
from .surroundings import ArgumentKinds, surroundings_of_now
from .values import Value, parted

MOST_REPORTS = 64
"""How many reports a function keeps, one per combination of shapes, if it closes over tracers."""


class OpenedFunction(JaxFunction):
    """A JAX function on Variables, opened equation by equation; made by `from_jax`."""

    def __init__(self, fun: Callable[..., Any], nums: tuple[int, ...] = (), names: tuple[str, ...] = ()) -> None:
        super().__init__(fun, nums, names, kind="from_jax")
        self._reports: dict[Hashable, Opened] = {}  # of traces that serve a single call
        self._unopened: dict[str, int] = {}

    def report(self) -> Opened:
        """Which equations were opened and which stayed opaque, over all shapes of past calls.

        Raises:
            RuntimeError: The function has not been called yet.
        """
        reports = [*[trace.function.report for trace in self._traces.values()], *self._reports.values()]
        if not reports and not self._unopened:
            raise RuntimeError(f"{self}: call it first, since it is traced for the shapes of its arguments")
        total = Opened(Counter(), Counter())
        for report in reports:
            total.opened.update(report.opened)
            total.opaque.update(report.opaque)
        total.unopened.update(self._unopened)
        return total

    def note_unopened(self, failed: Exception) -> None:
        """Record that JAX did a whole transformation, since nngrad's failed."""
        reason = f"{type(failed).__name__}: {failed}".split("\n")[0]
        known = self._unopened if len(self._unopened) < MOST_REPORTS else {}
        self._unopened = {**known, reason: known.get(reason, 0) + 1}

    def _outputs(self, trace: Trace, inputs: list[Variable]) -> list[Variable]:
        around = surroundings_of_now()
        if around is not None:
            require_one_device(trace.function.jaxpr.jaxpr)
            around.acts |= acts(trace.function.jaxpr.jaxpr)
        if trace.function.report.transformed:
            return opened_with(Opening(), trace.function.jaxpr, inputs)
        body: Block = trace.function.body
        constants = trace.constants if around is None else [around.now_held_by(x) for x in trace.constants]
        placed = [*constants, *inputs]
        values: list[Variable] = []
        for op, arguments, numbers in body.steps:
            results = apply(op, tuple(body.picked(placed, values, numbers)), arguments)
            values.extend(results if op.multiple_results else (results,))
        for number in body.stop_gradients:
            values[~number].need_grad = False
        return body.picked(placed, values)

    def _trace(self, tree: Any, described: tuple[Any, ...], needs_x64: bool) -> Trace:
        around = surroundings_of_now()
        if around is None:
            return super()._trace(tree, described, needs_x64)
        kind = ArgumentKinds(tree, described, needs_x64, named_axes())
        return around.traced(kind, lambda: super(OpenedFunction, self)._trace(tree, described, needs_x64))

    def _keep(self, kind: Hashable, trace: Trace) -> None:
        if trace.function.of_its_surroundings:
            self._reports = {**self._reports, kind: trace.function.report} if len(self._reports) < MOST_REPORTS else {}
        else:
            super()._keep(kind, trace)

    def _trace_of(self, key: Key, traced: Traced) -> Trace:
        graph = _Graph(traced.closed, repr(self))
        return Trace(key, graph, graph.constants, traced.results)

    def __repr__(self) -> str:
        return f"from_jax({self.name})"


class PartedFunction(OpenedFunction):
    """A JAX function on Variables whose complex arguments and results are pairs of Variables (`ComplexPair`)."""

    def _returned(self, results: Any) -> Any:
        return parted(results)

    def _described(
        self, leaf: Any, i: int, needs_x64: bool, floating: np.dtype[Any] | None
    ) -> tuple[Fixed | Given, Variable | None]:
        description, x = super()._described(leaf, i, needs_x64, floating)
        around = surroundings_of_now()
        if isinstance(description, Given) and around is not None and id(leaf) in around.weak:
            description = description._replace(weak=True)
        return description, x

    def _outputs(self, trace: Trace, inputs: list[Variable]) -> list[Variable]:
        outputs = self._made(trace, inputs)
        around = surroundings_of_now()
        if around is not None:
            around.are_weak(outputs, [y.weak_type for y in trace.function.jaxpr.out_avals])
        return outputs

    def _made(self, trace: Trace, inputs: list[Variable]) -> list[Variable]:
        """The results of a traced function."""
        return super()._outputs(trace, inputs)


class _Graph:
    """A jaxpr opened as a graph.

    Args:
        jaxpr: The traced function.
        owner: Its name in errors.
    """

    __slots__ = ("body", "constants", "jaxpr", "of_its_surroundings", "report")

    custom = False

    def __init__(self, jaxpr: ClosedJaxpr, owner: str) -> None:
        opening = Opening(owner)
        self.jaxpr = jaxpr
        self.of_its_surroundings = any([isinstance(c, jax.core.Tracer) for c in jaxpr.consts])
        """True if it closes over tracers of JAX, and so is useless once their trace has ended."""
        outputs, inputs = _built(opening, jaxpr)
        of_inputs = {id(x) for x in inputs}
        self.report = opening.report
        self.constants = tuple([x for x in leaves_of(outputs) if id(x) not in of_inputs])
        """The leaves that it reads: values the function closes over, and results computed from these alone."""
        self.body = close(outputs, [*self.constants, *inputs])
        """Its inputs are the constants, followed by those of the function."""


@contained
def _built(opening: Opening, jaxpr: ClosedJaxpr) -> tuple[list[Variable], list[Variable]]:
    """The results and the inputs of a jaxpr, as a graph built without the user's switches."""
    Switched().from_now_on(alone=True)
    inputs = [placeholder(spec_of(tuple(v.aval.shape), v.aval.dtype), "from_jax") for v in jaxpr.jaxpr.invars]
    return opened_with(opening, jaxpr, inputs), inputs


def opened_with(opening: Opening, jaxpr: ClosedJaxpr, inputs: Sequence[Value]) -> list[Variable]:
    """The results of a jaxpr for these input values."""
    outputs = []
    results = opening.run(jaxpr.jaxpr, [opening.constant(c) for c in jaxpr.consts], list(inputs))
    for y, v in zip(results, jaxpr.jaxpr.outvars, strict=True):
        result: Any = y if isinstance(y, Variable) else y.variable()  # type: ignore[union-attr]
        outputs.append(F.cast(result, dtype=bool) if v.aval.dtype == bool and result.dtype != bool else result)
    return outputs


def from_jax(
    fun: Callable[..., Any], static_argnums: int | Iterable[int] = (), static_argnames: str | Iterable[str] = ()
) -> OpenedFunction:
    """A JAX function as a function on Variables, made of nngrad's own functions.

        f = nn.from_jax(model.apply)           # a Flax module, say
        u = f(params, x)
        (u_x,) = nn.grad(u, x)

    `fun` is traced, and each of its equations becomes a function of F. So its graph is simplified, and its high-order
    derivatives are those of a graph that was written with F. Calls are inlined, values that depend on no argument are
    computed at once, and loops and branches become loops and branches of the graph. Functions with custom derivatives
    (`jax.custom_jvp`) are opened if they are JAX's own and recognised by their equations. Others, and equations without
    a rule, stay opaque one by one: they are right, but cost more at each further order. `report()` lists them.

    Arguments, tracing and pytrees are those of `F.jax_function`, whose result stays opaque as a whole.

    Args:
        fun: The function of arrays; anything that `jax.jit` takes.
        static_argnums: The positions of arguments that are passed to `fun` unchanged; they must be hashable.
        static_argnames: The names of such keyword arguments. Functions and strings are always static.

    Raises:
        TypeError: `fun` is not callable, a static argument is not hashable, an output has a dtype that a Variable
            cannot hold, or `fun` works on references or tokens. Exceptions of `fun` itself are passed on, with a note.
    """
    return OpenedFunction(fun, *options_as_tuples(fun, static_argnums, static_argnames))
