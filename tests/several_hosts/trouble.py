"""A script in which one process fails in a step: `python -m tests.several_hosts.trouble KIND PROCESS`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

FAILS_AT, STEPS = 3, 6
HEARTBEAT_TIMEOUT = 12.0


def main(kind: str, which: int) -> None:
    """Train for a few steps; process `which` gets into trouble of a kind before one of them."""
    joined = nn.hosts.initialize(heartbeat_timeout=HEARTBEAT_TIMEOUT, initialization_timeout=60)
    print(joined, flush=True)
    np.random.seed(0)
    x = nn.Variable((4 * joined.count, 3))
    with nn.mesh(data=-1):
        step = nn.train_step(F.mean(PF.affine(x, 2) ** 2), nn.get_parameters(), S.Sgd(0.1), inputs=[x])
        step(np.ones((4, 3), "f"))
        for i in range(1, 1 << 20 if kind == "kill midway" else STEPS):
            if i == FAILS_AT and joined.index == which:
                print(f"{time.time():.3f} it fails", flush=True)
                get_into_trouble(kind)
            step(np.ones((4, 3), "f"))
    print("the end", flush=True)


def get_into_trouble(kind: str) -> None:
    if kind == "error":
        raise ValueError("a bad batch")
    if kind == "kill midway":  # from another thread, while this one goes on with its steps
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
