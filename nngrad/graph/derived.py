"""Cache results that are derived from blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .block import bodies_in
from .options import build_options, contained, switch_to, watching_for_users_code
from .thresholds import MOST_DERIVED

P = ParamSpec("P")
R = TypeVar("R")


class _NotKept(Exception):
    """Carries an answer past the cache."""


def derived_once(derive: Callable[P, R]) -> Callable[P, R]:
    """Cache a function that derives something from bodies, its only arguments. An answer in which user code took part
    is not cached.

    The function runs with none of the caller's switches in force, except the rules that simplify gradients. Equal
    bodies written in different places have separate entries.
    """

    @contained
    def derived(simplify: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        switch_to(simplify=simplify)
        return derive(*args, **kwargs)

    @functools.lru_cache(maxsize=MOST_DERIVED)
    def derivation(simplify: Any, locations: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        del locations
        answer, is_users = watching_for_users_code(lambda: derived(simplify, *args, **kwargs))
        if is_users:
            raise _NotKept(answer)  # a raised answer is not cached
        return answer

    @functools.wraps(derive)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        locations = tuple([body.locations for body in bodies_in(args)])
        try:
            return derivation(build_options().emitting.simplify, locations, *args, **kwargs)  # type: ignore[arg-type]  # hashable
        except _NotKept as given:
            answer: R = given.args[0]
            return answer

    return ask
