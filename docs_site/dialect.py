"""Pages as GitHub reads them, and docstrings as Python shows them, made into what Python-Markdown reads likewise."""

from __future__ import annotations

import re

FENCE = re.compile(r"\s*(`{3,}|~{3,})")
ITEM = re.compile(r" *(?:[-*+]|\d+\.) ")


def spaced(markdown: str) -> str:
    """The text with an empty line before each list, table and fenced block, and behind it; what is nested in an item of
    a list is indented by four spaces."""
    lines: list[str] = []
    fence = ""
    kind = "empty"
    for line in markdown.splitlines():
        if fence:
            lines.append(line)
            if line.strip() == fence:
                fence, kind = "", "block"
            continue
        opening = FENCE.match(line)
        now = "fence" if opening else _kind(line, kind)
        if kind != "empty" and now not in ("empty", kind) and not (kind == "item" and now == "within"):
            lines.append("")
        if opening:
            fence = opening[1]
        nested = len(line) - len(line.lstrip(" ")) if "item" in (kind, now) or now == "within" else 0
        lines.append(" " * nested + line)
        kind = "item" if now == "within" else now
    return "\n".join(lines) + "\n"


def of_docstring(text: str) -> str:
    """A docstring, which is no Markdown but for its backquotes: stars are stars. Its arguments are under a title of
    their own, for layers have parameters besides."""
    paragraphs = text.split("\n\n")
    written = "\n\n".join([p if p.startswith("    ") else _starred(p) for p in paragraphs])
    return re.sub(r"^Args:$", "Args: Arguments:", written, flags=re.MULTILINE)


def _starred(paragraph: str) -> str:
    return re.sub(r"(`+[^`]*`+)|\*", lambda found: found[1] or r"\*", paragraph)


def _kind(line: str, before: str) -> str:
    """What a line is: 'empty', 'table', 'item', 'within' an item, 'heading' or 'text'."""
    if not line.strip():
        return "empty"
    if line.startswith("|"):
        return "table"
    if ITEM.match(line):
        return "item"
    if before == "item" and line.startswith(" "):
        return "within"
    return "heading" if line.startswith("#") else "text"
