"""`nngrad ops`: the functions of nngrad.functions, and their backward rules."""

from __future__ import annotations

import argparse
from typing import NamedTuple

import nngrad.functions as F
from backward_registry import registry

from ..extend import Composite, Op
from .console import console_of_output, plain_table

DESCRIPTION = (
    "List every function of nngrad.functions: its name, nnabla's name for its type, where its gradient comes from, how "
    "often it can be differentiated, and the file with the rule."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad ops`."""
    parser.add_argument("--family", choices=F.FAMILIES, metavar="F", help=f"only this family: {', '.join(F.FAMILIES)}")


def run(given: argparse.Namespace) -> int:
    """`nngrad ops`; returns the exit code."""
    console = console_of_output()
    count = 0
    table = plain_table("function", "type", "gradient", "orders", "file")
    for family in [given.family] if given.family else F.FAMILIES:
        table.add_section()
        for function in functions_in(family):
            table.add_row(*function)
            count += 1
    console.print(table)
    console.print(f"{count} functions", highlight=False)
    return 0


class FunctionFacts(NamedTuple):
    """The facts about a function of F."""

    name: str
    type_name: str
    kind: str
    """The origin of its gradient."""
    orders: str
    file: str


def functions_in(family: str) -> list[FunctionFacts]:
    """The functions of a family, by name."""
    return [facts_of_function(name) for name in functions_of_family(family)]


def facts_of_function(name: str) -> FunctionFacts:
    """The facts about a function."""
    function, orders = getattr(F, name), order_of_function(name)
    if isinstance(function, Composite):
        return FunctionFacts(name, "", "composite", orders, _file_of(function.module))
    if isinstance(function, Op):
        rule = registry.find(function)
        kind, file = ("no rule", "") if rule is None else (rule.kind, _file_of(rule.module))
        return FunctionFacts(name, function.type_name, kind, orders, file)
    return FunctionFacts(name, "", "plain", orders, _file_of(function.__module__))


def _file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"


def functions_of_family(family: str) -> list[str]:
    """The sorted names of the functions of a family. Functions that take functions, and have files of their own, count
    as control flow."""
    return sorted([name for name in (*F.plain_names(), *F.names()) if _family_of(name) == family])


def _family_of(name: str) -> str:
    function = getattr(F, name)
    module: str = function.module if isinstance(function, Op | Composite) else function.__module__
    family = module.removeprefix(f"{F.__name__}.").partition(".")[0]
    return family if family in F.FAMILIES else "control"


def order_of_function(name: str) -> str:
    """The order to which a function is differentiable: 'any', 'estimate', 'none', or 'by its parts'."""
    function = getattr(F, name)
    if not isinstance(function, Op) or isinstance(function, Composite):
        return "by its parts"
    rule = registry.find(function)
    if rule is None:
        return "no rule"
    return "none" if rule.kind == "non-differentiable" else "any" if rule.exact else "estimate"
