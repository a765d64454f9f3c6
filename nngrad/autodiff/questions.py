"""Questions: a request's graph, closed, beside everything else that decides what is emitted for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from backward_registry import registry

from ..graph import Function, Variable, build_options, functions_of
from ..graph.closing import Closing
from ..graph.function import watched
from ..graph.thresholds import MOST_ASKED
from .coordinates import to_be_differentiated
from .request import Derivation, Request, ResultDerivation, derivations_of


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
            tuple(asked), named, results, sharing, request.retain, request.unreachable, request.coordinates,
            request.handled, in_force.applying.context, in_force.emitting.simplify, registry.version,
        )  # fmt: skip

    def variables(self, places: Iterable[tuple[int, int]]) -> list[Variable]:
        """The Variables at these places: index of the function and of the output; or -1 and the index of the leaf."""
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
    forms = [form.variable for form in derivation.forms or ()]
    return derivation.outputs, derivation.inputs, derivation.stop_gradients, derivation.seeds, results, forms


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
    derived = closing.derived
    has_forms = any([derivation.forms for derivation in derivations_of(derived)])
    return None if has_forms or to_be_differentiated(request, None, derived) else question
