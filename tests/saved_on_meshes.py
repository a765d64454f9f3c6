"""What `test_checkpoints_on_meshes.py` asserts on, found in a process with eight CPU devices:
`python -m tests.saved_on_meshes FOLDER` prints it.

There is no limit on time in here: who starts it sets one.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from tests.solver_states import state_arrays

UNTIL, SAVED_AT = 5, 3


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    return rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(16, 1)).astype(np.float32)


def loss_of(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    h = F.dropout(F.tanh(PF.affine(x, 16, name="divided", sharding={"*W": "data"})), 0.2)
    return F.mean(F.squared_error(PF.affine(h, 1, name="whole"), t))


def run(folder: str, devices: int, saves: bool, made: bool = False) -> dict[str, Any]:
    """A run on so many devices; `made`: whether parameters and state are there, and placed, before that."""
    nn.clear_parameters()
    nn.seed(1)
    solver = S.Adam(1e-2)
    some = jax.devices()[:devices]
    with nn.deterministic(), nullcontext() if devices == 1 else nn.mesh(data=devices, devices=some):
        checkpointer = nn.Checkpointer(folder, solver)
        step = nn.train_step(loss_of, nn.get_parameters, solver)
        if made:
            step(*batch(77))
        done = 0 if saves else checkpointer.restore()
        for number in range(done + 1, UNTIL + 1):
            step(*batch(number))
            if saves and number == SAVED_AT:
                checkpointer.save(number)
        return {
            "done": done,
            "places": {name: str(p.data.raw().sharding) for name, p in nn.get_parameters().items()},
            "arrays": {name: p.d.tolist() for name, p in nn.get_parameters().items()},
            "state": {name: array.tolist() for name, array in state_arrays(solver).items()},
        }


def main(folder: str) -> None:
    found: dict[str, Any] = {"imported": sorted({"grain", "tensorboardX"} & sys.modules.keys())}
    found["whole"] = run(folder, 4, saves=True)
    for devices in (4, 1):
        found[f"on {devices}"] = run(folder, devices, saves=False)
    found["made"] = run(folder, 8, saves=False, made=True)
    with nn.mesh(data=8):
        found["fed"] = [str(x.sharding.spec) for x in next(nn.feed([batch(0)]))]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
