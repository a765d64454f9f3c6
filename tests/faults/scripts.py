"""Running a piece of Python in a process of its own, where it may be forked, limited and killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def ended(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What `script` prints, and its exit code. It must end by itself within two minutes."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)], env=environment,
                          timeout=120, capture_output=True, text=True, check=False)


def output_of(script: str, *arguments: object) -> list[str]:
    """The lines that `script` prints. It must end without an error."""
    done = ended(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
