"""jax_function: make a user's JAX function callable on Variables."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...graph import NdArray, Spec, Variable, apply, as_variable
from ...graph.arguments import key_of
from ...graph.leaf import common_floating
from ...graph.ndarray import host_array
from ...graph.process import interrupt_safe, named_axes
from ...graph.signatures import explained_by_name
from ...graph.spec import DType, dtype_of, is_differentiable, x64_if
from ...graph.variable import leaf_of
from .jax_derivatives import custom_jax_derivative, jax_derivative
from .jaxprs import let_own_arrays
from .key_data import KeyData, is_key
from .structure import TracedFunction, deriving_rules_once, key_of_array, reads_around, structure_of

Key = tuple[Hashable, tuple[Hashable, ...], Any]


class Traced(NamedTuple):
    """The result of tracing a function."""

    closed: ClosedJaxpr
    arrays: list[Given]
    """The array arguments for which it was traced."""
    results: Any
    """The pytree structure of its results."""
    key: Key
    """The structure of its computation, and the arrays in its closure at the time."""


class Trace(NamedTuple):
    """The cached part of a trace."""

    key: Key
    """The key by which a later trace recognises it."""
    function: Any
    constants: tuple[Variable, ...]
    """The arrays in its closure."""
    results: Any
    """The pytree structure of its results."""


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A leaf of the arguments that is passed to the function unchanged."""

    key: Any
    """Its cache key."""
    value: Any = dataclasses.field(compare=False)


class Given(NamedTuple):
    """A leaf of the arguments that is an array."""

    spec: Spec
    weak: bool
    """True if it is a Python number, whose dtype is weak."""
    active: bool
    """True if gradients can reach it."""


class JaxFunction:
    """A JAX function on Variables; `jax_function` makes it."""

    def __init__(
        self, fun: Callable[..., Any], nums: tuple[int, ...], names: tuple[str, ...], kind: str = "jax_function"
    ) -> None:
        self.fun = fun
        self.name = _name_of(fun)
        self._kind = kind
        self._static_argnums = nums
        self._static_argnames = names
        self._traces: dict[Hashable, Trace] = kept_with(fun, kind, nums, names)
        functools.update_wrapper(self, fun, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply `fun` to pytrees of Variables, arrays and numbers; the result is a pytree of Variables."""
        marked = self._marked(args), {k: _fixed(v, k) if k in self._static_argnames else v for k, v in kwargs.items()}
        leaves, tree = jax.tree.flatten(marked)
        if any(map(is_key, leaves)):
            leaves, tree = jax.tree.flatten(jax.tree.map(lambda v: KeyData.of(v) if is_key(v) else v, marked))
        floating = common_floating(leaves)
        needs_x64 = any([_needs_x64(leaf, floating) for leaf in leaves])
        described: list[Fixed | Given] = []
        inputs: list[Variable] = []
        for i, leaf in enumerate(leaves):
            description, x = self._described(leaf, i, needs_x64, floating)
            described.append(description)
            if x is not None:
                inputs.append(x)
        trace = self._trace(tree, tuple(described), needs_x64)
        return jax.tree.unflatten(trace.results, self._outputs(trace, inputs))

    def _outputs(self, trace: Trace, inputs: list[Variable]) -> Iterable[Variable]:
        """The outputs of a traced function."""
        op = custom_jax_derivative if trace.function.custom else jax_derivative
        outputs: tuple[Variable, ...] = apply(op, (*trace.constants, *inputs), (trace.function, 0))
        return outputs

    def _marked(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        fixed = {i + len(args) if i < 0 else i for i in self._static_argnums}
        return tuple([_fixed(a, f"args[{i}]") if i in fixed else a for i, a in enumerate(args)])

    def _described(
        self, leaf: Any, i: int, needs_x64: bool, floating: DType | None
    ) -> tuple[Fixed | Given, Variable | None]:
        if isinstance(leaf, Variable):
            return Given(leaf.spec, False, leaf.spec.differentiable), leaf
        if isinstance(leaf, bool | int | float):
            x = leaf_of(NdArray.of_host_array(np.asarray(leaf if needs_x64 else host_array(leaf, None))))
            return Given(x.spec, True, False), x
        if isinstance(leaf, Fixed):
            return leaf, None
        if callable(leaf) or isinstance(leaf, str | bytes):
            return _fixed(leaf, f"leaf {i}"), None
        if _is_wide_integer(leaf) and not needs_x64:
            leaf = np.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))
        x = as_variable(leaf, f"leaf {i} of the arguments", f"{self._kind}({self.name})", floating)
        return Given(x.spec, False, False), x

    def _trace(self, tree: Any, described: tuple[Fixed | Given, ...], needs_x64: bool) -> Trace:
        """A trace of the function as it is now; the cached one if it computes the same."""
        traced = self.traced(tree, described, needs_x64)
        kind, key = (tree, described, named_axes()), traced.key
        trace = self._traces.get(kind)
        if trace is None or trace.key != key:
            let_own_arrays(traced.closed)  # only if it is cached: the key holds their contents
            trace = self._trace_of(key, traced)
            self._keep(kind, trace)
        return trace

    def _keep(self, kind: Hashable, trace: Trace) -> None:
        """Cache a trace by the kind of its arguments."""
        if len(self._traces) >= _MOST_TRACES:
            self._traces.clear()
        self._traces[kind] = trace

    def traced(self, tree: Any, described: tuple[Fixed | Given, ...], needs_x64: bool) -> Traced:
        """Trace the function for arguments of a kind. If a custom derivative rule inside reads an array that the
        function computes from constants, such arrays are computed eagerly: the rule runs again for derivatives, when a
        tracer of the first trace is no longer valid."""
        traced = self._traced(tree, described, needs_x64)
        if not reads_around(traced.key[0]):
            return traced
        with jax.ensure_compile_time_eval(), deriving_rules_once(anew=True):
            return self._traced(tree, described, needs_x64)

    def _traced(self, tree: Any, described: tuple[Fixed | Given, ...], needs_x64: bool) -> Traced:
        def flat(*arrays: Any) -> Any:
            remaining = iter(arrays)
            leaves = [d.value if isinstance(d, Fixed) else next(remaining) for d in described]
            args, kwargs = jax.tree.unflatten(tree, leaves)
            return self._returned(self.fun(*args, **kwargs))

        arrays = [d for d in described if isinstance(d, Given)]
        try:
            with x64_if(needs_x64):
                abstract = [jax.ShapeDtypeStruct(d.spec.shape, d.spec.dtype, weak_type=d.weak) for d in arrays]
                closed, shapes = interrupt_safe(jax.make_jaxpr(flat, return_shape=True))(*abstract)
        except Exception as error:
            shown = ", ".join([repr(d.spec if isinstance(d, Given) else d.value) for d in described])
            error.add_note(
                f"in {self._kind}({self.name}), traced for ({shown}). It must use jax.numpy on JAX arrays, not F on "
                "Variables. Pass the Variables that it needs as arguments"
            )
            if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerBoolConversionError):
                error.add_note(
                    "the function is traced, as under jax.jit. Use jnp.where, lax.cond and lax.while_loop instead of "
                    "Python's if, while and int() on values"
                )
            if named_axes() and isinstance(error, ValueError):
                error.add_note(
                    "pass check_vma=False to jax.shard_map: nngrad does not track which values vary among devices"
                )
            raise
        results, results_tree = jax.tree.flatten(shapes)
        for i, y in enumerate(results):
            if not _is_supported(y.dtype):
                raise TypeError(f"{self._kind}({self.name}): output {i} has unsupported dtype {y.dtype}")
        # Copied, since the user may write to it; in the dtype of the trace, which depends on x64.
        consts = [
            np.array(c, v.aval.dtype) if isinstance(c, np.ndarray) else c
            for c, v in zip(closed.consts, closed.jaxpr.constvars, strict=True)
        ]
        key = structure_of(closed.jaxpr), tuple(map(key_of_array, consts)), results_tree
        return Traced(closed.replace(consts=consts), arrays, results_tree, key)

    def _returned(self, results: Any) -> Any:
        """The results of `fun`, as arrays that Variables can hold."""
        return results

    def _trace_of(self, key: Key, traced: Traced) -> Trace:
        """The cached part of a trace."""
        closed, arrays, results, _ = traced
        lifted = tuple([i for i, const in enumerate(closed.consts) if _is_supported(const.dtype)])
        constants = tuple([leaf_of(NdArray.from_numpy_array(closed.consts[i], closed.consts[i].dtype)) for i in lifted])
        active = tuple([i for i, d in enumerate(arrays) if d.active])
        return Trace(key, TracedFunction(self.name, closed, lifted, active, key[0]), constants, results)

    def __repr__(self) -> str:
        return f"jax_function({self.name})"


_MOST_TRACES = 256
"""The largest number of cached traces of a function."""


@explained_by_name
def jax_function(
    fun: Callable[..., Any], static_argnums: int | Iterable[int] = (), static_argnames: str | Iterable[str] = ()
) -> JaxFunction:
    """Make a JAX function callable on Variables, differentiable to any order that JAX allows.

        f = F.jax_function(lambda x, w: jax.nn.softplus(x @ w))
        y = f(x, w)
        gx, gw = nn.grad(y, [x, w])

    `fun` may be any function that `jax.jit` takes: jitted or not, with scans, loops, custom derivatives, or the `apply`
    of a Flax or Equinox module. Arguments and results may be pytrees; their leaves are Variables. `fun` is traced in
    each call, so it reads the current values of its closure; JAX traces a function under `jax.jit` once for each
    combination of shapes and dtypes, which is quicker. Equal computations share an executable, however often they are
    created and wrapped, and whatever arrays they close over.

    Gradients reach the Variables among the arguments; what `fun` closes over is constant. Reverse mode is used where
    JAX has it. Elsewhere (`lax.while_loop`) the gradient is computed in forward mode, at the cost of one run of `fun`
    for each element of the arguments to differentiate. The work about doubles with each further order, in either mode.

    Args:
        fun: The function of arrays.
        static_argnums: The positional arguments that reach `fun` unchanged; they must be hashable.
        static_argnames: The keyword arguments that do. Functions and strings always do.

    Raises:
        TypeError: `fun` is not callable, a static argument is not hashable, or an output has a dtype that a Variable
            cannot hold. Exceptions of `fun` itself are passed on, with a note.
        NotImplementedError: (from `grad`) JAX can differentiate `fun` in neither mode.
    """
    return JaxFunction(fun, *options_as_tuples(fun, static_argnums, static_argnames))


def options_as_tuples(
    fun: Any, static_argnums: Any, static_argnames: Any
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The options of `jax_function` as tuples. TypeError: `fun` is not callable."""
    if not callable(fun):
        raise TypeError(f"fun: expected a function of JAX arrays, got {fun!r}")
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return nums, names


class _Caches:
    """The caches of one function, kept in its `__dict__`: what they hold may refer to the function, and both are then
    collected together. Copies of the function, and wrappers that take over its `__dict__`, start anew."""

    _NAME = "__nngrad_caches__"

    def __init__(self, owner: Any) -> None:
        self._owner = weakref.ref(owner)
        self.found: dict[Any, dict[Any, Any]] = {}

    @classmethod
    def of(cls, owner: Any) -> dict[Any, dict[Any, Any]]:
        """The caches of a function or a function with a custom rule."""
        caches = owner.__dict__.get(cls._NAME)
        if caches is None or caches._owner() is not owner:
            owner.__dict__[cls._NAME] = caches = cls(owner)
        by_options: dict[Any, dict[Any, Any]] = caches.found
        return by_options

    def __reduce__(self) -> Any:
        return type(None), ()


_known: WeakKeyDictionary[Any, dict[Any, dict[Any, Any]]] = WeakKeyDictionary()
"""Caches of other callables, such as their traces. A loop that wraps a function anew finds them again."""
_knowing = threading.Lock()


def kept_with(fun: Any, *options: Any) -> dict[Any, Any]:
    """A cache for a function with these options. It lives as long as the function, or the object whose method that is.
    """
    owner = getattr(fun, "__self__", None) if inspect.ismethod(fun) else None
    method = getattr(fun, "__func__", None)
    try:
        with _knowing:
            if isinstance(fun, FunctionType | jax.custom_jvp | jax.custom_vjp):
                return _Caches.of(fun).setdefault(options, {})
            return _known.setdefault(fun if owner is None else owner, {}).setdefault((method, *options), {})
    except TypeError:  # not hashable, or without weak references
        return {}


def _fixed(value: Any, name: str) -> Fixed:
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{name} is static and must be hashable, got {value!r}") from None
    return Fixed(key_of(value), value)


def _name_of(fun: Any) -> str:
    while isinstance(fun, functools.partial):
        fun = fun.func
    return str(getattr(fun, "__name__", type(fun).__name__))


def _needs_x64(leaf: Any, floating: DType | None) -> bool:
    """True if a leaf of the arguments needs 64 bits: a Variable, or an array that is not cast to `floating`. Arrays of
    integers become those of JAX's settings, such as int32 labels, if these hold them."""
    if _is_wide_integer(leaf):
        range_of_32 = np.iinfo(np.int32 if leaf.dtype.kind == "i" else np.uint32)
        return bool(leaf.size) and (int(leaf.min()) < range_of_32.min or int(leaf.max()) > range_of_32.max)
    dtype = getattr(leaf, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.itemsize < 8:
        return False
    return floating is None or isinstance(leaf, Variable) or not is_differentiable(dtype)


def _is_wide_integer(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "iu" and leaf.dtype.itemsize == 8


def _is_supported(dtype: Any) -> bool:
    try:
        dtype_of(dtype)
    except TypeError:
        return False
    return True
