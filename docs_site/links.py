"""Links of pages, and text that GitHub reads otherwise than Python-Markdown: both as the site has them."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import urlsplit

from . import ROOT

FENCED = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[^\S\n]*$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
LINK = re.compile(r"(?P<text>!?\[(?:[^][]|\[[^][]*\])*\])\((?P<target>[^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
HOMES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "benchmarks/README.md": "how_it_is_measured.md",
    "benchmarks/results": "all_measurements.md",
    "examples": "examples.md",
}
"""What is not in `docs/`, and the page of the site that has it."""


def place_of(path: str) -> str:
    """Where the site has a file of the repository, below `docs/`: itself, or a page with its source."""
    if path in HOMES:
        return HOMES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def is_external(target: str) -> bool:
    """Whether a link leads out of the repository."""
    return bool(urlsplit(target).scheme) or target.startswith("//")


def targets(markdown: str) -> list[str]:
    """What the links of a page lead to, those in code left out."""
    return [found["target"] for found in LINK.finditer(INLINE.sub("", FENCED.sub("", markdown)))]


def rewritten(markdown: str, origin: str, place: str) -> str:
    """The text of a file of the repository as a page of the site, with its links changed accordingly.

    Args:
        markdown: The text.
        origin: The file: `docs/memory.md`, `CHANGELOG.md`.
        place: Where the site has it, below `docs/`.
    """

    def moved(found: re.Match[str]) -> str:
        target = found["target"]
        if is_external(target) or target.startswith("#"):
            return found[0]
        path, mark, anchor = target.partition("#")
        named = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        there, text = place_of(named), found["text"]
        if text == f"[{path}]" or text == f"[{posixpath.basename(path)}]":  # a page by its title, not by its file
            text = f"[{title_of(named)}]"
        return f"{text}({posixpath.relpath(there, posixpath.dirname(place) or '.')}{mark}{anchor})"

    return outside_code(markdown, lambda text: LINK.sub(moved, text))


@functools.cache
def title_of(path: str) -> str:
    """What a page of the repository calls itself; the name of a file that is no page."""
    found = HEADING.search((ROOT / path).read_text(encoding="utf-8")) if path.endswith(".md") else None
    return found[1] if found else path


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """The text with all that is not in a fenced block changed."""
    parts, end = [], 0
    for block in FENCED.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def linked(markdown: str, names: Iterable[str]) -> str:
    """The text with each name, or call, that is in backquotes and in no link as a link to the reference."""
    known = set(names)

    def change(line: str) -> str:
        if line.startswith("#"):
            return line
        taken = [found.span() for found in LINK.finditer(line)]

        def as_link(found: re.Match[str]) -> str:
            inside = any(start <= found.start() < end for start, end in taken)
            return found[0] if inside or found[1] not in known else f"[{found[0]}][{found[1]}]"

        return re.sub(r"(?<![`\[])`([A-Za-z]\w*(?:\.\w+)+)(?:\([^`]*\))?`(?!`)", as_link, line)

    return outside_code(markdown, lambda text: "".join([change(line) for line in text.splitlines(keepends=True)]))


def spaced(markdown: str) -> str:
    """The text with an empty line around each fenced block, and between text and the list or table below it."""
    text_above = r"(?m)^((?![-*+|#>\s]|\d+\. ).+\n|(?:[-*+]|\d+\.| ) .*\n(?=\|))(?=[-*+] |\d+\. |\|)"
    text = outside_code(markdown, lambda text: re.sub(text_above, r"\1\n", text))
    return FENCED.sub(lambda block: f"\n{block[0]}\n", text)


def of_docstring(text: str) -> str:
    """A docstring, which is no Markdown but for its backquotes: stars are stars. Its arguments are under a title of
    their own, for layers have parameters besides."""
    starless = partial(re.sub, r"(`+[^`]*`+)|\*", lambda found: found[1] or r"\*")
    paragraphs = [p if p.startswith("    ") else starless(p) for p in text.split("\n\n")]
    return re.sub(r"^Args:$", "Args: Arguments:", "\n\n".join(paragraphs), flags=re.MULTILINE)
