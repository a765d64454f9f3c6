"""JAX's random keys as the integer data that Variables can hold."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_pytree_node_class
class KeyData:
    """Random keys among arguments and results, as their data, and the name of what draws with them. In a pytree they
    are a node; where the data become an array, there are the keys in its place."""

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
        if getattr(data, "dtype", None) == jax.dtypes.float0:  # their tangents
            return np.zeros(data.shape[:-1], jax.dtypes.float0)
        if isinstance(data, jax.Array):
            return jax.random.wrap_key_data(data, impl=implementation)
        return cls(data, implementation)


def is_key(value: Any) -> bool:
    """Whether `x` is an array of random keys, or the description of one."""
    dtype = getattr(value, "dtype", None)
    return not isinstance(dtype, np.dtype | None) and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
