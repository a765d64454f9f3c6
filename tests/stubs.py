"""The stubs of F and PF, `__init__.pyi`, which tell editors and checkers of types what is put there at run time.

    python -m tests.stubs

writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import nngrad.functions as F
from nngrad.graph import Composite, Op

LIBRARY = Path(F.__file__).parents[1]
HEADER = '"""Written by `python -m tests.stubs`."""\n\n# ruff: noqa: A004, I001\n\n'


def of_functions() -> str:
    """The stub of F."""
    lines = []
    for name, value in vars(F).items():
        if isinstance(value, Op | Composite):
            lines.append(f"from .{value.module.rpartition('.')[2]} import {name} as {name}\n")
    lines += [f"from .{file} import {name} as {name}\n" for file, names in F.PLAIN.items() for name in names]
    return (
        HEADER + "".join(sorted(lines)) + "\nFAMILIES: tuple[str, ...]\nPLAIN: dict[str, tuple[str, ...]]\n\n"
        "def names() -> list[str]: ...\ndef plain_names() -> tuple[str, ...]: ...\n"
    )


def stubs() -> dict[Path, str]:
    """The text of each stub."""
    return {LIBRARY / "functions" / "__init__.pyi": of_functions()}


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
