"""The folder of a run: its files, and a lock so that only one run at a time writes to it."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ...files.replacing import write_whole
from ...training.runs.log import METRICS, RUN, SAMPLES, TENSORBOARD
from .configuration import ConfigurationError, changed_keys, values_in

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked there
    fcntl = None  # type: ignore[assignment]


LOCK = ".lock"


class TrainingFolder:
    """The folder of a run; a context manager that locks it against other processes.

        config.toml              the configuration in use
        metrics.csv              the measured values
        samples/step-00001000.png        pictures
        checkpoints/             checkpoints to resume from
        tensorboard/             TensorBoard's files, if requested
        parameters.safetensors   the parameters, once the run is finished

    A missing folder is created.

    Raises:
        OSError: The folder cannot be created or written to, or another process uses it; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.configuration = path / "config.toml"
        self.checkpoints = path / "checkpoints"
        self.parameters = path / "parameters.safetensors"
        self._locked = ExitStack()

    def __enter__(self) -> TrainingFolder:
        with ExitStack() as opened:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = opened.enter_context(open(self.path / LOCK, "ab"))
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                why = "another process trains there; wait for it, or give another --out"
                raise OSError(errno.EBUSY, why, str(self.path)) from None
            except OSError as error:
                why = f"the folder cannot be written to: {error.strerror}; give another --out"
                raise OSError(error.errno, why, str(self.path)) from error
            self._locked = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._locked.close()

    def clear(self) -> bool:
        """Remove a run's files, `config.toml` last, since it marks the folder as a run's.

        Returns:
            Whether there was a run.
        """
        if not self.configuration.exists():
            return False
        for folder in self.checkpoints, self.path / SAMPLES, self.path / TENSORBOARD:
            shutil.rmtree(folder, ignore_errors=True)
        for file in self.path / METRICS, self.path / RUN, self.parameters, self.configuration:
            file.unlink(missing_ok=True)
        return True

    def check(self, configuration: Any, changed: bool) -> None:
        """Raise a ConfigurationError unless a run with this configuration can begin here or be resumed. With `changed`,
        the existing run may have begun with another configuration."""
        if not self.configuration.exists():
            others = sorted(name for name in os.listdir(self.path) if name != LOCK)
            if others:
                raise ConfigurationError(
                    f"{self.path}: has files ({', '.join(others[:3])}) but no run; give another --out"
                )
            return
        found = changed_keys(values_in(self.configuration), configuration, lambda key: not key.free)
        if found and not changed:
            raise ConfigurationError(
                f"{self.path}: the run there began with another configuration:\n"
                + "".join(f"    {line}\n" for line in found)
                + "--fresh removes it and begins anew, --changed goes on with what is given now; or give another --out"
            )

    def write(self, configuration: Any, text: str) -> None:
        """Write the configuration, with `text` as its TOML file, unless it exists."""
        if not self.configuration.exists() or changed_keys(values_in(self.configuration), configuration):
            write_whole(self.configuration, text.encode())
