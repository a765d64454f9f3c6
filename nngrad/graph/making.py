"""Functions made many at a time."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from .function import Function, RuleCall, apply_switches, new_function, next_serial, output_variable
from .op import Op
from .options import build_options
from .spec import Spec
from .variable import Variable, new_variable

CallOf = tuple[int, tuple[int | None, ...]]
"""A call of a rule: of which function, one that is given (its number) or the one that gives a value (~ its number), and
the numbers of the gradients, None where none arrived."""

Made = tuple[Op, tuple[Any, ...], tuple[int, ...], tuple[Spec, ...], int, int]
"""A function to be made: op, static arguments, the places of its inputs in the list of values, shapes and dtypes of its
outputs, order, and the number of the call of a rule that emits it, -1 for none."""


_new_call = RuleCall.__new__


def make(
    steps: Iterable[Made], inputs: Sequence[Variable], given: Sequence[Function], calls: Sequence[CallOf]
) -> list[Variable]:
    """What `create` would make of many functions one after another, in half of the time.

    Args:
        steps: The functions.
        inputs: Variables that are there already.
        given: Functions that are there already, as far as rules were called for them.
        calls: The calls of rules, in the order in which each emits something first; the numbers are places in the list
            of values.

    Returns:
        The list of values: the inputs, and the outputs of the functions.
    """
    options = build_options()
    special, context = options.special, options.context
    ref, new, serial = weakref.ref, new_variable, next_serial
    values: list[Any] = list(inputs)
    enter = values.append
    above = [0 if x.parent is None else x.parent.rank + 1 for x in inputs]
    """The ranks of functions that read one of the values alone."""
    called: list[RuleCall] = []
    for op, arguments, places, specs, order, number in steps:
        f = new_function(Function)
        # Most have one input or two.
        if len(places) == 1:
            i = places[0]
            f.inputs = (values[i],)
            rank = above[i]
        elif len(places) == 2:
            i, k = places
            f.inputs = (values[i], values[k])
            rank = above[i]
            if above[k] > rank:
                rank = above[k]
        else:
            f.inputs = tuple([values[i] for i in places])
            rank = max([above[i] for i in places], default=0)
        f.op = op
        f.arguments = arguments
        f.rank = rank
        f.effects = ()
        f.order = order
        f.serial = serial()
        f.mark = f.snapshot = f.plan = None
        f.specs = specs
        if number < 0:
            f.call = None
            f.context = context
        else:
            if number == len(called):
                of, gys = calls[number]
                emits = given[of] if of >= 0 else values[~of].parent
                call = _new_call(RuleCall)
                call.context = emits.context
                call._function = ref(emits)
                if len(gys) == 1 and gys[0] is not None:
                    call.grad_outputs = (values[gys[0]],)
                else:
                    call.grad_outputs = [None if i is None else values[i] for i in gys] if gys else ()
                called.append(call)
            f.call = call = called[number]
            f.context = call.context
        if len(specs) == 1:
            y = new(Variable)
            y.spec = specs[0]
            y.parent = f
            y.index = 0
            y._data = y._grad = y._need_grad = y._derived = y._family = y._source = y._at = None
            y.name, y.persistent = "", False
            f._outputs = (ref(y),)
            enter(y)
            above.append(rank + 1)
        else:
            outputs = [output_variable(f, i) for i in range(len(specs))]
            f._outputs = tuple([ref(y) for y in outputs])
            values += outputs
            above += [rank + 1] * len(outputs)
        if special:
            apply_switches(f, options)
    return values
