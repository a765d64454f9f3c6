"""Make functions from a Block, many at a time, with what it does not record itself: the rule calls that emitted its
steps, as columns beside them, and which values are results of `grad`.

A cached gradient is built without running a rule, yet its functions can say which rule of which function emitted them,
and for which gradients. This is rarely asked, and many of these gradients are in no result: in a chain of 1,600
functions, 1,600 of the 4,000 that the rules emit. So they are built on demand.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .function import Function, RuleCall, apply_switches, create, new_function, output_variable
from .op import Op
from .options import build_options, contained, switch_to
from .spec import Spec
from .variable import Variable, new_variable

if TYPE_CHECKING:
    from .block import Block


Made = tuple[Op, tuple[Any, ...], tuple[int, ...], tuple[Spec, ...], int, int, Any]
"""A function to make: op, static arguments, the indices of its inputs in the list of values, shapes and dtypes of its
outputs, order, rank, and Context."""


def make(steps: Iterable[Made], inputs: Sequence[Variable], serials: Sequence[int], call: Any) -> list[Variable]:
    """Make many functions, in topological order, in half the time that `create` takes.

    Args:
        steps: The functions.
        inputs: The Variables to build on.
        serials: The serial numbers of the functions.
        call: Knows the calls of rules that emit them, or None.

    Returns:
        The list of values: the inputs, and the outputs of the functions.
    """
    options = build_options()
    special = options.special
    ref, new = weakref.ref, new_variable
    values: list[Any] = [*inputs]
    enter = values.append
    for (op, arguments, places, specs, order, rank, context), serial in zip(steps, serials, strict=True):
        f = new_function(Function)
        if len(places) == 1:  # most have one input or two
            f.inputs = (values[places[0]],)
        elif len(places) == 2:
            i, k = places
            f.inputs = (values[i], values[k])
        else:
            f.inputs = tuple([values[i] for i in places])
        f.op = op
        f.arguments = arguments
        f.rank = rank
        f.effects = ()
        f.order = order
        f.serial = serial
        f.mark = f.snapshot = f.plan = None
        f.specs = specs
        f._call = call
        f.context = context
        if len(specs) == 1:
            y = new(Variable)
            y.spec = specs[0]
            y.parent = f
            y.index = 0
            y._data = y._grad = y._need_grad = y._derived = y._group = y._source = y._at = None
            y.name, y.persistent = "", False
            f._outputs = (ref(y),)
            enter(y)
        else:
            outputs = [output_variable(f, i) for i in range(len(specs))]
            f._outputs = tuple([ref(y) for y in outputs])
            values += outputs
        if special:
            apply_switches(f, options)
    return values


class Origins(NamedTuple):
    """The calls of rules that emitted the steps of a Block."""

    functions: tuple[int, ...]
    """The function of each call: its number if it existed before, or ~k for the function that computes value k."""
    gradients: tuple[tuple[int | None, ...], ...]
    """The numbers of the gradients at the outputs of that function, None where none arrived."""
    called: tuple[int, ...]
    """For each step, the call that emitted it, or -1."""
    contexts: tuple[Any, ...]
    """For each step, where it runs."""
    made: int
    """The number of steps built with the Block. Later ones compute gradients that only calls mention."""
    inputs: tuple[int, ...]
    """The inputs from which functions and gradients of calls are computed."""


class Instance:
    """The functions built from a Block, as far as calls of rules need to find them.

    It holds the inputs of the gradients in calls. Its references to the functions themselves, which refer to it, are
    weak, so that a graph is freed as soon as nobody holds it.

    Args:
        block: The block that they were built from.
        origins: The calls that emitted it.
        inputs: The Variables that they were built on.
        given: The functions that existed before.
    """

    __slots__ = ("_block", "_functions", "_inputs", "origins", "serials", "values")
    serials: Sequence[int]
    """The serial numbers of the functions, once assigned."""
    values: list[Callable[[], Variable | None]]
    """References to the functions' outputs, later also to those of functions built on demand."""

    def __init__(
        self, block: Block, origins: Origins, inputs: Sequence[Variable], given: Sequence[Function]
    ) -> None:
        self._block, self.origins, self.serials = block, origins, ()
        reads = origins.inputs
        self._inputs = inputs if len(reads) == len(inputs) else {i: inputs[i] for i in reads}
        self._functions = [weakref.ref(given[i]) if i >= 0 else None for i in origins.functions]
        self.values = []

    def refer_to(self, values: Sequence[Variable]) -> None:
        """Record the functions' outputs."""
        self.values = [*map(weakref.ref, values), *[_no_variable] * (len(self._block.producers) - len(values))]

    def of(self, serial: int) -> RuleCall | None:
        """The call that emitted the function with this serial number."""
        return self._call(bisect.bisect_left(self.serials, serial))

    def function(self, number: int) -> Function | None:
        """The function of a call, while it lives."""
        given = self._functions[number]
        return self._variables([self.origins.functions[number]])[0].parent if given is None else given()

    def gradients(self, number: int) -> list[Variable | None]:
        """The incoming gradients of a call."""
        gys = self.origins.gradients[number]
        there = iter(self._variables([i for i in gys if i is not None]))
        return [None if i is None else next(there) for i in gys]

    def _call(self, step: int) -> RuleCall | None:
        number = self.origins.called[step]
        return None if number < 0 else CallOfInstance(self, number, self.origins.contexts[step])

    def _variables(self, numbers: Sequence[int]) -> list[Variable]:
        """The Variables with these numbers, built if nobody holds them."""
        steps, producers = self._block.steps, self._block.producers
        found: dict[int, Variable] = {}
        missing: set[int] = set()
        waiting = [*numbers]
        while waiting:
            i = waiting.pop()
            if i in found:
                continue
            there = self._inputs[i] if i >= 0 else self.values[~i]()
            if there is not None:
                found[i] = there
            elif producers[~i] not in missing:
                missing.add(producers[~i])
                waiting += steps[producers[~i]][2]
        self._make(sorted(missing), found)
        return [found[i] for i in numbers]

    @contained
    def _make(self, missing: Sequence[int], found: dict[int, Variable]) -> None:
        """Build the functions of steps, and enter their outputs in `found`."""
        switch_to()  # the current switches do not apply
        block = self._block
        for k in missing:
            op, arguments, ins = block.steps[k]
            call, inputs = self._call(k), tuple([found[i] for i in ins])
            made = create(op, inputs, arguments, (), call, block.orders[k], block.results[k])
            for i, y in zip(block.outs[k], made if op.multiple_results else (made,), strict=True):
                found[i] = y
                self.values[~i] = weakref.ref(y)


def _no_variable() -> None:
    """A reference to no Variable."""


class CallOfInstance(RuleCall):
    """A call of a rule that emitted functions built from a Block. Each function makes its own; all are equal."""

    __slots__ = ("_instance", "_number")

    def __init__(self, instance: Instance, number: int, context: Any) -> None:
        self.context = context
        self._instance, self._number = instance, number
        self._grad_outputs = None

    @property
    def function(self) -> Function | None:
        """The function, while it lives."""
        return self._instance.function(self._number)

    @property
    def grad_outputs(self) -> Sequence[Variable | None]:
        """The gradient at each output of the function, or None."""
        if self._grad_outputs is None:
            self._grad_outputs = self._instance.gradients(self._number)
        return self._grad_outputs

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, CallOfInstance) and self._instance is other._instance
                and self._number == other._number)

    def __hash__(self) -> int:
        return hash((self._instance, self._number))

# ---------------------------------------------------------------- gradients that were taken


class GradientTaken(NamedTuple):
    """A gradient of <seeds, outputs> with respect to each input, all by value numbers."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    seeds: tuple[int | None, ...]
    results: tuple[int | None, ...]
    """None for those not in the block."""


class GradientsTaken(NamedTuple):
    """The gradients taken in a block."""

    block: Block
    """The block with additional steps, which compute a differentiated output of which only the gradient is used."""
    each: tuple[GradientTaken, ...]

    def with_inputs(self, inputs: tuple[Spec, ...], places: Sequence[int]) -> GradientsTaken:
        """The record for the block that `Block.with_inputs` returns."""
        def placed(taken: GradientTaken) -> GradientTaken:
            parts: list[Any] = [tuple([places[i] if i is not None and i >= 0 else i for i in part]) for part in taken]
            return GradientTaken(*parts)

        return GradientsTaken(self.block.with_inputs(inputs, places), tuple(map(placed, self.each)))
