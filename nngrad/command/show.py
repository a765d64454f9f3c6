"""`nngrad show`: print a graph of a script or file as text."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from nngrad_command.outcome import reported

from ..inspection import Difference, Listing
from ..inspection import show as listing_of
from ..inspection.listing import COLUMNS
from .from_script import graph_named

DESCRIPTION = (
    "Print a graph as text, one line for each function. SCRIPT:NAME is a global of a Python script: a Variable, a "
    "list, tuple or dict of them, or a function without arguments that returns one of these. The script is run, but "
    'for what is under `if __name__ == "__main__":`. A file that nn.save_graph has written is FILE, or FILE:OUTPUT. '
    "Of two graphs, what is different in the second one."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad show`."""
    parser.add_argument("graph", metavar="SCRIPT:NAME", help="the graph")
    parser.add_argument("other", metavar="SCRIPT:NAME", nargs="?", help="another graph, to be compared with it")
    parser.add_argument("--columns", type=_columns, metavar="C,...",
                        help=f"what else is shown: {', '.join(COLUMNS)}, or all (default: what there is to say, "
                        "but for rules)")
    parser.add_argument("--no-fold", action="store_false", dest="fold", help="write out blocks that repeat")
    parser.add_argument("--width", type=_width, metavar="N",
                        help="columns of text (default: those of the terminal; without one as many as it takes)")


@reported("show", ValueError)
def run(given: argparse.Namespace) -> int:
    """`nngrad show`; returns the exit code."""
    listing = _listing(given.graph, given)
    shown: Listing | Difference = listing
    if given.other is not None:
        shown = listing.diff(_listing(given.other, given))
    console = Console(width=given.width) if given.width else Console()
    if console.is_terminal:
        console.print(shown, highlight=False)
    else:
        sys.stdout.write(shown.text(given.width) + "\n")
    return 0


def _listing(target: str, given: argparse.Namespace) -> Listing:
    graph = graph_named(target)
    return listing_of(graph.outputs, given.columns, fold=given.fold, parameters=graph.parameters)


def _columns(text: str) -> str | list[str]:
    names = text.split(",") if text else []
    for name in names:
        if name not in COLUMNS and text != "all":
            raise argparse.ArgumentTypeError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")
    return text if text == "all" else names


def _width(text: str) -> int:
    if not text.isdecimal() or int(text) < 20:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of columns, at least 20")
    return int(text)
