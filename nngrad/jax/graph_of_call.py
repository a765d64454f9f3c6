"""The graph behind a call of a transformed function, and its pushforwards and batched versions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from backward_registry import registry

from ..derivatives import jvp
from ..extend import (
    Block,
    BoundedCache,
    NoForwardMode,
    Spec,
    Switched,
    Variable,
    bodies_in,
    close,
    contained,
    dtype_of,
    functions_of,
    leaves_of,
    lowering_passes,
    named_axes,
    path_between,
    placeholder,
    spec_of,
    watching_for_users_code,
)
from ..functions.traced import (
    READS_AROUND,
    ByIdentity,
    Fixed,
    along,
    deriving_rules_once,
    holds_tracers,
    jaxpr_for,
)
from .authors_rules import by_their_rules, with_opaque
from .calls import results_of_call
from .from_jax import from_jax
from .rows import RowAxes
from .surroundings import Surroundings, noting_reverse_mode, taking_from
from .to_jax import compiled_as_equal_graphs, to_jax

MOST_NUMBERS_OF_ROWS = 16
"""How many batched graphs a graph of one point caches, one per combination of axes and sizes under `jax.vmap`."""


@functools.cache
def jax_transposes_loops() -> bool:
    """True if JAX can transpose a scan that its own forward mode has not made; JAX 0.8 cannot. Reverse mode needs this
    for a pushforward; without it JAX differentiates graphs with loops as a whole."""

    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda h, _: (h + x, None), jnp.zeros(()), None, length=2)[0]

    try:
        jax.make_jaxpr(jax.linear_transpose(loop, 0.0))(0.0)
    except AssertionError:
        return False
    return True


class CallArguments(NamedTuple):
    """The pytree of a call's arguments, and which of its leaves are arrays."""

    tree: Any
    fixed: tuple[Fixed | None, ...]
    """For each leaf its static value; None for arrays."""
    weak: tuple[bool, ...]
    """Which of the arrays are weakly typed, such as Python's numbers."""


class GraphOfCall:
    """The graph of a transformed function for arguments of certain shapes.

    It holds the trace of the user's function, but not the function itself.

    Args:
        owner: The transformed function.
        arguments: The pytree of its arguments.
        inputs: Shape and dtype of each array.
        surroundings: The values that the function closes over from JAX's traces around it.
        having_rows: Which of the arrays, and of the closed-over values, have a row axis.
        size: The number of rows; None for one point.
    """

    def __init__(
        self, owner: Any, arguments: CallArguments, inputs: Sequence[Spec], surroundings: Surroundings,
        having_rows: tuple[bool, ...] = (), size: int | None = None,
    ) -> None:  # fmt: skip
        self._arguments, self._having_rows, self._size, self._count = arguments, having_rows, size, len(inputs)
        self.surroundings = surroundings
        variables = [placeholder(spec, repr(owner)) for spec in inputs]
        built, is_users = watching_for_users_code(lambda: self._built(owner, variables))
        self._outputs, self.tree_of_results = built
        self.is_kept = not is_users and not surroundings.tracers
        """True if later calls may use it: it contains no tracers of JAX, and no rule of the user's."""
        self._inputs = [*variables, *surroundings.variables]
        self.key: Hashable = ByIdentity(self) if is_users else (
            owner.key, arguments, tuple(inputs), having_rows, size, surroundings.key, registry.version,
        )  # fmt: skip
        self.inputs: Sequence[Spec] = [x.spec for x in self._inputs]
        self.outputs: Sequence[Spec] = [y.spec for y in self._outputs]
        self._weak_outputs = [id(y) in surroundings.weak for y in self._outputs]
        self._pushed: dict[tuple[int, ...], Callable[..., Any]] = {}
        self._over_rows = BoundedCache(MOST_NUMBERS_OF_ROWS)
        self.run: Callable[..., Any] = jax.jit(to_jax(self._outputs, self._inputs))
        self._is_users = is_users

    @functools.cached_property
    def run_now(self) -> Callable[..., Any]:
        """The same as `run` for concrete arrays, by an executable that functions made anew share where possible."""
        return (None if self._is_users else compiled_as_equal_graphs(self._outputs, self._inputs)) or self.run

    @classmethod
    def of_arrays(cls, owner: Any, arguments: CallArguments, arrays: Sequence[Any]) -> GraphOfCall:
        """The graph for arrays of these shapes and dtypes.

        Raises:
            NotImplementedError: One of its rules reads a tracer from around it. JAX knows that tracer when it
                differentiates the function, but not after the trace has ended.
        """
        inputs = [spec_of(tuple(a.shape), dtype_of(a.dtype)) for a in arrays]
        with deriving_rules_once(anew=True):
            graph = cls(owner, arguments, inputs, Surroundings())
            if graph.is_opaque and holds_tracers(jaxpr_for(graph.run, graph.inputs)):
                raise NotImplementedError(READS_AROUND)
        return graph

    @contained
    def _built(self, owner: Any, variables: Sequence[Variable]) -> tuple[list[Variable], Any]:
        Switched().from_now_on(alone=True)
        with noting_reverse_mode() as self._pulled, deriving_rules_once():
            return self._results(owner, variables, self.surroundings)

    def _results(
        self, owner: Any, variables: Sequence[Variable], surroundings: Surroundings
    ) -> tuple[list[Variable], Any]:
        arrays = iter(variables)
        leaves = [next(arrays) if static is None else static for static in self._arguments.fixed]
        args, kwargs = jax.tree.unflatten(self._arguments.tree, leaves)
        surroundings.are_weak(variables, self._arguments.weak)
        rows = RowAxes()
        if self._size is not None:
            having = zip([*variables, *surroundings.variables], self._having_rows, strict=True)
            rows = RowAxes(self._size, having)
        with taking_from(surroundings):
            results, tree = jax.tree.flatten(owner.on_variables(rows, args, kwargs))
        return results, tree

    def called(self, owner: Any, arrays: Sequence[Any]) -> Any:
        """The pytree of results for arrays, which may be tracers."""
        results = results_of_call(self, owner, arrays)
        if any(self._weak_outputs):
            results = [weakly_typed(y) if weak else y for y, weak in zip(results, self._weak_outputs, strict=True)]
        return jax.tree.unflatten(self.tree_of_results, results)

    def applied(self, owner: Any, inputs: Sequence[Variable]) -> list[Variable]:
        """The results with these Variables as inputs; their derivation is recorded."""
        if entangled(inputs):
            return self.copied(inputs)
        count = self._count
        return self._results(owner, inputs[:count], self.surroundings.held_by(inputs[count:]))[0]

    def copied(
        self, inputs: Sequence[Variable], having_rows: tuple[bool, ...] = (), size: int = 0
    ) -> list[Variable]:
        """A copy of the results for Variables that may depend on one another; its derivation is not recorded.

        Args:
            inputs: The Variables.
            having_rows: Which of them have a row axis; if any has, all results have.
            size: The length of that axis.
        """
        block, constants = self._closed
        if any(having_rows):
            kinds = [*["each" if has_rows else "" for has_rows in having_rows], *[""] * len(constants)]
            block = block.batched(tuple(kinds), size, block.outputs, ("each",) * len(block.outputs))
        return block.placed([*inputs, *constants])

    @functools.cached_property
    def _closed(self) -> tuple[Block, list[Variable]]:
        """A Block from the inputs and the arrays that the function closes over to the results, and those arrays."""
        of_inputs = {id(x) for x in self._inputs}
        constants = [x for x in leaves_of(self._outputs) if id(x) not in of_inputs]
        return close(self._outputs, [*self._inputs, *constants]), constants

    @functools.cached_property
    def is_opaque(self) -> bool:
        """True if it contains opaque functions."""
        return with_opaque(self._outputs)

    def pushforward(self, moving: tuple[int, ...]) -> Callable[..., Any]:
        """The function from all inputs, and the tangents of the moving ones, to the results and the tangents of the
        floating results. Nothing that the results are computed from depends on a tangent."""
        pushed = self._pushed.get(moving)
        if pushed is None:
            function, is_users = watching_for_users_code(lambda: self._pushed_forward(moving))
            pushed = jax.jit(function)
            if not is_users:
                self._pushed[moving] = pushed
        return pushed

    def _pushed_forward(self, moving: tuple[int, ...]) -> Callable[..., Any]:
        with_loops = any([bodies_in(f.arguments) for f in functions_of(self._outputs)])
        if with_loops and not jax_transposes_loops():
            return self._pushed_by_jax(moving)
        try:
            return self._pushforward(moving)
        except NoForwardMode:  # as with custom_vjp, where JAX's reverse mode needs none
            return self._pushed_by_jax(moving)

    @contained
    def _pushforward(self, moving: tuple[int, ...]) -> Callable[..., Any]:
        Switched().from_now_on(alone=True)
        tangents = [placeholder(self.inputs[i], "jax.jvp") for i in moving]
        floating = [y for y in self._outputs if y.spec.differentiable]
        primals = [self._inputs[i] for i in moving]
        moved = jvp(floating, primals, tangents) if floating else []
        new_values = by_their_rules(floating, primals, [*self._outputs, *moved])
        results, moved = new_values[: len(self._outputs)], new_values[len(self._outputs) :]
        residuals = read_beside(tangents, moved, self._inputs)
        values = to_jax([*results, *residuals], self._inputs)
        # JAX's reverse mode separates functions of tangents from others, equation by equation; these may fuse the two.
        fusing = [stage.name for stage in lowering_passes() if stage.platform is not None or stage.name == "partition"]
        with Switched(without_passes=frozenset(fusing)):
            linear = to_jax(moved, [*residuals, *tangents])
        inputs, outputs = len(self._inputs), len(self._outputs)

        def run(*arrays: Any) -> list[Any]:
            known = values(*arrays[:inputs])
            return [*known[:outputs], *linear(*known[outputs:], *arrays[inputs:])]

        return run

    def _pushed_by_jax(self, moving: tuple[int, ...]) -> Callable[..., Any]:
        """The pushforward by JAX's own forward mode, applied to the functions of the graph."""
        count = len(self.inputs)

        def run(*arrays: Any) -> list[Any]:
            values, moved = along(self.run, arrays[:count], moving, arrays[count:])
            return [*values, *[t for t, y in zip(moved, self.outputs, strict=True) if y.differentiable]]

        return run

    def reached_by(self, inputs: tuple[bool, ...]) -> list[bool]:
        """Which results depend on the values of the marked inputs."""
        marked = [x for x, is_given in zip(self._inputs, inputs, strict=True) if is_given]
        _, reached, _ = path_between(self._outputs, marked, of_values=True)
        return [id(y) in reached for y in self._outputs]

    def pulls_to_others(self, inputs: tuple[bool, ...]) -> bool:
        """True if reverse mode in it differentiates by values that do not depend on the marked inputs."""
        marked = [x for x, is_given in zip(self._inputs, inputs, strict=True) if is_given]
        _, reached, _ = path_between(self._pulled, marked, of_values=True)
        return any([id(x) not in reached for x in self._pulled])

    def over_rows(self, owner: Any, having_rows: tuple[bool, ...], size: int) -> GraphOfCall | OverRowsByJax:
        """The graph for a batch of points, along the first axis of the inputs that have rows; if it cannot be built,
        `jax.vmap` of this one."""
        key = having_rows, size, named_axes()
        graph: GraphOfCall | OverRowsByJax
        graph = self._over_rows.get(key, lambda: self._made_over_rows(owner, having_rows, size))
        return graph

    def _made_over_rows(self, owner: Any, having_rows: tuple[bool, ...], size: int) -> GraphOfCall | OverRowsByJax:
        if self._size is not None:
            return OverRowsByJax(self, having_rows, size)
        inputs = [with_rows(x, size) if has_rows else x for x, has_rows in zip(self.inputs, having_rows, strict=True)]
        count = self._count
        surroundings = self.surroundings.held_by([placeholder(x, repr(owner)) for x in inputs[count:]])
        try:
            with deriving_rules_once(anew=True):
                whole = GraphOfCall(owner, self._arguments, inputs[:count], surroundings, having_rows, size)
        except Exception:  # NotByRows; or such as a rule that JAX maps when applied, and cannot differentiate mapped
            return OverRowsByJax(self, having_rows, size)
        expected = [with_rows(y, size) for y in self.outputs]
        return whole if whole.outputs == expected else OverRowsByJax(self, having_rows, size)


class OverRowsByJax:
    """`jax.vmap` of a graph, and of its derivatives.

    Args:
        graph: The graph.
        having_rows: Which of its inputs have a row axis.
        size: Its length.
    """

    def __init__(self, graph: GraphOfCall | OverRowsByJax, having_rows: tuple[bool, ...], size: int) -> None:
        self._graph, self._having_rows, self._size = graph, having_rows, size
        self.key: Hashable = OverRowsByJax, graph.key, having_rows, size
        self._axes = tuple([0 if has_rows else None for has_rows in having_rows])
        self.inputs: Sequence[Spec] = [
            with_rows(x, size) if has_rows else x for x, has_rows in zip(graph.inputs, having_rows, strict=True)
        ]
        self.outputs: Sequence[Spec] = [with_rows(y, size) for y in graph.outputs]
        self._pushed: dict[tuple[int, ...], Callable[..., Any]] = {}
        self.run: Callable[..., Any] = jax.jit(jax.vmap(graph.run, self._axes, axis_size=size))
        self.run_now = self.run

    def applied(self, owner: Any, inputs: Sequence[Variable]) -> list[Variable]:
        """The results for Variables as inputs; JAX also maps the rules of opaque functions."""
        if isinstance(self._graph, GraphOfCall) and self._size and not self._graph.is_opaque:
            return self._graph.copied(inputs, self._having_rows, self._size)
        return opened_apart(self.run, inputs)

    def pushforward(self, moving: tuple[int, ...]) -> Callable[..., Any]:
        """`jax.vmap` of the graph's pushforward."""
        if moving not in self._pushed:
            axes = (*self._axes, *[self._axes[i] for i in moving])
            of_one_row = self._graph.pushforward(moving)
            self._pushed[moving] = jax.jit(jax.vmap(of_one_row, axes, axis_size=self._size))
        return self._pushed[moving]

    def reached_by(self, inputs: tuple[bool, ...]) -> list[bool]:
        """All of them, since nothing more precise is known."""
        return [True] * len(self.outputs)

    def over_rows(self, owner: Any, having_rows: tuple[bool, ...], size: int) -> GraphOfCall | OverRowsByJax:
        """Map it once more."""
        return OverRowsByJax(self, having_rows, size)


def weakly_typed(array: Any) -> Any:
    """The array with a weak type, whose dtype gives way to others."""
    return jax.lax.convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=True, sharding=None)


def read_beside(tangents: Sequence[Variable], moved: Sequence[Variable], inputs: Sequence[Variable]) -> list[Variable]:
    """The residuals: values that depend on `inputs` but no tangent, read by functions from `tangents` to `moved`."""
    path, moving, _ = path_between(moved, tangents, of_values=True)
    _, from_inputs, _ = path_between(moved, inputs, of_values=True)
    read = [*[x for f in path for x in f.inputs], *moved]
    return list({id(x): x for x in read if id(x) in from_inputs and id(x) not in moving}.values())


def opened_apart(run: Callable[..., Any], inputs: Sequence[Variable]) -> list[Variable]:
    """Open a function of arrays without closed-over tracers, and apply it."""
    with taking_from(Surroundings()):
        return list(from_jax(run)(*inputs))


def entangled(inputs: Sequence[Variable]) -> bool:
    """True if some of these Variables depend on each other, or are equal, so that one derivative would move both."""
    floating = [x for x in inputs if x.spec.differentiable]
    if len({id(x) for x in floating}) < len(floating):
        return True
    path, _, _ = path_between(floating, floating)
    within_path = set(path)
    return any([x.parent in within_path for x in floating])


def with_rows(spec: Spec, size: int) -> Spec:
    """A shape with a leading axis of this size."""
    return spec_of((size, *spec.shape), spec.dtype)
