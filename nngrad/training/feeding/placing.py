"""Batches on the devices that use them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ...graph.mesh import Mesh
from ...graph.processes import parts_of
from ...graph.spec import x64_if


def placed(batch: Any, mesh: Mesh | None, device: jax.Device | None) -> Any:
    """A batch, whose NumPy arrays are on devices when this returns, in memory of their own.

    Args:
        batch: Arrays, in tuples, lists and dicts; whatever else there is stays as it is.
        mesh: Where it is divided over `data`; None for a single device.
        device: That device; None for the one that JAX takes.
    """
    made = jax.tree.map(lambda leaf: _placed_array(leaf, mesh, device) if isinstance(leaf, np.ndarray) else leaf, batch)
    # Waited for here, where nobody else waits, so that no more than was asked for is on its way.
    jax.block_until_ready([leaf for leaf in jax.tree.leaves(made) if isinstance(leaf, jax.Array)])
    return made


def _placed_array(array: np.ndarray[Any, Any], mesh: Mesh | None, device: jax.Device | None) -> Any:
    if array.dtype.kind not in "biufV" or (array.dtype.kind == "V" and array.dtype.fields is not None):
        return array  # strings, objects, records
    # Copied by NumPy, since JAX reads an array that it is given for some time after the call, even if it is waited for,
    # and a source may write its next batch into the same memory.
    array = array.copy()
    with x64_if(array.dtype.itemsize == 8):
        if mesh is None:
            return jax.device_put(array, device)
        if not mesh.spans_processes:
            return jax.device_put(array, mesh.of_batch(array.shape))
        whole = (array.shape[0] * parts_of(mesh), *array.shape[1:]) if array.ndim else ()
        return jax.make_array_from_process_local_data(mesh.of_batch(whole), array, whole)
