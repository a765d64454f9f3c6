"""Loaders of the files that CSV datasets name, by file extension."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .image_utils import imread

Loader = Callable[..., NDArray[Any]]


class FileReader:
    """Opens files by names relative to a file or folder.

    Args:
        base_uri: The file or folder.

    Raises:
        ValueError: `base_uri` is not a path in the local file system but, for example, a URL.
    """

    def __init__(self, base_uri: str | Path) -> None:
        if "://" in str(base_uri):
            raise ValueError(f"base_uri: must be a local path, got {str(base_uri)!r}; download it first")
        self._base = Path(base_uri)

    def open(self, filename: str | Path | None = None, textmode: bool = False, encoding: str = "utf-8-sig") -> IO[Any]:
        """Open a file, by default the one given to the reader, in binary mode unless `textmode`."""
        folder = self._base if self._base.is_dir() else self._base.parent
        path = self._base if filename is None else folder / filename
        return path.open("r", encoding=encoding, newline="") if textmode else path.open("rb")

    def listdir(self) -> list[str]:
        """The names in the folder, sorted."""
        folder = self._base if self._base.is_dir() else self._base.parent
        return sorted(path.name for path in folder.iterdir())


def load_image(file: Any, shape: tuple[int, int, int] | None = None, normalize: bool = False) -> NDArray[Any]:
    """Read an image as an array of shape (channels, height, width); with `normalize`, scaled to 0 to 1.

    Raises:
        ValueError: The image does not have the given shape.
    """
    image = imread(file)
    image = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    if shape is not None and image.shape != tuple(shape):
        raise ValueError(f"{getattr(file, 'name', file)}: expected shape {tuple(shape)}, got {image.shape}")
    return image / np.iinfo(image.dtype).max if normalize else image


def load_csv(file: Any, shape: tuple[int, ...] | None = None, normalize: bool = False) -> NDArray[Any]:
    """Read the numbers of a CSV file as an array with a row for each line."""
    lines = [line.decode("utf-8-sig") for line in file.readlines()]
    values = np.array([[float(value) for value in row] for row in csv.reader(lines) if row])
    return values if shape is None else values.reshape(shape)


def load_npy(file: Any, shape: tuple[int, ...] | None = None, normalize: bool = False) -> NDArray[Any]:
    """Read the array of a NumPy file; pickled objects, which could run code, are refused."""
    values = np.load(file, allow_pickle=False)
    return np.asarray(values if shape is None else values.reshape(shape))


_LOADERS: dict[str, Loader] = {
    **dict.fromkeys((".bmp", ".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff"), load_image),
    ".csv": load_csv,
    ".npy": load_npy,
}


def load(ext: str) -> Loader:
    """The loader for a file extension: a function of an open file, `shape` and `normalize`.

    Raises:
        ValueError: There is no loader for it.
    """
    if ext not in _LOADERS:
        raise ValueError(f"ext: must be one of {', '.join(_LOADERS)}, got {ext!r}")
    return _LOADERS[ext]
