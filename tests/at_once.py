"""Tests of one file that compile together.

A test under `@at_once` is a generator: it yields the Variables whose values it wants, is sent their arrays, and goes
on. Its neighbours in the file run beside it up to their first `yield`, and what all of them want is one executable.
Each fails by itself. They take nothing from fixtures, and leave nothing switched or seeded for each other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nngrad.graph import Variable

from .oracle import compiled_cheaply, runner
from .together import Check, Wanted, outcomes

STRETCH = 16
"""How many tests are compiled together."""

Test = Generator[Sequence[Variable], list[np.ndarray], None]

_ends: dict[str, BaseException | None] = {}


def at_once(test: Callable[..., Test]) -> Callable[..., None]:
    """The test of one case, compiled with its neighbours."""

    def shared(request: pytest.FixtureRequest, **_: Any) -> None:
        if request.node.nodeid not in _ends:
            neighbours = [
                item for item in request.session.items
                if isinstance(item, pytest.Function) and item.path == request.node.path and hasattr(item.obj, "check")
            ]  # fmt: skip
            first = neighbours.index(request.node) // STRETCH * STRETCH
            stretch = neighbours[first : first + STRETCH]
            ends = outcomes([_check_of(item) for item in stretch])
            _ends.update(zip([item.nodeid for item in stretch], ends, strict=True))
        if (end := _ends.pop(request.node.nodeid)) is not None:
            raise end

    parameters = inspect.signature(test).parameters.values()
    request = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY)
    shared.__signature__ = inspect.Signature([*parameters, request])  # type: ignore[attr-defined]
    shared.__name__, shared.__doc__, shared.__module__ = test.__name__, test.__doc__, test.__module__
    shared.check = test  # type: ignore[attr-defined]
    shared.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    return shared


def _check_of(item: pytest.Function) -> Callable[[], Check]:
    given = getattr(item, "callspec", None)
    return lambda: _check(item.obj.check(**(given.params if given else {})))


def _check(test: Test) -> Check:
    sent: Any = None
    while True:
        try:
            wanted = test.send(sent)
        except StopIteration:
            return
        (((sent,),),) = yield [Wanted([list(wanted)])]


def values(*ys: Variable) -> list[np.ndarray]:
    """Their arrays, by one executable."""
    return runner([list(ys)], [])([])[0]


def by_jax(f: Callable[..., Any], *arrays: Any) -> Any:
    """What `f` gives for the arrays, with 64-bit types and as one executable, as arrays of NumPy."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, compiled_cheaply(f)(*map(jnp.asarray, arrays)))
