"""Policies: a user's choices about the memory of a gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..extend import Function, Switched, Variable, checked_choice, coerced, provide, warn_user

if TYPE_CHECKING:
    from .candidates import Candidate
    from .search import Search


class Policy(ABC):
    """How to choose among the graphs that can compute a gradient."""

    @abstractmethod
    def choose(self, search: Search) -> Candidate:
        """The best candidate of a search."""

    @property
    def mark(self) -> Policy | None:
        """The mark of recomputing functions, which further gradients inherit."""
        return self


@dataclass(frozen=True)
class MemoryBudget(Policy):
    """Recompute no more than needed for the temporaries to fit.

    Args:
        nbytes: The limit for the temporaries of outputs and gradients, as reported by the compiler. Leaves and results
            do not count.
    """

    nbytes: float

    def __post_init__(self) -> None:
        if not (_is_number(self.nbytes) and self.nbytes >= 0):
            raise ValueError(f"MemoryBudget: nbytes must be a non-negative number of bytes, got {self.nbytes!r}")

    def choose(self, search: Search) -> Candidate:
        """The candidate with the least arithmetic among those that fit; if none does, the smallest, with a warning."""
        fits, best = search.fitting(self.nbytes)
        if not fits:
            warn_user(f"MemoryBudget({self.nbytes}): no plan fits in this budget; the lowest peak found is "
                      f"{search.bytes_of(best)} bytes", RuntimeWarning)
        return best


@dataclass(frozen=True)
class Segments(Policy):
    """Cut the forward pass into segments, keep the values that pass between them, and recompute the rest.

    Args:
        levels: How often a value may be recomputed. With 1, memory grows with the square root of the depth; with
            k, segments are cut into segments k deep, and it grows with the (k+1)th root. The schedule is binomial
            (Griewank and Walther, 'Algorithm 799: revolve', ACM TOMS 26, 2000).
    """

    levels: int = 1

    def __post_init__(self) -> None:
        if not (type(self.levels) is int and 1 <= self.levels <= 64):
            raise ValueError(f"Segments: levels must be between 1 and 64, got {self.levels!r}")

    def choose(self, search: Search) -> Candidate:
        """The smallest candidate with this many levels."""
        return search.smallest(search.nested(self.levels))


@dataclass(frozen=True)
class LeastMemory(Policy):
    """The lowest peak that a limited amount of recomputation can reach.

    Args:
        extra: The arithmetic that recomputation may add, as a fraction of that of outputs and gradients.
    """

    extra: float = 1 / 3

    def __post_init__(self) -> None:
        if not (_is_number(self.extra) and self.extra >= 0):
            raise ValueError(f"LeastMemory: extra must be a non-negative number, got {self.extra!r}")

    def choose(self, search: Search) -> Candidate:
        """The smallest candidate of any kind that adds no more arithmetic."""
        graded = search.graded(lambda c: c.extra <= self.extra)
        return search.smallest([c for c in graded if c.extra <= self.extra])


@dataclass(frozen=True)
class Chosen(Policy):
    """Recompute only functions that satisfy a predicate."""

    predicate: Callable[[Function], Any]

    def choose(self, search: Search) -> Candidate:
        """The smallest candidate that recomputes only these."""
        return search.smallest(search.restricted(self.predicate))


@dataclass(frozen=True)
class MarkedFunctions(Policy):
    """Recompute only functions built within `nn.recompute()`."""

    @property
    def mark(self) -> Policy | None:
        """None: further gradients find the marks of the original functions."""
        return None

    def choose(self, search: Search) -> Candidate:
        """The smallest candidate that recomputes only these."""
        return search.smallest(search.restricted(lambda f: isinstance(f.mark, RecomputeScope)))


class RecomputeScope:
    """The functions built within one `with nn.recompute():`."""


_SINGLE = RecomputeScope()
"""The mark of functions that were marked one by one."""


def _is_marked(x: Variable) -> bool:
    """True if gradients recompute the value instead of keeping it, if that lowers the peak of memory. Setting this
    marks the function that computes it, as if it had been built within `nn.recompute()`; on a leaf it has no effect."""
    return x.parent is not None and isinstance(x.parent.mark, RecomputeScope)


def _mark(x: Variable, on: bool) -> None:
    coerced(bool, on, "recompute")
    if x.parent is not None:
        x.parent.mark = _SINGLE if on else None


provide(Variable, {"recompute": property(_is_marked, _mark)})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


_NAMED: dict[str, Policy] = {"sqrt": Segments(1), "auto": LeastMemory()}


def policy_of(policy: Any) -> Policy | None:
    """The policy for an argument `recompute=`; None if that is None, which leaves it to marks, or False.

    Raises:
        TypeError: `policy` is not one.
        ValueError: `policy` is an unknown name.
    """
    if policy is None or policy is False or isinstance(policy, Policy):
        return policy or None
    if isinstance(policy, str):
        return _NAMED[checked_choice(policy, _NAMED, "recompute")]
    if callable(policy):
        return Chosen(policy)
    raise TypeError(
        "recompute: expected None, False, 'sqrt', 'auto', nn.MemoryBudget(bytes), nn.Segments(levels), "
        f"nn.LeastMemory(extra) or a predicate on a Function, got {policy!r}"
    )


def policy_of_marks(functions: Iterable[Function]) -> Policy | None:
    """The policy of a graph with marks: that of the gradients in it, or that of `nn.recompute()`."""
    policy: Policy | None = None
    for f in functions:
        if isinstance(f.mark, Policy):
            return f.mark
        if f.mark is not None:
            policy = MarkedFunctions()
    return policy


def policy_key(policy: Any, functions: Sequence[Function]) -> Hashable:
    """A cache key for executables that backward() makes with a policy for graphs of one structure: the policy, and for
    None the graph's marks, in the order of `functions`."""
    if policy is not None and policy is not False:
        return policy_of(policy)
    marks = [f.mark for f in functions]
    if policy is False or marks.count(None) == len(marks):
        return policy
    numbers: dict[Any, Any] = {}
    return tuple([numbers.setdefault(m, len(numbers)) if isinstance(m, RecomputeScope) else m for m in marks])


class _Marking(Switched):
    """Marks functions built within; each time it is entered makes a new block."""

    def value(self) -> dict[str, Any]:
        """The switches that entering the block puts in force."""
        return {"mark": RecomputeScope()}


def recompute(on: bool = True) -> Switched:
    """Make gradients recompute the results of functions built within this block, instead of keeping them.

    Values that pass between such blocks are kept: put each part of a model that is to be recomputed separately into its
    own block. This affects gradients taken without a policy of their own, and only if it lowers the peak of memory.

    Args:
        on: False exempts functions from a surrounding block.
    """
    coerced(bool, on, "on")
    return _Marking() if on else Switched(mark=None)
