"""The Python of a page is run, and what it prints is compared with what the page says.

Blocks of a page are run in order, in a process of its own: a fork of one that has imported nngrad and done nothing
else, in an empty folder. A block marked `text` right below a Python block is what that prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


class Runner:
    """Runs pages, each in a fork of one process: importing nngrad takes longer than most pages do.

    Used as a context, at whose end that process ends.
    """

    def __init__(self) -> None:
        slow = "ignore:compiling this took:UserWarning"  # on a busy machine
        command = [sys.executable, "-W", "error", "-W", slow, "-m", __name__]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        )

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, page: Path, folder: Path) -> str:
        """Run the blocks of a page.

        Args:
            page: A file of Markdown.
            folder: Where they run, and write pictures.

        Returns:
            What is wrong: the first block that raises, or prints something else than the page says; else nothing.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        messages = folder / "messages"
        print(page, folder, messages, sep="\t", file=self._process.stdin, flush=True)
        code = self._process.stdout.readline()
        text = messages.read_text()
        messages.unlink()
        return "" if code == "0\n" else text or f"{page.name}: the process that ran it ended with {code.strip() or '?'}"


def run(page: Path) -> None:
    """Run the blocks of a page; stops at the first that fails or prints something else."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "page"}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + block[1], page.name, "exec"), names)
        if block[2] is not None and printed.getvalue() != block[2]:
            sys.exit(f"{page.name}:{line}: printed\n{printed.getvalue()}in place of\n{block[2]}")


def _serve() -> None:
    """Run the pages that are named on the standard input, each in a fork, and answer with its exit status."""
    import nngrad  # noqa: F401

    for line in sys.stdin:
        page, folder, messages = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            with open(messages, "w") as file:
                os.dup2(file.fileno(), 2)
            os.chdir(folder)
            run(Path(page))
            sys.exit()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
