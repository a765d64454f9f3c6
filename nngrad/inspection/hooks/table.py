"""Tables of what hooks have seen."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Lines of columns, the first `words` of which are flush left."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    aligned = [
        [cell.ljust(w) if i < words else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
        for line in lines
    ]
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def amount(bytes_: float) -> str:
    """A number of bytes."""
    for unit in ("B", "kB", "MB"):
        if abs(bytes_) < 1000:
            return f"{bytes_:.4g} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.4g} GB"
