"""Modules that run in processes of their own, since JAX has its devices from the start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Found = dict[str, Any]
ROOT = Path(__file__).parents[1]
LIMIT = 300
"""Seconds: what waits for ever is ended."""


def printed_by(devices: int, *commands: Sequence[Any]) -> list[list[str]]:
    """The lines that Python prints with these arguments, side by side, each in a process with so many virtual devices.

    All of them end well, and whatever they have started is ended.
    """
    settings = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "PYTHONPATH": str(ROOT),
                "JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_PLATFORMS": "cpu"}  # fmt: skip
    processes = [
        subprocess.Popen([sys.executable, *map(str, command)], env=os.environ | settings, cwd=ROOT, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        for command in commands
    ]  # fmt: skip
    lines = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, out + err
            lines.append(out.splitlines())
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                print(*process.communicate(), sep="\n")
    return lines


def found_by(devices: int, *modules: Sequence[Any]) -> list[Found]:
    """What modules print in their last line, each given with its arguments, where warnings are errors."""
    printed = printed_by(devices, *[("-W", "error", "-m", *module) for module in modules])
    return [json.loads(lines[-1]) for lines in printed]
