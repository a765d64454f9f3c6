"""Functions of windows: deformable convolution, pooling, and Fourier transforms of what windows show."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nngrad.functions as F

from .case import Case


def drawn(*shape: int) -> Any:
    """Normal numbers."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f")


# ---------------------------------------------------------------- deformable convolution


def _places(size: int) -> tuple[Any, Any]:
    """Rows and columns that a 3x3 kernel with padding 1 reads, as (9, size, size)."""
    steps = np.arange(size, dtype="f")
    rows, columns = (each.reshape(9, 1, 1) - 1.0 for each in np.indices((3, 3)).astype("f"))
    return rows + steps[:, None] + 0 * steps, columns + steps[None, :] + 0 * steps[:, None]


def deformable_convolution(smoke: bool) -> Case:
    """A 3x3 convolution at moved places, with a mask."""
    batch, channels, size = (1, 2, 4) if smoke else (2, 32, 32)
    rows, columns = _places(size)

    def in_jax(x: Any, weight: Any, offset: Any, mask: Any) -> Any:
        """A straightforward formulation: four gathers of rows of channels, and a product of matrices."""
        moved = offset.reshape(batch, 9, 2, size, size)
        at, across = moved[:, :, 0] + rows, moved[:, :, 1] + columns
        wide = jnp.pad(x.transpose(0, 2, 3, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
        which = np.arange(batch).reshape(batch, 1, 1, 1)
        read = 0.0
        for i in (0, 1):
            for j in (0, 1):
                r, c = jnp.floor(at) + i, jnp.floor(across) + j
                share = (1 - jnp.abs(at - r)) * (1 - jnp.abs(across - c)) * mask
                cells = [jnp.clip(k.astype("int32") + 1, 0, size + 1) for k in (r, c)]
                read = read + share[..., None] * wide[which, cells[0], cells[1]]
        return jnp.einsum("nkhwc,ock->nohw", read, weight.reshape(channels, channels, 9))

    def in_torch(x: Any, weight: Any, offset: Any, mask: Any) -> Any:
        """With grid_sample, as there is no such function in PyTorch itself."""
        import torch

        moved = offset.reshape(batch, 9, 2, size, size)
        at, across = moved[:, :, 0] + torch.tensor(rows), moved[:, :, 1] + torch.tensor(columns)
        grid = torch.stack([across, at], -1) * (2 / (size - 1)) - 1
        read = torch.nn.functional.grid_sample(
            x, grid.reshape(batch, 9 * size, size, 2), mode="bilinear", padding_mode="zeros", align_corners=True
        ).reshape(batch, channels, 9, size * size) * mask.reshape(batch, 1, 9, size * size)
        product = weight.reshape(channels, -1) @ read.reshape(batch, channels * 9, size * size)
        return product.reshape(batch, channels, size, size)

    return Case(
        title=f"deformable_convolution {(batch, channels, size, size)}, 3x3, with a mask",
        arrays=[drawn(batch, channels, size, size), drawn(channels, channels, 3, 3), drawn(batch, 18, size, size),
                drawn(batch, 9, size, size)],
        in_nngrad=lambda x, weight, offset, mask: F.deformable_convolution(x, weight, offset, mask, pad=1),
        in_jax={"gathers in JAX": in_jax},
        in_torch=in_torch,
        differentiated=(0, 1, 2, 3),
    )


# ---------------------------------------------------------------- pooling


def max_pooling(smoke: bool) -> Case:
    """3x3 windows two steps apart, with padding."""
    shape = (1, 2, 6, 6) if smoke else (16, 32, 64, 64)

    def in_torch(x: Any) -> Any:
        import torch

        return torch.nn.functional.max_pool2d(x, 3, 2, 1)

    def in_jax(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])

    return Case(
        title=f"max_pooling {shape}, 3x3",
        arrays=[drawn(*shape)],
        in_nngrad=lambda x: F.max_pooling(x, (3, 3), (2, 2), pad=(1, 1)),
        in_jax={"lax.reduce_window": in_jax},
        in_torch=in_torch,
        differentiated=(0,),
    )


def average_pooling(smoke: bool) -> Case:
    """2x2 windows side by side."""
    shape = (1, 2, 6, 6) if smoke else (16, 32, 64, 64)

    def in_torch(x: Any) -> Any:
        import torch

        return torch.nn.functional.avg_pool2d(x, 2)

    def in_jax(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4

    return Case(
        title=f"average_pooling {shape}, 2x2",
        arrays=[drawn(*shape)],
        in_nngrad=lambda x: F.average_pooling(x, (2, 2)),
        in_jax={"lax.reduce_window": in_jax},
        in_torch=in_torch,
        differentiated=(0,),
    )


# ---------------------------------------------------------------- Fourier transforms


def fft(smoke: bool) -> Case:
    """Of images, with the two parts in a last axis."""
    shape = (1, 4, 4, 2) if smoke else (16, 128, 128, 2)

    def in_torch(x: Any) -> Any:
        import torch

        return torch.view_as_real(torch.fft.fft2(torch.view_as_complex(x)))

    def in_jax(x: Any) -> Any:
        y = jnp.fft.fft2(lax.complex(x[..., 0], x[..., 1]))
        return jnp.stack([y.real, y.imag], -1)

    return Case(
        title=f"fft {shape}, 2 axes",
        arrays=[drawn(*shape)],
        in_nngrad=lambda x: F.fft(x, signal_ndim=2),
        in_jax={"jnp.fft.fft2": in_jax},
        in_torch=in_torch,
        differentiated=(0,),
    )


def stft(smoke: bool) -> Case:
    """Of signals; the power of each frequency, so that there is one result."""
    batch, length, size, stride = (1, 16, 8, 4) if smoke else (8, 32768, 512, 128)
    window = np.hanning(size + 1)[:-1].astype("f")

    def in_torch(x: Any) -> Any:
        import torch

        parts = torch.stft(x, size, stride, size, torch.tensor(window), return_complex=True)
        return parts.real**2 + parts.imag**2

    def in_jax(x: Any) -> Any:
        x = jnp.pad(x, ((0, 0), (size // 2, size // 2)), "reflect")
        starts = np.arange(0, x.shape[1] - size + 1, stride)
        parts = jnp.fft.rfft(x[:, starts[:, None] + np.arange(size)] * window).swapaxes(1, 2)
        return parts.real**2 + parts.imag**2

    def in_nngrad(x: Any) -> Any:
        real, imaginary = F.stft(x, window_size=size, stride=stride, fft_size=size)
        return real * real + imaginary * imaginary

    return Case(
        title=f"stft {(batch, length)}, windows of {size} each {stride}",
        arrays=[drawn(batch, length)],
        in_nngrad=in_nngrad,
        in_jax={"jnp.fft.rfft": jax.jit(in_jax)},
        in_torch=in_torch,
        differentiated=(0,),
    )
