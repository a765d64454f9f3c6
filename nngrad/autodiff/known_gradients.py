"""A cache of emitted gradients, by the structure of the request.

A loop that rebuilds its graph at each step asks for the same gradients each time. So a request is closed: its graph
becomes a `Block`, beside everything else that decides what is emitted. When an equal request comes for the second time,
the emitted graph is also closed, as a Block whose inputs are the values it reads of the forward graph; from the third
time on that is instantiated, without traversals and rules. In requests about graphs built on it, a cached gradient
counts as a single step, with everything it was computed from. Requests that may depend on more are emitted each time:
with hooks or debug mode, with rematerialisation, and wherever user code takes part.

A question is a request's graph, closed, beside everything else that decides what is emitted for it.
"""

from __future__ import annotations

import fractions
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from backward_registry import registry

from ..execution.compiled import BoundedCache, executables
from ..graph import Function, Op, RuleCall, Variable, build_options, functions_of, set_switches
from ..graph.block import Block
from ..graph.closing import Closing
from ..graph.function import watched
from ..graph.options import pause_collector
from ..graph.origins import Instance, Origins
from ..graph.thresholds import BYTES_ASKED, MOST_ASKED
from .binding import close_with_derivations
from .request import Derivation, Mode, Request, ResultDerivation, derivation_of, derivations_of


class Question:
    """The cache key of a request, with the functions and leaves that it stands for.

    The key has everything that decides what is emitted: the closed graph, which leaves share their data, and what
    results of `grad` are gradients of. Anything else that a rule or a mode comes to depend on must be added to `key`.

    Args:
        request: The request.
        functions: The functions that its outputs depend on, by ascending rank.
        since: Functions from this serial number on were made for the request itself.
        closing: The part that is already closed.
        base: The answer that this part of the graph came from; None if nothing is closed.
    """

    __slots__ = ("closing", "key")

    key: Hashable
    closing: Closing
    """The numbering of everything that the request is about."""

    def __init__(
        self, request: Request, functions: list[Function], since: int, closing: Closing, base: Hashable
    ) -> None:
        self.closing = closing
        start, known, before = len(closing.functions), len(closing.derived), len(derivations_of(closing.derived))
        about: list[Sequence[Variable | None]] = [
            request.outputs, request.inputs, request.stop_gradients, request.seeds, request.initial,
        ]
        derivations = close_with_derivations(closing, functions, [x for each in about for x in each], _variables_of)
        functions = closing.functions[start:]
        # Variables just made for the request may be handed out as they are; older ones may not.
        given = any([x is not None for each in about[3:] for x in each])
        own = [i for i, f in enumerate(functions) if f.serial >= since] if given else []
        in_force = build_options()
        body = in_force.applying.body  # in a body, functions that update a leaf are not differentiated
        effects = [(i, body is not None and f.serial > body) for i, f in enumerate(functions) if f.effects]
        contexts = [f.context for f in functions]
        alike = contexts == contexts[:1] * len(contexts)
        asked = [closing.numbers(each) for each in about]
        named = tuple([tuple(map(closing.numbers, _variables_of(each))) for each in [*derivations][before:]])
        results = tuple([_of_result(closing, gx, derivations) for gx in closing.derived[known:]])
        sharing = _sharing(closing.leaves, request.inputs)
        self.key = (
            base, closing.block(asked[0]), tuple(effects), tuple(contexts[:1] if alike else contexts), tuple(own),
            tuple(asked), named, results, sharing, request.retain, request.unreachable,
            request.handled, in_force.applying.context, in_force.emitting.simplify, registry.version,
        )  # fmt: skip

    def variables(self, places: Iterable[tuple[int, int]]) -> list[Variable]:
        """The Variables at these places: index of the function and of the output; or -1 and the index of the leaf."""
        leaves, functions = self.closing.leaves, self.closing.functions
        found = [leaves[k] if i < 0 else functions[i]._outputs[k]() for i, k in places]
        if {*map(type, found)} == {Variable}:
            return found  # type: ignore[return-value]  # so there is no None
        return [functions[i].outputs[k] if x is None else x for x, (i, k) in zip(found, places, strict=True)]


def _of_result(closing: Closing, gx: Variable, derivations: Mapping[Derivation, int]) -> Hashable:
    """The derivation of a result of `grad`, in numbers."""
    derived_by: ResultDerivation = gx._derived
    derivation, x = derived_by.derivation, derived_by.input
    if derivation is None or x is None:
        y, by, lead = derived_by.laplacian or (None, None, 0)
        return closing[gx], derived_by._replace(laplacian=None), closing.numbers([y, by]), lead
    return closing[gx], derivations[derivation], closing[x], derived_by.mode, derived_by.order


def _sharing(leaves: Sequence[Variable], inputs: Sequence[Variable]) -> Hashable:
    """The groups of leaves that share data with `inputs`: an input outside the graph stands for those inside it."""
    cells = {id(x._data) for x in inputs if x.parent is None and x._data is not None}
    by_cell: dict[int, list[int]] = {}
    for i, x in enumerate(leaves):
        if id(x._data) in cells:
            by_cell.setdefault(id(x._data), []).append(i)
    return tuple([tuple(each) for each in by_cell.values() if len(each) > 1])


def _variables_of(derivation: Derivation) -> Sequence[Sequence[Variable | None]]:
    """All Variables that a derivation refers to."""
    results = [ref() for ref in derivation.results]
    return derivation.outputs, derivation.inputs, derivation.stop_gradients, derivation.seeds, results


def question_of(
    request: Request, functions: list[Function], since: int, closing: Closing | None = None, base: Hashable = None
) -> Question | None:
    """The question of a request, if that determines what is emitted, as far as can be told this early; else None. For
    the arguments see `Question`."""
    in_force = build_options()
    if len(functions) > MOST_ASKED or request.aggregate is not None or request.recompute not in (None, False):
        return None
    if in_force.applying.no_grad or in_force.applying.mark is not None:
        return None
    if in_force.emitting.builder is not None or watched():
        return None
    return Question(request, functions, since, Closing() if closing is None else closing, base)


def question_on_answer(request: Request, met: Iterable[Variable], since: int) -> Question | None:
    """The question of a request about a graph built on a cached answer, which stands for the graph below it. None if
    there is no such answer, or if something in its graph is gone or has changed.

    Args:
        request: The request.
        met: The results of `grad` that its outputs are built on.
        since: Functions from this serial number on were made for the request itself.
    """
    answered = [each.answered for each in derivations_of(met) if each.answered is not None]
    if not answered or build_options().applying.body is not None:  # updates of leaves belong to one body or another
        return None
    base, bookmark = max(answered, key=lambda each: len(each[1].values))
    closing = bookmark.resumed()
    if closing is None:
        return None
    functions = functions_of(request.outputs, through=lambda x: x not in closing)
    question = question_of(request, functions, since, closing, base)
    if question is None or any([f.mark is not None for f in question.closing.functions]):
        return None
    return question


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


def was_asked_before(question: Question) -> bool:
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

    def for_shorter_form(self, question: Question, shorter: Question) -> Answer:
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
        _known.keep(shorter.key, answer.for_shorter_form(question, shorter), len(answer.block.steps) * BYTES_ASKED)
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


def without_user_code(functions: Iterable[Function]) -> bool:
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
    if not without_user_code([*own, *emitted]) or not all([_can_be_made(f, since, given) for f in emitted]):
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
