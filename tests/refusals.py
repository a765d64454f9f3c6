"""Tests of what is refused, from tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def refused(
    cases: Sequence[tuple[Any, ...]], kind: type[Exception] | tuple[type[Exception], ...] = ValueError,
    pattern: str = "{}", given: Callable[[], Any] | None = None, after: Callable[[], Any] | None = None,
) -> Callable[..., None]:
    """A test of calls that raise an error.

    Args:
        cases: The call, the error's message as a regular expression, and the error's type if it is not `kind`, in any
            order.
        kind: The type of errors.
        pattern: What is looked for, with the message in the place of the braces.
        given: Makes the argument of each call, if it takes one.
        after: Whether nothing was left behind.
    """

    @pytest.mark.parametrize("case", cases, ids=lambda case: next(filter(lambda x: isinstance(x, str), case)))
    def test(case: tuple[Any, ...]) -> None:
        by_type = {"message" if isinstance(x, str) else "kind" if isinstance(x, type) else "call": x for x in case}
        with pytest.raises(by_type.get("kind", kind), match=pattern.format(by_type["message"])):
            by_type["call"](*([given()] if given else []))
        assert after is None or after()

    return test
