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
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from backward_registry import registry

from ..graph import Function, Op, Switched, Variable, build_options, functions_of
from ..graph.block import Block
from ..graph.bounded_cache import BoundedCache
from ..graph.closing import Closing
from ..graph.options import pause_collector
from ..graph.origins import Origins
from ..graph.thresholds import BYTES_ASKED, MOST_ASKED
from ..graph.traverse import by_serial
from .request import Derivation, Mode, Request, ResultDerivation, derivation_of, derivations_of


def close_with_derivations(
    closing: Closing,
    functions: Sequence[Function],
    about: Iterable[Variable | None],
    referred_to: Callable[[Derivation], Iterable[Iterable[Variable | None]]],
) -> dict[Derivation, int]:
    """Close functions, and what the results of `grad` among them are derivatives of.

    Args:
        closing: The closing to extend.
        functions: The functions, in topological order.
        about: Variables whose dependencies are closed as well.
        referred_to: Returns the Variables of a derivation to treat in the same way.

    Returns:
        The derivations, numbered.
    """
    derivations = derivations_of(closing.derived)
    waiting, seen = [*about], len(closing.derived)
    while functions or waiting:
        closing.write(functions)
        new: list[ResultDerivation] = [gx.derived_by for gx in closing.derived[seen:]]
        seen = len(closing.derived)
        for derived_by in new:
            derivation = derived_by.derivation
            if derivation is not None and derivation not in derivations:
                derivations[derivation] = len(derivations)
                waiting += [x for variables in referred_to(derivation) for x in variables]
        functions = functions_of([x for x in waiting if x is not None], through=lambda x: not closing.has(x))
        waiting = []
    return derivations


class Question:
    """The cache key of a request, with the functions and leaves that it stands for.

    The key has everything that decides what is emitted: the closed graph, which leaves share their data, and what
    results of `grad` are gradients of. Anything else that a rule or a mode comes to depend on must be added to `key`.

    Args:
        request: The request.
        functions: The functions that its outputs depend on, by ascending rank.
        since: Functions from this serial number on were made for the request itself.
    """

    __slots__ = ("closing", "key")

    key: Hashable
    closing: Closing
    """The numbering of everything that the request is about."""

    def __init__(self, request: Request, functions: list[Function], since: int) -> None:
        outside: dict[Variable, None] = {}
        if request.inputs and all([x.parent is not None for x in request.inputs]):  # else nothing was left out
            inside = {*functions}
            read = [*request.outputs, *[x for f in functions for x in f.inputs]]
            outside = dict.fromkeys([x for x in read if x.parent and x.parent not in inside])
        self.closing = closing = Closing(outside)
        about: list[Sequence[Variable | None]] = [
            request.outputs, request.inputs, request.stop_gradients, request.seeds
        ]

        def identity(x: Variable) -> int:
            return id(x) if x.parent is not None or x._data is None else id(x._data)

        asked_for = {*map(identity, request.inputs)}

        def variables_of(derivation: Derivation) -> Sequence[Sequence[Variable | None]]:
            """All Variables that decide what a derivative of the derivation's results is: of the results that are not
            in the graph, those with respect to the request's inputs, which may be used again."""
            results = [
                gx if gx is not None and (identity(x) in asked_for or closing.has(gx)) else None
                for x, gx in zip(derivation.inputs, [ref() for ref in derivation.results], strict=True)
            ]
            return derivation.outputs, derivation.inputs, derivation.stop_gradients, derivation.seeds, results

        listed = [x for variables in about for x in variables]
        derivations = close_with_derivations(closing, functions, listed, variables_of)
        functions = closing.functions
        # Variables just made for the request may be handed out as they are; older ones may not.
        has_seeds = any([x is not None for x in request.seeds])
        new = [i for i, f in enumerate(functions) if f.serial >= since] if has_seeds else []
        in_force = build_options()
        body = in_force.applying.body  # in a body, functions that update a leaf are not differentiated
        effects = [(i, body is not None and f.serial > body) for i, f in enumerate(functions) if f.effects]
        contexts = [f.context for f in functions]
        alike = contexts == contexts[:1] * len(contexts)
        numbers = [closing.numbers(variables) for variables in about]
        named = tuple([tuple(map(closing.numbers, variables_of(derivation))) for derivation in derivations])
        results = tuple([_of_result(closing, gx, derivations) for gx in closing.derived])
        sharing = _sharing(closing.leaves, request.inputs)
        self.key = (
            closing.block(numbers[0]), tuple(effects), tuple(contexts[:1] if alike else contexts), tuple(new),
            tuple(numbers), named, results, sharing, request.retain, request.unreachable,
            request.handled, in_force.applying.context, in_force.emitting.simplify, registry.version,
        )  # fmt: skip

    def variables(self, numbers: Sequence[int]) -> list[Variable]:
        """The Variables with these numbers."""
        leaves, references = self.closing.leaves, self.closing.references
        listed = [leaves[i] if i >= 0 else references[~i]() for i in numbers]
        if {*map(type, listed)} == {Variable}:
            return listed  # type: ignore[return-value]  # so there is no None
        computed = [y for f in self.closing.functions for y in f.outputs]  # some are made again
        return [leaves[i] if i >= 0 else computed[~i] for i in numbers]


def _of_result(closing: Closing, gx: Variable, derivations: Mapping[Derivation, int]) -> Hashable:
    """The derivation of a result of `grad`, in numbers."""
    derived_by: ResultDerivation = gx.derived_by
    derivation, x = derived_by.derivation, derived_by.input
    if derivation is None or x is None:
        return closing[gx], derived_by
    return closing[gx], derivations[derivation], closing[x], derived_by.mode, derived_by.order


def _sharing(leaves: Sequence[Variable], inputs: Sequence[Variable]) -> Hashable:
    """The groups of leaves that share data with `inputs`: an input outside the graph stands for those inside it."""
    cells = {id(x._data) for x in inputs if x.parent is None and x._data is not None}
    by_cell: dict[int, list[int]] = {}
    for i, x in enumerate(leaves):
        if id(x._data) in cells:
            by_cell.setdefault(id(x._data), []).append(i)
    return tuple([tuple(indices) for indices in by_cell.values() if len(indices) > 1])


def question_of(request: Request, functions: list[Function], since: int) -> Question | None:
    """The question of a request, if that determines what is emitted, as far as can be told this early; else None. For
    the arguments see `Question`."""
    in_force = build_options()
    if len(functions) > MOST_ASKED or request.recompute not in (None, False):
        return None
    if in_force.applying.no_grad or in_force.applying.mark is not None:
        return None
    if in_force.emitting.builder is not None or in_force.watched:
        return None
    return Question(request, functions, since)


Numbers = tuple[int, ...]

_known = BoundedCache.about_structures(1024, most_bytes=64 << 20)
_seen = BoundedCache.about_structures(1 << 14)
"""Hashes of earlier questions."""

_foreign = BoundedCache.about_structures(1 << 14)
"""Hashes of questions whose answers cannot be cached."""


class GradientResults(NamedTuple):
    """The gradients of a request, as handed out."""

    gradients: list[Variable]
    retained: dict[Variable, Variable]
    """The Variables that keep a gradient, each with its gradient."""
    lost: list[int]
    """The positions of the inputs that no gradient can reach, unless these get zeros."""


# ---------------------------------------------------------------- the cache


def was_asked_before(question: Question) -> bool:
    """True if an equal question was asked before, and its answer depends on no marks."""
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
    reads: Numbers
    """The numbers of its inputs in the question."""
    retained: tuple[tuple[int, int], ...]
    lost: Numbers
    derived_by: ResultDerivation | DerivationOf | None
    """The record of what the gradients are derivatives of."""

    def given_to(self, question: Question) -> GradientResults:
        """Instantiate the answer on the graph of an equal question."""
        inputs = question.variables(self.reads)
        values = self.block.instantiate(inputs, self.origins, question.closing.functions)

        def at(numbers: Iterable[int | None]) -> list[Any]:
            return [None if i is None else inputs[i] if i >= 0 else values[~i] for i in numbers]

        gradients, known = at(self.block.outputs), self.derived_by
        if isinstance(known, DerivationOf):
            outputs, variables, seeds, stop_gradients = map(at, known[:4])
            derivation = Derivation(outputs, variables, seeds, stop_gradients, gradients)
            derivation.remember(known.mode, known.order)
        else:
            for gx in gradients:
                gx.derived_by = known
        retained = dict(zip(at([i for i, _ in self.retained]), at([i for _, i in self.retained]), strict=True))
        return GradientResults(gradients, retained, list(self.lost))

def known_answer(question: Question) -> GradientResults | None:
    """The cached answer to a question, instantiated on its graph; None if there is none."""
    answer: Answer | None = _known.find(question.key)
    if answer is None:
        return None
    pause_collector()
    if build_options().applying.auto_forward:  # only the functions that are used run, once all are built
        Switched(auto_forward=False).from_now_on()
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
    """True if the functions contain no user code."""
    kinds = {(f.op, f.arguments) for f in functions}
    return all(map(_is_plain, kinds)) and not any([hasattr(f, "location") for f in functions])


_OURS = ("nngrad.", "backward_registry.")
_PLAIN = int | float | str | None | fractions.Fraction | np.dtype


def _is_plain(value: Any) -> bool:
    """True if it is an op of nngrad's, or a static argument without user code."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Op):
        return value.tables is None and value.is_own
    is_ours = type(value).__module__.startswith(_OURS) and not getattr(value, "opaque", False)
    return is_ours or isinstance(value, _PLAIN)


def answer_to(question: Question, results: GradientResults, since: int) -> Answer | None:
    """Close the graph just emitted, from this serial number on; None if it cannot be instantiated again."""
    gradients, retained, lost = results
    index_of = {f: i for i, f in enumerate(question.closing.functions)}
    emitted = _emitted(results, question.closing, index_of)
    ids = {id(gx) for gx in gradients}
    if not without_user_code([*index_of, *emitted]) or not all([_can_be_made(f, since, ids) for f in emitted]):
        return None
    known = derivation_of(gradients[0]) if gradients else None
    derivation = None if known is None else known.derivation
    of = [derivation.outputs, derivation.inputs, derivation.seeds, derivation.stop_gradients] if derivation else []
    wanted = [x for listed in (gradients, retained, retained.values(), *of) for x in listed if x is not None]
    needed = functions_of(wanted, through=lambda x: x.parent in emitted)
    functions = sorted(needed, key=by_serial)
    mentioned = [x for f in functions for x in f.inputs] + wanted
    reads = list({id(x): x for x in mentioned if x.parent not in emitted}.values())
    # A leaf introduced by a rule belongs to one graph only.
    if not all([x.parent in index_of or x in question.closing for x in reads]):
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
        _origins(closing, index_of),
        question.closing.numbers(reads),
        tuple(zip(closing.numbers(retained), closing.numbers(retained.values()), strict=True)), tuple(lost), derived_by,
    )  # fmt: skip


def _emitted(results: GradientResults, closing: Closing, known: Container[Function]) -> dict[Function, None]:
    """The functions that the answer depends on, except those of the question, in order of creation."""
    emitted: dict[Function, None] = {}
    waiting = [*results.gradients, *results.retained.values()]
    while waiting:
        x = waiting.pop()
        f = None if closing.get(x, -1) >= 0 else x.parent
        if f is not None and f not in known and f not in emitted:
            emitted[f] = None
            waiting += f.inputs
    return dict.fromkeys(sorted(emitted, key=by_serial))


def _can_be_made(f: Function, since: int, gradients: Container[int]) -> bool:
    """True if a step can reproduce everything about an emitted function."""
    plain = f.serial >= since and not f.effects and f.mark is None
    return plain and all([
        y._need_grad is None and not y.persistent and (y.derived_by is None or id(y) in gradients)
        for y in f.outputs
    ])


def _origins(closing: Closing, index_of: Mapping[Function, int]) -> Origins:
    """The calls that emitted the functions. Once the function of a call is gone, the call is no longer visible."""
    there = index_of.keys() | frozenset(closing.functions)
    calls = dict.fromkeys([f.call for f in closing.functions if f.call is not None])
    of = {call: f for call in calls if (f := call.function) in there and f is not None}
    places = {call: i for i, call in enumerate(of)}
    return Origins(
        tuple([index_of[f] if f in index_of else closing[f.outputs[0]] for f in of.values()]),
        tuple([len(call.grad_outputs) for call in of]),
        tuple([-1 if f.call is None else places.get(f.call, -1) for f in closing.functions]),
        tuple([f.context for f in closing.functions]),
    )
