"""The entry point and the doctor of the `nngrad` command: standard library only, to run if packages break."""

__version__ = "0.1.0"
