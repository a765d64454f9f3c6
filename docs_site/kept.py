"""What was run before is not run again: results by digests of all that they depend on."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from . import ROOT

FOLDER = ROOT / "build" / "docs"
PACKAGES = "nngrad", "backward_registry", "nngrad_command", "examples", "docs_site"


@functools.cache
def _sources() -> str:
    """A digest of all sources."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def kept(what: str, text: str, make: Callable[[Path], str]) -> tuple[Path, str]:
    """The folder that `make` has filled for a text, and what was wrong; made only if sources or text are new.

    Args:
        what: A name, of which one result is kept.
        text: What the result depends on besides the sources.
        make: Fills a folder, and returns what is wrong, or nothing.
    """
    folder = FOLDER / what
    digest = hashlib.sha256(f"{_sources()}\0{text}".encode()).hexdigest()
    said = folder / "digest.json"
    if said.exists() and json.loads(said.read_text()) == digest:
        return folder, ""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wrong = make(folder)
    if not wrong:
        said.write_text(json.dumps(digest))
    return folder, wrong
