"""Attention between products with weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.functions as F

from .case import Case


def multi_head_attention(smoke: bool) -> Case:
    """A sequence that attends to itself, steps first."""
    steps, batch, size, heads = (4, 2, 8, 2) if smoke else (128, 8, 256, 8)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((steps, batch, size)).astype("f")
    weights = [(rng.standard_normal((size, size)) / size**0.5).astype("f") for _ in range(4)]

    def in_jax(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        q, k, v = [jnp.swapaxes((x @ w).reshape(steps, batch, heads, -1), 0, 1) for w in (wq, wk, wv)]
        return jnp.swapaxes(jax.nn.dot_product_attention(q, k, v), 0, 1).reshape(steps, batch, size) @ wo

    def in_torch(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        import torch

        q, k, v = [(x @ w).reshape(steps, batch, heads, -1).permute(1, 2, 0, 3) for w in (wq, wk, wv)]
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return y.permute(2, 0, 1, 3).reshape(steps, batch, size) @ wo

    return Case(
        title=f"multi_head_attention {x.shape}, {heads} heads",
        arrays=[x, *weights],
        in_nngrad=lambda x, *ws: F.multi_head_attention(x, x, x, heads, *ws)[0],
        in_jax={"jax.nn.dot_product_attention": in_jax},
        in_torch=in_torch,
        differentiated=(0, 1, 2, 3, 4),
    )
