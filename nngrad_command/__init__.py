"""The way into the `nngrad` command, and its doctor: standard library only, whatever is broken."""

__version__ = "0.1.0"
