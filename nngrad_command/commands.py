"""The command line parser, and the table of commands that do not import nngrad."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from . import __version__

Commands = Mapping[str, tuple[str, str]]
"""For each command its module (with DESCRIPTION, add_arguments and run) and a description."""

DESCRIPTION = "nngrad turns a computation into the graph of its gradients, to any order, on JAX."
ALONE: Commands = {
    "launch": ("nngrad_command.launch", "run a script as several processes, joined by JAX"),
    "doctor": ("nngrad_command.doctor", "show versions and devices, and what is missing or broken"),
}


def run(commands: Commands, arguments: Sequence[str] | None) -> int:
    """Run one of these commands with `arguments` (by default those of the process), and return the exit code.

    Only the module of that command is imported.
    """
    words = sys.argv[1:] if arguments is None else arguments
    wanted = next((word for word in words if not word.startswith("-")), None)
    top = argparse.ArgumentParser(prog="nngrad", description=DESCRIPTION)
    top.add_argument("--version", action="version", version=f"nngrad {__version__}")
    parsers = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module_name, what) in commands.items():
        if name != wanted:
            parsers.add_parser(name, help=what)
            continue
        module: Any = import_module(module_name)
        command = parsers.add_parser(name, help=what, description=module.DESCRIPTION,
                                     epilog=getattr(module, "EPILOG", None), formatter_class=_Paragraphs)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    given = top.parse_args(words)
    code: int = given.run(given)
    return code


class _Paragraphs(argparse.RawDescriptionHelpFormatter):
    """Wraps the description as usual, but keeps the lines below the options unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else argparse.HelpFormatter._fill_text(self, text, width, indent)
