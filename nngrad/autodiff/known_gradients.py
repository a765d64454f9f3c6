"""Gradients of blocks, remembered by equality.

A loop that builds its graph anew at each step asks for the same gradients each time. So a request is closed: the graph
that it is about becomes a `Block`, beside what else decides what is emitted. When an equal one comes for the second
time, what is emitted is closed as well, as a Block whose inputs are what it reads of the graph; from the third time on
that is instantiated, without walks and rules. What may depend on more is emitted each time: where hooks or debug mode
watch, where something is to be computed again, and wherever code of the user's has a part.
"""

from __future__ import annotations

import fractions
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
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
from ..graph.origins import Origins
from ..graph.thresholds import BYTES_ASKED, MOST_ASKED
from .request import Derivation, Mode, Request, ResultDerivation, derivation_of

Numbers = tuple[int, ...]

_known = executables.registered(BoundedCache(1024, most_bytes=64 << 20))
_seen = executables.registered(BoundedCache(1 << 14))
"""Hashes of the questions that were asked before."""

_foreign = executables.registered(BoundedCache(1 << 14))
"""Hashes of the questions whose answers are not remembered."""


class GradientResults(NamedTuple):
    """What is handed out for a request."""

    gradients: list[Variable]
    kept: dict[Variable, Variable]
    """The Variables that keep a gradient, each with it."""
    lost: list[int]
    """The positions of the inputs that no gradient can reach, where that is asked."""


# ---------------------------------------------------------------- what is asked


class Question:
    """A request without its graph, with the functions and leaves that it has there.

    All that decides what is emitted is a part of it: the closed graph, which leaves share their data, and what results
    of `grad` are the gradients of; whatever else a rule or a mode comes to look at belongs into `key`.

    Args:
        request: What is asked for.
        functions: What its outputs depend on, lowest rank first.
        since: Functions from this serial number on were made for the request itself.
        options: What else decides.
    """

    __slots__ = ("closing", "key")

    key: Hashable
    closing: Closing
    """All that the request is about, with its numbers."""

    def __init__(self, request: Request, functions: list[Function], since: int, options: Hashable) -> None:
        self.closing = closing = Closing()
        about: list[Sequence[Variable | None]] = [
            request.outputs, request.inputs, request.stop_gradients, request.seeds, request.initial,
        ]
        derivations = close_with_derivations(closing, functions, [x for each in about for x in each], _variables_of)
        functions = closing.functions
        # What was just made for the request may be handed out as it is; what was there already may not.
        given = any([x is not None for each in about[3:] for x in each])
        own = [i for i, f in enumerate(functions) if f.serial >= since] if given else []
        in_force = build_options()
        body = in_force.applying.body  # in which what updates a leaf is not differentiated
        effects = [(i, body is not None and f.serial > body) for i, f in enumerate(functions) if f.effects]
        contexts = [f.context for f in functions]
        alike = contexts.count(contexts[0]) == len(contexts)
        asked = [closing.numbers(each) for each in about]
        named = tuple([tuple(map(closing.numbers, _variables_of(derivation))) for derivation in derivations])
        results = tuple([_of_result(closing, gx, derivations) for gx in closing.derived])
        sharing = _sharing(closing.leaves, request.inputs)
        self.key = (
            closing.block(asked[0]), tuple(effects), tuple(contexts[:1] if alike else contexts), tuple(own),
            tuple(asked), named, results, sharing, request.retain, request.unreachable, request.coordinates,
            options, in_force.applying.context, in_force.emitting.simplify, registry.version,
        )  # fmt: skip

    def variables(self, places: Iterable[tuple[int, int]]) -> list[Variable]:
        """The Variables at these places: of which function, and which of its outputs; or -1 and which leaf."""
        leaves, functions = self.closing.leaves, self.closing.functions
        found = [leaves[k] if i < 0 else functions[i]._outputs[k]() for i, k in places]
        if {*map(type, found)} == {Variable}:
            return found  # type: ignore[return-value]  # so there is no None
        return [functions[i].outputs[k] if x is None else x for x, (i, k) in zip(found, places, strict=True)]


def close_with_derivations(
    closing: Closing,
    functions: Sequence[Function],
    about: Iterable[Variable | None],
    referred_to: Callable[[Derivation], Iterable[Iterable[Variable | None]]],
) -> dict[Derivation, int]:
    """Closes functions, and what the results of `grad` among them are derivatives of.

    Args:
        closing: Where all is written.
        functions: The functions, each after what it depends on.
        about: Variables of which all that they depend on is written as well.
        referred_to: Returns the Variables of a derivation of which this is done.

    Returns:
        The derivations, with numbers.
    """
    derivations: dict[Derivation, int] = {}
    waiting, seen = [*about], 0
    while functions:
        closing.write(functions)
        new: list[ResultDerivation] = [gx._derived for gx in closing.derived[seen:]]
        seen = len(closing.derived)
        for derived_by in new:
            derivation = derived_by.derivation
            waiting += (derived_by.laplacian or ())[:2]
            if derivation is not None and derivation not in derivations:
                derivations[derivation] = len(derivations)
                waiting += [x for each in referred_to(derivation) for x in each]
        functions = functions_of([x for x in waiting if x is not None], through=lambda x: not closing.has(x))
        waiting = []
    return derivations


def _of_result(closing: Closing, gx: Variable, derivations: Mapping[Derivation, int]) -> Hashable:
    """What a result of `grad` is the gradient of, in numbers."""
    derived_by: ResultDerivation = gx._derived
    derivation, x = derived_by.derivation, derived_by.input
    if derivation is None or x is None:
        return closing[gx], derived_by
    return closing[gx], derivations[derivation], closing[x], derived_by.mode, derived_by.order


def _sharing(leaves: Sequence[Variable], inputs: Sequence[Variable]) -> Hashable:
    """Which leaves share the data of those among `inputs`: one that is not in a graph stands for those that are."""
    cells = {id(x._data) for x in inputs if x.parent is None and x._data is not None}
    by_cell: dict[int, list[int]] = {}
    for i, x in enumerate(leaves):
        if id(x._data) in cells:
            by_cell.setdefault(id(x._data), []).append(i)
    return tuple([tuple(each) for each in by_cell.values() if len(each) > 1])


def _variables_of(derivation: Derivation) -> Sequence[Sequence[Variable | None]]:
    """All that a derivation refers to."""
    results = [ref() for ref in derivation.results]
    forms = [form.variable for form in derivation.forms or ()]
    return derivation.outputs, derivation.inputs, derivation.stop_gradients, derivation.seeds, results, forms


def question_of(request: Request, functions: list[Function], since: int, options: Hashable) -> Question | None:
    """Returns what a request asks, if that decides what is emitted, as far as it can be told so early; else None. The
    arguments are those of a `Question`."""
    in_force = build_options()
    if len(functions) > MOST_ASKED or request.aggregate is not None or request.recompute not in (None, False):
        return None
    if in_force.applying.no_grad or in_force.applying.mark is not None:
        return None
    if in_force.emitting.builder is not None or watched():
        return None
    return Question(request, functions, since, options)


def came_before(question: Question) -> bool:
    """Whether an equal question came before that has an answer of its own."""
    number = hash(question.key)
    if _seen.find(number) is None:
        _seen.keep(number, True)
        return False
    return all([f.mark is None for f in question.closing.functions])


# ---------------------------------------------------------------- what is known


class DerivationOf(NamedTuple):
    """What gradients are known to be derivatives of, in numbers of what the answer reads and makes."""

    outputs: Numbers
    inputs: Numbers
    seeds: tuple[int | None, ...]
    stops: Numbers
    mode: Mode
    order: int


class Answer(NamedTuple):
    """What was emitted for a question, without the graph that it was emitted for."""

    block: Block
    """Its outputs are the gradients."""
    origins: Origins
    reads: tuple[tuple[int, int], ...]
    """The places of its inputs; see `Question.variables`."""
    kept: tuple[tuple[int, int], ...]
    lost: Numbers
    derived_by: ResultDerivation | DerivationOf | None
    """What the gradients know of themselves."""

    def given_to(self, question: Question) -> GradientResults:
        """Returns the answer on top of the graph of an equal question."""
        inputs = question.variables(self.reads)
        made = self.block.instantiate(inputs, self.origins, question.closing.functions)

        def at(numbers: Iterable[int | None]) -> list[Any]:
            return [None if i is None else inputs[i] if i >= 0 else made[~i] for i in numbers]

        gradients, known = at(self.block.outputs), self.derived_by
        if isinstance(known, DerivationOf):
            outputs, variables, seeds, stops = map(at, known[:4])
            Derivation(outputs, variables, seeds, stops, gradients).remember(known.mode, known.order)
        else:
            for gx in gradients:
                gx._derived = known
        kept = dict(zip(at([i for i, _ in self.kept]), at([i for _, i in self.kept]), strict=True))
        return GradientResults(gradients, kept, list(self.lost))


def known_answer(question: Question) -> GradientResults | None:
    """Returns the answer to a question, on top of its graph; None if it is not known."""
    answer: Answer | None = _known.find(question.key)
    if answer is None:
        return None
    pause_collector()
    if build_options().applying.auto_forward:  # what is of use of it runs when all is there
        set_switches(auto_forward=False)
    return answer.given_to(question)


def remember_answer(question: Question, results: GradientResults, since: int) -> None:
    """Remember an answer that was just emitted, from the serial number `since` on, if it can be given again."""
    number = hash(question.key)
    if _foreign.find(number) is not None:
        return
    answer = answer_to(question, results, since)
    count = 0 if answer is None else len(question.closing.functions) + len(answer.block.steps)
    if answer is None or count > MOST_ASKED:
        _foreign.keep(number, True)
    else:
        _known.keep(question.key, answer, count * BYTES_ASKED)


# ---------------------------------------------------------------- from what was emitted to what is known


def are_ours(functions: Iterable[Function]) -> bool:
    """Whether nothing of the user's has a part in the functions."""
    kinds = {(f.op, f.arguments) for f in functions}
    return all(map(_is_plain, kinds)) and not any([hasattr(f, "place") for f in functions])


_OURS = ("nngrad.", "backward_registry.")
_PLAIN = int | float | str | None | fractions.Fraction | np.dtype


def _is_plain(value: Any) -> bool:
    """Whether it is an op of nngrad's, or a static argument that holds no code of the user's."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Op):
        return value.tables is None and value.is_own
    own = type(value).__module__.startswith(_OURS) and not getattr(value, "opaque", False)
    return own or isinstance(value, _PLAIN)


def answer_to(question: Question, results: GradientResults, since: int) -> Answer | None:
    """Closes what was just emitted, from the serial number `since` on; None if it cannot be emitted again."""
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
    # A leaf that a rule brings in belongs to one graph alone.
    if not all([x in question.closing if x.parent is None else x.parent in own for x in reads]):
        return None
    closing = Closing(reads)
    closing.write(functions)
    block = closing.block(closing.numbers(gradients))
    derived_by: ResultDerivation | DerivationOf | None = known
    if known is not None and derivation is not None:
        outputs, inputs, seeds, stops = map(closing.numbers, of)
        derived_by = DerivationOf(outputs, inputs, seeds, stops, known.mode, known.order)
    return Answer(
        block,
        _origins(closing, block, calls, own, len(made)),
        tuple([(-1, question.closing[x]) if x.parent is None else (own[x.parent], x.index) for x in reads]),
        tuple(zip(closing.numbers(kept), closing.numbers(kept.values()), strict=True)), tuple(lost), derived_by,
    )  # fmt: skip


_serial = attrgetter("serial")


def _emitted(results: GradientResults, own: Container[Function]) -> dict[Function, None]:
    """The functions that the answer depends on and the question, with its `own`, does not have, in the order in which
    they were made."""
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
    """Whether there is nothing about an emitted function but what a step says."""
    plain = f.serial >= since and not f.effects and f.mark is None
    return plain and all([
        y._need_grad is None and not y.persistent and (y._derived is None or id(y) in gradients)
        for y in f.outputs
    ])


def _calls(functions: Sequence[Function], own: Container[Function]) -> dict[RuleCall, Function]:
    """The calls of rules that emitted `functions`, each with the function that the rule is of. Once that is gone,
    nothing is seen of the call."""
    of = {f.call: f.call.function for f in functions if f.call is not None}
    there = frozenset(functions)
    return {call: f for call, f in of.items() if f is not None and (f in own or f in there)}


def _origins(
    closing: Closing, block: Block, calls: Mapping[RuleCall, Function], own: Mapping[Function, int], made: int
) -> Origins:
    """Returns the calls as columns."""
    places = {call: i for i, call in enumerate(calls)}
    of = tuple([own[f] if f in own else closing[f.outputs[0]] for f in calls.values()])
    gradients = tuple([closing.numbers(call.grad_outputs) for call in calls])
    called = tuple([-1 if f.call is None else places.get(f.call, -1) for f in closing.functions])
    shown = [i for i in of if i < 0] + [i for gys in gradients for i in gys if i is not None]
    contexts = tuple([f.context for f in closing.functions])
    return Origins(of, gradients, called, contexts, made, block.inputs_above(shown))
