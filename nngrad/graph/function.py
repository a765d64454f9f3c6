"""Function: one application of an op to Variables."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from .engine import engine
from .event import Event
from .messages import SourceLocation
from .ndarray import NOT_KEPT
from .options import BuildOptions, build_options
from .spec import Spec
from .variable import Variable, new_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .op import Op


class FunctionInfo(NamedTuple):
    """Type name, static arguments and tags of a function, as in nnabla."""

    type_name: str
    args: dict[str, Any]
    tags: dict[str, Any]


_tags: weakref.WeakKeyDictionary[Function, dict[str, Any]] = weakref.WeakKeyDictionary()
"""The users' tags of functions."""


_GONE: Any = weakref.ref(set())
"""Stands for an output of a function that nobody holds."""


class RuleCall:
    """One call of a backward rule. All functions it emits refer to it.

    Args:
        f: The function whose rule is called.
        grad_outputs: The gradient at each output of the function, None where none arrived or nothing watches; empty
            for a call that emits tangents.
        keep: Whether the function lives as long as those that the rule emitted.
    """

    __slots__ = ("_function", "context", "grad_outputs")

    context: Any
    """The Context of the function, in which its backward also runs."""

    def __init__(self, f: Function, grad_outputs: Sequence[Variable | None], keep: bool = False) -> None:
        self.context = f.context
        self.grad_outputs = grad_outputs
        self._function: Callable[[], Function | None] = (lambda: f) if keep else weakref.ref(f)

    @property
    def function(self) -> Function | None:
        """The function, while it lives."""
        return self._function()


class Function:
    """One application of an op: it refers strongly to its inputs and weakly to its outputs.

    So a graph lives as long as somebody refers to something below it, and is freed at once when nobody does.
    """

    __slots__ = (
        "__weakref__",
        "_output",
        "arguments",
        "call",
        "context",
        "effects",
        "inputs",
        "location",
        "mark",
        "op",
        "order",
        "plan",
        "rank",
        "scope",
        "serial",
        "settled",
        "snapshot",
        "specs",
    )

    op: Op
    inputs: tuple[Variable, ...]
    """The Variables it is applied to."""
    arguments: tuple[Any, ...]
    """Values of the static arguments, in the order of the op's signature."""
    specs: tuple[Spec, ...]
    """Shape and dtype of each output."""
    rank: int
    """Length of the longest path to a leaf."""
    context: Any
    """The Context it was made in; None for JAX's default device."""
    effects: tuple[tuple[Variable, int], ...]
    """Leaves that `forward()` updates, each with the index of the output that is its new value."""
    order: int
    """Order of differentiation: 0 for functions the user built; for those of a gradient, one more than the highest
    order in the differentiated graph."""
    serial: int
    """Larger than that of every function made before."""
    mark: Any
    """The mark that makes gradients recompute it, or None."""
    settled: bool
    """Whether nothing is known of the outputs that a forward or backward has to look at: they have no cells, gave up
    their gradients in an earlier backward, and nobody has set their `need_grad` or made them persistent."""
    snapshot: Any
    """The last forward that covered this function (owned by the execution package)."""
    plan: Any
    """How to run the graph above this function (owned by the execution package)."""
    location: Any
    """Where the user called it. Unset except in debug mode, in bodies and within `source_locations`."""
    scope: str
    """The parameter scope that it was applied in. Unset except within `source_locations`."""
    call: RuleCall | None
    """The call of the backward rule that emitted it, or None."""
    _output: Any
    """A weak reference to the output, or a tuple of them, as of several."""

    @property
    def _outputs(self) -> tuple[weakref.ref[Variable], ...]:
        refs = self._output
        return refs if refs.__class__ is tuple else (refs,)

    @property
    def heavy(self) -> bool:
        """True if it does much arithmetic per element."""
        op = self.op
        return op.cost is not None and op.is_heavy(tuple([x.spec for x in self.inputs]), self.arguments)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The output Variables. One that nobody holds any more is made again."""
        outputs = []
        for ref in r if (r := self._output).__class__ is tuple else (r,):
            y = ref()
            if y is None:
                return self._revived()
            outputs.append(y)
        return tuple(outputs)

    def settle(self) -> None:
        """Find out whether it is `settled`. Whatever changes an output afterwards takes that back."""
        self.settled = True  # first, since another thread may change an output while they are looked at
        for y in self.living_outputs():
            if y._grad is not NOT_KEPT or y._data is not None or y._need_grad is not None or y._persistent:
                self.settled = False

    def living_outputs(self) -> list[Variable]:
        """The output Variables that somebody holds."""
        return [y for ref in self._outputs if (y := ref()) is not None]

    def replace_output(self, index: int, y: Variable | None) -> None:
        """Make `y` the output at `index`; None to let another be made when it is asked for."""
        ref: Any = _GONE if y is None else weakref.ref(y)
        self._output = (*self._outputs[:index], ref, *self._outputs[index + 1 :])
        self.settled = False

    def _revived(self) -> tuple[Variable, ...]:
        living = [ref() for ref in self._outputs]
        outputs = tuple([output_variable(self, i) if y is None else y for i, y in enumerate(living)])
        self._output = tuple([weakref.ref(y) for y in outputs])
        self.settled = False
        return outputs

    @property
    def info(self) -> FunctionInfo:
        """Type name, static arguments and tags."""
        return FunctionInfo(self.op.type_name, self.args, self.tags)

    @property
    def tags(self) -> dict[str, Any]:
        """The user's tags of this function, initially empty. They do not affect computation."""
        return _tags.get(self, {})

    @tags.setter
    def tags(self, tags: dict[str, Any]) -> None:
        _tags[self] = dict(tags)

    @property
    def need_grad(self) -> bool:
        """True if any of its inputs needs a gradient."""
        return any([x.need_grad for x in self.inputs])

    @property
    def args(self) -> dict[str, Any]:
        """The static arguments, by name."""
        return self.op.named(self.arguments)

    @property
    def name(self) -> str:
        """Name of the op."""
        return self.op.name

    @property
    def origin(self) -> Function | None:
        """The forward function whose backward rule emitted this one, while that function lives."""
        return None if self.call is None else self.call.function


new_function = Function.__new__
_serials = itertools.count()
next_serial = _serials.__next__
"""Draws the serial number of a new function."""


def next_serials(count: int) -> list[int]:
    """The serial numbers of `count` new functions."""
    return [*itertools.islice(_serials, count)]


def output_variable(function: Function, index: int) -> Variable:
    """A new Variable for output `index` of `function`."""
    x = new_variable(Variable)
    x.spec = function.specs[index]
    x.parent = function
    x.index = index
    x._data = x._grad = x._need_grad = x.derived_by = x._group = x.key_source = x._at = None
    x.name, x._persistent = "", False
    return x


def create(
    op: Op,
    inputs: tuple[Variable, ...],
    arguments: tuple[Any, ...],
    effects: tuple[tuple[Variable, int], ...] = (),
    call: RuleCall | None = None,
    order: int = 0,
    specs: tuple[Spec, ...] | None = None,
) -> Any:
    """Make a Function, and return its output, or a tuple if the op has several.

    Args:
        op: The op.
        inputs: The Variables to apply it to.
        arguments: Its static arguments, checked.
        effects: Leaves that `forward()` updates, each with the index of the output that is its new value.
        call: The call of the backward rule that emits it; it runs where that rule's function does.
        order: Order of differentiation: 0 for functions that users build.
        specs: Shape and dtype of each output, if they are known.
    """
    rank = -1
    for x in inputs:
        parent = x.parent
        if parent is not None and parent.rank > rank:
            rank = parent.rank
    f = new_function(Function)
    f.op = op
    f.inputs = inputs
    f.arguments = arguments
    f.rank = rank + 1
    f.effects = effects
    f.order = order
    f.serial = next_serial()
    f.mark = f.snapshot = f.plan = None
    f.settled = False
    f.call = call
    options = build_options()
    f.context = options.applying.context if call is None else call.context
    if specs is None:
        spec = inputs[0].spec if op.elementwise else None
        # Most functions have one input, whose shape is known; `infer` handles the others.
        specs = spec.alone if spec and len(inputs) == 1 and spec.differentiable else op.infer(inputs, arguments)
    f.specs = specs
    if op.multiple_results:
        outputs = tuple([output_variable(f, i) for i in range(len(specs))])
        f._output = tuple([weakref.ref(y) for y in outputs])
        result: Any = outputs
    else:
        result = new_variable(Variable)  # an `output_variable`, without a call for each function
        result.spec, result.parent, result.index = specs[0], f, 0
        result._data = result._grad = result._need_grad = result.derived_by = result._group = result.key_source = None
        result._at, result.name, result._persistent = None, "", False
        f._output = weakref.ref(result)
    if options.special:
        apply_switches(f, options)
    return result


def locate(event: Event) -> None:
    """Listens to functions being made, and records on each where in the user's program that is."""
    event.function.location = SourceLocation.of_user()


def apply_switches(f: Function, options: BuildOptions) -> None:
    """Tell the listeners of a new function, and apply the switches that concern it."""
    applying = options.applying
    event = Event("applied" if f.order == 0 and f.call is None else "emitted", f)
    for hear in options.listeners[event.kind]:
        hear(event)
    if applying.no_grad:
        for y in f.outputs:
            y.need_grad = False
    f.mark = applying.mark
    if applying.auto_forward:
        engine.run_functions([f])


def apply(
    op: Op,
    inputs: tuple[Variable, ...],
    arguments: tuple[Any, ...] = (),
    effects: tuple[tuple[Variable, int], ...] = (),
) -> Any:
    """Apply `op`: user code always gets a new Function, emitted code the builder's result."""
    options = build_options()
    builder = options.emitting.builder
    if builder is None:
        if options.applying.precision is not None:
            return options.applying.precision.apply(op, inputs, arguments, effects)
        return create(op, inputs, arguments, effects)
    return builder.emit(op, inputs, arguments)
