"""How the results of a jaxpr depend on its inputs: whether loops in it select values by comparisons."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ...graph.jaxpr import CALLS, bodies_of, name_of
from .jaxprs import called_function, counts_of_scan

_FIXED, _MOVES, _SELECTED = 0, 1, 2
"""How a value depends on inputs: not at all, by differentiable functions, through a comparison; or, added, by both."""

_STEPS = {"ceil", "floor", "round", "sign"}
"""Elementwise primitives with floating results whose derivative is 0 wherever it exists."""


def loops_select(jaxpr: Jaxpr, active: Sequence[int], only: bool = False) -> bool:
    """True if a `while` inside carries floating values that are selected by comparisons of what depends on the `active`
    inputs, as a bisection does: its steps move with the ends of the interval, so their derivative is not that of what
    they find. Comparisons that only end the loop do not count: the derivative of Newton's steps converges too.

    Args:
        only: Whether all that such a loop reads must select and do nothing else, as in a bisection, but not where steps
            of an adaptive length are taken or not.
    """
    loops: list[tuple[bool, bool]] = []
    count = len(jaxpr.constvars) + len(jaxpr.invars)
    _dependence(jaxpr, [_MOVES if i in active else _FIXED for i in range(count)], loops)
    return any([of_loop[only] for of_loop in loops])


def _dependence(jaxpr: Jaxpr, before: Sequence[int], loops: list[tuple[bool, bool]]) -> list[int]:
    """How the results depend on inputs, from how constants and inputs of the jaxpr do. For each `while` it appends to
    `loops` whether values are selected in it, and whether what it reads only selects. Recurses into bodies, which are
    nested a few levels deep at most."""
    levels: dict[Any, int] = dict(zip((*jaxpr.constvars, *jaxpr.invars), before, strict=True))

    def level_of(v: Any) -> int:
        return _FIXED if isinstance(v, Literal) else levels[v]

    for equation in jaxpr.eqns:
        name, inputs = name_of(equation), [level_of(v) for v in equation.invars]
        together = _united(inputs)
        results = [_SELECTED if together and name in _STEPS else together] * len(equation.outvars)
        called = called_function(equation) if name in CALLS else None
        if name == "stop_gradient":
            results = [_FIXED]
        elif together and called is not None:
            results = _dependence(called.jaxpr, [*[_FIXED] * len(called.consts), *inputs], loops)
        elif together and name == "cond":
            branches = [[*_dependence(branch, inputs[1:], loops)] for branch in bodies_of(equation)]
            by_index = _SELECTED if inputs[0] else _FIXED
            results = [_united([by_index, *branch]) for branch in zip(*branches, strict=True)]
        elif together and name in ("scan", "while"):
            results = _dependence_of_loop(equation, inputs, loops)
        for v, level in zip(equation.outvars, results, strict=True):
            levels[v] = level if is_floating(v) or not level else _SELECTED
    return [level_of(v) for v in jaxpr.outvars]


def _dependence_of_loop(equation: Any, inputs: Sequence[int], loops: list[tuple[bool, bool]]) -> list[int]:
    """The same for a loop. What was selected before a `while` stays the same in it, so it selects nothing there."""
    params, levels = equation.params, list(inputs)
    if "body_jaxpr" not in params:
        return _after_steps(params["jaxpr"], *counts_of_scan(params), levels, loops)
    body, first, count = params["body_jaxpr"], int(params["body_nconsts"]), len(equation.outvars)
    moving = [level and is_floating(v) for level, v in zip(levels, equation.invars, strict=True)]
    levels = [_MOVES if moves else _FIXED for moves in moving][int(params["cond_nconsts"]) :]
    results = _after_steps(body, first, count, levels, loops)
    read = _after_steps(body, first, count, [*levels[:first], *[_FIXED] * count], [])
    floating = [*map(is_floating, equation.outvars)]
    selects = _united([level for level, carries in zip(results, floating, strict=True) if carries]) & _SELECTED
    only = _united([level for level, carries in zip(read, floating, strict=True) if carries]) == _SELECTED
    loops.append((bool(selects), only))
    return results


def _after_steps(
    body: ClosedJaxpr, first: int, count: int, levels: list[int], loops: list[tuple[bool, bool]]
) -> list[int]:
    """How the results of a loop depend on inputs, of which `count` from the one numbered `first` are carries."""
    levels, carries = list(levels), slice(first, first + count)
    while True:
        results = _dependence(body.jaxpr, [*[_FIXED] * len(body.consts), *levels], loops)
        after = [a | b for a, b in zip(levels[carries], results[:count], strict=True)]
        if after == levels[carries]:
            return results
        levels[carries] = after


def _united(levels: Sequence[int]) -> int:
    return functools.reduce(operator.or_, levels, _FIXED)


def is_floating(v: Any) -> bool:
    return bool(jnp.issubdtype(getattr(v.aval, "dtype", int), jnp.inexact))
