"""The `nngrad` command, where it needs the library (`nngrad_command` has the rest).

    cli.py      the subcommands
    demo/       `nngrad demo`
    recipes/    `nngrad train`
    peers.py    how often functions can be differentiated, here and elsewhere
"""
