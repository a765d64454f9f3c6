"""Names in a graph: of Variables, parameters and everything else; scopes of functions; formulas of rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count as numbers_from
from typing import TYPE_CHECKING

from backward_registry import registry

from ..extend import Function, Op, Variable
from ..parameter import every_parameter
from .shown import printable

if TYPE_CHECKING:
    from .description import Description


Parameters = Mapping[str, Variable] | None


def parameter_names(parameters: Parameters) -> dict[int, str]:
    """The names of parameters by the ids of their data cells, which copies of a parameter share.

    Args:
        parameters: Parameters by name; they take precedence over registered ones.

    Raises:
        TypeError: `parameters` is not a dict of Variables by name.
    """
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(f"parameters: expected a dict of Variables by name, got {type(parameters).__name__}")
    names: dict[int, str] = {}
    for name, x in (*every_parameter(), *(parameters or {}).items()):
        if not isinstance(x, Variable) or not isinstance(name, str):
            raise TypeError(f"parameters: expected a dict of Variables by name, got {name!r}: {type(x).__name__}")
        names[id(x.cell)] = name
    return names


class Names:
    """Makes unique names."""

    def __init__(self) -> None:
        self._numbers = {kind: numbers_from() for kind in ("leaf", "v", "carry", "slice")}
        """The next number of each kind of generated name."""
        self._taken: set[str] = set()

    def given(self, name: str) -> str:
        """A user's name, with a number appended if it is taken."""
        name = printable(name)
        if name in self._taken:
            return self.new(name)
        self._taken.add(name)
        return name

    def new(self, kind: str) -> str:
        """An unused name of this kind."""
        numbers = self._numbers.get(kind)
        if numbers is None:
            numbers = self._numbers[kind] = numbers_from()
        while True:
            name = f"{kind}{next(numbers)}"
            if name not in self._taken:
                self._taken.add(name)
                return name


ScopePath = str | None
"""A path such as 'conv1/bn'; empty for the outermost scope, None if unknown."""


def scopes_of(described: Description, sources: Sequence[Function | None], parameters: Mapping[int, str]) -> list[str]:
    """The scope of each node.

    The scope of a parameter is part of its name; that of a function is where it was applied, if that was recorded
    (`nn.source_locations`). Otherwise a function that reads parameters is in their common scope, and any other function
    is in the innermost scope that contains both its operands and its readers. Gradients are in the scope of the
    function that they come from, and nodes of a body in the scope of its owner.

    Args:
        described: The nodes.
        sources: For each function the last one in its chain of origins.
        parameters: Names of parameters by the ids of their cells.
    """
    scopes: list[ScopePath] = [None] * len(described)
    for i, x in described.leaves.items():
        name = parameters.get(id(x.cell))
        scopes[i] = None if name is None else _outer(name)
    above = _forward(described, sources, scopes, parameters)
    _between(described, scopes, above)
    for i, order in enumerate(described.orders):
        if order and scopes[i] is None and described.body_of[i] < 0:
            base = described.bases[i]
            scopes[i] = scopes[base] if base >= 0 else common([scopes[node] for node, _ in described.operands[i]])
    for i, b in enumerate(described.body_of):
        if b >= 0:
            scopes[i] = scopes[described.bodies[b].node]
    return [scope or "" for scope in scopes]


def _forward(
    described: Description, sources: Sequence[Function | None], scopes: list[ScopePath], parameters: Mapping[int, str]
) -> list[ScopePath]:
    """Add the scopes that are known directly, and return the scope that everything feeding each function of order 0
    shares."""
    above = list(scopes)
    direct: dict[Function, ScopePath] = {}
    for i, source in enumerate(sources):
        if source is None or source.order:  # of unknown origin; the place of the request does not tell its scope
            continue
        if source not in direct:
            direct[source] = _direct(source, parameters)
        scope = scopes[i] = direct[source]
        if described.orders[i] == 0:
            above[i] = common([above[node] for node, _ in described.operands[i]]) if scope is None else scope
    return above


def _direct(f: Function, parameters: Mapping[int, str]) -> ScopePath:
    """The scope in which a function was applied, as recorded or as its parameters indicate."""
    remembered: str | None = getattr(f, "scope", None)
    if remembered is not None:
        return remembered
    named = [parameters[id(x.cell)] for x in f.inputs if x.parent is None and id(x.cell) in parameters]
    return common([_outer(name) for name in named])


def _between(described: Description, scopes: list[ScopePath], above: Sequence[ScopePath]) -> None:
    """Add the scopes of functions of order 0 that lie between others."""
    below: list[ScopePath] = [None] * len(described)
    for i in range(len(described) - 1, -1, -1):
        if described.functions[i] is None or described.orders[i]:
            continue
        if scopes[i] is None and above[i] is not None and below[i] is not None:
            scopes[i] = common([above[i], below[i]])
        passed = below[i] if scopes[i] is None else scopes[i]
        if passed is not None:
            for node, _ in described.operands[i]:
                below[node] = common([below[node], passed])


def _outer(name: str) -> str:
    return name.rpartition("/")[0]


def common(scopes: Iterable[ScopePath]) -> ScopePath:
    """The innermost scope that contains all of these, ignoring None; None if there are none."""
    known = {scope for scope in scopes if scope is not None}
    if len(known) < 2:
        return next(iter(known), None)
    return "/".join(common_path([tuple(scope.split("/")) for scope in known]))


def common_path(paths: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """The common prefix of paths."""
    if len(paths) == 1:
        return next(iter(paths))
    first, last = min(paths, default=()), max(paths, default=())
    differ = (k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(differ, min(len(first), len(last)))]


_KINDS_OF_RULES = {
    "adjoint pair": "linear: the gradient goes through the transpose",
    "bilinear": "bilinear: the incoming gradient takes the operand's place",
    "non-differentiable": "the gradient is zero",
}
"""Descriptions of rules without a formula, by the kind of rule."""


def formula_of(op: Op) -> str:
    """The formula of an op's backward rule in a line: the first paragraph of the rule's docstring. Empty if there is no
    rule or no docstring."""
    rule = registry.find(op)
    if rule is None:
        return ""
    text = (rule.function.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.split()) or _KINDS_OF_RULES.get(rule.kind, "")
