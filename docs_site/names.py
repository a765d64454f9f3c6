"""The public names of nngrad, and the page of the reference that each is on."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import nngrad
import nngrad.functions as F
from nngrad.extend import Composite, Op

from .links import of_docstring

SUBJECTS = {
    "graph": "Graphs", "nnabla": "Graphs", "rewrite": "Graphs", "files.graphs": "Graphs",
    "inspection.debugging": "Graphs", "autodiff.custom_function": "Graphs", "functions.custom_gradient": "Graphs",
    "inspection.hooks": "Graphs",
    "inspection": "Graphs to look at",
    "autodiff": "Gradients", "functions": "Gradients", "backward_registry": "Gradients",
    "derivatives": "Derivatives", "inspection.lanczos": "Derivatives", "derivatives.implicit": "Implicit functions",
    "parameter": "Parameters and modules", "files.parameter_files": "Parameters and modules",
    "training.modules": "Parameters and modules",
    "training": "Training", "solvers": "Training", "random": "Training",
    "execution": "Running and compiling", "compilations": "Running and compiling",
    "files.exporting": "Running and compiling", "jax": "Running and compiling", "context": "Running and compiling",
    "parallel": "Running and compiling",
}
"""Subjects of the names of `nn`, by the packages that define them; the innermost counts."""
REST = "More"
OTHERS = {
    "PF": ("parametric_functions", "Layers with parameters"),
    "S": ("solvers", "Solvers"),
    "I": ("initializer", "Initial values of parameters"),
    "C": ("nnabla.communicators", "Communicators"),
    "nj": ("jax", "Transformations of JAX functions"),
}
"""Modules with names that users import them by."""


class Name(NamedTuple):
    """Something public."""

    shown: str
    """As users write it: `F.tanh`."""
    path: str
    """Where it is defined: `nngrad.functions.activation.tanh`."""
    value: Any

    @property
    def summary(self) -> str:
        """The first sentence of what it says of itself."""
        return of_docstring(inspect.getdoc(self.value) or "").partition("\n\n")[0].replace("\n", " ").strip()


class Page(NamedTuple):
    """A page of the reference."""

    path: str
    """Below `docs/`, were it there."""
    title: str
    names: tuple[Name, ...]
    imported: str
    """The line that imports what the names begin with."""


def pages() -> list[Page]:
    """Every page of the reference, in the order of the site's contents."""
    return [*_of_nn(), *_of_functions(), *_of_other_modules()]


def _of_nn() -> Iterator[Page]:
    by_subject: dict[str, list[Name]] = {subject: [] for subject in (*SUBJECTS.values(), REST)}
    for shown in sorted(nngrad.__all__, key=str.lower):
        if not isinstance(getattr(nngrad, shown), ModuleType):
            name = _named("nn", shown, getattr(nngrad, shown))
            by_subject[_subject_of(name.path.removeprefix("nngrad."))].append(name)
    for subject, found in by_subject.items():
        yield Page(_file("nn", subject), subject, tuple(found), "import nngrad as nn")
    for module, title in _modules().items():
        names = tuple(names_of(f"nn.{module}", getattr(nngrad, module)))
        yield Page(_file("nn", module), f"nn.{module}: {title[0].lower()}{title[1:]}", names, "import nngrad as nn")


def _modules() -> dict[str, str]:
    """The modules among the names of `nn` that are on no other page, with their titles."""
    elsewhere = {"functions", *[module for module, _ in OTHERS.values()]}
    found = [n for n in nngrad.__all__ if isinstance(getattr(nngrad, n), ModuleType) and n not in elsewhere]
    return {n: (getattr(nngrad, n).__doc__ or n).partition("\n")[0].rstrip(".") for n in found}


def _of_functions() -> Iterator[Page]:
    for family in F.FAMILIES:
        names = [_named("F", name, getattr(F, name)) for name in functions_of_family(family)]
        title = family.replace("_", " ").capitalize()
        yield Page(_file("functions", family), title, tuple(names), "import nngrad.functions as F")


def functions_of_family(family: str) -> list[str]:
    """The sorted names of the functions of a family. Those in files of their own count as control flow."""
    rest = [file for file in F.PLAIN if file not in F.FAMILIES] if family == "control" else []
    return sorted([name for file in (family, *rest) for name in F.functions_in(file) if name.islower()])


def _of_other_modules() -> Iterator[Page]:
    for alias, (module, title) in OTHERS.items():
        names = names_of(alias, importlib.import_module(f"nngrad.{module}"))
        file = f"reference/{module.rpartition('.')[2]}.md"
        yield Page(file, title, tuple(names), f"import nngrad.{module} as {alias}")


def names_of(prefix: str, module: ModuleType) -> Iterator[Name]:
    """What a module gives to its users: what `__all__` says, or what is defined in it and named without underscore."""
    listed = getattr(module, "__all__", None)
    for shown in sorted([n for n in listed or vars(module) if not n.startswith("_")], key=str.lower):
        name = _named(prefix, shown, getattr(module, shown))
        if listed or (callable(name.value) and name.path.startswith(module.__name__)):
            yield name


def _named(prefix: str, shown: str, value: Any) -> Name:
    inner = inspect.unwrap(value) if inspect.isfunction(value) else value
    if isinstance(inner, Op | Composite):
        return Name(f"{prefix}.{shown}", f"{inner.module}.{inner.name}", value)
    kind = inner if inspect.isfunction(inner) or inspect.isclass(inner) else type(inner)  # which tells of an object
    return Name(f"{prefix}.{shown}", f"{kind.__module__}.{kind.__qualname__}", value)


def _subject_of(path: str) -> str:
    """The subject of the innermost package around something that has one."""
    around = [package for package in SUBJECTS if path.startswith(f"{package}.")]
    return SUBJECTS[max(around, key=len)] if around else REST


def _file(folder: str, title: str) -> str:
    return f"reference/{folder}/{title.lower().replace(' ', '_')}.md"
