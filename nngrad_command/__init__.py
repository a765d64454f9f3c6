"""The way into the `nngrad` command, its doctor and its launcher: standard library only, whatever is broken."""

__version__ = "0.1.0"
