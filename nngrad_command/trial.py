"""The trial of imports and devices by `nngrad doctor`, which can crash or hang, and so runs in a separate process.

It prints what it tries before it does so, and afterwards "works" or the error.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from .outcome import cause_of, error_line, raised_at

_EXPECTED = (0.0867221, 1.9456501)
"""The loss and the new w of the training step, computed by hand."""


def main() -> None:
    """Import the modules that the command line names, and nngrad, until one fails, and then try JAX's devices. The exit
    code is 1 if anything fails."""
    # Output of packages, even from C, goes to standard error, so that it does not mix with the report.
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in (*sys.argv[1:], "nngrad"):
        _attempt(f"import {name}", partial(importlib.import_module, name), ends=True)
    devices: list[Any] = []
    _attempt("devices", lambda: devices.extend(_devices()), ends=True)
    worked = [_attempt(f"device {device.platform}:{device.id} ({device.device_kind})", partial(_step_on, device))
              for device in devices]
    if all(device.platform == "cpu" for device in devices):
        print(f"JAX sees no GPU; where there is one by NVIDIA: {sys.executable} -m pip install 'jax[cuda12]'")
    for line in _lacking():
        print(line)
    sys.exit(0 if all(worked) else 1)


def _attempt(name: str, run: Callable[[], Any], ends: bool = False) -> bool:
    """Run and report an attempt, and return whether it succeeded; a failure of one that `ends` the trial does so, since
    it may leave a state that breaks later ones."""
    print(f"{name}: ", end="", flush=True)
    try:
        with redirect_stdout(sys.stderr):  # what packages print is no part of the report
            run()
    except BaseException as error:
        cause = cause_of(error)
        # The location distinguishes a damaged package from an unrelated file of the same name.
        print(f"fails: {error_line(cause)}{raised_at(cause) if str(cause) else ''}", flush=True)
        if ends:
            sys.exit(1)
        return False
    print("works", flush=True)
    return True


def _devices() -> list[Any]:
    import jax

    devices = list(jax.devices())
    if devices[0].platform != "cpu":
        try:
            devices += jax.devices("cpu")
        except RuntimeError:  # JAX_PLATFORMS may exclude the CPU
            return devices
    return devices


def _step_on(device: Any) -> None:
    """Take a second-order training step on a device.

    The loss is ((dy/dx)^2 - 1)^2 for y = tanh(w x), and w moves along its gradient.

    Raises:
        RuntimeError: It ran elsewhere, or its results are wrong.
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
    results = float(loss), float(w.d)
    if loss.devices() != {device}:
        raise RuntimeError(f"a training step ran on {loss.devices()}")
    if not all(abs(value - expected) < 1e-3 for value, expected in zip(results, _EXPECTED, strict=True)):
        raise RuntimeError(f"a training step gave {results}, not {_EXPECTED}")


def _lacking() -> list[str]:
    """The JAX internals used by nngrad that this version of JAX lacks."""
    import jax

    from nngrad.extend import missing_in_jax

    return [f"JAX {jax.__version__} does not have {what}" for what in missing_in_jax()]
