"""A run of several processes, the last of which gets SIGTERM, and another one that goes on from there.

    python -m tests.several_hosts.launching 2 tests/faults/run_of_several.py FOLDER

It prints digests of what that has come to, and a run that nobody disturbed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S


def batches(epoch: int) -> object:
    """This process's part of each batch."""
    for number in range(5):
        rng = np.random.default_rng([epoch, number])
        x, t = rng.normal(size=(8, 4)).astype(np.float32), rng.normal(size=(8, 1)).astype(np.float32)
        part = slice(jax.process_index(), None, jax.process_count())
        yield x[part], t[part]


def loss_of(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    return F.mean(F.squared_error(PF.affine(F.dropout(x, 0.2), 1), t))


class Run:
    """A run from its beginning, or from where another was ended."""

    def __init__(self, folder: str | None) -> None:
        nn.clear_parameters()
        nn.seed(11)
        self.solver = S.Adam(1e-2)
        self.own = {"index": jax.process_index()}
        self.feed = nn.feed(batches, epochs=None)
        self.step = nn.train_step(loss_of, nn.get_parameters, self.solver)
        self.checkpointer = None if folder is None else nn.Checkpointer(
            folder, self.solver, feed=self.feed, extra={"own": self.own}, every=4
        )

    def take(self, first: int, last: int, signal_at: int = 0) -> str:
        """Take steps; returns a digest of what came of it."""
        for number in range(first, last + 1):
            if number == signal_at and jax.process_index() == jax.process_count() - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            loss = self.step(*next(self.feed))
            if signal_at:
                time.sleep(0.05)  # JAX looks for notices about twice a second
            if self.checkpointer is not None:
                self.checkpointer.after_step(number, loss)
        digest = hashlib.sha256(repr(self.feed.get_state()).encode())
        for name, p in nn.get_parameters(grad_only=False).items():
            digest.update(name.encode() + p.d.tobytes())
        self.feed.close()
        return digest.hexdigest()


def main(folder: str) -> None:
    nn.hosts.initialize()
    with nn.deterministic(), nn.mesh(data=jax.device_count()):
        ended = Run(folder)
        try:
            with ended.checkpointer.saving_on_signals():
                ended.take(1, 400, signal_at=3)
        except SystemExit as end:
            ended.feed.close()
            resumed = Run(folder)
            resumed.own["index"] = -1
            done = resumed.checkpointer.restore()
            print(f"exit code {end.code} after {done} index {resumed.own['index']}", flush=True)
            print(f"resumed {resumed.take(done + 1, done + 3)}", flush=True)
            print(f"whole {Run(None).take(1, done + 3)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
