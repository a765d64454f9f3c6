"""The `nngrad` command, whose subcommands are files beside this one, and those of `nngrad_command`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from nngrad_command import __version__, doctor, documentation, launch, reproduction
from nngrad_command.following import command as following
from nngrad_command.outcome import exit_code

from . import cache, demo, ops, run_exported, show, time_loss, train, view

DESCRIPTION = "nngrad turns a computation into the graph of its gradients, to any order, on JAX."
COMMANDS: dict[str, tuple[Any, str]] = {
    "demo": (demo, "train a small GAN with a gradient penalty, and draw what it makes"),
    "train": (train, "train one of the recipes, as a configuration says"),
    "ops": (ops, "list the functions and what is known of their backward rules"),
    "show": (show, "print a graph of a script, or of a file, as text"),
    "time": (time_loss, "time forward and backward of a loss in a script"),
    "view": (view, "look at a graph of a script, or of a file, as a page"),
    "run": (run_exported, "run a function that nn.export has written, on arrays in files"),
    "launch": (launch, "run a script as several processes, joined by JAX"),
    "follow": (following, "show a page that follows a run, on loopback"),
    "cache": (cache, "show the executables that are kept on disk, or remove them"),
    "docs": (documentation, "build the documentation as a site, or show it"),
    "reproduce": (reproduction, "run a comparison that a paper has published"),
    "doctor": (doctor, "show versions and devices, and what is missing or broken"),
}
"""The module of each command, with DESCRIPTION, add_arguments and run, and what it is for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (those of the process by default); returns the exit code.

    Raises:
        KeyboardInterrupt: With what was kept, where that is worth a word.
        OSError: The output cannot be written.
    """
    given = parser().parse_args(arguments)
    code: int = given.run(given)
    return code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="nngrad", description=DESCRIPTION)
    top.add_argument("--version", action="version", version=f"nngrad {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module, what) in COMMANDS.items():
        command = commands.add_parser(name, help=what, description=module.DESCRIPTION,
                                      epilog=getattr(module, "EPILOG", None), formatter_class=_Paragraphs)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return top


class _Paragraphs(argparse.RawDescriptionHelpFormatter):
    """Wraps the description as usual, and leaves the lines below the options as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else argparse.HelpFormatter._fill_text(self, text, width, indent)


if __name__ == "__main__":
    sys.exit(exit_code(main))
