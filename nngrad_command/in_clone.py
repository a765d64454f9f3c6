"""Commands that exist only in a clone of the repository, which contains their code."""

from __future__ import annotations

import argparse
import functools
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from .outcome import complain

SOURCES = Path(__file__).parents[1]


def command_in_clone(name: str, file: Path) -> Any:
    """The module of a command by name and file; without a clone, a substitute that says one is needed."""
    path = SOURCES / file
    return loaded(path) if path.is_file() else _NotHere(name)


@functools.cache
def loaded(path: Path) -> Any:
    """The module of a file, which is run once."""
    spec = spec_from_file_location(path.stem, path)  # not by name, which may clash with a user's folder
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _NotHere:
    DESCRIPTION = "It needs the sources, as a clone of the repository has them."

    def __init__(self, name: str) -> None:
        self._name = name

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Accept any arguments."""
        parser.set_defaults(takes_any=True)

    def run(self, given: argparse.Namespace) -> int:
        """Print what to do, and return the exit code."""
        complain(f"nngrad {self._name}: it is run from the sources, which are not in the wheel, nor in {SOURCES}.\n"
                 f"Clone the repository, and run there\n\n    python -m pip install -e '.[{self._name}]' && nngrad "
                 f"{self._name}\n")
        return 1
