"""What mkdocs calls while it builds the site: mkdocs.yml names this file."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs takes this file by its path

from mkdocs.structure.files import File, Files

from benchmarks import report
from docs_site import DOCS, ROOT, links, reference
from nngrad_command import __version__


def on_config(config: Any) -> Any:
    """Pages say the version at the top and at the end, with a menu where mike builds those of several. The contents of
    the reference go where mkdocs.yml has the word."""
    config.site_name = config.copyright = f"{config.site_name} {__version__}"
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    for section in config.nav:
        if "Reference" in section:
            section["Reference"] = [*reference.contents(), *section["Reference"]]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    made = {**reference.reference(), links.place_of("benchmarks/results"): report.everything()}
    for origin in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md", "benchmarks/README.md"):
        text, place = (ROOT / origin).read_text(encoding="utf-8"), links.place_of(origin)
        made[place] = links.spaced(links.rewritten(text, origin, place))
    made |= {links.place_of(path): _source(path) for path in _sources_that_are_linked()}
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of the pages of docs/ to the rest of the repository, and names that lead to the reference."""
    place = page.file.src_uri
    if (DOCS / place).exists():
        markdown = links.spaced(links.rewritten(markdown, f"docs/{place}", place))
    return markdown if place.startswith(("reference/", "source/")) else links.linked(markdown, _names())


@functools.cache
def _names() -> frozenset[str]:
    return frozenset([name.shown for page in reference.pages() for name in page.names])


def _source(path: str) -> str:
    """A page with a file of the repository, or with the programs in a folder."""
    there, parts = ROOT / path, [f"# {path}\n"]
    for file in sorted(there.glob("*.py")) if there.is_dir() else [there]:
        language = {".py": "python", ".toml": "toml", ".md": "markdown"}.get(file.suffix, "")
        parts.append(f"## {file.name}\n\n````{language}\n{file.read_text(encoding='utf-8')}````\n")
    return "\n".join(parts)


def _sources_that_are_linked() -> set[str]:
    """Files of the repository that pages lead to, and that no other page of the site has."""
    found = set()
    for origin in [*DOCS.rglob("*.md"), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]:
        for target in links.targets(origin.read_text(encoding="utf-8")):
            path = target.partition("#")[0]
            if path and not links.is_external(target):
                found.add(os.path.relpath(os.path.normpath(origin.parent / path), ROOT))
    return {path for path in found if links.place_of(path).startswith("source/")}
