"""Image files, by Pillow (`pip install 'nngrad[nnabla]'`), with nnabla's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...files.formats import package_for

Image = NDArray[Any]
_SINGLE, _COLOURS = 2, 3
"""The numbers of axes of a grey image, and of one with channels."""
_INTERPOLATIONS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
_FULL = {"uint8": 255, "uint16": 65535}


def _pillow() -> Any:
    return package_for("PIL.Image", "Pillow", "images")


def _resampling(name: str) -> Any:
    if name not in _INTERPOLATIONS:
        raise ValueError(f"interpolate: must be one of {', '.join(map(repr, _INTERPOLATIONS))}, got {name!r}")
    return getattr(_pillow().Resampling, name.upper())


def _channels_last(image: Image, channel_first: bool) -> Image:
    return image.transpose(1, 2, 0) if channel_first and image.ndim == _COLOURS else image


def _as_asked(image: Image, channel_first: bool) -> Image:
    return image.transpose(2, 0, 1) if channel_first and image.ndim == _COLOURS else image


def imread(
    path: Any, grayscale: bool = False, size: tuple[int, int] | None = None, interpolate: str = "bilinear",
    channel_first: bool = False, as_uint16: bool = False, num_channels: int = -1,
) -> Image:  # fmt: skip
    """Read an image.

    Args:
        path: The name of a file, or an open file.
        grayscale: Whether to convert the image to grey.
        size: Width and height to resize to.
        interpolate: The method: 'nearest', 'box', 'bilinear', 'hamming', 'bicubic' or 'lanczos'.
        channel_first: Whether the shape is (channels, height, width).
        as_uint16: Whether the dtype is uint16; 8-bit values are multiplied by 257.
        num_channels: 1, 3 or 4 channels; -1 for as many as the file has. A grey image has an axis of channels only if 1
            is given here.

    Returns:
        An array of shape (height, width, channels), or (height, width) for grey, of dtype uint8 or uint16.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: `interpolate` or `num_channels` is not one of those above.
    """
    modes = {1: "L", 3: "RGB", 4: "RGBA"}
    if num_channels != -1 and num_channels not in modes:
        raise ValueError(f"num_channels: must be 1, 3 or 4, or -1 to keep the file's, got {num_channels}")
    with _pillow().open(path) as opened:
        mode = "L" if grayscale else modes.get(num_channels) or ("RGB" if opened.mode == "P" else opened.mode)
        wide = opened.mode.startswith("I")  # 16 bits per pixel
        image = np.asarray(opened if wide or opened.mode == mode else opened.convert(mode))
    if image.dtype == bool:
        image = image.astype(np.uint8) * 255
    if wide and not as_uint16:
        image = (image.astype(np.uint32) // 257).astype(np.uint8)
    elif as_uint16:
        image = image.astype(np.uint16) * (1 if wide else 257)
    if num_channels == 1 and image.ndim == _SINGLE:
        image = image[..., None]
    if size is not None:
        image = imresize(image, size, interpolate)
    return _as_asked(image, channel_first)


def imsave(
    path: Any, img: Image, channel_first: bool = False, as_uint16: bool = False, auto_scale: bool = True
) -> None:
    """Write an image.

    Args:
        path: The name of the file, whose ending determines the format.
        img: An array of shape (height, width, channels) or (height, width): integers from 0 to 255 (65535 with
            `as_uint16`), or floats from 0 to 1.
        channel_first: Whether the shape is (channels, height, width).
        as_uint16: Whether to write 16 bits per value, for grey images.
        auto_scale: Whether to scale floats from 0 to 1, and 8-bit integers if 16 bits are written.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: A value is out of range, floats are given without `auto_scale`, or 16 bits are requested for colour.
    """
    image = _channels_last(np.asarray(img), channel_first)
    if image.ndim not in (_SINGLE, _COLOURS):
        raise ValueError(f"img: expected shape (height, width) or (height, width, channels), got {image.shape}")
    if image.ndim == _COLOURS and image.shape[-1] == 1:
        image = image[..., 0]
    dtype = np.dtype(np.uint16 if as_uint16 else np.uint8)
    full = _FULL[dtype.name]
    if as_uint16 and image.ndim == _COLOURS:
        raise ValueError("as_uint16: Pillow writes 16 bits only for grey images")
    floats = image.dtype.kind == "f"
    if floats and not auto_scale:
        raise ValueError("auto_scale: must be True for floats, which must be from 0 to 1")
    most = 1 if floats else full
    if image.size and not (image.min() >= 0 and image.max() <= most):
        raise ValueError(f"img: values must be from 0 to {most}, got {image.min()} to {image.max()}")
    if floats:
        image = np.rint(image * full)
    elif as_uint16 and auto_scale and image.dtype == np.uint8:
        image = image.astype(np.uint16) * 257
    _pillow().fromarray(image.astype(dtype)).save(Path(path) if isinstance(path, str) else path)


def imresize(img: Image, size: tuple[int, int], interpolate: str = "bilinear", channel_first: bool = False) -> Image:
    """Resize an image.

    Args:
        img: An array of shape (height, width, channels) or (height, width).
        size: The new width and height.
        interpolate: The method: 'nearest', 'box', 'bilinear', 'hamming', 'bicubic' or 'lanczos'.
        channel_first: Whether the shape is (channels, height, width).

    Returns:
        An array of the same dtype and number of channels.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: `interpolate` is not one of those above.
    """
    method = _resampling(interpolate)
    image = _channels_last(np.asarray(img), channel_first)
    channels = image[..., None] if image.ndim == _SINGLE else image
    resized = np.stack(
        [_resized(channels[..., i], size, method) for i in range(channels.shape[-1])], axis=-1
    )  # fmt: skip
    return _as_asked(resized[..., 0] if image.ndim == _SINGLE else resized, channel_first)


def _resized(channel: Image, size: tuple[int, int], method: Any) -> Image:
    """A resized channel, computed in floats, and rounded if it has integers."""
    resized = np.asarray(_pillow().fromarray(channel.astype(np.float32)).resize(size, method))
    if channel.dtype.kind in "iu":
        bounds = np.iinfo(channel.dtype)
        resized = np.clip(np.rint(resized), bounds.min, bounds.max)
    return resized.astype(channel.dtype)
