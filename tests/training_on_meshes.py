"""What `test_training_on_meshes.py` asserts on, found in a process with eight CPU devices:
`python -m tests.training_on_meshes` prints it. Who starts it sets a limit on its time."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

ROWS = 64
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 3)).astype(np.float32)
T = RNG.standard_normal((ROWS, 2)).astype(np.float32)


def trained(devices: int, dtype: str) -> dict[str, Any]:
    """A few steps with all that can be asked for, then one that is not finite."""
    nn.clear_parameters()
    nn.seed(1)
    np.random.seed(1)
    with nn.mesh(data=devices) if devices > 1 else nullcontext():
        x, t = nn.Variable((ROWS, 3)), nn.Variable((ROWS, 2))
        with nn.precision(dtype):
            h = F.dropout(PF.batch_normalization(F.tanh(PF.affine(x, 4, name="one"))), 0.3)
            y = PF.affine(h, 2, name="two")
            loss = F.mean(F.squared_error(y, t))
        parameters = nn.get_parameters()
        average = nn.MovingAverage(nn.get_parameters(grad_only=False))
        solver = S.Adam(0.05)
        solver.loss_scaling(2.0**8)
        step = nn.train_step(
            loss, parameters, solver, inputs=[x, t], averages=average, on_nan="raise",
            clip_grad_by_global_norm=0.1, weight_decay=0.01, aux={"norm": "gradient_norm", "y": y},
        )
        found = [step(X, T) for _ in range(5)]
        state = {name: np.array(a).tolist() for name, a in average.get_states().items()}
        try:
            step(X * np.nan, T)
            error = ""
        except FloatingPointError as raised:
            error = str(raised)
        kept = {name: np.array(a).tolist() for name, a in average.get_states().items()} == state
    return {
        "losses": [float(value) for value, _ in found], "norms": [float(aux["norm"]) for _, aux in found],
        "outputs": np.array(found[-1][1]["y"], np.float32).tolist(), "averages": state, "error": error, "kept": kept,
    }


def main() -> None:
    """Print what was found, as JSON."""
    found = {dtype: [trained(devices, dtype) for devices in (1, 8)] for dtype in ("float32", "bfloat16")}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
