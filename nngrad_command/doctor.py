"""`nngrad doctor`: check installed versions, imports and devices, and suggest fixes.

It imports nothing that it examines. Imports and devices are tried in another process, under a time limit.
"""

from __future__ import annotations

import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

from . import __version__
from .installation import Requirement, install_command, needs, release_of, requirements

DESCRIPTION = (
    "Show versions and devices, try to import what nngrad requires and to take a training step of second order on each "
    "device, and say what is missing or broken and what to do. The exit code is 1 if something required is broken."
)
PYTHON = "3.11"
"""The oldest supported Python."""
DEVELOPERS = frozenset({"test", "lint", "bench", "docs", "release"})
"""The extras for work on nngrad itself, which are not shown."""


class Fault(NamedTuple):
    """A bug of XLA on CPUs in some versions of jaxlib."""

    first: str
    last: str
    """The newest release that is known to have it."""
    what: str
    advice: str


KNOWN = (
    Fault("0.8", "0.12.0.1", "wrong values where code of yours in JAX writes a shifted slice of an array into that "
          "array and then adds an axis of length 1 (openxla/xla#49176)",
          "In F.jax_function, put the array together by jnp.concatenate; graphs, nn.from_jax and nngrad.jax are not "
          "affected."),
    Fault("0.10.2", "0.10.2", "a few wrong entries in sums of squared products with more than 16,384 rows, and crashes "
          "in sums of products of arrays with 7 axes or more (jax-ml/jax#39103, #39257, #40412)",
          "Install jax 0.10.1, or 0.11.2 or newer, or set the environment variable XLA_FLAGS to "
          "--xla_cpu_experimental_ynn_fusion_type= before Python starts."),
    Fault("0.11.1", "0.11.1", "a loop that writes less than 480 bytes at each step goes over the whole "
          "array for it (jax-ml/jax#40101)",
          "Install jax 0.11.2 or newer."),
    Fault("0.11.1", "0.12.0.1", "some programs take longer to compile (jax-ml/jax#40416), and nngrad's quick "
          "compilation of large ones takes three to four times as long as with jaxlib 0.10",
          "Call nn.cache_compilations(), so that later runs find what one has compiled."),
)  # fmt: skip
"""Known faults, with workarounds."""


def examine(time_limit: float) -> int:
    """Examine the installation, and return the exit code. Imports and devices have `time_limit` seconds."""
    needed = [r for r in requirements() if r.extra not in DEVELOPERS]
    _show_versions(needed)
    for line in known_of(next((r.installed for r in needed if r.name == "jaxlib"), None)):
        print(line, flush=True)
    healthy = release_of(platform.python_version()) >= release_of(PYTHON)
    if not healthy:
        print(f"Broken: this Python is too old; install nngrad with Python {PYTHON} or newer.")
    if not needed:
        healthy = False
        _advise("Broken: nngrad is not installed, only found on the path, so what it needs is not known. In its folder "
                "run", shlex.join([sys.executable, "-m", "pip", "install", "-e", "."]))
    lacking = [r for r in needed if not r.extra and not r.satisfied]
    if lacking:
        names = ", ".join(r.wanted for r in lacking)
        _advise(f"Broken: nngrad cannot do without {names}. Run", install_command(lacking))
        print("When that is mended, run `nngrad doctor` again: imports and devices were not tried.")
    else:
        healthy = _works([r for r in needed if not r.extra], time_limit) and healthy
    for extra in dict.fromkeys(r.extra for r in needed if r.extra):
        absent = [r for r in needed if r.extra == extra and not r.satisfied]
        if absent:
            _advise(f"For the extra [{extra}] run", install_command(absent))
    print("All that is required is there." if healthy and not lacking else "Something that is required is broken.")
    return 0 if healthy and not lacking else 1


def _advise(why: str, command: str) -> None:
    print(f"{why}\n    {command}", flush=True)


def _show_versions(needed: Iterable[Requirement]) -> None:
    rows = [("package", "installed", "wanted", "for"), ("python", platform.python_version(), f">={PYTHON}", ""),
            ("nngrad", __version__, "", "")]
    for r in needed:
        state = r.installed or "missing"
        rows.append((r.name, state if r.satisfied else f"{state} !", r.bounds, f"[{r.extra}]" if r.extra else ""))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(flush=True)


def known_of(jaxlib: str | None) -> list[str]:
    """The known faults of a version of jaxlib, with workarounds; empty if there are none."""
    if jaxlib is None:
        return []
    has = [k for k in KNOWN if release_of(k.first) <= release_of(jaxlib) <= release_of(k.last)]
    return [f"Known of jaxlib {jaxlib} on CPUs: {k.what}.\n    {k.advice}" for k in has]


def _works(required: list[Requirement], time_limit: float) -> bool:
    """Import what is required and try the devices, in another process, which prints what it tries and how that ends.
    True where all of it works."""
    # Packages come after those that they need, so that a broken one is the first that fails.
    modules = [r.module for r in sorted(required, key=lambda r: sum(needs(r.name, other.name) for other in required))]
    # The import path is passed on, so that the other process finds the same modules.
    code = f"import sys; sys.path[:] = {sys.path!r}; from nngrad_command import trial; trial.main()"
    try:
        done = subprocess.run([sys.executable, "-c", code, *modules], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              timeout=time_limit, check=False)
    except subprocess.TimeoutExpired:
        print(f"fails: no answer within {time_limit:g} s")
    else:
        if done.returncode == 0:
            return True
        if done.returncode != 1:  # 1 after an error that it has printed
            name = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            print(f"fails: the process crashed ({name})" + (f": {lines[-1]}" if lines else ""))
    _advise("Broken: the last of these. If it is a package, install it again:",
            shlex.join([sys.executable, "-m", "pip", "install", "--force-reinstall", "PACKAGE"]))
    limited = next((f"; {name} is {os.environ[name]!r}, so JAX looks for nothing else"
                    for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME") if os.environ.get(name)), "")
    print(f"To do without a device, set the environment variable JAX_PLATFORMS to 'cpu'{limited}.")
    return False
