"""`Transformed`: a JAX function computed by a graph, which is built once per combination of shapes."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from backward_registry import registry

from ..extend import Variable, key_of, named_axes
from ..functions.traced import Fixed, Trace, kept_with
from .builds import Options
from .calls import VARIES, varies
from .from_jax import PartedFunction, from_jax
from .graph_of_call import CallArguments, GraphOfCall, entangled
from .report import Opened
from .rows import OpenedOverRows, RowAxes
from .surroundings import ArgumentKinds
from .to_jax import MOST_GRAPHS
from .unopened import by_jax, refuse_where_all_is_left
from .values import has_parts, parted

ONE_POINT = RowAxes()


def _as_given(args: Any, kwargs: Any) -> tuple[Any, Any]:
    return args, kwargs


@dataclass(frozen=True)
class Build:
    """A transformation on Variables: `function(fun, args, kwargs, rows, *options)`."""

    function: Callable[..., Any]
    """Takes the function on Variables, its arguments, and which of them have rows (`RowAxes`)."""
    options: tuple[Any, ...] = ()
    """Part of the graphs' cache key, so they must be hashable."""
    arguments: Callable[[Any, Any], tuple[Any, Any]] = _as_given
    """The arguments of the original function, from those of the transformed one."""


class Computation:
    """A transformed function without the user's function itself. Traced calls hold it, and JAX keeps these as long as
    the function lives.

    Args:
        inner: The function to transform.
        build: The transformation.
        name: Its name in messages.
    """

    def __init__(self, inner: Computation | PartedFunction, build: Build, name: str) -> None:
        self._inner, self._build, self._name = inner, build, name

    @property
    def key(self) -> Hashable:
        """The transformations, the last one first."""
        return self._name, self._build, self._inner.key if isinstance(self._inner, Computation) else None

    @property
    def function(self) -> PartedFunction:
        """The user's function."""
        inner = self._inner
        while isinstance(inner, Computation):
            inner = inner._inner
        return inner

    def on_variables(self, rows: RowAxes, args: Any, kwargs: Any) -> Any:
        """The results on Variables, as pytrees in the graph of the arguments."""
        inner = self._inner
        function: Callable[..., Any]
        if isinstance(inner, Computation):
            function = functools.partial(_on_variables, inner, rows)
        else:
            function = inner if rows.size is None else OpenedOverRows(inner, rows)
        return self._build.function(function, args, kwargs, rows, *self._build.options)

    def __repr__(self) -> str:
        return f"{self._name}({self.function.name})"


def _on_variables(computation: Computation, rows: RowAxes, *args: Any, **kwargs: Any) -> Any:
    return computation.on_variables(rows, args, kwargs)


class Transformed:
    """A function of arrays that is computed by a graph: the result of every drop-in transformation.

    It may be called with arrays, and under `jax.jit`, `vmap`, `grad`, `jvp`, `scan`, `shard_map` and `remat`. Its
    derivatives, also those that JAX asks for, are derivatives of the graph. Transformations of it, and functions
    opened around it, work on the graph; `jax.vmap` builds the graph of all points.

    Like JAX, it traces `fun` in each call, so that it notices changes of other values that `fun` reads; in `jax.jit`
    once. If the trace equals the last one, the graph of that is reused. Graphs are cached as long as `fun` lives, so a
    loop may transform a function anew. It can be pickled if `fun` can.

    Args:
        fun: The function of arrays, or another Transformed.
        build: The transformation.
        name: Its name in messages.
    """

    def __init__(self, fun: Callable[..., Any], build: Build, name: str) -> None:
        if not callable(fun):
            raise TypeError(f"{name}: fun must be a function of arrays, got {fun!r}")
        self._fun = fun
        self._build = build
        self._name = name
        inner: Computation | PartedFunction = fun.computation if isinstance(fun, Transformed) else PartedFunction(fun)
        self.computation: Computation = Computation(inner, build, name)
        self._steps: tuple[Build, ...] = (build,)
        self._user: Callable[..., Any] = fun
        if isinstance(fun, Transformed):
            self._steps, self._user = (build, *fun._steps), fun._user
        self._building = threading.RLock()
        self._graphs: dict[Hashable, tuple[tuple[Fixed | None, ...], dict[ArgumentKinds, Trace], GraphOfCall]]
        self._graphs = kept_with(self._user, self._steps)
        functools.update_wrapper(self, fun, updated=())

    def report(self) -> Opened:
        """Which equations of the function were opened, and which stayed opaque; see `nn.from_jax`.

        Raises:
            RuntimeError: It has not been called yet.
        """
        return self.computation.function.report()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        variables = [leaf for leaf in leaves if isinstance(leaf, Variable)]
        if variables:
            if entangled(variables):
                return from_jax(self)(*args, **kwargs)
            return self.computation.on_variables(ONE_POINT, *parted((args, kwargs)))
        if any(map(has_parts, leaves)):
            leaves, tree = jax.tree.flatten(parted((args, kwargs)))
        fixed = self._all_fixed(leaves)
        try:
            refuse_where_all_is_left()
            graph, inputs = self._found(leaves, tree, fixed)
        except Exception as error:
            return self.by_jax(self._build.function.__name__, error, args, kwargs)
        if graph.surroundings.acts:  # a graph has no side effects
            for build in self._steps:
                args, kwargs = build.arguments(args, kwargs)
            self._user(*args, **kwargs)
        return graph.called(self.computation, inputs)

    def graph_of(self, *args: Any) -> tuple[GraphOfCall, list[Any]]:
        """The graph that computes a call with arrays, and the arrays of its inputs."""
        leaves, tree = jax.tree.flatten(parted((args, {})))
        return self._found(leaves, tree, self._all_fixed(leaves))

    def by_jax(self, name: str, failed: Exception, args: Any, kwargs: Any) -> Any:
        """The result of JAX's own transformation, if the graph cannot be built; each call tries it first."""
        try:
            result = by_jax(name, failed, self._fun, self._build.options, args, kwargs)
        except Exception as error:
            if error is not failed:
                shown, options = getattr(self._user, "__name__", repr(self._user)), self._build.options[:1]
                argument = "".join([f" by argument {o.argnums}" for o in options if isinstance(o, Options)])
                error.add_note(
                    f"in {self._name}{argument}, transformation {len(self._steps)} of {shown}; by nngrad: {failed}"
                )
            raise
        self.computation.function.note_unopened(failed)
        return result

    def _found(
        self, leaves: list[Any], tree: Any, fixed: tuple[Fixed | None, ...]
    ) -> tuple[GraphOfCall, list[Any]]:
        unknown = [leaf for leaf, static in zip(leaves, fixed, strict=True) if static is None]
        arrays = [leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf) for leaf in unknown]
        shapes = tuple([(a.shape, str(a.dtype)) for a in arrays])
        weak = tuple([a.weak_type for a in arrays])
        key = tree, fixed, shapes, weak, jnp.result_type(float), named_axes(), registry.version
        graph = self._known(key, fixed)
        if graph is None:
            with self._building:
                graph = self._known(key, fixed) or self._built(key, CallArguments(tree, fixed, weak), arrays)
        inputs = [*arrays, *graph.surroundings.arrays()]
        if any([isinstance(a, jax.core.Tracer) for a in inputs]):
            varying = tuple([varies(jax.typeof(a)) for a in inputs])
            if any(varying) and graph.pulls_to_others(varying):  # JAX sums these gradients over the devices
                raise NotImplementedError(VARIES)
        return graph, inputs

    def _known(self, key: Hashable, fixed: tuple[Fixed | None, ...]) -> GraphOfCall | None:
        """The cached graph for arguments of a kind, if `fun` still computes the same as when the graph was built."""
        entry = self._graphs.get(key)
        if entry is None:
            return None
        before, traces, graph = entry
        now = {id(old): new for old, new in zip(before, fixed, strict=True)}  # equal, but perhaps not identical
        for kind, trace in traces.items():
            described = tuple([now.get(id(leaf), leaf) for leaf in kind.described])
            if self.computation.function.traced(kind.tree, described, kind.needs_x64).key != trace.key:
                return None
        return graph

    def _built(self, key: Hashable, arguments: CallArguments, arrays: list[Any]) -> GraphOfCall:
        graph = GraphOfCall.of_arrays(self.computation, arguments, arrays)
        if graph.is_kept:
            if len(self._graphs) >= MOST_GRAPHS:
                self._graphs.clear()
            self._graphs[key] = arguments.fixed, dict(graph.surroundings.traces), graph
        return graph

    def _all_fixed(self, leaves: list[Any]) -> tuple[Fixed | None, ...]:
        return tuple([self._fixed(leaf, i) for i, leaf in enumerate(leaves)])

    def _fixed(self, leaf: Any, i: int) -> Fixed | None:
        """The static value of a leaf; None for an array or a number."""
        if isinstance(leaf, np.ndarray | np.generic | jax.Array | bool | int | float):
            return None
        try:
            hash(leaf)
        except TypeError:
            raise TypeError(
                f"{self._name}: leaf {i} of the arguments must be an array, a number or hashable, such as a function "
                f"or a string, got {leaf!r}"
            ) from None
        return Fixed(key_of(leaf), leaf)

    def __reduce__(self) -> str | tuple[Any, ...]:
        module, name = getattr(self, "__module__", ""), getattr(self, "__qualname__", "")
        named: Any = sys.modules.get(module)
        for part in name.split("."):
            named = getattr(named, part, None)
        if named is self:  # as a decorator it has the function's name itself
            return str(name)
        return Transformed, (self._fun, self._build, self._name)

    def __repr__(self) -> str:
        return f"{self._name}({getattr(self._fun, '__name__', self._fun)})"
