"""The `nngrad` command, where it needs the library (`nngrad_command` has the rest).

    cli.py      the subcommands
    demo/       `nngrad demo`
    recipes/    `nngrad train`
    peers/      facts about other libraries, for `nngrad ops` and pages of the documentation
"""
