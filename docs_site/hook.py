"""What mkdocs calls while it builds the site: mkdocs.yml names this file."""

from __future__ import annotations

import functools
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs takes this file by its path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from benchmarks import report
from docs_site import DOCS, ROOT, dialect, examples, execution, links, reference
from docs_site.kept import kept
from nngrad_command import __version__

HOW = os.environ.get("NNGRAD_DOCS", "short")
"""What is run: 'fast' nothing, 'short' pages and examples with few steps, 'full' examples as they are."""
VERSION = os.environ.get("NNGRAD_DOCS_VERSION")
"""The version that the site is built for, beside those of others; None where there is but one."""
log = logging.getLogger("mkdocs.nngrad")
log.setLevel(logging.INFO)


def on_config(config: Any) -> Any:
    """Pages say the version at the top and at the end. The contents of the reference go where mkdocs.yml has the word,
    and those of the gallery."""
    config.site_name = f"{config.site_name} {VERSION or __version__}"
    if VERSION is not None:
        config.extra["version"] = {"provider": "mike"}  # Material's word for its menu of what ../versions.json lists
    config.copyright = config.site_name
    for section in config.nav:
        for title, inside in section.items():
            if title == "Reference":
                section[title] = [*reference.contents(), *inside]
            if title == "Examples":
                section[title] = [*inside, {"Scripts": [{e.title: e.page} for e in examples.examples()]}]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Run what is to be run, and add the pages that are made."""
    graphs, pictures = _run() if HOW != "fast" else ({}, {})
    made = {**reference.reference(), **examples.gallery({name: place for name, (place, _) in graphs.items()})}
    for origin in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md", "benchmarks/README.md"):
        text, place = (ROOT / origin).read_text(encoding="utf-8"), links.place_of(origin)
        made[place] = dialect.spaced(links.rewritten(text, origin, place))
    made[links.place_of("benchmarks/results")] = report.everything()
    for path in _sources_that_are_linked():
        made[links.place_of(path)] = _source(path)
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    for place, content in [*graphs.values(), *pictures.items()]:
        before = files.get_file_from_path(place)
        if before is not None:
            files.remove(before)
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of the pages of docs/ to the rest of the repository, and names that lead to the reference."""
    place = page.file.src_uri
    if (DOCS / place).exists():
        markdown = dialect.spaced(links.rewritten(markdown, f"docs/{place}", place))
    if place.startswith(("reference/", "source/")):
        return markdown
    return links.linked(markdown, _names())


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(reference.places())


def _source(path: str) -> str:
    """A page with a file of the repository, or with the programs in a folder."""
    there = ROOT / path
    if there.is_dir():
        return "\n".join([f"# {path}\n", *[_listing(each, f"## {each.name}") for each in sorted(there.glob("*.py"))]])
    return _listing(there, f"# {path}")


def _listing(file: Path, heading: str) -> str:
    language = {".py": "python", ".toml": "toml", ".md": "markdown"}.get(file.suffix, "")
    return f"{heading}\n\n````{language}\n{file.read_text(encoding='utf-8')}````\n"


def _sources_that_are_linked() -> list[str]:
    """Files of the repository that pages lead to, and that no other page of the site has."""
    found = set()
    for origin in [*sorted(DOCS.rglob("*.md")), *[ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")]]:
        for target in links.targets(origin.read_text(encoding="utf-8")):
            path = target.partition("#")[0]
            if path and not links.is_external(target):
                there = os.path.relpath(os.path.normpath(origin.parent / path), ROOT)
                if links.place_of(there).startswith("source/"):
                    found.add(there)
    return sorted(found)


def _run() -> tuple[dict[str, tuple[str, bytes]], dict[str, bytes]]:
    """Run pages beside examples. Returns graphs and pictures, as those that run them do."""
    with ThreadPoolExecutor(max_workers=2) as both:
        of_pages, of_examples = both.submit(_run_pages), both.submit(_run_examples)
        graphs, drawn = of_examples.result()
        return graphs, {**of_pages.result(), **(drawn if HOW == "full" else {})}


def _run_pages() -> dict[str, bytes]:
    """The pictures that pages have drawn, by their places."""
    pictures: dict[str, bytes] = {}
    with _LateRunner() as runner:
        for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]:
            if not execution.has_blocks(page):
                continue
            text = page.read_text(encoding="utf-8")
            folder, wrong = kept(f"pages/{page.stem}", text, functools.partial(runner.run, page))
            if wrong:
                raise PluginError(wrong)
            pictures |= {f"images/{p.name}": p.read_bytes() for p in folder.iterdir() if p.suffix in (".png", ".svg")}
    return pictures


class _LateRunner:
    """An `execution.Runner` that begins when a page is new."""

    def __init__(self) -> None:
        self._runner: execution.Runner | None = None

    def __enter__(self) -> _LateRunner:
        return self

    def __exit__(self, *given: object) -> None:
        if self._runner is not None:
            self._runner.__exit__(*given)

    def run(self, page: Path, folder: Path) -> str:
        """Run a page, as `execution.Runner.run` does."""
        if self._runner is None:
            self._runner = execution.Runner()
        log.info("running the Python of %s", page.name)
        return self._runner.run(page, folder)


def _run_examples() -> tuple[dict[str, tuple[str, bytes]], dict[str, bytes]]:
    """The graphs of the examples, each with its place; and their pictures, by their places."""
    graphs, pictures = {}, {}

    for example in examples.examples():
        folder, wrong = kept(f"examples/{HOW}/{example.name}", "", functools.partial(_run_example, example))
        if wrong:
            raise PluginError(wrong)
        for path in folder.iterdir():
            if path.stem == "graph":
                graphs[example.name] = (f"graphs/{example.name}{path.suffix}", path.read_bytes())
            elif path.suffix == ".png":
                pictures[f"images/{path.name}"] = path.read_bytes()
    return graphs, pictures


def _run_example(example: examples.Example, folder: Path) -> str:
    log.info("running examples/%s.py", example.name)
    return examples.run(example, folder, HOW == "full")
