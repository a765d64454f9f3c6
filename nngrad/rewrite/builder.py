"""What gradients are built by, and the switch that says which rules it rewrites by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..graph import Function, build_options, switched
from ..graph.function import any_hooked, function_hooks
from ..graph.options import Builder, Switched
from ..graph.spelling import left_out
from . import linear, loops, masks, slices  # noqa: F401 - their rules
from .hash_consing import HashConsTable
from .rules import RULES, forms_without


def builder_for(known: list[Function]) -> HashConsTable:
    """Returns a new builder, for a gradient of `known` functions."""
    options = build_options()
    without = options.emitting.simplify
    # Hooks shall find the backward of each function by itself, and not what several have in common.
    if not without or options.watching.hooks or (function_hooks and any_hooked(known)):
        return plain_builder()
    return HashConsTable(forms_without(frozenset() if without is True else without))


def plain_builder() -> HashConsTable:
    """Returns a builder that makes a new function for whatever is asked: all rules are off."""
    return HashConsTable(forms_without(frozenset(RULES)))


@contextmanager
def emitting(known: list[Function], order: int) -> Iterator[Builder]:
    """A builder that is in force within this context: the one that is in force already, or a new one.

    Args:
        known: Functions that exist already, and may stand for what is emitted.
        order: Order of differentiation of what is emitted.
    """
    options = build_options()
    outer = options.emitting.builder
    if outer is None:
        builder = builder_for(known)
        with switched(builder=builder, precision=None):
            builder.seed(known)
            builder.order = order
            yield builder
        return
    before = outer.call, outer.order
    outer.seed(known)
    outer.order = order
    try:
        yield outer
    finally:
        outer.call, outer.order = before


@contextmanager
def recording(builder: Builder) -> Iterator[list[Function]]:
    """Within this context, a list of the functions that `builder` makes, in an order in which they can run."""
    outer, builder.created = builder.created, []
    created = builder.created
    try:
        yield created
    finally:
        builder.created = outer
        if outer is not None:
            outer += created


def simplify(on: bool = True, *, without: Iterable[str] = ()) -> Switched:
    """Within this context, gradients are emitted simplified or (`simplify(False)`) just as the rules say.

    Values agree to rounding either way. It serves comparison and debugging. The innermost context counts alone.

    Args:
        on: Whether to simplify.
        without: Names of rewriting rules that are left out, to find the one that makes a difference;
            `nn.show_rewrites()` lists them.

    Raises:
        TypeError: `on` is no bool, or `without` a string.
        ValueError: There is no rule of a name in `without`.
    """
    if not isinstance(on, bool):
        raise TypeError(f"on: expected True or False, got {on!r}")
    names = left_out(without, RULES, "rule", "rules", "nn.show_rewrites()")
    return switched(simplify=(names or True) if on else False)
