"""The logger of programs that were written for nnabla, which report by it."""

from __future__ import annotations

import logging

logger = logging.getLogger("nngrad")
"""Writes to the standard error stream, from level INFO on. It is an ordinary logger of Python's `logging`.

nngrad itself reports nothing by it: what users must know it raises or warns of.
"""


def _set_up() -> None:
    """Let what is reported be seen, unless the program has set the logger up before."""
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s [nngrad][%(levelname)s]: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


_set_up()
