"""An extension of Griffe: functions of F and PF, and solvers, have the signatures and docstrings that callers see.

Griffe reads sources; what decorators make of a function it cannot know.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from inspect import formatannotation
from typing import Any

import griffe

import nngrad.solvers
from docs_site.links import of_docstring
from nngrad.extend import Composite, Op
from nngrad.solvers.declared import Declared

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_or_keyword,  # an op takes its inputs by name too
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}
DECORATED = "nngrad.functions.", "nngrad.parametric_functions.", "nngrad.initializer.", "nngrad.jax.transforms."


class Signatures(griffe.Extension):
    """Puts the signatures and docstrings of objects in the place of those that were read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by Griffe for everything that it has read."""
        if obj.docstring is not None:
            kind = _solver(obj.name) if obj.is_class else None
            completed = None if kind is None else inspect.getdoc(kind)
            obj.docstring.value = of_docstring(completed or obj.docstring.value)

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Called by Griffe for each module: its functions are those of F, PF and `nngrad.jax` that are there."""
        for name, value in _functions(mod.path).items():
            function = griffe.Function(name, parent=mod, parameters=_parameters(value))
            returned, doc = inspect.signature(value).return_annotation, inspect.getdoc(value)
            function.returns = None if returned is inspect.Signature.empty else annotated(returned)
            function.docstring = None if doc is None else griffe.Docstring(of_docstring(doc), parent=function)
            mod.set_member(name, function)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called by Griffe for each class: solvers have the `__init__` that their fields declare."""
        kind = _solver(cls.name)
        if kind is not None and "__init__" not in cls.members:
            cls.set_member("__init__", griffe.Function("__init__", parent=cls, parameters=_parameters(kind.__init__)))


def _functions(module: str) -> dict[str, Any]:
    """The public functions that a module of F, PF or `nngrad.jax` defines, by their names."""
    if not f"{module}.".startswith(DECORATED):
        return {}
    found = {}
    for name, value in vars(importlib.import_module(module)).items():
        is_own = isinstance(value, Op | Composite)
        home = value.module if is_own else getattr(value, "__module__", None)
        if home == module and not name.startswith("_") and (is_own or inspect.isfunction(value)):
            found[name] = value
    return found


def _solver(name: str) -> type[Declared] | None:
    """The solver of a name whose arguments are declared, or None."""
    kind = getattr(nngrad.solvers, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Declared) else None


def _parameters(function: Callable[..., Any]) -> griffe.Parameters:
    return griffe.Parameters(*[_parameter(p) for p in inspect.signature(function).parameters.values()])


def _parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    empty = parameter.empty
    return griffe.Parameter(
        parameter.name,
        kind=KINDS[parameter.kind],
        annotation=None if parameter.annotation is empty else annotated(parameter.annotation),
        default=_VARIADIC.get(parameter.kind) if parameter.default is empty else repr(parameter.default),
    )


_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "()", inspect.Parameter.VAR_KEYWORD: "{}"}
"""What Griffe has as the defaults of such parameters."""


def annotated(annotation: Any) -> str:
    """An annotation as one writes it: `int | Sequence[int]`."""
    text = annotation if isinstance(annotation, str) else formatannotation(annotation)
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+", "", text)
