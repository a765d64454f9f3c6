"""Policies: what a user says about the memory of a gradient."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...graph import Function, Variable
from ...graph.engine import Operators, provide
from ...graph.options import Switched
from ...graph.source_location import warn_user

if TYPE_CHECKING:
    from .candidates import Candidate
    from .search import Search


class Policy(ABC):
    """What to look for among the graphs that a gradient can be computed by."""

    @abstractmethod
    def choose(self, search: Search) -> Candidate:
        """The best of the candidates that `search` makes."""

    @property
    def mark(self) -> Policy | None:
        """The mark of what is computed again: further gradients inherit it."""
        return self

    def key(self, functions: Sequence[Function]) -> Hashable:
        """Returns what tells the policy from others, for graphs of one structure whose functions are these."""
        del functions
        return self


@dataclass(frozen=True)
class MemoryBudget(Policy):
    """Recompute no more than it takes for the temporaries to fit.

    Args:
        nbytes: Bytes that the temporaries of outputs and gradients may take, by the compiler's own account. Leaves and
            results are not among them.
    """

    nbytes: float

    def __post_init__(self) -> None:
        if not (_is_number(self.nbytes) and self.nbytes >= 0):
            raise ValueError(f"MemoryBudget: nbytes must be a number of bytes, got {self.nbytes!r}")

    def choose(self, search: Search) -> Candidate:
        """The candidate with the least arithmetic among those that fit; with a warning, the smallest if none does."""
        found, best = search.fitting(self.nbytes)
        if not found:
            warn_user(f"MemoryBudget({self.nbytes}): no plan was found that fits; the lowest peak that was found is "
                      f"{search.bytes_of(best)} bytes", RuntimeWarning)
        return best


@dataclass(frozen=True)
class Segments(Policy):
    """Cut the forward pass into segments, keep what passes from one to the next, and compute the rest again.

    Args:
        levels: How often a value may be computed again. With 1, memory grows with the square root of the depth; with
            k, segments are cut into segments k deep, and it grows with the (k+1)th root. The schedule is binomial
            (Griewank and Walther, 'Algorithm 799: revolve', ACM TOMS 26, 2000).
    """

    levels: int = 1

    def __post_init__(self) -> None:
        if not (type(self.levels) is int and 1 <= self.levels <= 64):
            raise ValueError(f"Segments takes levels from 1 to 64, got {self.levels!r}")

    def choose(self, search: Search) -> Candidate:
        """The smallest of so many levels."""
        return search.smallest(search.nested(self.levels), all_anew=True)


@dataclass(frozen=True)
class LeastMemory(Policy):
    """The lowest peak that a limited amount of recomputation can reach.

    Args:
        extra: The arithmetic that recomputation may add, as a share of that of outputs and gradients.
    """

    extra: float = 1 / 3

    def __post_init__(self) -> None:
        if not (_is_number(self.extra) and self.extra >= 0):
            raise ValueError(f"LeastMemory: extra must be a share that is not negative, got {self.extra!r}")

    def choose(self, search: Search) -> Candidate:
        """The smallest of any kind that adds no more arithmetic."""
        graded = search.graded(lambda c: c.extra <= self.extra)
        tried = [c if c.extra <= self.extra else search.spared(c) for c in graded]
        return search.smallest([c for c in tried if c.extra <= self.extra])


class Restricted(Policy):
    """Recompute some functions, and no others."""

    @abstractmethod
    def names(self, f: Function) -> Any:
        """Whether `f` may be computed again."""

    def choose(self, search: Search) -> Candidate:
        """The smallest that computes nothing else again."""
        return search.smallest(search.restricted(self.names))


@dataclass(frozen=True)
class Chosen(Restricted):
    """Recompute what a predicate says."""

    predicate: Callable[[Function], Any]

    def names(self, f: Function) -> Any:
        """Whether the predicate is true for it."""
        return self.predicate(f)


@dataclass(frozen=True)
class KeptVariables(Restricted):
    """Recompute all but some Variables."""

    variables: tuple[Variable, ...]

    @functools.cached_property
    def _functions(self) -> frozenset[Function | None]:
        return frozenset([x.parent for x in self.variables])

    def names(self, f: Function) -> bool:
        """Whether it computes none of them."""
        return f not in self._functions

    def key(self, functions: Sequence[Function]) -> Hashable:
        """The places of the Variables."""
        places: dict[Function | None, int] = {f: i for i, f in enumerate(functions)}
        return KeptVariables, tuple([(places.get(x.parent, -1), x.index) for x in self.variables])


@dataclass(frozen=True)
class MarkedFunctions(Restricted):
    """Recompute what was built within `nn.recompute()`."""

    @property
    def mark(self) -> Policy | None:
        """None: further gradients find the marks of what it was built in."""
        return None

    def names(self, f: Function) -> bool:
        """Whether it is marked."""
        return isinstance(f.mark, RecomputeScope)


class RecomputeScope:
    """The functions built within one `with nn.recompute():`."""


_SINGLE = RecomputeScope()
"""The mark of functions that were marked one by one."""


def _is_marked(x: Variable) -> bool:
    """Whether gradients compute it again, and do not keep it, where that lowers the peak of memory. Setting it marks
    the function that computes it, as if it had been built within `nn.recompute()`; a leaf has none."""
    return x.parent is not None and isinstance(x.parent.mark, RecomputeScope)


def _mark(x: Variable, on: bool) -> None:
    if not isinstance(on, bool):
        raise TypeError(f"recompute: expected True or False, got {on!r}")
    if x.parent is not None:
        x.parent.mark = _SINGLE if on else None


provide(Operators, {"recompute": property(_is_marked, _mark)})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


_NAMED: dict[str, Policy] = {"sqrt": Segments(1), "auto": LeastMemory()}


def policy_of(given: Any) -> Policy | None:
    """Returns what is given for `recompute=` as a policy; None leaves it to marks, and False to nothing.

    Raises:
        TypeError: It is no policy.
        ValueError: It is a name that no policy has.
    """
    if given is None or given is False or isinstance(given, Policy):
        return given or None
    if isinstance(given, str):
        if given not in _NAMED:
            raise ValueError(f"recompute: {given!r} is not one of {', '.join(map(repr, _NAMED))}")
        return _NAMED[given]
    if callable(given):
        return Chosen(given)
    if isinstance(given, Iterable):
        listed = tuple(given)
        if all([isinstance(x, Variable) for x in listed]):
            return KeptVariables(listed)
    raise TypeError(
        "recompute: expected None, False, 'sqrt', 'auto', nn.MemoryBudget(bytes), nn.Segments(levels), "
        f"nn.LeastMemory(extra), a predicate on a Function or a list of the Variables to keep, got {given!r}"
    )


def policy_of_marks(functions: Iterable[Function]) -> Policy | None:
    """The policy of a graph that has marks of its own: that of the gradients in it, or that of `nn.recompute()`."""
    found: Policy | None = None
    for f in functions:
        if isinstance(f.mark, Policy):
            return f.mark
        if f.mark is not None:
            found = MarkedFunctions()
    return found


def policy_key(given: Any, functions: Sequence[Function]) -> Hashable:
    """Returns what tells apart the executables that backward() makes of graphs of one structure, where `given` is the
    policy: the policy, and for None the graph's marks, in the order of `functions`."""
    policy = None if given is None else policy_of(given)
    if policy is not None:
        return policy.key(functions)
    marks = [None if given is False else f.mark for f in functions]
    if all([m is None for m in marks]):
        return False if given is False else None
    numbers: dict[Any, Any] = {}
    return tuple([numbers.setdefault(m, len(numbers)) if isinstance(m, RecomputeScope) else m for m in marks])


class _Marking(Switched):
    """Marks what is built within; each entry of it is another block."""

    def value(self) -> dict[str, Any]:
        """Returns what an entry puts in force."""
        return {"mark": RecomputeScope()}


def recompute(on: bool = True) -> Switched:
    """Gradients compute again, and do not keep, what functions that are built within this context give.

    What passes from one such block to the next is kept: put each part of a model that is to be computed again by
    itself into a block of its own. It has effect where a gradient is taken with no policy of its own, and only where
    it lowers the peak of memory.

    Args:
        on: False exempts functions from a block around this one.
    """
    if not isinstance(on, bool):
        raise TypeError(f"on: expected True or False, got {on!r}")
    return _Marking({}) if on else Switched({"mark": None})
