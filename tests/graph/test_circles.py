"""Files of one package import each other in one direction alone, also from within functions."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

import backward_registry
import nngrad
import nngrad_command
from nngrad.graph.traverse import operands_first

ROOTS = [Path(package.__file__).parent for package in (backward_registry, nngrad, nngrad_command)]
FILES = [path for root in ROOTS for path in root.rglob("*.py")]
PACKAGES = sorted({path.parent for path in FILES})
ABOVE = ROOTS[0].parent


def name_of(path: Path) -> str:
    """The name of a module."""
    parts = path.relative_to(ABOVE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, package: str, files: Container[str]) -> Iterator[str]:
    """Those of `files` that the code of a module in `package` imports, but for what only checkers of types do."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names if alias.name in files]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            named = [f"{module}.{alias.name}" for alias in node.names]
            yield from [name if name in files else module for name in named if name in files or module in files]
        else:
            yield from imported(node, package, files)


def in_circles(imports: dict[str, set[str]]) -> set[str]:
    """The modules that import themselves through others."""
    reached = {name: operands_first(list(others), imports.__getitem__) for name, others in imports.items()}
    return {name for name in imports if name in reached[name]}


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_no_files_of_a_package_import_each_other(package: Path) -> None:
    name = name_of(package / "__init__.py")
    own = {name_of(path): ast.parse(path.read_text()) for path in package.glob("*.py")}
    files = {name_of(path) for path in FILES}
    imports = {module: {*imported(tree, name, files)} & own.keys() for module, tree in own.items()}
    assert not in_circles(imports)
