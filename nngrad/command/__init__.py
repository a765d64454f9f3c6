"""The part of the `nngrad` command that needs the library (`nngrad_command` has the rest).

    cli.py      the table of subcommands, each of which is in a file beside it
    digits.py   the training of `nngrad demo`
    recipes/    the training of `nngrad train`
"""
