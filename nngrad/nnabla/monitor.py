"""nnabla's monitors: log series, times and images of a run, and write them in nnabla's formats."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..extend import NdArray, Variable, checked_choice, checked_count
from .logger import logger
from .utils.image_utils import imsave

Images = NDArray[Any]


class Monitor:
    """The folder of a run's monitors, created if it does not exist.

    Args:
        save_path: The folder.
    """

    def __init__(self, save_path: str | Path) -> None:
        self._save_path = str(save_path)
        Path(save_path).mkdir(parents=True, exist_ok=True)

    @property
    def save_path(self) -> str:
        """The folder."""
        return self._save_path


class _Intervals:
    """Base of monitors that report every `interval`-th iteration, to a file in the monitor's folder if there is one.
    Each line is written to disk at once.

    Args:
        name: What is monitored. In file names its spaces become hyphens.
        monitor: The folder; None for no file.
        interval: The number of iterations between lines.
        verbose: Whether to log lines too.
        ending: The end of the file's name.

    Raises:
        ValueError: `interval` is less than 1.
    """

    def __init__(self, name: str, monitor: Monitor | None, interval: int, verbose: bool, ending: str) -> None:
        checked_count(interval, "interval")
        self.name, self.interval, self.verbose = name, interval, verbose
        self._reported = -1
        self._file = Path(monitor.save_path, name.replace(" ", "-") + ending) if monitor else None
        if self._file:
            self._file.write_text("")

    def _due(self, index: int) -> int:
        """How many iterations a report at `index` covers; 0 if none is due."""
        iterations = index - self._reported
        return iterations if iterations >= self.interval else 0

    def _report(self, index: int, logged: str, written: str) -> None:
        if self.verbose:
            logger.info(f"iter={index} {{{self.name}}}={logged}")
        if self._file:
            with self._file.open("a") as file:
                file.write(f"{index} {written}\n")
        self._reported = index


class MonitorSeries(_Intervals):
    """A series of numbers: the mean over each interval, in `<name>.series.txt` as lines of an index and a value.

    Args:
        name: What is monitored. In the file's name its spaces become hyphens.
        monitor: The folder; None for no file.
        interval: The number of iterations to average over.
        verbose: Whether to log lines too.
    """

    def __init__(self, name: str, monitor: Monitor | None = None, interval: int = 1, verbose: bool = True) -> None:
        super().__init__(name, monitor, interval, verbose, ".series.txt")
        self._values: list[float] = []

    def add(self, index: int, value: Any) -> None:
        """Add the value of an iteration: a number, or an array of one element."""
        self._values.append(float(np.asarray(value).mean()))
        if self._due(index):
            mean = float(np.mean(self._values))
            self._values = []
            self._report(index, str(mean), f"{mean:g}")


class MonitorTimeElapsed(_Intervals):
    """The time that iterations take, in `<name>.timer.txt` as lines of an index, the seconds and the number of
    iterations since the previous line, and the seconds since the monitor was created.

    Args:
        name: What is monitored. In the file's name its spaces become hyphens.
        monitor: The folder; None for no file.
        interval: The number of iterations between lines.
        verbose: Whether to log lines too.
    """

    def __init__(self, name: str, monitor: Monitor | None = None, interval: int = 100, verbose: bool = True) -> None:
        super().__init__(name, monitor, interval, verbose, ".timer.txt")
        self._start = self._lap = time.perf_counter()

    def add(self, index: int) -> None:
        """Record the end of an iteration."""
        iterations = self._due(index)
        if iterations:
            now = time.perf_counter()
            lap, total, self._lap = now - self._lap, now - self._start, now
            self._report(index, f"{lap}[sec/{iterations}iter] {total}[sec]", f"{lap} {iterations} {total}")


def _min_max(images: Images) -> Images:
    """Images rescaled to the range from 0 to 1; all 0 if they are constant."""
    low, high = images.min(), images.max()
    return np.asarray((images - low) / ((high - low) or 1))


class MonitorImage:
    """Images of the first iteration and of the last in each interval, in the folder `<name>`, as
    `{index:06d}-{number:03d}.png`.

    Args:
        name: What is monitored. In the folder's name its spaces become hyphens.
        monitor: The parent folder.
        interval: The number of iterations between images.
        verbose: Whether to log each time too.
        num_images: How many images of a batch to write.
        normalize_method: A function that maps arrays of shape (N, C, H, W) to numbers from 0 to 1. By default the
            minimum of a batch becomes 0 and the maximum 1.
    """

    def __init__(
        self, name: str, monitor: Monitor, interval: int = 1000, verbose: bool = True, num_images: int = 16,
        normalize_method: Callable[[Images], Images] | None = None,
    ) -> None:  # fmt: skip
        checked_count(interval, "interval")
        self.name, self.interval, self.verbose, self.num_images = name, interval, verbose, num_images
        self.normalize_method = normalize_method or _min_max
        self.save_dir = str(Path(monitor.save_path, name.replace(" ", "-")))
        Path(self.save_dir).mkdir(parents=True, exist_ok=True)

    def add(self, index: int, var: Variable | NdArray | Images) -> None:
        """Add a batch of images, of shape (N, ..., C, H, W). Channels after the third are dropped; if there are two, a
        third one of ones is added.

        Raises:
            ValueError: `var` has fewer than three axes.
        """
        if index and (index + 1) % self.interval:
            return
        images = np.array(var.d if isinstance(var, Variable) else var.data if isinstance(var, NdArray) else var)
        if images.ndim < 3:
            raise ValueError(f"var: expected images of shape (N, ..., C, H, W), got {images.shape}")
        images = self.normalize_method(images.reshape(-1, *images.shape[-3:])[: self.num_images])
        if images.shape[1] == 2:
            images = np.concatenate([images, np.ones_like(images[:, :1])], axis=1)
        for name, image in self._pictures(images[:, :3]):
            imsave(Path(self.save_dir, f"{index:06d}{name}.png"), np.clip(image, 0, 1))
        if self.verbose:
            logger.info(f"iter={index} {{{self.name}}} is written to {self.save_dir}.")

    def _pictures(self, images: Images) -> Iterator[tuple[str, Images]]:
        """The ends of file names, with images of shape (H, W) or (H, W, C)."""
        for number, image in enumerate(images):
            yield f"-{number:03d}", image[0] if len(image) == 1 else image.transpose(1, 2, 0)


class MonitorImageTile(MonitorImage):
    """Several images tiled into one, in the folder `<name>`: `{index:06d}.png`. It takes the arguments of
    `MonitorImage`."""

    def _pictures(self, images: Images) -> Iterator[tuple[str, Images]]:
        yield "", tile_images(images)


def tile_images(data: Images, padsize: int = 1, padval: float = 0) -> Images:
    """Tile images into one: a square grid, row by row, with `padsize` pixels of `padval` to the right of and below each
    image.

    Args:
        data: Images of shape (N, C, H, W).
        padsize: Pixels between images.
        padval: Their value, and that of unused places in the grid.

    Returns:
        An array of shape (H, W, C), or (H, W) if C is 1.

    Raises:
        ValueError: `data` does not have four axes.
    """
    if data.ndim != 4:
        raise ValueError(f"data: expected shape (N, C, H, W), got {data.shape}")
    side = math.isqrt(max(len(data) - 1, 0)) + 1 if len(data) else 0
    padding = (0, side**2 - len(data)), (0, 0), (0, padsize), (0, padsize)
    cells = np.pad(data, padding, constant_values=padval)
    n, channels, height, width = side, *cells.shape[1:]
    picture = cells.reshape(n, n, channels, height, width).transpose(0, 3, 1, 4, 2)
    picture = picture.reshape(n * height, n * width, channels)
    return picture[..., 0] if channels == 1 else picture


def _columns(file: str | Path) -> NDArray[Any]:
    return np.loadtxt(file, ndmin=2)


def plot_series(filename: str | Path, plot_kwargs: dict[str, Any] | None = None) -> Any:
    """Plot the file of a `MonitorSeries` into matplotlib's current axes; returns the line."""
    from matplotlib import pyplot

    columns = _columns(filename)
    return pyplot.plot(columns[:, 0], columns[:, 1], **(plot_kwargs or {}))


def plot_time_elapsed(filename: str | Path, elapsed: bool = False, unit: str = "s", plot_kwargs: Any = None) -> Any:
    """Plot the file of a `MonitorTimeElapsed` into matplotlib's current axes; returns the line.

    Args:
        filename: The file.
        elapsed: Plot the seconds since the monitor was created, instead of those of each interval.
        unit: 's' for seconds, 'm' for minutes, 'h' for hours, 'd' for days.
        plot_kwargs: Further arguments of `pyplot.plot`.

    Raises:
        ValueError: There is no such unit.
    """
    from matplotlib import pyplot

    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    scale = seconds[checked_choice(unit, seconds, "unit")]
    columns = _columns(filename)
    return pyplot.plot(columns[:, 0], columns[:, 3 if elapsed else 1] / scale, **(plot_kwargs or {}))
