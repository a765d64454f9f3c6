"""Many small checks with one compilation.

A check is a generator: it yields the graphs whose values it wants, is sent the arrays, and compares them. A test that
is decorated with `together` is such a check: the checks of a stretch of its cases are run up to their first `yield`,
what all of them want is compiled as one executable, and they go on. A check that fails fails by itself, with the name
of its case.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from nngrad.extend import Variable, linearize, lower

from .oracle import (
    Arrays,
    as_tuple,
    check_levels,
    check_slopes,
    compiled_cheaply,
    is_floating,
    levels_of,
    nngrad_graph,
    projections,
    runner,
    stepped,
)


class Wanted(NamedTuple):
    """Graphs to be computed, once for each list of arrays that stand for the leaves."""

    levels: Sequence[Sequence[Variable]]
    leaves: Sequence[Variable] = ()
    runs: Sequence[Sequence[Any]] = ((),)


class Called(NamedTuple):
    """A function of arrays, to be called with each of some rows of them, all of the same shapes."""

    f: Callable[..., Any]
    rows: Sequence[Sequence[Any]]


Computed = list[list[Arrays]]
"""For each run, the arrays of each level; for each row, the arrays that the function gives."""

Check = Generator[list[Wanted | Called], list[Any], Any]


def function_of(graphs: Sequence[Variable], leaves: Sequence[Variable]) -> Callable[..., Any]:
    """The graphs' arrays as a function of the leaves' arrays."""
    linear = linearize(graphs, first=leaves)
    run, constants = lower(linear.program), [x.cell.raw() for x in linear.leaves[len(leaves) :]]
    return lambda *arrays: run(*arrays, *constants)


def compared(f: Callable[..., Any], reference: Callable[..., Any], inputs: Arrays, orders: int, *,
             numeric: bool = True, rtol: float = 1e-9) -> Check:
    """`oracle.check` as a check: `f` of Variables is `reference` of arrays at orders 0 to `orders`, and each order has
    the differences of the order below."""
    leaves = [Variable.from_numpy_array(x) for x in inputs]
    outputs = as_tuple(f(*leaves))
    directions = projections(np.random.default_rng(0), outputs, inputs, orders) if orders else []
    levels = nngrad_graph(lambda *_: outputs, leaves, directions, orders)
    theirs = levels_of(reference, inputs, directions)
    (got, *around), ((expected,),) = yield [
        Wanted(levels, leaves, [inputs, *(stepped(inputs) if numeric and orders else [])]),
        Called(lambda *xs: (theirs(*xs),), [[x for x in inputs if is_floating(x)]]),
    ]
    check_levels(got, expected, rtol)
    if around:
        check_slopes(inputs, got, *around, directions)


def values(*graphs: Variable) -> Generator[list[Wanted], list[Computed], Arrays]:
    """Their arrays."""
    (((arrays,),),) = yield [Wanted([graphs])]
    return arrays


def computed(wanted: Sequence[Wanted | Called]) -> list[Any]:
    """All of it: the graphs by one executable, and the functions by one."""
    graphs = iter(computed_graphs([each for each in wanted if isinstance(each, Wanted)]))
    calls = iter(called([each for each in wanted if isinstance(each, Called)]))
    return [next(graphs if isinstance(each, Wanted) else calls) for each in wanted]


def called(calls: Sequence[Called]) -> list[list[Arrays]]:
    """What each function gives for each row, by one executable that runs as often as there are rows of one. A function
    that several call is in it once for rows of the same shapes."""
    groups: dict[Any, list[Sequence[Any]]] = {}
    places = []
    for f, rows in calls:
        group = groups.setdefault((f, *[(x.shape, x.dtype) for x in rows[0]]), [])
        places.append((group, len(group)))
        group += rows

    def everything(given: list[Sequence[Any]]) -> list[Any]:
        return [as_tuple(f(*row)) for (f, *_), row in zip(groups, given, strict=True)]

    run, results = compiled_cheaply(everything), []
    with jax.enable_x64(True):
        for k in range(max(map(len, groups.values()), default=0)):
            result = run([rows[min(k, len(rows) - 1)] for rows in groups.values()])
            results.append(dict(zip(map(id, groups.values()), jax.tree.map(np.array, result), strict=True)))
    return [
        [list(results[k][id(group)]) for k in range(start, start + len(rows))]
        for (_, rows), (group, start) in zip(calls, places, strict=True)
    ]


def computed_graphs(wanted: Sequence[Wanted]) -> list[Computed]:
    """By one executable that runs as often as the graphs that are wanted most often.

    A leaf that several want must stand for the same arrays in each.
    """
    if not any([level for each in wanted for level in each.levels]):
        return [[[[] for _ in each.levels] for _ in each.runs] for each in wanted]
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


def side_by_side(checks: Sequence[Check]) -> Check:
    """Several checks as one, which returns what each returns; the first that fails ends all."""
    returned: list[Any] = [None] * len(checks)
    sent: dict[int, Any] = dict.fromkeys(range(len(checks)))
    while sent:
        wanted: dict[int, list[Wanted | Called]] = {}
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


def some_at_a_time(checks: Sequence[Check], size: int = 20) -> list[Any]:
    """What each check returns; what `size` of them want is compiled together."""
    parts = [checks[start : start + size] for start in range(0, len(checks), size)]
    return [end for part in parts for end in by_itself(side_by_side(part))]


def guarded(check: Check) -> Check:
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


ENDS: dict[str, BaseException | None] = {}
"""What the checks that have run raised, by the names of their tests."""


def together(check: Callable[..., Check] | None = None, *, size: int = 10) -> Any:
    """A check as a test, with the parameters that pytest gives it. What `size` tests of a file that follow each other
    want is compiled together."""
    if check is None:
        return functools.partial(together, size=size)

    def test(request: pytest.FixtureRequest, **_: Any) -> None:
        if request.node.nodeid not in ENDS:
            tests = [item for item in request.session.items if item.path == request.node.path and size_of(item) == size]
            at = tests.index(request.node) // size * size
            stretch = tests[at : at + size]
            ends = outcomes([functools.partial(item.function.check, **parameters(item)) for item in stretch])
            ENDS.update(zip([item.nodeid for item in stretch], ends, strict=True))
        if (end := ENDS[request.node.nodeid]) is not None:
            raise end

    functools.update_wrapper(test, check)
    request = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([request, *inspect.signature(check).parameters.values()])
    vars(test).update(check=check, size=size, __signature__=signature)
    return test


Test = Generator[Sequence[Variable], list[np.ndarray], None]


def at_once(test: Callable[..., Test]) -> Any:
    """A test that yields Variables, and is sent their arrays, as a check beside its neighbours. It takes nothing
    from fixtures, and leaves nothing switched or seeded for the others."""

    @functools.wraps(test)
    def check(**given: Any) -> Check:
        running, arrays = test(**given), None
        while True:
            try:
                wanted = running.send(arrays)  # type: ignore[arg-type]
            except StopIteration:
                return
            (((arrays,),),) = yield [Wanted([list(wanted)])]

    return together(check, size=16)


def size_of(test: pytest.Item) -> int | None:
    """How many tests are compiled with it, if it is a check."""
    return getattr(test.function, "size", None) if isinstance(test, pytest.Function) else None


def parameters(test: Any) -> dict[str, Any]:
    """What pytest gives to one of the cases of a test."""
    return test.callspec.params if hasattr(test, "callspec") else {}
