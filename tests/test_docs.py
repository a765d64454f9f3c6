"""The Python in README and docs runs, and prints what the pages say.

Blocks of a page are run in order, in a process of its own. A block marked `text` right below a Python
block is what that prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def run(page: Path) -> None:
    """Run the blocks of a page; stops at the first that fails or prints something else."""
    text = page.read_text()
    names: dict[str, Any] = {"__name__": "page"}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + block[1], page.name, "exec"), names)
        if block[2] is not None and printed.getvalue() != block[2]:
            sys.exit(f"{page.name}:{line}: printed\n{printed.getvalue()}in place of\n{block[2]}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", __file__, page], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} points to {target}, which is not there"


def test_each_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in PAGES[1:]:
        assert f"(docs/{page.name})" in readme


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = re.findall(r"^(python3 -m venv .*pytest.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(command) == 1
    assert command[0] in (ROOT / "CONTRIBUTING.md").read_text()
    assert command[0] in (ROOT / ".ci" / "run").read_text()


def test_images_are_small() -> None:
    for image in (ROOT / "docs" / "images").iterdir():
        assert image.stat().st_size < 200_000, image.name


if __name__ == "__main__":
    run(Path(sys.argv[1]))
