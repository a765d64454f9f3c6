"""`nngrad view`: show a graph of a script or file as an interactive page."""

from __future__ import annotations

import argparse

from nngrad_command.outcome import reported

from ..inspection.viewing.view import NoPage, show_page, write_graph
from .from_script import graph_named

DESCRIPTION = (
    "Look at a graph as a page in the browser. The graph is that of a Variable of a script of Python, which is run for "
    "it, of a list, tuple or dict of them, or of a function in the script that returns such; or it is in a file that "
    "nn.save_graph has written. The page is one file that needs no network."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad view`."""
    parser.add_argument("graph", metavar="GRAPH",
                        help="SCRIPT.py:NAME, or a file of nn.save_graph, or one output of that, FILE:NAME")
    parser.add_argument("--output", type=str, metavar="FILE",
                        help="page to write, which ends in .html (default: a temporary one)")
    parser.add_argument("--no-open", action="store_true", help="open no browser; print the name of the file")
    parser.add_argument("--values", action="store_true",
                        help="run the graph, and tell of all values their range, mean and NaN")
    parser.add_argument("--timed", action="store_true", help="run each function a few times, to tell how long it takes")


@reported("view", NoPage, TypeError, ValueError)
def run(given: argparse.Namespace) -> int:
    """`nngrad view`; returns the exit code."""
    named = graph_named(given.graph)
    file = write_graph(
        named.outputs, given.output, title=named.title, values=given.values, timed=given.timed,
        parameters=named.parameters,
    )  # fmt: skip
    if given.no_open:
        print(file)
    else:
        show_page(file)
    return 0
