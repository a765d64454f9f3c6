"""The public names of nngrad, and the page of the reference that each is on."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import nngrad
import nngrad.functions as F
from nngrad.command.ops import functions_of_family
from nngrad.graph import Composite, Op

from .dialect import of_docstring

SUBJECTS = {
    "Graphs": (
        "graph", "autodiff.custom_function", "functions.custom_gradient", "nnabla", "rewrite", "inspection.debugging",
        "inspection.hooks", "files.graphs",
    ),
    "Graphs to look at": ("inspection",),
    "Gradients": ("autodiff", "functions", "backward_registry"),
    "Derivatives": ("derivatives", "inspection.lanczos"),
    "Implicit functions": ("derivatives.implicit",),
    "Parameters and modules": ("parameter", "files.parameter_files", "training.modules"),
    "Training": ("training", "solvers", "random"),
    "Running and compiling": (
        "execution", "inspection.compilations", "files.exporting", "jax", "context", "distributed",
    ),
}  # fmt: skip
"""Subjects of the names of `nn`, by the innermost package that defines them. All others are on a page of their own."""
REST = "More"
MODULES = {
    "checks": "Gradients against numeric differences",
    "hooks": "What watches functions run",
    "plot": "Pictures of growth, memory, spectra and gradients",
    "hosts": "Several processes joined by JAX",
    "timing": "How long forward and backward take",
}
"""Modules that `nn` has as names, with pages of their own."""
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
        """The first sentence of what it says of itself; empty where it is an object of a class that tells."""
        text = of_docstring(inspect.getdoc(self.value) or "").partition("\n\n")[0].replace("\n", " ").strip()
        known = callable(self.value) or _is_own(type(self.value))
        return text if known else ""


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
    modules = _modules_of_names()
    by_subject = defaultdict(list)
    for shown in nngrad.__all__:
        if isinstance(getattr(nngrad, shown), ModuleType):
            continue
        by_subject[_subject_of(modules[shown])].append(_named("nn", shown, getattr(nngrad, shown)))
    for subject in [s for s in (*SUBJECTS, REST) if s in by_subject]:
        names = sorted(by_subject[subject], key=lambda name: name.shown.lower())
        yield Page(_file("nn", subject), subject, tuple(names), "import nngrad as nn")
    for module, title in _modules().items():
        names = tuple(names_of(f"nn.{module}", getattr(nngrad, module)))
        yield Page(_file("nn", module), f"nn.{module}: {title[0].lower()}{title[1:]}", names, "import nngrad as nn")


def _modules() -> dict[str, str]:
    """The modules among the names of `nn` that are on no other page, with their titles."""
    elsewhere = {"functions", *[module for module, _ in OTHERS.values()]}
    found = [n for n in nngrad.__all__ if isinstance(getattr(nngrad, n), ModuleType) and n not in elsewhere]
    return {n: MODULES.get(n) or (getattr(nngrad, n).__doc__ or n).partition("\n")[0].rstrip(".") for n in found}


def _of_functions() -> Iterator[Page]:
    for family in F.FAMILIES:
        names = [_named("F", name, getattr(F, name)) for name in functions_of_family(family)]
        title = family.replace("_", " ").capitalize()
        yield Page(_file("functions", family), title, tuple(names), "import nngrad.functions as F")


def _of_other_modules() -> Iterator[Page]:
    for alias, (module, title) in OTHERS.items():
        names = names_of(alias, importlib.import_module(f"nngrad.{module}"))
        file = f"reference/{module.rpartition('.')[2]}.md"
        yield Page(file, title, tuple(names), f"import nngrad.{module} as {alias}")


def names_of(prefix: str, module: ModuleType) -> Iterator[Name]:
    """What a module gives to its users: what `__all__` says, or what is defined in it and named without underscore."""
    names = getattr(module, "__all__", None)
    if names is None:
        within = module.__name__
        names = [n for n, value in vars(module).items() if callable(value) and _module_of(value).startswith(within)]
    for shown in sorted([n for n in names if not n.startswith("_")], key=str.lower):
        yield _named(prefix, shown, getattr(module, shown), module.__name__)


def _named(prefix: str, shown: str, value: Any, package: str = "nngrad") -> Name:
    inner = _unwrapped(value)
    if isinstance(inner, Op | Composite):
        return Name(f"{prefix}.{shown}", f"{inner.module}.{inner.name}", value)
    if inspect.isfunction(inner) or inspect.isclass(inner):
        return Name(f"{prefix}.{shown}", f"{inner.__module__}.{inner.__qualname__}", value)
    if _is_own(type(value)):  # an object is told of by its class
        return Name(f"{prefix}.{shown}", f"{type(value).__module__}.{type(value).__qualname__}", value)
    return Name(f"{prefix}.{shown}", f"{_home(package, shown)}.{shown}", value)


def _home(package: str, name: str) -> str:
    """The module that binds a name of a package to something that does not know where it is from."""
    while True:
        source = inspect.getsource(importlib.import_module(package))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
                is_package = hasattr(importlib.import_module(package), "__path__")
                above = package.split(".")[: len(package.split(".")) - node.level + is_package] if node.level else []
                package = ".".join([*above, *([node.module] if node.module else [])])
                break
        else:
            return package


def _is_own(kind: type) -> bool:
    return kind.__module__.startswith(("nngrad.", "backward_registry"))


def _module_of(value: Any) -> str:
    return getattr(_unwrapped(value), "__module__", None) or ""


def _unwrapped(value: Any) -> Any:
    return inspect.unwrap(value) if inspect.isfunction(value) else value


def _modules_of_names() -> dict[str, str]:
    """The module that each name of `nn` is imported from."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(nngrad))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = node.module or alias.name
    return found


def _subject_of(module: str) -> str:
    """The subject of the innermost package around a module that has one."""
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        for subject, members in SUBJECTS.items():
            if ".".join(parts[:count]) in members:
                return subject
    return REST


def _file(folder: str, title: str) -> str:
    return f"reference/{folder}/{title.lower().replace(' ', '_')}.md"


def everything(among: Iterable[Page]) -> dict[str, Page]:
    """The page of each name, as users write it."""
    return {name.shown: page for page in among for name in page.names}
