"""Tables as text: columns that are as wide as their widest cells, and numbers of bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = (), rules: Collection[int] = ()) -> list[str]:
    """Rows as lines.

    Args:
        rows: The cells of each row.
        numbers: The columns that are flush right.
        rules: The rows that have a rule above them.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for i, row in enumerate(rows):
        if i in rules:
            lines.append("  ".join(["-" * width for width in widths]))
        cells = [cell.rjust(w) if k in numbers else cell.ljust(w)
                 for k, (cell, w) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    return lines


def unit_of_bytes(nbytes: float) -> tuple[float, str]:
    """A unit that suits so many bytes, and its name."""
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(nbytes) >= size:
            return size, name
    return 1.0, "B"


def shown_bytes(nbytes: float, digits: int = 3) -> str:
    """A number of bytes in a unit that suits it."""
    size, name = unit_of_bytes(nbytes)
    return f"{nbytes / size:.{digits}g} {name}"
