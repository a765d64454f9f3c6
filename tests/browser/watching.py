"""Pages that may do no more than they should."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def watched_page(browser: Any, address: str) -> Iterator[Any]:
    """A page, opened. It may write no error to the console, raise none, and ask for nothing beyond `address`."""
    context = browser.new_context(viewport={"width": 1300, "height": 850}, color_scheme="light")
    opened = context.new_page()
    allowed = (address, "data:", "blob:")
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda r: None if r.url.startswith(allowed) else wrong.append(r.url))
    opened.goto(address)
    yield opened
    assert wrong == []
    context.close()
