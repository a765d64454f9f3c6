"""Single functions of the catalogue, forward and with gradients, beside the same function in JAX and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.ndimage import map_coordinates

import nngrad as nn
import nngrad.functions as F

from .harness import Case, Step, in_jax, in_nngrad, in_torch
from .models import Arrays, normal, variables


class Function(NamedTuple):
    """One function at one size, by each of those who have it; gradients are taken for all of its arrays."""

    title: str
    arrays: Arrays
    in_nngrad: Callable[..., Any]
    peer: str
    """What JAX's way is called."""
    in_jax: Callable[..., Any]
    in_torch: Callable[..., Any]


def warp_by_grid(smoke: bool) -> Function:
    """Images sampled at random positions."""
    shape = (1, 2, 4, 4) if smoke else (8, 16, 64, 64)
    height, width = shape[2:]
    rng = np.random.default_rng(0)

    def by_torch(x: Any, grid: Any) -> Any:
        import torch

        return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    def by_jax(x: Any, grid: Any) -> Any:
        places = [((grid[..., 1] + 1) * height - 1) / 2, ((grid[..., 0] + 1) * width - 1) / 2]
        each = jax.vmap(lambda channel, *at: map_coordinates(channel, at, 1), (0, None, None))
        return jax.vmap(each)(x, *places)

    arrays = [normal(rng, *shape), rng.uniform(-1, 1, (shape[0], *shape[2:], 2)).astype("f")]
    title = f"warp_by_grid {shape}, linear, zeros outside"
    return Function(title, arrays, F.warp_by_grid, "map_coordinates", by_jax, by_torch)


def deformable_convolution(smoke: bool) -> Function:
    """A 3x3 convolution at moved places, with a mask."""
    batch, channels, size = (1, 2, 4) if smoke else (2, 32, 32)
    steps = np.arange(size, dtype="f")
    down, right = (each.reshape(9, 1, 1) - 1.0 for each in np.indices((3, 3)).astype("f"))
    rows, columns = down + steps[:, None] + 0 * steps, right + steps[None, :] + 0 * steps[:, None]

    def by_jax(x: Any, weight: Any, offset: Any, mask: Any) -> Any:
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

    def by_torch(x: Any, weight: Any, offset: Any, mask: Any) -> Any:
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

    rng, plane = np.random.default_rng(0), (size, size)
    shapes = (batch, channels, *plane), (channels, channels, 3, 3), (batch, 18, *plane), (batch, 9, *plane)
    return Function(
        f"deformable_convolution {shapes[0]}, 3x3, with a mask", [normal(rng, *shape) for shape in shapes],
        lambda x, weight, offset, mask: F.deformable_convolution(x, weight, offset, mask, pad=1),
        "gathers in JAX", by_jax, by_torch,
    )  # fmt: skip


def fft(smoke: bool) -> Function:
    """Of images, with the two parts in a last axis."""
    shape = (1, 4, 4, 2) if smoke else (16, 128, 128, 2)

    def by_torch(x: Any) -> Any:
        import torch

        return torch.view_as_real(torch.fft.fft2(torch.view_as_complex(x)))

    def by_jax(x: Any) -> Any:
        y = jnp.fft.fft2(lax.complex(x[..., 0], x[..., 1]))
        return jnp.stack([y.real, y.imag], -1)

    return Function(f"fft {shape}, 2 axes", [normal(np.random.default_rng(0), *shape)],
                    lambda x: F.fft(x, signal_ndim=2), "jnp.fft.fft2", by_jax, by_torch)  # fmt: skip


def ours(function: Function, weights: np.ndarray | None) -> Step:
    """Forward, or as a sum of weighted results with its gradients, in nngrad."""
    leaves = variables(function.arrays)
    y = function.in_nngrad(*leaves)
    if weights is None:
        return in_nngrad(y, leaves)
    loss = F.sum(y * nn.Variable.from_numpy_array(weights))
    return in_nngrad([loss, *nn.grad(loss, leaves)], leaves)


def by_jax(function: Function, weights: np.ndarray | None) -> Step:
    """The same in JAX."""
    if weights is None:
        return in_jax(function.in_jax, *function.arrays)
    every = tuple(range(len(function.arrays)))
    return in_jax(jax.value_and_grad(lambda *xs: jnp.sum(function.in_jax(*xs) * weights), every), *function.arrays)


def by_torch(function: Function, weights: np.ndarray | None) -> Step:
    """The same in PyTorch, eagerly."""
    import torch

    leaves = [torch.tensor(a, requires_grad=weights is not None) for a in function.arrays]

    def run() -> Any:
        y = function.in_torch(*leaves)
        if weights is None:
            return y
        loss = (y * torch.tensor(weights)).sum()
        return [loss, *torch.autograd.grad(loss, leaves)]

    return in_torch(run)


def cases(smoke: bool) -> Iterable[Case]:
    """Each function twice."""
    for make in (warp_by_grid, deformable_convolution, fft):
        function = make(smoke)
        shape = function.in_nngrad(*variables(function.arrays)).shape
        for task, weights in (("forward", None), ("with gradients", normal(np.random.default_rng(1), *shape))):
            yield Case(f"{function.title}: {task}", {
                "nngrad": partial(ours, function, weights), function.peer: partial(by_jax, function, weights),
                "PyTorch": partial(by_torch, function, weights),
            })  # fmt: skip
