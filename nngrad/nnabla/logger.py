"""The logger for programs written for nnabla, which report through it."""

from __future__ import annotations

import logging

logger = logging.getLogger("nngrad")
"""Writes to standard error, from level INFO on. It is an ordinary logger of Python's `logging`.

nngrad itself logs nothing: it raises errors and issues warnings instead.
"""


def _set_up() -> None:
    """Make log messages visible, unless the program has already configured the logger."""
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s [nngrad][%(levelname)s]: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


_set_up()
