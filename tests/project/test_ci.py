"""What CI looks for before it runs anything, and what it refuses in a wheel."""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"


@pytest.mark.slow
def test_the_newest_python_is_one_that_starts(tmp_path: Path) -> None:
    def python(name: str, does: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{does}\n")
        file.chmod(0o755)
        return file

    def found() -> str:
        functions = "sed -n '/^release()/,/^}/p;/^newest_python()/,/^}/p' " + shlex.quote(str(SCRIPT))
        settings = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
        settings["PYENV_ROOT"] = str(tmp_path / "pyenv of mine")
        done = subprocess.run(["bash", "-c", f'set -euo pipefail; source <({functions}); newest_python'], env=settings,
                              capture_output=True, text=True, check=True, timeout=60)  # fmt: skip
        return done.stdout.strip()

    python("bin/python3.99", "echo 'the command exists in other versions of Python' >&2; exit 127")
    python("bin/python3.98", "exit 0")  # as before a release
    in_path = python("bin/python3.96", "echo 3096")
    assert found() == str(in_path)
    of_pyenv = python("pyenv of mine/versions/3.97.1/bin/python3", "echo 3097")
    assert found() == str(of_pyenv)


def test_a_wheel_with_too_much_or_too_little_is_refused() -> None:
    wrong = runpy.run_path(str(SCRIPT.with_name("contents.py")))["wrong"]
    listed = {"nngrad/__init__.py", "nngrad/py.typed"}
    metadata = "nngrad-1.dist-info/RECORD"
    assert wrong("a.whl", [*listed, metadata], listed, ".dist-info", set()) == []
    cached = "nngrad/__pycache__/a.pyc"
    assert wrong("a.whl", ["nngrad/__init__.py", cached, "tests/test_a.py", metadata], listed, ".dist-info", set()) == [
        "a.whl: not in it: nngrad/py.typed", f"a.whl: should not be in it: {cached}, tests/test_a.py"
    ]
    assert wrong("a.tar.gz", listed, listed, ".egg-info", {"README.md"}) == ["a.tar.gz: not in it: README.md"]
