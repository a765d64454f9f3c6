"""Taking elements, and putting them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .rows import VECTOR, WHOLE, X, Y, row

AT = np.array([0, 2, -1, 2])
COLUMNS = np.array([[1, 0], [3, 3], [-1, 2]])
OUTSIDE = np.array([0, 7])
GATHERED = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0, 1))
SCATTERED = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0, 1)
)
STARTS = np.array([[1, 2], [5, 0], [-1, -1]])


def scattered(function: Any, mode: str) -> Any:
    return lambda x, y: function(x, STARTS, y[:, :2], SCATTERED, mode=mode) ** 2


ROWS = [
    row("x[...]", lambda x: x[1, ::2] ** 2 * x[::-1, 1][0] + x[..., None, 1:3][0, 0] * x[-1, -2], X),
    row("x[array]", lambda x: x[AT] ** 2 * x[AT, np.array([0, 1, 2, 3])][:, None], X),
    row("x[traced]", lambda x: x[jnp.argsort(x[:, 0])] ** 2 + x[jnp.argmin(x[:, 0]) - 3], X),
    row("x[truths]", lambda x: x[np.array([True, False, True])] ** 2, X),
    row("jnp.take", lambda x: jnp.take(x, AT, axis=1) ** 2 + jnp.take(x, OUTSIDE[:1], axis=0, mode="clip"), X),
    row("jnp.take(fill)", lambda x: jnp.take(x, OUTSIDE, axis=1, mode="fill", fill_value=0) ** 2, X),
    row("jnp.take(wrap)", lambda x: jnp.take(x, OUTSIDE, axis=1, mode="wrap") ** 2, X),
    row("jnp.take_along_axis", lambda x: jnp.take_along_axis(x, COLUMNS, axis=1) ** 2, X),
    row("jnp.put_along_axis", lambda x: jnp.put_along_axis(x, COLUMNS[:, :1], x[:, :1] ** 2, axis=1, inplace=False), X),
    row("jnp.choose", lambda x: jnp.choose(WHOLE[0], [x[0, :3], x[1, :3] ** 2, x[2, :3] ** 3], mode="clip"), X),
    row("jnp.compress", lambda x: jnp.compress(X[:, 0] > 0, x, axis=0, size=2) ** 2, X),
    row("jnp.extract", lambda x: jnp.extract(X > 0, x, size=4) ** 2, X),
    row("jnp.fill_diagonal", lambda x: jnp.fill_diagonal(x, 3.0, inplace=False) ** 2, X),
    row("jnp.insert", lambda x: jnp.insert(x, 1, x[0] ** 2, axis=0), X),
    row("jnp.delete", lambda x: jnp.delete(x, 1, axis=0) ** 2, X),
    row("jnp.put", lambda x: jnp.put(x, np.array([1, 5]), x[0, :2] ** 2, inplace=False), X),
    row("jnp.place", lambda x: jnp.place(x, X > 0, jnp.array([1.0, 2.0]), inplace=False) ** 2, X),
    row("at.set", lambda x: x.at[AT].set(x[0] ** 2) ** 2 + x.at[1, 2].set(x[0, 0]) * x.at[:, 1:3].set(0.5), X),
    row("at.add", lambda x: x.at[AT].add(x[0] ** 2) ** 2 * x.at[1:, 2].add(x[0, 0]), X),
    row("at.subtract", lambda x: x.at[AT].subtract(x[0] ** 2) ** 2, X),
    row("at.multiply", lambda x: x.at[AT[:2]].multiply(x[0], unique_indices=True) ** 2 * x.at[1].mul(0.5), X),
    row("at.multiply(one place)", lambda x: x.at[AT].multiply(x[0]) ** 2, X),
    row("at.divide", lambda x: x.at[np.array([0, 2])].divide(x[1] ** 2 + 1, unique_indices=True) ** 2, X),
    row("at.power", lambda x: x.at[np.array([0, 2])].power(2) * x, X),
    row("at.min", lambda x: x.at[AT].min(x[1] * 0.7) ** 2, X),
    row("at.max", lambda x: x.at[AT].max(x[1] * 0.7) ** 2, X),
    row("at.apply", lambda x: x.at[np.array([0, 2])].apply(jnp.sin) ** 2, X, orders=0, opaque=1),
    row("at.get", lambda x: x.at[OUTSIDE].get(mode="fill", fill_value=0) ** 2 + x.at[OUTSIDE].get(mode="clip"), X),
    row("at.set(outside)", lambda x: x.at[OUTSIDE].set(x[:2] ** 2) * x.at[OUTSIDE].add(x[:2], mode="clip"), X),
    row("at.multiply(traced)", lambda x: x.at[jnp.argmax(x[:, 0])].multiply(x[0]) ** 2, X),
    row("at.set(negative)", lambda x: x.at[-1, -2].set(x[0, 0] ** 2) ** 2 + x.at[jnp.argmin(x[:, 0]) - 3].set(0.0), X),
    row("lax.gather(clip)", lambda x: lax.gather(x, STARTS, GATHERED, (1, 2), mode="clip") ** 2, X),
    row("lax.gather(fill)", lambda x: jnp.nan_to_num(lax.gather(x, STARTS, GATHERED, (1, 2), mode="fill",
                                                                fill_value=0)) ** 2, X),
    *[row(f"lax.{function.__name__}({mode})", scattered(function, mode), X, Y)
      for function in (lax.scatter_add, lax.scatter_sub, lax.scatter) for mode in ("clip", "fill")],
    # Where an index is outside and clipped, JAX's derivative of the extremum is NaN.
    *[row(f"lax.{function.__name__}({mode})", scattered(function, mode), X, Y, orders=0 if mode == "clip" else 3)
      for function in (lax.scatter_min, lax.scatter_max) for mode in ("clip", "fill")],
    row("lax.scatter_mul", lambda x, y: lax.scatter_mul(x, STARTS, y[:, :2], SCATTERED, mode="clip",
                                                        unique_indices=True) ** 2, X, Y),
    row("lax.scatter_apply", lambda x: lax.scatter_apply(x, np.array([[1]]), jnp.sin, lax.ScatterDimensionNumbers(
        update_window_dims=(0,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)),
        update_shape=(4, 1)) ** 2, X, orders=0, opaque=1),
    row("lax.dynamic_slice", lambda x: lax.dynamic_slice(x, (1, jnp.argmax(x[0])), (2, 2)) ** 2, X),
    row("lax.dynamic_update_slice", lambda x: lax.dynamic_update_slice(x, x[:2, :2] ** 2, (9, jnp.argmax(x[0]))), X),
    row("lax.dynamic_index_in_dim", lambda x: lax.dynamic_index_in_dim(x, jnp.argmax(x[0]), 1) ** 2, X),
    row("lax.slice", lambda x: lax.slice(x, (0, 1), (3, 4), (2, 2)) ** 2 * lax.slice_in_dim(x, 0, 2, axis=1)[:2], X),
    row("lax.index_take", lambda x: lax.index_take(x, (np.array([0, 2]),), (0,)) ** 2, X),
    row("jnp.ravel_multi_index", lambda x: x.ravel()[jnp.ravel_multi_index((AT[:2], AT[2:]), (3, 4), mode="wrap")] ** 2,
        X),
    row("jnp.unravel_index", lambda x: x[jnp.unravel_index(jnp.argmax(x), x.shape)] ** 2, X),
    row("jnp.diag_indices", lambda x: jnp.diag_indices(3)[0] * x[0, :3], X),
    row("jnp.argwhere", lambda x: jnp.argwhere(x[0] > 0, size=4)[:, 0] * x[0], X),
    row("jnp.isin", lambda x: jnp.isin(jnp.arange(5), WHOLE) * x, VECTOR),
]  # fmt: skip
