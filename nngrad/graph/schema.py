"""Schema: a function's inputs and static arguments, from its signature, and code that checks them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .arguments import Ignored, IntsEach, Number, NumbersEach, coercer_of, one_per_input, without_range
from .function import apply
from .leaf import as_variables
from .variable import Variable


class Schema:
    """A function's inputs and static arguments, from its signature, and code that checks them.

    The caller that `compile` makes is compiled from a few lines of source, as in `dataclasses`:
    binding `*args, **kwargs` to a signature on each call would cost more than all the rest of
    building a Function.
    """

    def __init__(self, name: str, signature: inspect.Signature, static: bool = True) -> None:
        self.name = name
        self._static = static
        self.inputs: list[str] = []
        self.optional: list[str] = []
        self.arguments: list[str] = []
        self.defaults: list[Any] = []
        self.values: list[str] = []
        self.checks: list[tuple[Callable[..., Any], bool]] = []
        self.variadic = False
        self.has_floats = False
        self._each: list[str] = []
        self._header: list[str] = []
        self._scope: dict[str, Any] = {"apply": apply, "Variable": Variable, "variables": as_variables}
        for p in signature.parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                self._add_input(p)
            else:
                self._add_argument(p)

    def _add_input(self, p: inspect.Parameter) -> None:
        self.inputs.append(p.name)
        if p.kind is p.VAR_POSITIONAL:
            self.variadic = True
            self._header.append(f"*{p.name}")
        elif p.default is p.empty:
            self._header.append(p.name)
        else:
            self.optional.append(p.name)
            self._header.append(f"{p.name}=None")

    def _add_argument(self, p: inspect.Parameter) -> None:
        name, check = p.name, f"check_{p.name}({p.name})"
        if p.kind is p.KEYWORD_ONLY and not self.variadic and "*" not in self._header:
            self._header.append("*")
        if p.default is p.empty:
            self._header.append(name)
        else:
            self._scope[f"default_{name}"] = p.default
            self._header.append(f"{name}=default_{name}")
            check = f"{name} if {name} is default_{name} else {check}"
        if p.annotation is not Ignored:
            self.arguments.append(name)
            self.defaults.append(p.default)
            self.has_floats |= without_range(p.annotation) in (float, float | None, Number)
            is_each = p.annotation in (IntsEach, NumbersEach)
            checks: Callable[..., Any] = coercer_of(p.annotation, self.name, name, self._static)
            if is_each:
                self._each.append(name)
                checks = one_per_input(checks, self.name, name)
            self.values.append(name if is_each else check)
            self.checks.append((checks, is_each))
            self._scope[f"check_{name}"] = checks

    @property
    def conversions(self) -> list[str]:
        """Source lines that convert the inputs to Variables."""
        if self.variadic:
            (name,) = self.inputs
            names = f"[f'{name}[{{i}}]' for i in range(len({name}))]"
            return [
                f"if not all([x.__class__ is Variable for x in {name}]):"
                f" {name} = variables({name}, {names}, {self.name!r})",
                f"if not {name}: raise TypeError('{self.name}: give at least one Variable as {name}')",
                *[f"{each} = check_{each}({each}, len({name}))" for each in self._each],
            ]
        if not self.inputs:
            return []
        given = [f"{n}.__class__ is not Variable" for n in self.inputs if n not in self.optional]
        given += [f"({n}.__class__ is not Variable and {n} is not None)" for n in self.optional]
        listed = f"{', '.join(self.inputs)},"
        required = len(self.inputs) - len(self.optional)
        return [f"if {' or '.join(given)}: {listed} = variables(({listed}), {self.inputs}, {self.name!r}, {required})"]

    def compile(self, lines: list[str], **names: Any) -> Callable[..., Any]:
        """Compile the caller: a function with the signature's header and the body `lines`, which may use `names`."""
        scope = self._scope | names
        exec("\n    ".join([f"def {self.name}({', '.join(self._header)}):", *lines]), scope)
        caller: Callable[..., Any] = scope[self.name]
        return caller
