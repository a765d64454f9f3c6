"""The `nngrad` command, whose subcommands are files beside this one, and those of `nngrad_command`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nngrad_command import commands
from nngrad_command.outcome import exit_code

from . import cache, demo, ops, run_exported, show, time_loss, train, view

COMMANDS: commands.Commands = {
    "demo": (demo, "train a small GAN with a gradient penalty, and draw what it makes"),
    "train": (train, "train one of the recipes, as a configuration says"),
    "ops": (ops, "list the functions and what is known of their backward rules"),
    "show": (show, "print a graph of a script, or of a file, as text"),
    "time": (time_loss, "time forward and backward of a loss in a script"),
    "view": (view, "look at a graph of a script, or of a file, as a page"),
    "run": (run_exported, "run a function that nn.export has written, on arrays in files"),
    "cache": (cache, "show the executables that are kept on disk, or remove them"),
    **commands.ALONE,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (those of the process by default); returns the exit code.

    Raises:
        KeyboardInterrupt: With what was kept, where that is worth a word.
        OSError: The output cannot be written.
    """
    return commands.run(COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(exit_code(main))
