"""Policies: what a user says about the memory of a gradient."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from ..graph import Function, Variable
from ..graph.options import Switched


class MemoryBudget(NamedTuple):
    """Recompute no more than it takes for the temporaries to fit.

    Args:
        nbytes: Bytes that the temporaries of outputs and gradients may take: what `nn.memory_report` predicts. Leaves
            and results are not among them.
    """

    nbytes: int


class Segments(NamedTuple):
    """Cut the forward pass into segments, keep what passes from one to the next, and compute the rest again.

    Args:
        levels: How often a value may be computed again. With 1, memory grows with the square root of the depth; with
            k, segments are cut into segments k deep, and it grows with the (k+1)th root. The schedule is binomial
            (Griewank and Walther, 'Algorithm 799: revolve', ACM TOMS 26, 2000).
    """

    levels: int = 1


class LeastMemory(NamedTuple):
    """The lowest peak that a limited amount of recomputation can reach.

    Args:
        extra: The arithmetic that recomputation may add, as a share of that of outputs and gradients.
    """

    extra: float = 1 / 3


class Chosen(NamedTuple):
    """Recompute what a predicate says."""

    predicate: Callable[[Function], Any]


class Kept(NamedTuple):
    """Recompute all but some Variables."""

    variables: tuple[Variable, ...]

    def __call__(self, f: Function) -> bool:
        return all([y.parent is not f for y in self.variables])


class Marked(NamedTuple):
    """Recompute what was built within `nn.recompute()`."""


class Block:
    """The functions built within one `with nn.recompute():`."""


Policy = MemoryBudget | Segments | LeastMemory | Chosen | Kept | Marked


def policy_of(given: Any, name: str = "recompute") -> Policy | None:
    """What is given for `recompute=` as a policy; None leaves it to marks, and False to nothing.

    Raises:
        TypeError: It is no policy.
        ValueError: A number in it is out of range.
    """
    if given is None or given is False:
        return None
    if isinstance(given, str):
        if given not in _NAMED:
            raise ValueError(f"{name}: {given!r} is not one of {', '.join(map(repr, _NAMED))}")
        return _NAMED[given]
    if isinstance(given, MemoryBudget | Segments | LeastMemory | Chosen | Kept | Marked):
        return _checked(given, name)
    if callable(given):
        return Chosen(given)
    if isinstance(given, Iterable):
        listed = tuple(given)
        if all([isinstance(x, Variable) for x in listed]):
            return Kept(listed)
    raise TypeError(
        f"{name}: expected None, False, 'sqrt', 'auto', nn.MemoryBudget(bytes), nn.Segments(levels), "
        f"nn.LeastMemory(extra), a predicate on a Function or a list of the Variables to keep, got {given!r}"
    )


def _checked(policy: Policy, name: str) -> Policy:
    if isinstance(policy, MemoryBudget) and not (_is_number(policy.nbytes) and policy.nbytes >= 0):
        raise ValueError(f"{name}: MemoryBudget takes a number of bytes, got {policy.nbytes!r}")
    if isinstance(policy, Segments) and not (type(policy.levels) is int and 1 <= policy.levels <= 64):
        raise ValueError(f"{name}: Segments takes levels from 1 to 64, got {policy.levels!r}")
    if isinstance(policy, LeastMemory) and not (_is_number(policy.extra) and policy.extra >= 0):
        raise ValueError(f"{name}: LeastMemory takes a share that is not negative, got {policy.extra!r}")
    return policy


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


_NAMED: dict[str, Policy] = {"sqrt": Segments(1), "auto": LeastMemory()}


def policy_key(given: Any, functions: Sequence[Function]) -> Hashable:
    """What tells apart the executables that backward() makes of graphs of one structure, where `given` is the policy:
    the policy, and for None the graph's marks, in the order of `functions`."""
    if given is False:
        return given
    policy = policy_of(given)
    if policy is None:
        marks = [f.mark for f in functions]
        if all([m is None for m in marks]):
            return None
        numbers: dict[Any, Any] = {}
        return tuple([numbers.setdefault(m, len(numbers)) if isinstance(m, Block) else m for m in marks])
    if isinstance(policy, Kept):
        places = {f: i for i, f in enumerate(functions)}
        return Kept, tuple([(places.get(x.parent, -1), x.index) for x in policy.variables])  # type: ignore[arg-type]
    return policy


class _Marking(Switched):
    """Marks what is built within; each entry of it is another block."""

    def value(self) -> dict[str, Any]:
        """What an entry puts in force."""
        return {"mark": Block()}


def recompute(on: bool = True) -> Switched:
    """Gradients compute again, and do not keep, what functions that are built within this context give.

    What passes from one such block to the next is kept: put each part of a model that is to be computed again by
    itself into a block of its own. It has effect where a gradient is taken with no policy of its own, and only where
    it lowers the predicted peak of memory.

    Args:
        on: False exempts functions from a block around this one.
    """
    if not isinstance(on, bool):
        raise TypeError(f"on: expected True or False, got {on!r}")
    return _Marking({}) if on else Switched({"mark": None})
