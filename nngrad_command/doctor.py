"""`nngrad doctor`: check installed versions, imports and devices, and suggest fixes.

It imports nothing that it examines. Imports and devices are tried in separate processes, under a time limit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from . import __version__
from .arguments import seconds
from .installation import Requirement, install_command, needs, release_of, requirements

DESCRIPTION = (
    "Show versions and devices, try to import what is installed and to take a training step of second order on each "
    "device, and say what is missing or broken and what to do. The exit code is 1 if something required is broken."
)
SECONDS = 120.0
"""The time limit of a trial."""
PYTHON = "3.11"
"""The oldest supported Python."""
COMMAND_EXTRA = "demo"
"""The extra that the `nngrad` command itself uses, so that its packages are tried as well."""
DEVELOPERS = frozenset({"test", "lint", "bench", "docs", "release"})
"""The extras for work on nngrad itself, which `--developers` shows."""
LIBRARY, DEVICES = "nngrad", "devices"
"""The attempts before those of single devices: import nngrad, and let JAX list the devices."""


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad doctor`."""
    parser.add_argument("--time-limit", type=seconds, default=SECONDS, metavar="SECONDS",
                        help=f"how long imports, and then devices, may take to answer (default: {SECONDS:g})")
    parser.add_argument("--developers", action="store_true", help="show what work on nngrad itself needs, too")


def run(given: argparse.Namespace) -> int:
    """Examine the installation, and return the exit code."""
    needed = [r for r in requirements() if given.developers or r.extra not in DEVELOPERS]
    _show_versions(needed)
    for line in known_of(next((r.installed for r in needed if r.name == "jaxlib"), None)):
        print(line, flush=True)
    healthy = _python_will_do() and _is_installed(needed)
    lacking = [r for r in needed if not r.extra and not r.satisfied]
    if lacking:
        names = ", ".join(r.wanted for r in lacking)
        _advise(f"Broken: nngrad cannot do without {names}. Run", install_command(lacking))
    tried = [r for r in needed if r.extra in ("", COMMAND_EXTRA) and r.installed]
    troubles = _import_troubles([r.module for r in tried], given.time_limit)
    failing = [r for r in tried if r.module in troubles]
    # A package that needs a broken one fails too, but is not to blame.
    blamed = [r for r in failing if not any(needs(r.name, other.name) for other in failing)]
    for r in blamed or failing:
        kind = f"For the extra [{r.extra}]" if r.extra else "Broken"
        _advise(f"{kind}: {r.name} {r.installed} is installed, but cannot be imported: {troubles[r.module]}\n"
                "To install it again, run", install_command([r], again=True))
    if lacking or any(not r.extra for r in failing):
        healthy = False
        print("When that is mended, run `nngrad doctor` again: devices were not tried.")
    else:
        healthy = _devices_work(given.time_limit) and healthy
    for extra in dict.fromkeys(r.extra for r in needed if r.extra):
        absent = [r for r in needed if r.extra == extra and not r.satisfied]
        if absent:
            _advise(f"For the extra [{extra}] run", install_command(absent))
    print("All that is required is there." if healthy else "Something that is required is broken.")
    return 0 if healthy else 1


def _advise(why: str, command: str) -> None:
    print(f"{why}\n    {command}", flush=True)


# ---------------------------------------------------------------- versions


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


def _python_will_do() -> bool:
    good = release_of(platform.python_version()) >= release_of(PYTHON)
    if not good:
        print(f"Broken: this Python is too old; install nngrad with Python {PYTHON} or newer.")
    return good


def _is_installed(needed: list[Requirement]) -> bool:
    if needed:
        return True
    _advise("Broken: nngrad is not installed, only found on the path, so what it needs is not known. In its folder run",
            shlex.join([sys.executable, "-m", "pip", "install", "-e", "."]))
    return False


# ---------------------------------------------------------------- trials


class DeviceTrial(NamedTuple):
    """The report of a trial process."""

    troubles: dict[str, str]
    """The error of each attempt; empty if it succeeded."""
    notes: list[str]


def _tried(kind: str, names: Sequence[str], seconds: float) -> DeviceTrial:
    """Run `trial`, which begins with the first of `names`; a crash or a hang becomes the error of its attempt."""
    # The import path is passed on, so that the other process finds the same modules.
    code = f"import sys; sys.path[:] = {sys.path!r}; from nngrad_command import trial; trial.main()"
    try:
        done = subprocess.run([sys.executable, "-c", code, kind, *names], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=seconds, check=False)
        reported, end = done.stdout, _ending(done.returncode, done.stderr)
    except subprocess.TimeoutExpired as expired:
        reported, end = expired.stdout or b"", f"no answer within {seconds:g} s"
    attempt = names[0]
    trial = DeviceTrial({attempt: end}, [])
    for line in reported.splitlines():
        kind, text = json.loads(line)
        if kind == "note":
            trial.notes.append(text)
        elif kind == "begin":
            attempt = text
            trial.troubles[attempt] = end
        else:
            trial.troubles[attempt] = text
    return trial


def _ending(code: int, errors: bytes) -> str:
    """A description of how a process ended during an attempt, and its last output."""
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
    words = errors.decode(errors="replace").strip().splitlines()
    return f"the process crashed ({name})" + (f": {words[-1]}" if words else "")


def _import_troubles(modules: list[str], seconds: float) -> dict[str, str]:
    """The errors of modules that cannot be imported, by module; each trial ends at the first failure."""
    troubles: dict[str, str] = {}
    untried = list(modules)
    while untried:
        tried = _tried("imports", untried, seconds).troubles
        troubles.update((name, trouble) for name, trouble in tried.items() if trouble)
        untried = [name for name in untried if name not in tried]
    return troubles


def _devices_work(seconds: float) -> bool:
    """Show the devices, with a trial of a training step on each, and return whether all succeeded."""
    trial = _tried(DEVICES, [LIBRARY], seconds)
    for name, trouble in trial.troubles.items():
        if trouble or name not in (LIBRARY, DEVICES):
            print(f"{name}: {f'fails: {trouble}' if trouble else 'works'}")
    for note in trial.notes:
        print(note)
    failed = {name for name, trouble in trial.troubles.items() if trouble}
    if failed - {LIBRARY}:
        print(_advice_on_devices())
    return not failed


def _advice_on_devices() -> str:
    for variable in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        if os.environ.get(variable):
            return (f"{variable} is {os.environ[variable]!r}, so JAX looks for nothing else. Unset it, and JAX takes "
                    "what there is.")
    return "To do without that device for now, set the environment variable JAX_PLATFORMS to 'cpu'."
