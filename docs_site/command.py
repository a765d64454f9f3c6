"""`nngrad docs`: the documentation as a site, built from the sources and served on loopback.

It imports neither JAX nor nngrad: what builds the site does, in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import html
import http.server
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from nngrad_command import __version__
from nngrad_command.arguments import port
from nngrad_command.in_clone import SOURCES
from nngrad_command.installation import install_command, missing
from nngrad_command.outcome import complain

PORT = 8000
LOOPBACK = "127.0.0.1"
DESCRIPTION = (
    "Build the documentation as a site and serve it to this machine alone, until Ctrl-C. The Python of all pages is "
    "run, and so is each example, with few steps; what was run before, and of which nothing has changed, is not run "
    "again. It needs the sources, as a clone of the repository has them, and the packages of nngrad[docs]."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad docs`."""
    parser.add_argument("--build-only", type=Path, metavar="DIR",
                        help="build the site into this folder, and serve nothing")
    parser.add_argument("--version", type=_version, nargs="?", const=__version__, metavar="NAME",
                        help="build into a folder of that name beside those of other versions, with a menu that leads "
                             f"from one to the other (NAME is {__version__} unless given)")
    parser.add_argument("--port", type=port, default=PORT, metavar="N",
                        help=f"port on {LOOPBACK}; 0 for any that is free (default: {PORT})")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--fast", action="store_const", const="fast", dest="how", default="short",
                     help="run nothing: pages say what they said, and examples have no graphs")
    how.add_argument("--full", action="store_const", const="full", dest="how",
                     help="run the examples with all of their steps, for their pictures; takes some minutes more")


def _version(text: str) -> str:
    if re.fullmatch(r"\w[\w.+-]*", text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no version: letters, digits and any of . + - _ make one")


def run(given: argparse.Namespace) -> int:
    """`nngrad docs` with arguments that were parsed."""
    top = given.build_only or SOURCES / ("site" if given.version is None else "sites")
    site = top if given.version is None else top / given.version
    wrong = _hindrance(site, top)
    if wrong:
        complain(f"nngrad docs: {wrong}")
        return 1
    code = build(site.absolute(), given.how, given.version)
    if not code and given.version is not None:
        list_versions(top)
    if code or given.build_only is not None:
        return code
    return serve(top.absolute(), given.port)


def _hindrance(site: Path, top: Path) -> str:
    """Why there can be no site; empty where there can."""
    lacking = missing("docs")
    if lacking:
        names = ", ".join(r.wanted for r in lacking)
        return f"it needs {names}. This installs what is missing:\n\n    {install_command(lacking)}\n"
    if site != top and (top / "index.html").exists() and not (top / "versions.json").is_file():
        return f"{top} has a site without versions, whose first page would be replaced: name another folder"
    for folder in (top, site):
        if folder.exists() and not folder.is_dir():
            return f"{folder} is no folder"
    if site.exists() and any(site.iterdir()) and not (site / "objects.inv").is_file():
        return f"{site} has something else in it, which would be removed: name an empty folder, or that of a site"
    return ""


def build(site: Path, how: str, version: str | None = None) -> int:
    """Build the site, and check its links.

    Args:
        site: The folder that it is written to; what is there is removed.
        how: What is run: 'fast', 'short' or 'full'.
        version: What pages say they are of, with a menu of the sites beside it; none of these where it is None.

    Returns:
        The exit code.
    """
    environment = {**os.environ, "NNGRAD_DOCS": how, "NO_MKDOCS_2_WARNING": "1"}  # Material's word on other products
    if version is not None:
        environment["NNGRAD_DOCS_VERSION"] = version
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    code = subprocess.run(command, cwd=SOURCES, env=environment).returncode
    return code or subprocess.run([sys.executable, "-m", "docs_site.links", str(site)], cwd=SOURCES).returncode


def list_versions(top: Path) -> None:
    """Write what the menu reads, which mike writes alike: the versions that are there; and lead to the newest."""
    names = [site.parent.name for site in top.glob("*/objects.inv")]
    names.sort(key=lambda name: [int(n) for n in re.findall(r"\d+", name)], reverse=True)
    names.sort(key=lambda name: not re.fullmatch(r"v?\d+(\.\d+)*", name))  # of releases first, then others
    listed = [{"version": name, "title": name, "aliases": []} for name in names]
    (top / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    newest = html.escape(names[0])
    (top / "index.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={newest}/index.html">'
        f'<title>nngrad</title><a href="{newest}/index.html">nngrad {newest}</a>\n', encoding="utf-8")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing of what is asked for."""


def serve(site: Path, port: int) -> int:
    """Serve a folder on loopback until Ctrl-C; returns the exit code."""
    handler = functools.partial(_Quiet, directory=str(site))
    try:
        server = http.server.ThreadingHTTPServer((LOOPBACK, port), handler)
    except OSError as error:
        complain(f"nngrad docs: cannot listen on port {port}: {error.strerror or error}. "
                 "--port 0 takes one that is free.")
        return 1
    with server:
        print(f"http://{LOOPBACK}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0
