"""The Python in README and docs runs, and prints what the pages say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import Runner
from tests.slow import slow_but

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """The process that pages are run in forks of."""
    with Runner() as it:
        yield it


@pytest.mark.parametrize("page", slow_but(PAGES[:1], PAGES), ids=lambda page: page.name)
def test_page(page: Path, runner: Runner, tmp_path: Path) -> None:
    wrong = runner.run(page, tmp_path)
    assert not wrong, wrong


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = re.findall(r"^(python3 -m venv .*pytest.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(command) == 1
    assert command[0] in (ROOT / "CONTRIBUTING.md").read_text()
    assert command[0] in (ROOT / ".ci" / "run").read_text()


def test_images_are_small() -> None:
    for image in (ROOT / "docs" / "images").iterdir():
        assert image.stat().st_size < 200_000, image.name


@pytest.mark.slow
def test_pages_that_say_something_else_are_told(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    with Runner() as runner:
        page.write_text("```python\nopen('drawn.png', 'w').close()\nprint(1)\n```\n```text\n1\n```\n")
        assert runner.run(page, folder) == ""
        assert [path.name for path in folder.iterdir()] == ["drawn.png"]
        page.write_text("text\n\n```python\nprint(1)\n```\n```text\n2\n```\n")
        assert runner.run(page, folder) == "page.md:4: printed\n1\nin place of\n2\n\n"
        page.write_text("```python\n1 / 0\n```\n")
        assert 'File "page.md", line 2' in runner.run(page, folder)
