"""The stubs of F and PF, `__init__.pyi`, which tell editors and checkers of types what is put there at run time.

    python -m tests.stubs

writes them anew.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.graph import Composite, Op

LIBRARY = Path(F.__file__).parents[1]
HEADER = '"""Written by `python -m tests.stubs`."""\n\n# ruff: noqa: A004, I001, RUF100\n\n'


def of_functions() -> str:
    """The stub of F."""
    lines = []
    for name, value in vars(F).items():
        if isinstance(value, Op | Composite):
            lines.append(_imported(value.module.rpartition(".")[2], name))
    lines += [_imported(file, name) for file, names in F.PLAIN.items() for name in names]
    return (
        HEADER + "".join(sorted(lines)) + "\nFAMILIES: tuple[str, ...]\nPLAIN: dict[str, tuple[str, ...]]\n\n"
        "def names() -> list[str]: ...\ndef plain_names() -> tuple[str, ...]: ...\n"
    )


def of_layers() -> str:
    """The stub of PF: what is no `def` in its file has its signature and docstring here."""
    imports = [_imported("layer_parameters", "parametric_function_api"), _imported("recurrent", "LSTMCell")]
    written = []
    for name, value in vars(PF).items():
        if not hasattr(value, "__wrapped__") or name == "parametric_function_api":
            continue
        file = value.__module__.rpartition(".")[2]
        tree = ast.parse((LIBRARY / "parametric_functions" / f"{file}.py").read_text())
        if any([isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body]):
            imports.append(_imported(file, name))
        else:
            written.append(_definition(name, value))
    names = (
        "from ..graph import Array, Variable\nfrom ..graph.arguments import Ints\nfrom ..initializer import Rng\n"
        "from .layer_parameters import Init\nfrom .variations import Level\n"
    )
    return HEADER + names + "".join(sorted(imports)) + "".join(written)


def _imported(file: str, name: str) -> str:
    return f"from .{file} import {name} as {name}\n"


def _definition(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = []
    for p in signature.parameters.values():
        default = "" if p.default is p.empty else f" = {p.default!r}"
        parameters.append(f"{p.name}: {p.annotation}{default}")
    header = textwrap.fill(", ".join(parameters), 116, initial_indent="    ", subsequent_indent="    ")
    doc = textwrap.indent(inspect.getdoc(function) or "", "    ").strip()
    return f'\ndef {name}(\n{header}\n) -> {signature.return_annotation}:\n    """{doc}\n    """\n'


def stubs() -> dict[Path, str]:
    """The text of each stub."""
    return {
        LIBRARY / "functions" / "__init__.pyi": of_functions(),
        LIBRARY / "parametric_functions" / "__init__.pyi": of_layers(),
    }


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
