"""A document as a self-contained HTML page, safe against code in names."""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

PLACE = '<script type="application/json" id="graph">null</script>'
"""What a page has for its document."""
_LARGE = 1 << 17
"""Characters of a document from which on it is deflated."""
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
"""What could end the element that the document is in, or begin another one, as it may be written in JSON."""


class NoPage(RuntimeError):
    """The built part of the page is missing."""


def page_of(document: Mapping[str, Any]) -> str:
    """The page that shows a document."""
    before, after = _template()
    text = embedded(document)
    return f"{before}{PLACE.replace('null', text)}{after}"


def embedded(document: Mapping[str, Any]) -> str:
    """A document as JSON that is safe within an HTML element, deflated if it is large."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    if len(text) > _LARGE:
        packed = base64.b64encode(zlib.compress(text.encode("ascii"), 6)).decode("ascii")
        return f'{{"deflated":"{packed}"}}'
    return text.translate(_ESCAPES)


class Inline:
    """A page within a notebook, in a frame that isolates the two from each other.

    Args:
        file: The page.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __repr__(self) -> str:
        return f"<graph in {self._file}>"  # for front ends without HTML

    def _repr_html_(self) -> str:
        page = html.escape(self._file.read_text(encoding="utf-8"))
        return (f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="graph" '
                f'style="{_FRAME}"></iframe>')  # fmt: skip


_FRAME = "width:100%;height:640px;border:1px solid #8886;resize:vertical;overflow:hidden"


def _template() -> tuple[str, str]:
    """The page's HTML before and after the document."""
    file = files(__package__) / "page" / "template.html"
    try:
        before, place, after = file.read_text(encoding="utf-8").partition(PLACE)
    except FileNotFoundError:
        raise NoPage(
            f"{file} is missing: this nngrad was installed from sources without the built page. Run `npm ci` and "
            "`npm run build` in viewer/, or write a .dot or .json file"
        ) from None
    if not place:
        raise NoPage(f"{file} has no place for a document; run `npm run build` in viewer/")
    return before, after
