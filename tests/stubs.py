"""The stubs of F and PF, `__init__.pyi`, which tell editors and checkers of types what is put there at run time.

    python -m tests.stubs

writes them anew.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from pathlib import Path
from typing import Any

import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.extend import Composite, Op

LIBRARY = Path(F.__file__).parents[1]
HEADER = '"""Written by `python -m tests.stubs`."""\n\n# ruff: noqa: A004, I001, RUF100\n\n'


def of_functions() -> str:
    """The stub of F: what is no `def` in its file has its signature and docstring here."""
    imports, written = [], []
    for name, value in vars(F).items():
        if isinstance(value, Op | Composite):
            file = value.module.rpartition(".")[2]
            if name in _defined("functions", file):
                imports.append(_imported(file, name))
            else:
                written.append(_definition(name, inspect.signature(value.forward), value, "@op\n"))
    imports += [_imported(file, name) for file, names in F.PLAIN.items() for name in names]
    return (
        HEADER + "import jax\n\nfrom ..graph import Array, op\nfrom ..graph.arguments import Scalar\n"
        + "".join(sorted(imports))
        + "\nFAMILIES: tuple[str, ...]\nPLAIN: dict[str, tuple[str, ...]]\n\n"
        "def names() -> list[str]: ...\ndef plain_names() -> tuple[str, ...]: ...\n" + "".join(written)
    )  # fmt: skip


@functools.cache
def _defined(package: str, file: str) -> set[str]:
    """The functions that a file defines by `def`."""
    tree = ast.parse((LIBRARY / package / f"{file}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def of_layers() -> str:
    """The stub of PF: what is no `def` in its file has its signature and docstring here."""
    imports = [_imported("layer_parameters", "parametric_function_api"), _imported("recurrent", "LSTMCell")]
    written = []
    for name, value in vars(PF).items():
        if not hasattr(value, "__wrapped__") or name == "parametric_function_api":
            continue
        file = value.__module__.rpartition(".")[2]
        if name in _defined("parametric_functions", file):
            imports.append(_imported(file, name))
        else:
            written.append(_definition(name, inspect.signature(value), value))
    names = (
        "from ..graph import Array, Variable\nfrom ..graph.arguments import Ints\nfrom ..initializer import Rng\n"
        "from ..parameter import get_parameter_or_create as get_parameter_or_create\n"
        "from .layer_parameters import Init\nfrom .variations import Level\n"
    )
    return HEADER + names + "".join(sorted(imports)) + "".join(written)


def _imported(file: str, name: str) -> str:
    return f"from .{file} import {name} as {name}\n"


def _definition(name: str, signature: inspect.Signature, function: Any, decorator: str = "") -> str:
    parameters = []
    for p in signature.parameters.values():
        default = "" if p.default is p.empty else f" = {p.default!r}"
        parameters.append(f"{p.name}: {p.annotation}{default}")
    kinds = [p.kind for p in signature.parameters.values()]
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        parameters.insert(kinds.count(inspect.Parameter.POSITIONAL_ONLY), "/")
    header = textwrap.fill(", ".join(parameters), 116, initial_indent="    ", subsequent_indent="    ")
    doc = textwrap.indent(inspect.getdoc(function) or "", "    ").strip()
    return f'\n{decorator}def {name}(\n{header}\n) -> {signature.return_annotation}:\n    """{doc}\n    """\n'


def stubs() -> dict[Path, str]:
    """The text of each stub."""
    return {
        LIBRARY / "functions" / "__init__.pyi": of_functions(),
        LIBRARY / "parametric_functions" / "__init__.pyi": of_layers(),
    }


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
