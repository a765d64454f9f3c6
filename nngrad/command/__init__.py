"""The `nngrad` command, where it needs the library (`nngrad_command` has the rest).

    cli.py      the subcommands, each in a file of its own beside it
    digits.py   what `nngrad demo` does
    recipes/    what `nngrad train` trains
"""
