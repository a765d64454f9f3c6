"""Links of pages: where they lead in the site, and whether what they lead to is there."""

from __future__ import annotations

import functools
import os
import posixpath
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

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
    "examples": "gallery.md",
}
"""What is not in `docs/`, and the page of the site that has it."""
SHARED = {"pinn", "script", "jax_script"}
"""Files of `examples/` that examples have in common."""
FETCHED = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')\s]+)")
"""What a style sheet loads from another host."""


def place_of(path: str) -> str:
    """Where the site has a file of the repository, below `docs/`: itself, its page, or a page with its source."""
    if path in HOMES:
        return HOMES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if re.fullmatch(r"examples/\w+\.py", path) and posixpath.basename(path)[:-3] not in SHARED:
        return path[:-3] + ".md"
    return f"source/{path}.md"


def is_external(target: str) -> bool:
    """Whether a link leads out of the repository."""
    return bool(urlsplit(target).scheme) or target.startswith("//")


def targets(markdown: str) -> list[str]:
    """What the links of a page lead to, those in code left out."""
    return [found["target"] for found in LINK.finditer(_without_code(markdown))]


def _without_code(markdown: str) -> str:
    return INLINE.sub("", FENCED.sub("", markdown))


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


def anchors(markdown: str) -> set[str]:
    """The anchors of the headings of a page, as Python-Markdown makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", markdown)):
        explicit = re.search(r"\{[^}]*#([^\s}]+)[^}]*\}$", heading)
        base = slug = explicit[1] if explicit else slug_of(heading)
        count = 0
        while slug in found:
            count += 1
            slug = f"{base}_{count}"
        found.add(slug)
    return found


def slug_of(heading: str) -> str:
    """The anchor of a heading."""
    text = LINK.sub(lambda found: found["text"].lstrip("!")[1:-1], heading)
    text = unicodedata.normalize("NFKD", text.replace("`", "").replace("*", "")).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def dead_links(pages: Iterable[Path], root: Path) -> list[str]:
    """Links of pages that lead to no file of the repository, or to no heading of it."""
    dead = []
    for page in pages:
        for target in targets(page.read_text(encoding="utf-8")):
            if is_external(target):
                continue
            path, _, anchor = target.partition("#")
            there = page if not path else Path(os.path.normpath(page.parent / path))
            if not there.exists() or not there.is_relative_to(root):
                dead.append(f"{page.relative_to(root)}: {target} is not there")
            elif anchor and (there.suffix != ".md" or anchor not in anchors(there.read_text(encoding="utf-8"))):
                dead.append(f"{page.relative_to(root)}: {target} has no such heading")
    return dead


# ---------------------------------------------------------------- of the built site


class Document(NamedTuple):
    """What matters of a page of HTML."""

    anchors: set[str]
    links: list[str]
    loaded: list[str]
    """What a browser fetches to show it."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.document = Document(set(), [], [])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for each element."""
        given = {name: value or "" for name, value in attrs}
        self.document.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and given.get("href"):
            self.document.links.append(given["href"])
        loads = tag in ("script", "img", "iframe", "source", "audio", "video", "embed")
        if loads and given.get("src"):
            self.document.loaded.append(given["src"])
        if tag == "link" and given.get("href") and given.get("rel") not in ("canonical", "alternate"):
            self.document.loaded.append(given["href"])


def document(path: Path) -> Document:
    """What a page of HTML leads to and loads."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.document


def faults(site: Path) -> tuple[list[str], list[str]]:
    """What is wrong with the links of a built site.

    Returns:
        What leads nowhere or would be fetched from elsewhere; and the addresses elsewhere that pages lead to, which
        nobody has looked up.
    """
    documents = {path: document(path) for path in sorted(site.rglob("*.html"))}
    wrong, elsewhere = [], set()
    for path, of_page in documents.items():
        name = path.relative_to(site)
        wrong += [f"{name}: loads {target} from elsewhere" for target in of_page.loaded if is_fetched(target)]
        for target in [*of_page.links, *of_page.loaded]:
            if is_external(target):
                elsewhere.add(target)
                continue
            split = urlsplit(target)
            there = path if not split.path else Path(os.path.normpath(path.parent / unquote(split.path)))
            if split.path.startswith("/") or path.name == "404.html":
                continue  # the page for what is not there leads to the top of a server
            if there.is_dir():
                there /= "index.html"
            if not there.is_relative_to(site) or not there.exists():
                wrong.append(f"{name}: {target} is not there")
            elif split.fragment and there in documents and unquote(split.fragment) not in documents[there].anchors:
                wrong.append(f"{name}: {target} has no such anchor")
    for sheet in sorted([*site.rglob("*.css"), *site.rglob("*.html")]):
        for target in FETCHED.findall(sheet.read_text(encoding="utf-8")):
            wrong.append(f"{sheet.relative_to(site)}: loads {target} from elsewhere")
    return wrong, sorted(elsewhere)


def is_fetched(target: str) -> bool:
    """Whether a browser asks another host for it."""
    return urlsplit(target).scheme in ("http", "https") or target.startswith("//")


def main() -> int:
    """Check the site in the folder that the command line names; returns the exit code."""
    wrong, elsewhere = faults(Path(sys.argv[1]))
    print("".join([f"{line}\n" for line in wrong]), end="", file=sys.stderr)
    print(f"{len(wrong)} dead links. Pages lead elsewhere to, which was not looked up:")
    print("".join([f"  {address}\n" for address in elsewhere]), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
