"""Writes the table of from_chainer.md from from_chainer.csv: `python docs/from_chainer.py`."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import nngrad as nn
import nngrad.functions as F

HERE = Path(__file__).parent
PAGE = HERE / "from_chainer.md"
NAME = re.compile(r"\b(F|nn)\.(\w+)")
PLACES = {"F": F, "nn": nn}
START, END = "<!-- table -->\n", "<!-- end of the table -->\n"


def rows() -> list[dict[str, str]]:
    """What is known of each function of Chainer's."""
    with (HERE / "from_chainer.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def is_there(text: str) -> bool:
    """Whether all names in a text are those of something."""
    return all([hasattr(PLACES[place], name) for place, name in NAME.findall(text)])


def cells(row: dict[str, str]) -> tuple[str, str, str]:
    """The function, where it is here, and what differs."""
    name, here, differs = row["function"], row["here"], row["differs"]
    if differs.startswith("not here"):
        return name, "", differs
    here = here or f"F.{name}"
    return (name, f"`{here}`", differs) if is_there(here) else (name, "", "not here yet")


def table() -> str:
    """The table, by sections of Chainer's reference."""
    lines, section = [], ""
    for row in rows():
        if row["section"] != section:
            section = row["section"]
            lines += ["", f"### {section.capitalize()}", "", "| Chainer | here | what differs |", "| --- | --- | --- |"]
        name, here, differs = cells(row)
        lines.append(f"| `{name}` | {here} | {differs} |")
    return "\n".join([*lines[1:], ""])


def page() -> str:
    """The whole page, with the table as it should be."""
    text = PAGE.read_text()
    before, rest = text.split(START)
    return f"{before}{START}{table()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page())
