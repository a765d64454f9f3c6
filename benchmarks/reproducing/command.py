"""`nngrad reproduce`: run a comparison that a paper has published, with nngrad as one more line.

It imports neither JAX nor nngrad: what runs the comparison does, in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from nngrad_command.in_clone import SOURCES
from nngrad_command.installation import install_command, missing
from nngrad_command.outcome import complain

DESCRIPTION = (
    "Run a comparison that a paper has published, at a size that two cores hold, with nngrad as one more line beside "
    "the paper's own method; draw it, and write its part of the page. It needs the sources, as a clone of the "
    "repository has them. Methods whose packages are not installed are left out; those of nngrad[reproduce] are wanted."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad reproduce`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="which comparison")
    parser.add_argument("--list", action="store_true", help="list the comparisons")
    parser.add_argument("--smoke", action="store_true",
                        help="tiny sizes, to see that it runs; writes only where --out says")
    parser.add_argument("--out", type=Path, metavar="FOLDER",
                        help="where figure and figures go (default: docs/reproduced in the clone, with the page)")


def run(given: argparse.Namespace) -> int:
    """`nngrad reproduce` with arguments that were parsed."""
    wrong = _hindrance(given)
    if wrong:
        complain(f"nngrad reproduce: {wrong}")
        return 1
    lacking = missing("reproduce")
    if lacking and not given.list:
        print(f"Not installed: {', '.join(r.wanted for r in lacking)}. What needs them is left out. This installs them:"
              f"\n\n    {install_command(lacking)}\n", flush=True)
    command = [sys.executable, "-m", "benchmarks.reproducing"]
    if given.list:
        return subprocess.run([*command, "--list"], cwd=SOURCES).returncode
    options = ["--smoke"] if given.smoke else []
    if given.out is not None:
        options += ["--out", str(given.out.absolute())]
    return subprocess.run([*command, given.name, *options], cwd=SOURCES).returncode


def _hindrance(given: argparse.Namespace) -> str:
    """Why nothing can be run; empty where something can."""
    names = sorted(path.stem for path in (SOURCES / "benchmarks" / "reproduced").glob("[!_]*.py"))
    if not given.list and given.name not in names:
        told = "name one" if given.name is None else f"there is no comparison {given.name!r}"
        return f"{told}: {', '.join(names)}"
    if not given.list and importlib.util.find_spec("matplotlib") is None:
        return f"it draws with matplotlib. This installs it:\n\n    {sys.executable} -m pip install matplotlib\n"
    return "" if given.out is None or given.out.is_dir() or not given.out.exists() else f"{given.out} is no folder"
