"""The trials of imports and devices by `nngrad doctor`, which can crash or hang, and so run in a separate process.

Each line of the process's report is a pair in JSON: `["begin", name]` and `["end", trouble]` around an attempt, with an
empty trouble if it succeeded, or `["note", text]`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from .doctor import DEVICES, LIBRARY
from .outcome import cause_of, error_line, raised_at


def main() -> None:
    """`trial devices` tries JAX's devices; `trial imports NAME...` imports modules until one fails."""
    # Output of packages, even from C, goes to standard error, so that it does not mix with the report.
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.argv[1] == DEVICES:
        _try_devices(report)
        return
    for name in sys.argv[2:]:
        # Stop here: a failed import may leave a state that breaks later ones.
        if not _attempt(report, name, partial(_try_import, name)):
            return


def _attempt(report: TextIO, name: str, run: Callable[[], str]) -> bool:
    """Run and report an attempt, and return whether it succeeded."""
    _say(report, "begin", name)
    try:
        trouble = run()
    except BaseException as error:
        trouble = error_line(error)
    _say(report, "end", trouble)
    return not trouble


def _say(report: TextIO, kind: str, text: str) -> None:
    print(json.dumps([kind, text]), file=report, flush=True)


def _try_import(name: str) -> str:
    try:
        importlib.import_module(name)
    except BaseException as error:
        cause = cause_of(error)
        # The location distinguishes a damaged package from an unrelated file of the same name.
        return error_line(cause) + (raised_at(cause) if str(cause) else "")
    return ""


def _try_devices(report: TextIO) -> None:
    devices: list[Any] = []

    def find() -> str:
        devices.extend(_devices())
        return ""

    if not _attempt(report, LIBRARY, partial(_try_import, LIBRARY)) or not _attempt(report, DEVICES, find):
        return
    for device in devices:
        _attempt(report, f"device {device.platform}:{device.id} ({device.device_kind})", partial(_trouble, device))
    if all(device.platform == "cpu" for device in devices):
        _say(report, "note", "JAX sees no GPU; where there is one by NVIDIA: "
             f"{sys.executable} -m pip install 'jax[cuda12]'")
    from jax import numpy as jnp

    x64 = "on" if jnp.zeros((), int).dtype == "int64" else "off (nngrad switches it on for graphs with 64-bit values)"
    _say(report, "note", f"x64 of JAX: {x64}")
    for line in _lacking():
        _say(report, "note", line)


def _devices() -> list[Any]:
    import jax

    devices = list(jax.devices())
    if devices[0].platform != "cpu":
        try:
            devices += jax.devices("cpu")
        except RuntimeError:  # JAX_PLATFORMS may exclude the CPU
            return devices
    return devices


def _trouble(device: Any) -> str:
    """The error of a second-order training step on a device; empty if it succeeds.

    The loss is ((dy/dx)^2 - 1)^2 for y = tanh(w x), and w moves along its gradient.
    """
    import jax

    import nngrad as nn
    import nngrad.functions as F
    import nngrad.solvers as S

    with nn.context_scope(nn.Context(device.platform, device_id=jax.devices(device.platform).index(device))):
        x = nn.Variable.from_numpy_array(0.5, need_grad=True)
        w = nn.Variable.from_numpy_array(2.0, need_grad=True)
        (slope,) = nn.grad([F.tanh(w * x)], [x])
        loss = nn.train_step((slope**2 - 1) ** 2, {"w": w}, S.Sgd(0.25))()
    found = float(loss), float(w.d)
    if loss.devices() != {device}:
        return f"a training step ran on {loss.devices()}"
    right = all(abs(value - expected) < 1e-3 for value, expected in zip(found, _EXPECTED, strict=True))
    return "" if right else f"a training step gave {found}, not {_EXPECTED}"


_EXPECTED = (0.0867221, 1.9456501)
"""The loss and the new w, computed by hand."""


def _lacking() -> list[str]:
    """The JAX internals used by nngrad that this version of JAX lacks."""
    import jax

    from nngrad.extend import missing_in_jax

    return [f"JAX {jax.__version__} does not have {each}" for each in missing_in_jax()]
