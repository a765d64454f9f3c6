"""What is measured of a run, in TensorBoard's files, where they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...files.metrics_file import STEP


class TensorBoard:
    """TensorBoard's files with metrics and pictures.

    Args:
        folder: Where they are; made if it is missing.
        step: How many steps the run has behind it; what is there of later ones is not shown.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError("log.tensorboard: needs tensorboardX, which is not installed: pip install 'nngrad[train]'"
                              ) from error
        self._writer: Any = SummaryWriter(logdir=str(folder), purge_step=step + 1 if step else None)

    def append(self, values: Mapping[str, float]) -> None:
        """Add a value of each metric."""
        for name, value in values.items():
            if name != STEP:
                self._writer.add_scalar(name, value, int(values[STEP]))
        self._writer.flush()

    def draw(self, drawn: Any, step: int) -> None:
        """Add a figure of matplotlib's."""
        self._writer.add_figure("samples", drawn, step, close=False)

    def close(self) -> None:
        """Write what is not on the disk yet."""
        self._writer.close()
