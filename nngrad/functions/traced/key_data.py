"""JAX's random keys as the integer data that Variables can hold."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_pytree_node_class
class KeyData:
    """Random keys among arguments and results, as their data and the name of their generator. They are a node of a
    pytree; unflattening it with an array as data gives back the keys."""

    __slots__ = ("data", "implementation")

    def __init__(self, data: Any, implementation: str) -> None:
        self.data, self.implementation = data, implementation

    @classmethod
    def of(cls, keys: jax.Array) -> KeyData:
        """An array of keys."""
        return cls(jax.random.key_data(keys), str(jax.random.key_impl(keys)))

    def tree_flatten(self) -> tuple[tuple[Any], str]:
        """The key data, and the name of the generator."""
        return (self.data,), self.implementation

    @classmethod
    def tree_unflatten(cls, implementation: str, parts: Any) -> Any:
        """Keys, or a placeholder for them."""
        (data,) = parts
        if getattr(data, "dtype", None) == jax.dtypes.float0:  # tangents of keys
            return np.zeros(data.shape[:-1], jax.dtypes.float0)
        if isinstance(data, jax.Array):
            return jax.random.wrap_key_data(data, impl=implementation)
        return cls(data, implementation)


def is_key(value: Any) -> bool:
    """True if `value` is an array of random keys, or describes one."""
    dtype = getattr(value, "dtype", None)
    return not isinstance(dtype, np.dtype | None) and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
