"""Many small checks with one compilation.

A check is a generator: it yields the graphs whose values it wants, is sent the arrays, and compares them. `Together`
runs the checks of a stretch of cases up to their first `yield`, compiles what all of them want as one executable, and
goes on. A check that fails fails by itself, with the name of its case.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import pytest

from nngrad.graph import Variable

from .oracle import Arrays, runner


class Wanted(NamedTuple):
    """Graphs to be computed, once for each list of arrays that stand for the leaves."""

    levels: Sequence[Sequence[Variable]]
    leaves: Sequence[Variable] = ()
    runs: Sequence[Sequence[Any]] = ((),)


Computed = list[list[Arrays]]
"""For each run, the arrays of each level."""

Check = Generator[list[Wanted], list[Computed], Any]


def computed(wanted: Sequence[Wanted]) -> list[Computed]:
    """All of it, by one executable that runs as often as the one that is wanted most often.

    A leaf that several want must stand for the same arrays in each.
    """
    leaves = list(dict.fromkeys([x for each in wanted for x in each.leaves]))
    run = runner([level for each in wanted for level in each.levels], leaves)
    rows = []
    for k in range(max([len(each.runs) for each in wanted], default=0)):
        given: dict[Variable, Any] = {}
        for each in wanted:
            for x, a in zip(each.leaves, each.runs[min(k, len(each.runs) - 1)], strict=True):
                assert given.setdefault(x, a) is a, "a leaf stands for two arrays at a time"
        levels = iter(run([given[x] for x in leaves]))
        rows.append([list(itertools.islice(levels, len(each.levels))) for each in wanted])
    return [[row[i] for row in rows[: len(each.runs)]] for i, each in enumerate(wanted)]


def side_by_side(checks: Sequence[Check]) -> Generator[list[Wanted], list[Computed], list[Any]]:
    """Several checks as one, and what each returns; the first that fails ends all."""
    returned: list[Any] = [None] * len(checks)
    sent: dict[int, Any] = dict.fromkeys(range(len(checks)))
    while sent:
        wanted: dict[int, list[Wanted]] = {}
        for i, arrays in sent.items():
            try:
                wanted[i] = checks[i].send(arrays)
            except StopIteration as end:
                returned[i] = end.value
        results = iter((yield [each for several in wanted.values() for each in several]) if wanted else ())
        sent = {i: list(itertools.islice(results, len(several))) for i, several in wanted.items()}
    return returned


def by_itself(check: Check) -> Any:
    """What the check returns."""
    sent: Any = None
    while True:
        try:
            wanted = check.send(sent)
        except StopIteration as end:
            return end.value
        sent = computed(wanted)


def guarded(check: Check) -> Generator[list[Wanted], list[Computed], BaseException | None]:
    """The check, which returns what it raises."""
    try:
        yield from check
    except Exception as error:
        return error
    return None


def outcomes(checks: Sequence[Callable[[], Check]]) -> list[BaseException | None]:
    """What each check raises, if it does. They are made and go on side by side; if what they want fails as one program,
    each by itself."""
    try:
        return by_itself(side_by_side([guarded(check()) for check in checks]))
    except Exception:
        return [alone(check()) for check in checks]


def alone(check: Check) -> BaseException | None:
    """What the check raises, or what is raised where it is compiled."""
    try:
        by_itself(check)
    except Exception as error:
        return error
    return None


class Together:
    """A check of each of many cases. What `size` cases that follow each other want is compiled together."""

    def __init__(self, check: Callable[[Any], Check], size: int = 10) -> None:
        self.check, self.size = check, size
        self.ends: dict[int, BaseException | None] = {}

    def __call__(self, request: pytest.FixtureRequest, case: Any) -> None:
        """The test of one case, which is a parameter of the test that asks."""
        if id(case) not in self.ends:
            cases = chosen(request, case)
            at = next(i for i, each in enumerate(cases) if each is case) // self.size * self.size
            stretch = cases[at : at + self.size]
            ends = outcomes([functools.partial(self.check, each) for each in stretch])
            self.ends.update(zip(map(id, stretch), ends, strict=True))
        if (end := self.ends[id(case)]) is not None:
            raise end


def chosen(request: pytest.FixtureRequest, case: Any) -> list[Any]:
    """The cases with which pytest runs the test that asks, in order."""
    (name,) = [name for name, value in request.node.callspec.params.items() if value is case]
    return [
        item.callspec.params[name] for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == request.node.originalname
        and item.path == request.node.path
    ]  # fmt: skip
