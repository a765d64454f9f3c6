"""The table of subcommands of `nngrad`, including those of `nngrad_command`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nngrad_command import commands
from nngrad_command.outcome import exit_code

COMMANDS: commands.Commands = {
    "demo": ("nngrad.command.demo", "train a small GAN with a gradient penalty, and draw what it makes"),
    "ops": ("nngrad.command.ops", "list the functions and what is known of their backward rules"),
    **commands.ALONE,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (those of the process by default); returns the exit code.

    Raises:
        KeyboardInterrupt: Ctrl-C; the message says what was kept, if anything.
        OSError: The output cannot be written.
    """
    return commands.run(COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(exit_code(main))
