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
from nngrad.graph import Composite, Op
from nngrad.solvers.declared import Declared

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_or_keyword,  # an op takes its inputs by name too
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}
DECORATED = "nngrad.functions.", "nngrad.parametric_functions.", "nngrad.jax.transforms."


class Signatures(griffe.Extension):
    """Puts the signatures of objects in the place of those that were read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by Griffe for everything that it has read."""
        if obj.docstring is not None:
            found = _decorated(obj.path) if obj.is_function else _solver(obj.name) if obj.is_class else None
            completed = None if found is None else inspect.getdoc(found)
            obj.docstring.value = of_docstring(completed or obj.docstring.value)

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Called by Griffe for each module: functions that are made by calls are functions, not attributes. Griffe does
        not see those of an assignment to several names."""
        for name, value in _made_by_calls(mod.path):
            member = mod.members.get(name)
            if member is None or (not member.is_alias and member.is_attribute):
                line = None if member is None else member.lineno
                doc = inspect.getdoc(value)
                function = griffe.Function(name, lineno=line, endlineno=line, parent=mod)
                function.docstring = None if doc is None else griffe.Docstring(of_docstring(doc), parent=function)
                self.on_function(func=function)
                mod.set_member(name, function)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called by Griffe for each class: solvers have the `__init__` that their fields declare."""
        kind = _solver(cls.name)
        if kind is not None and "__init__" not in cls.members:
            init = griffe.Function("__init__", parent=cls)
            init.parameters = _parameters(kind.__init__)
            cls.set_member("__init__", init)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Called by Griffe for each function that it has read."""
        value = _decorated(func.path)
        if not callable(value):
            return
        func.parameters = _parameters(value)
        returned = inspect.signature(value).return_annotation
        func.returns = None if returned is inspect.Signature.empty else annotated(returned)


def _decorated(path: str) -> Any:
    """The function of F, PF or `nngrad.jax` that is found there, or None."""
    module, _, name = path.rpartition(".")
    if not path.startswith(DECORATED) or name.startswith("_"):
        return None
    try:
        value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):  # a method, or within a function
        return None
    return value if isinstance(value, Op | Composite) or inspect.isfunction(value) else None


def _solver(name: str) -> type[Declared] | None:
    """The solver of a name whose arguments are declared, or None."""
    kind = getattr(nngrad.solvers, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Declared) else None


def _made_by_calls(module: str) -> list[tuple[str, Any]]:
    """The functions of a module of F or PF, and their names."""
    if not module.startswith(DECORATED):
        return []
    names = vars(importlib.import_module(module))
    own = [(n, _decorated(f"{module}.{n}")) for n in names]
    return [(n, f) for n, f in own if f is not None and _module_of(f) == module]


def _module_of(function: Any) -> str:
    module: str = function.module if isinstance(function, Op | Composite) else function.__module__
    return module


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
