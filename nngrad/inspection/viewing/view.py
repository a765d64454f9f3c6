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
from .document import Measured, document
from .runs import lifetimes_of, seconds_of, values_of_run, values_there

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
    values: bool = False,
    timed: bool = False,
    parameters: Mapping[str, Variable] | None = None,
) -> Path:
    """View the graph that computes `outputs`: in the output of a notebook cell, or in a browser.

    The page is one HTML file and needs no network and no server. A row is a rank of the forward graph, a column an
    order of differentiation, so a gradient lies beside the function that it comes from. For each function the page
    shows operands and users, rule, cost, scope, memory, and its values where they are known. See docs/viewing.md.

    Args:
        outputs: A Variable or Variables. Give a loss together with its gradients.
        path: The page to write, which ends in .html. With a path nothing is opened; without one, a temporary file is
            written and shown.
        title: The title of the page; by default the names of the outputs.
        values: Run the graph, function by function, and show range, mean and NaN of every value. Otherwise nothing
            runs, and the page shows the values that have already been computed.
        timed: Run the graph, function by function, a few times, and show the time of each function by itself.
        parameters: Names of unregistered parameters, as returned by `model.get_parameters()`.

    Returns:
        The path of the file.

    Raises:
        TypeError: Something is not a Variable, or an argument has the wrong type.
        ValueError: `path` has another ending, or there are no outputs.
        OSError: The file cannot be written.
    """
    file = write_graph(outputs, path, title=title, values=values, timed=timed, parameters=parameters)
    if path is None and not _shown_inline(file):
        show_page(file)
    return file


def _shown_inline(file: Path) -> bool:
    """Show a page in the output of the current cell, if this is a notebook (Jupyter, VS Code, Colab)."""
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:  # IPython in a terminal
        return False
    ipython.display.display(Inline(file))
    return True


def write_graph(
    outputs: Variable | Iterable[Variable],
    path: str | os.PathLike[str] | None,
    *,
    title: str,
    values: bool,
    timed: bool,
    parameters: Mapping[str, Variable] | None,
) -> Path:
    """Write the page of a graph for `view`, to a temporary file if there is no `path`, and return its path."""
    listed = variables(outputs, "outputs")
    file = None if path is None else checked_ending(path, ".html", _INSTEAD)
    for name, value, kind in (("title", title, str), ("values", values, bool), ("timed", timed, bool)):
        if not isinstance(value, kind):
            raise TypeError(f"view: {name} must be {'a str' if kind is str else 'True or False'}, got {value!r}")
    described = describe(listed, parameters)
    title = title or _title(described)
    text = page_of(document(described, title, _measured(described, listed, values, timed)))
    content = text.encode("utf-8", "backslashreplace")  # lone surrogates, in names
    if file is not None:
        write_whole(file, content)
        return file
    with tempfile.NamedTemporaryFile(prefix="nngrad-", suffix=".html", delete=False) as opened:
        opened.write(content)
    return Path(opened.name)


def _title(described: Description) -> str:
    names = list(dict.fromkeys([described.names[node] for node, _ in described.outputs]))
    return ", ".join(names[:_MOST_NAMED]) + ", …" * (len(names) > _MOST_NAMED)


def _measured(described: Description, outputs: list[Variable], values: bool, timed: bool) -> Measured:
    seen = values_of_run(described, outputs) if values else values_there(described)
    return Measured(
        lifetimes_of(described, outputs),
        seconds_of(described, outputs) if timed else None,
        None if seen is None else seen.bad,
        None if seen is None else seen.statistics,
    )


def show_page(file: Path) -> bool:
    """Open a page in a browser, or print its path if there is no browser.

    Args:
        file: The page.

    Returns:
        Whether a browser was found.
    """
    has_display = not sys.platform.startswith(_NO_DISPLAY) or bool(
        {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & os.environ.keys()
    )
    opened = has_display and webbrowser.open(file.resolve().as_uri())
    if not opened:
        print(f"could not open a browser; the page is {file}")
    return opened


# ---------------------------------------------------------------- self-contained pages


class NoPage(RuntimeError):
    """The page's template, which is built separately, is missing."""


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
    """A page within a notebook, in a frame that isolates them from each other.

    Args:
        file: The page.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __repr__(self) -> str:
        return f"<graph in {self._file}>"  # for front ends without HTML

    def _repr_html_(self) -> str:
        # Without `allow-same-origin`: names in a graph are not trusted with the notebook.
        page = html.escape(self._file.read_text(encoding="utf-8"))
        return (f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="graph" '
                f'style="{_FRAME}"></iframe>')  # fmt: skip


def _template() -> tuple[str, str]:
    """The page's HTML before and after the document."""
    file = files(__package__) / "page" / "template.html"
    try:
        before, place, after = file.read_text(encoding="utf-8").partition(PLACE)
    except FileNotFoundError:
        raise NoPage(
            f"{file} is missing: this nngrad was installed from source without the built page. Run `npm ci` and "
            "`npm run build` in viewer/, or draw an SVG file with nn.draw"
        ) from None
    if not place:
        raise NoPage(f"{file} has no place for a document; run `npm run build` in viewer/")
    return before, after
