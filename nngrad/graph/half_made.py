"""What JAX leaves in its caches where an interrupt comes while it traces or lowers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax

from .process import go_on_in, trace_of_now

_CACHES = os.path.join("jax", "_src", "util.py")


def unharmed(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which JAX may trace, and which an interrupt breaks neither for later calls nor for other threads."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        before = trace_of_now()
        try:
            return function(*arguments, **options)
        except BaseException as error:
            go_on_in(before)
            if not has_met_half_made(error):
                raise
        return function(*arguments, **options)

    return run


def has_met_half_made(error: BaseException) -> bool:
    """Whether a call failed because an entry in JAX's caches was never finished, so that it works when it is repeated.

    Such entries, and one that `error` has just left, are dropped, with all else in the caches. Some versions of JAX
    (0.10.2 is one) call Python between the moment at which an entry is noted as being made and the moment from which a
    failure is noted too. Of an interrupt that comes there the entry never knows: the same thread gets a RecursionError
    from it ever after, and any other thread waits for ever.
    """
    met = isinstance(error, RecursionError) and str(error).startswith("Recursively calling <weakref")
    if met or _fell_into_a_cache(error):
        jax.clear_caches()
    return met


def _fell_into_a_cache(error: BaseException) -> bool:
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_name == "<lambda>" and code.co_filename.endswith(_CACHES):
            return True
        at = at.tb_next
    return False
