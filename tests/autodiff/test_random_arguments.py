"""Random bad arguments of branches, and bad results of bodies: each is accepted, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad.functions as F
from nngrad.graph import Variable

V, XS = Variable((2, 3)), Variable((4, 3))

POOR = st.sampled_from([
    None, -1, 2.5, "word", [], {}, (1, 2), object(), np.array(["a"]), Ellipsis, b"bytes", 1 + 2j, set(), [V, "word"],
    {"a": object()}, Variable((7, 7)), int, print,
])  # fmt: skip
"""What is hardly ever right, and often not even a pytree of numbers."""

PLACES: dict[str, Callable[[Any], Any]] = {
    "scan: what is returned": lambda bad: F.scan(lambda h, x: bad, V, XS),
    "scan: carry": lambda bad: F.scan(lambda h, x: (bad, x), V, XS),
    "scan: y": lambda bad: F.scan(lambda h, x: (h, bad), V, XS),
    "fori_loop: carry": lambda bad: F.fori_loop(0, 3, lambda i, h: bad, V),
    "map: what is returned": lambda bad: F.map(lambda x: bad, XS),
    "while_loop: condition": lambda bad: F.while_loop(lambda y: bad, lambda y: y, V),
    "while_loop: carry": lambda bad: F.while_loop(lambda y: 0, lambda y: bad, V),
    "cond pred": lambda bad: F.cond(bad, lambda y: y, lambda y: y, V),
    "cond true_fun": lambda bad: F.cond(1, bad, lambda y: y, V),
    "cond operand": lambda bad: F.cond(1, lambda y: y, lambda y: y, bad),
    "cond: what is returned": lambda bad: F.cond(1, lambda y: bad, lambda y: y, V),
    "switch index": lambda bad: F.switch(bad, [lambda y: y], V),
    "switch branches": lambda bad: F.switch(0, bad, V),
    "switch branch": lambda bad: F.switch(0, [lambda y: y, bad], V),
}


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=25, deadline=None)
@given(bad=POOR)
def test_bad_arguments_are_refused_by_name(place: str, bad: Any) -> None:
    """Each is accepted, or refused with the name of the function and what is wrong with it; nothing else is raised."""
    owner = place.partition(" ")[0].rstrip(":")
    try:
        PLACES[place](bad)
    except (TypeError, ValueError) as error:
        if not any("in the body" in note for note in getattr(error, "__notes__", [])):
            assert str(error).startswith((f"{owner}:", f"{owner}(")), str(error)


def own_line(function: Callable[..., Any]) -> str:
    """Where a function of this file is written."""
    return f"{__file__}:{function.__code__.co_firstlineno}"


def kept(h: Any, x: Any) -> Any:
    """A body that is right."""
    return h, x


def cut(h: Any, x: Any = None) -> Any:
    """A body that changes the shape of what it carries."""
    return h[0], None


def twice(i: Any, h: Any) -> Any:
    """A body that returns too much."""
    return h, h


@pytest.mark.parametrize(
    ("call", "written", "message"),
    [
        (lambda: F.scan(kept, V, XS, length=3), kept, "scan: xs must have 3 slices along axis 0, as given by.*got 4"),
        (lambda: F.scan(cut, V, XS), cut, "scan: the body must keep the type of carry, .*, got"),
        (lambda: F.fori_loop(0, 3, twice, V), twice, "fori_loop: the body must keep the structure of the carry"),
        (lambda: F.while_loop(lambda h: 1, cut, V), cut, "while_loop: the body must keep the structure of the carry"),
        (lambda: F.while_loop(lambda h: 1, cut, V, bound=3), cut, "while_loop: the body must keep the structure of"),
        (lambda: F.map(lambda x: "word", XS), None, "map: what the body returns as y must be"),
        (lambda: F.cond(1, cut, lambda h: h, V), cut, "cond: results of false_fun and true_fun must agree"),
        (lambda: F.switch(0, [lambda h: h, cut], V), cut, r"switch: results of branches\[0\] and branches\[1\] must"),
    ],
)
def test_errors_name_the_line_of_the_body(call: Callable[[], Any], written: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    notes = "\n".join(caught.value.__notes__)
    assert (__file__ if written is None else own_line(written)) in notes
