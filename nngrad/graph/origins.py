"""Where functions come from that were made of a Block: the calls of rules, as columns beside its steps.

A gradient that comes again is made without running a rule, yet its functions say which rule of which function emitted
them, and for which gradients. Little of that is ever asked, and many of these gradients are in no result: in a chain of
1,600 functions, 1,600 of the 4,000 that the rules emit. So they are made when somebody asks.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .function import Function, RuleCall, create
from .options import contained, switch_to

if TYPE_CHECKING:
    from .block import Block
    from .variable import Variable


class Origins(NamedTuple):
    """The calls of rules that emitted the steps of a Block."""

    functions: tuple[int, ...]
    """The function of each call: one that was there before, by its number, or the one that gives value k, as ~k."""
    gradients: tuple[tuple[int | None, ...], ...]
    """The numbers of the gradients at the outputs of that function, None where none arrived."""
    called: tuple[int, ...]
    """For each step the call that emitted it, -1 for none."""
    contexts: tuple[Any, ...]
    """For each step where it runs."""
    made: int
    """How many steps are made with the Block. Those after them compute gradients that only calls mention."""
    inputs: tuple[int, ...]
    """What functions and gradients of calls are computed from."""


class Instance:
    """Functions that were made of a Block, as far as calls of rules need to find them.

    It holds what the gradients in calls are computed from. To the functions themselves, which refer to it, it has weak
    references alone, so that a graph goes at once when nobody holds it.

    Args:
        block: What they were made of.
        origins: The calls that emitted it.
        inputs: What they are computed from.
        given: The functions that were there before.
    """

    __slots__ = ("_block", "_functions", "_inputs", "origins", "serials", "values")
    serials: Sequence[int]
    """The serial numbers of the functions, once they are to be made."""
    values: list[Callable[[], Variable | None]]
    """References to what the functions give, in the end also to that of those which are made when somebody asks."""

    def __init__(
        self, block: Block, origins: Origins, inputs: Sequence[Variable], given: Sequence[Function]
    ) -> None:
        self._block, self.origins, self.serials = block, origins, ()
        reads = origins.inputs
        self._inputs = inputs if len(reads) == len(inputs) else {i: inputs[i] for i in reads}
        self._functions = [weakref.ref(given[i]) if i >= 0 else None for i in origins.functions]
        self.values = []

    def refer_to(self, values: Sequence[Variable]) -> None:
        """Let it know what the functions give."""
        self.values = [*map(weakref.ref, values), *[_nobody] * (len(self._block.producers) - len(values))]

    def of(self, serial: int) -> RuleCall | None:
        """The call that emitted the function with a serial number."""
        return self._call(bisect.bisect_left(self.serials, serial))

    def function(self, number: int) -> Function | None:
        """The function that a call is of, while it lives."""
        given = self._functions[number]
        return self._variables([self.origins.functions[number]])[0].parent if given is None else given()

    def gradients(self, number: int) -> list[Variable | None]:
        """The gradients that a call is for."""
        gys = self.origins.gradients[number]
        there = iter(self._variables([i for i in gys if i is not None]))
        return [None if i is None else next(there) for i in gys]

    def _call(self, step: int) -> RuleCall | None:
        number = self.origins.called[step]
        return None if number < 0 else CallOfInstance(self, number, self.origins.contexts[step])

    def _variables(self, numbers: Sequence[int]) -> list[Variable]:
        """The Variables with these numbers; those that nobody holds are made."""
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
        """Make the functions of steps, and enter what they give in `found`."""
        switch_to()  # what is in force now has no part in it
        block = self._block
        for k in missing:
            op, arguments, ins = block.steps[k]
            call, inputs = self._call(k), tuple([found[i] for i in ins])
            made = create(op, inputs, arguments, (), call, block.orders[k], block.results[k])
            for i, y in zip(block.outs[k], made if op.multiple_results else (made,), strict=True):
                found[i] = y
                self.values[~i] = weakref.ref(y)


def _nobody() -> None:
    """Returns what refers to no Variable."""


class CallOfInstance(RuleCall):
    """A call of a rule that emitted functions which were made of a Block. Each of them makes its own; all are equal."""

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
        """The gradient at each output of the function, None where none arrived."""
        if self._grad_outputs is None:
            self._grad_outputs = self._instance.gradients(self._number)
        return self._grad_outputs

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, CallOfInstance) and self._instance is other._instance
                and self._number == other._number)

    def __hash__(self) -> int:
        return hash((self._instance, self._number))
