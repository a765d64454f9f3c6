"""The part of the `nngrad` command that needs the library: `nngrad demo`. `nngrad_command` has the rest."""
