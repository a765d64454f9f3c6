"""A run that can be killed at any moment and goes on when it is started again, as if nothing had happened.

    python -m tests.several_hosts.resuming FOLDER STEPS [--kill SECONDS PROCESS] [--compare]

trains to the end from the last checkpoint in FOLDER. So many SECONDS after its first step PROCESS is killed. At the end
the parameters are compared, bit by bit, with those of a run that nothing disturbs. A step is of a WGAN-GP's critic with
dropout, and Adam.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from .programs import BATCH, critic, own

EVERY = 3


def trained(folder: Path, steps: int) -> Iterator[int]:
    """Train, and tell the number of each step."""
    nn.clear_parameters()
    nn.seed(11)
    np.random.seed(11)
    with nn.mesh(data=-1):
        real, fake = nn.Variable((BATCH, 6)), nn.Variable((BATCH, 6))
        mix = F.rand(shape=(BATCH, 1))
        between = mix * real + (1 - mix) * fake
        (slope,) = nn.grad([critic(between)], [between])
        penalty = F.mean((F.sum(slope**2, axis=1) ** 0.5 - 1) ** 2)
        loss = F.mean(critic(fake)) - F.mean(critic(real)) + 10 * penalty
        solver = S.Adam(1e-2)
        step = nn.train_step(loss, nn.get_parameters(), solver, inputs=[real, fake])
        checkpointer = nn.Checkpointer(folder, solver, every=EVERY)
        first = checkpointer.restore()
        if nn.hosts.is_first():
            print(f"goes on after step {first}", flush=True)
        for number in range(first + 1, steps + 1):
            rng = np.random.default_rng(number)
            batches = [own(rng.normal(size=(BATCH, 6)).astype("f")) for _ in range(2)]
            checkpointer.after_step(number, step(*batches))
            yield number


def run(folder: Path, steps: int, kill: list[float] | None = None) -> dict[str, Any]:
    """The parameters at the end of training, unless this process is killed before."""
    for taken, number in enumerate(trained(folder, steps)):
        if kill and taken == 0 and jax.process_index() == kill[1]:
            print(f"{time.time():.3f} it fails", flush=True)
            threading.Timer(kill[0], os.kill, (os.getpid(), signal.SIGKILL)).start()
        if nn.hosts.is_first():
            print(f"step {number}", flush=True)
    return {name: np.asarray(p.d) for name, p in nn.get_parameters().items()}


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--kill", type=float, nargs=2)
    parser.add_argument("--compare", action="store_true")
    given = parser.parse_args()
    nn.hosts.initialize(heartbeat_timeout=20.0, initialization_timeout=100.0)
    found = run(given.folder, given.steps, given.kill)
    if given.compare:
        expected = run(given.folder.with_name(f"{given.folder.name}-undisturbed"), given.steps)
        same = [name for name, value in expected.items() if value.tobytes() == found[name].tobytes()]
        print(f"the same bit by bit: {len(same)} of {len(expected)} parameters", flush=True)


if __name__ == "__main__":
    main()
