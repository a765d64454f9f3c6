"""A cache of emitted gradients, by the structure of the request.

A loop that rebuilds its graph at each step asks for the same gradients each time. So a request is closed: its graph
becomes a `Block`, beside everything else that decides what is emitted. When an equal request comes for the second time,
the emitted graph is also closed, as a Block whose inputs are the values it reads of the forward graph; from the third
time on that is instantiated, without traversals and rules. In requests about graphs built on it, a cached gradient
counts as a single step, with everything it was computed from. Requests that may depend on more are emitted each time:
with hooks or debug mode, with rematerialisation, and wherever user code takes part.
"""

from __future__ import annotations

import fractions
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..execution.compiled import BoundedCache, executables
from ..graph import Function, Op, RuleCall, Variable, build_options, functions_of, set_switches
from ..graph.block import Block
from ..graph.closing import Closing
from ..graph.options import pause_collector
from ..graph.origins import Instance, Origins
from ..graph.thresholds import BYTES_ASKED, MOST_ASKED
from .questions import Question
from .request import Derivation, Mode, ResultDerivation, derivation_of

Numbers = tuple[int, ...]

_known = executables.registered(BoundedCache(1024, most_bytes=64 << 20))
_seen = executables.registered(BoundedCache(1 << 14))
"""Hashes of earlier questions."""

_foreign = executables.registered(BoundedCache(1 << 14))
"""Hashes of questions whose answers cannot be cached."""


class GradientResults(NamedTuple):
    """The gradients of a request, as handed out."""

    gradients: list[Variable]
    kept: dict[Variable, Variable]
    """The Variables that keep a gradient, each with its gradient."""
    lost: list[int]
    """The positions of the inputs that no gradient can reach, unless these get zeros."""


# ---------------------------------------------------------------- the cache


def came_before(question: Question) -> bool:
    """Whether an equal question was asked before, and its answer depends on no marks."""
    number = hash(question.key)
    if _seen.find(number) is None:
        _seen.keep(number, True)
        return False
    return all([f.mark is None for f in question.closing.functions])


class DerivationOf(NamedTuple):
    """The derivation of gradients, by the numbers of what the answer reads and makes."""

    outputs: Numbers
    inputs: Numbers
    seeds: tuple[int | None, ...]
    stop_gradients: Numbers
    mode: Mode
    order: int


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity in questions: places and numbers differ
class Answer:
    """The gradient graph emitted for a question, without the graph that it was emitted for."""

    block: Block
    """Its outputs are the gradients."""
    origins: Origins
    reads: tuple[tuple[int, int], ...]
    """The places of its inputs; see `Question.variables`."""
    kept: tuple[tuple[int, int], ...]
    lost: Numbers
    derived_by: ResultDerivation | DerivationOf | None
    """The record of what the gradients are derivatives of."""

    def given_to(self, question: Question) -> GradientResults:
        """Instantiate the answer on the graph of an equal question."""
        inputs = question.variables(self.reads)
        instance = Instance(self.block, self.origins, inputs, question.closing.functions)
        made = self.block.instantiate(inputs, instance)

        def at(numbers: Iterable[int | None]) -> list[Any]:
            return [None if i is None else inputs[i] if i >= 0 else made[~i] for i in numbers]

        gradients, known = at(self.block.outputs), self.derived_by
        if isinstance(known, DerivationOf):
            outputs, variables, seeds, stop_gradients = map(at, known[:4])
            derivation = Derivation(outputs, variables, seeds, stop_gradients, gradients)
            derivation.remember(known.mode, known.order)
            if build_options().applying.body is None:
                places = sorted([~i for i in self.block.outputs])
                bookmark = question.closing.bookmark(instance.values[: len(made)], places)
                derivation.answered = self, bookmark
        else:
            for gx in gradients:
                gx._derived = known
        kept = dict(zip(at([i for i, _ in self.kept]), at([i for _, i in self.kept]), strict=True))
        return GradientResults(gradients, kept, list(self.lost))

    def to_shorter(self, question: Question, shorter: Question) -> Answer:
        """The answer to another form of the question, in which the values it reads have other places."""
        closing = shorter.closing
        number = {f: i for i, f in enumerate(closing.functions)}
        read = question.variables(self.reads)
        reads = tuple([(-1, closing[x]) if x.parent is None else (number[x.parent], x.index) for x in read])
        given = question.closing.functions
        functions = tuple([number[given[i]] if i >= 0 else i for i in self.origins.functions])
        return replace(self, reads=reads, origins=self.origins._replace(functions=functions))


def known_answer(question: Question, shorter: Question | None = None) -> GradientResults | None:
    """The cached answer to a question, instantiated on its graph; None if there is none.

    Args:
        question: The question.
        shorter: Another form of it, under which to cache the answer from now on.
    """
    answer: Answer | None = _known.find(question.key)
    if answer is None:
        return None
    if shorter is not None:
        _known.keep(shorter.key, answer.to_shorter(question, shorter), len(answer.block.steps) * BYTES_ASKED)
    pause_collector()
    if build_options().applying.auto_forward:  # only the functions that are used run, once all are built
        set_switches(auto_forward=False)
    return answer.given_to(question)


def remember_answer(question: Question, results: GradientResults, since: int) -> None:
    """Cache an answer that was just emitted, from this serial number on, if it can be instantiated again."""
    number = hash(question.key)
    if _foreign.find(number) is not None:
        return
    answer = answer_to(question, results, since)
    count = 0 if answer is None else len(question.closing.functions) + len(answer.block.steps)
    if answer is None or count > MOST_ASKED:
        _foreign.keep(number, True)
    else:
        _known.keep(question.key, answer, count * BYTES_ASKED)


# ---------------------------------------------------------------- from an emitted graph to an answer


def are_ours(functions: Iterable[Function]) -> bool:
    """Whether the functions contain no user code."""
    kinds = {(f.op, f.arguments) for f in functions}
    return all(map(_is_plain, kinds)) and not any([hasattr(f, "location") for f in functions])


_OURS = ("nngrad.", "backward_registry.")
_PLAIN = int | float | str | None | fractions.Fraction | np.dtype


def _is_plain(value: Any) -> bool:
    """Whether it is an op of nngrad's, or a static argument without user code."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Op):
        return value.tables is None and value.is_own
    own = type(value).__module__.startswith(_OURS) and not getattr(value, "opaque", False)
    return own or isinstance(value, _PLAIN)


def answer_to(question: Question, results: GradientResults, since: int) -> Answer | None:
    """Close the graph just emitted, from this serial number on; None if it cannot be instantiated again."""
    gradients, kept, lost = results
    own = {f: i for i, f in enumerate(question.closing.functions)}
    emitted = _emitted(results, own)
    given = {id(gx) for gx in gradients}
    if not are_ours(own) or not are_ours(emitted) or not all([_can_be_made(f, since, given) for f in emitted]):
        return None
    known = derivation_of(gradients[0]) if gradients else None
    derivation = None if known is None else known.derivation
    of = [derivation.outputs, derivation.inputs, derivation.seeds, derivation.stop_gradients] if derivation else []
    wanted = [x for each in (gradients, kept, kept.values(), *of) for x in each if x is not None]
    made = functions_of(wanted, through=lambda x: x.parent in emitted)
    functions = [*dict.fromkeys([*sorted(made, key=_serial), *emitted])]
    calls = _calls(functions, own)
    mentioned = [x for f in functions for x in f.inputs] + wanted
    mentioned += [gy for call in calls for gy in call.grad_outputs if gy is not None]
    reads = list({id(x): x for x in mentioned if x.parent not in emitted}.values())
    # A leaf introduced by a rule belongs to one graph only.
    if not all([x in question.closing if x.parent is None else x.parent in own for x in reads]):
        return None
    closing = Closing(reads)
    closing.write(functions)
    block = closing.block(closing.numbers(gradients))
    derived_by: ResultDerivation | DerivationOf | None = known
    if known is not None and derivation is not None:
        outputs, inputs, seeds, stop_gradients = map(closing.numbers, of)
        derived_by = DerivationOf(outputs, inputs, seeds, stop_gradients, known.mode, known.order)
    return Answer(
        block,
        _origins(closing, block, calls, own, len(made)),
        tuple([(-1, question.closing[x]) if x.parent is None else (own[x.parent], x.index) for x in reads]),
        tuple(zip(closing.numbers(kept), closing.numbers(kept.values()), strict=True)), tuple(lost), derived_by,
    )  # fmt: skip


_serial = attrgetter("serial")


def _emitted(results: GradientResults, own: Container[Function]) -> dict[Function, None]:
    """The functions that the answer depends on, except the question's `own`, in order of creation."""
    found: dict[Function, None] = {}
    waiting = [*results.gradients, *results.kept.values()]
    while waiting:
        f = waiting.pop().parent
        if f is not None and f not in own and f not in found:
            found[f] = None
            waiting += f.inputs
            waiting += [] if f.call is None else [gy for gy in f.call.grad_outputs if gy is not None]
    return dict.fromkeys(sorted(found, key=_serial))


def _can_be_made(f: Function, since: int, gradients: Container[int]) -> bool:
    """Whether a step can reproduce everything about an emitted function."""
    plain = f.serial >= since and not f.effects and f.mark is None
    return plain and all([
        y._need_grad is None and not y.persistent and (y._derived is None or id(y) in gradients)
        for y in f.outputs
    ])


def _calls(functions: Sequence[Function], own: Container[Function]) -> dict[RuleCall, Function]:
    """The calls of rules that emitted `functions`, each with the rule's function. Once that is gone, the call is no
    longer visible."""
    of = {f.call: f.call.function for f in functions if f.call is not None}
    there = frozenset(functions)
    return {call: f for call, f in of.items() if f is not None and (f in own or f in there)}


def _origins(
    closing: Closing, block: Block, calls: Mapping[RuleCall, Function], own: Mapping[Function, int], made: int
) -> Origins:
    """The calls as columns."""
    places = {call: i for i, call in enumerate(calls)}
    of = tuple([own[f] if f in own else closing[f.outputs[0]] for f in calls.values()])
    gradients = tuple([closing.numbers(call.grad_outputs) for call in calls])
    called = tuple([-1 if f.call is None else places.get(f.call, -1) for f in closing.functions])
    shown = [i for i in of if i < 0] + [i for gys in gradients for i in gys if i is not None]
    contexts = tuple([f.context for f in closing.functions])
    return Origins(of, gradients, called, contexts, made, block.inputs_above(shown))
