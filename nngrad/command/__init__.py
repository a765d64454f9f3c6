"""The part of the `nngrad` command that needs the library (`nngrad_command` has the rest).

`cli.py` has the table of subcommands, each of which is in a file beside it. The training of `nngrad demo` is that of
`examples/digits.py`.
"""
