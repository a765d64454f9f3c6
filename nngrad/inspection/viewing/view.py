"""`nn.view`: show a graph as an interactive page."""

from __future__ import annotations

import base64
import html
import json
import os
import sys
import tempfile
import webbrowser
import zlib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...extend import Variable, variables
from ...files.replacing import checked_ending, write_whole
from ..description import Description, describe
from .document import document
from .lifetimes import lifetimes_of

_INSTEAD = "the page itself exports DOT, the JSON of Model Explorer, SVG and PNG, and nn.draw writes SVG"
"""What is said of paths of other files."""
_MOST_NAMED = 3
"""The maximum number of outputs named in a title."""
_NO_DISPLAY = "linux", "freebsd"
"""Systems on which browsers need a display, named in the environment."""
PLACE = '<script type="application/json" id="graph">null</script>'
"""The placeholder for the document in a page."""
_LARGE = 1 << 17
"""The number of characters from which a document is deflated."""
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
"""JSON escapes of characters that could end the element around the document, or begin another one."""
_FRAME = "width:100%;height:640px;border:1px solid #8886;resize:vertical;overflow:hidden"


def view(
    outputs: Variable | Iterable[Variable],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    parameters: Mapping[str, Variable] | None = None,
) -> Path:
    """View the graph that computes `outputs`: in the output of a notebook cell, or in a browser.

    The page is one HTML file and needs no network and no server. A row is a rank of the forward graph, a column an
    order of differentiation, so a gradient lies beside the function that it comes from. For each function the page
    shows operands and users, rule, cost, scope and memory. See docs/viewing.md.

    Args:
        outputs: A Variable or Variables. Give a loss together with its gradients.
        path: The page to write, which ends in .html. With a path nothing is opened; without one, a temporary file is
            written and shown.
        title: The title of the page; by default the names of the outputs.
        parameters: Names of unregistered parameters, as returned by `model.get_parameters()`.

    Returns:
        The path of the file.

    Raises:
        TypeError: Something is not a Variable, or an argument has the wrong type.
        ValueError: `path` has another ending, or there are no outputs.
        OSError: The file cannot be written.
    """
    listed = variables(outputs, "outputs")
    file = None if path is None else checked_ending(path, ".html", _INSTEAD)
    if not isinstance(title, str):
        raise TypeError(f"title: expected a str, got {title!r}")
    described = describe(listed, parameters)
    text = page_of(document(described, title or _title(described), lifetimes_of(described)))
    content = text.encode("utf-8", "backslashreplace")  # lone surrogates, in names
    if file is not None:
        write_whole(file, content)
        return file
    with tempfile.NamedTemporaryFile(prefix="nngrad-", suffix=".html", delete=False) as opened:
        opened.write(content)
    file = Path(opened.name)
    ipython = sys.modules.get("IPython")
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:  # not IPython in a terminal
        ipython.display.display(ipython.display.HTML(_frame(text)))
    else:
        _open(file)
    return file


def _title(described: Description) -> str:
    names = list(dict.fromkeys([described.names[node] for node, _ in described.outputs]))
    return ", ".join(names[:_MOST_NAMED]) + ", …" * (len(names) > _MOST_NAMED)


def _open(file: Path) -> None:
    """Open a page in a browser, or print its path if there is no browser."""
    has_display = not sys.platform.startswith(_NO_DISPLAY) or bool(
        {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & os.environ.keys()
    )
    if not (has_display and webbrowser.open(file.resolve().as_uri())):
        print(f"could not open a browser; the page is {file}")


def _frame(page: str) -> str:
    """A page within a notebook, in a frame that isolates them from each other: without `allow-same-origin`, since names
    in a graph are not trusted with the notebook."""
    # IPython warns of what ends with a frame, and recommends its own, which takes only addresses.
    return (f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads" title="graph" '
            f'style="{_FRAME}"></iframe>\n')  # fmt: skip


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


def _template() -> tuple[str, str]:
    """The page's HTML before and after the document."""
    file = files(__package__) / "page" / "template.html"
    before, _, after = file.read_text(encoding="utf-8").partition(PLACE)
    return before, after
