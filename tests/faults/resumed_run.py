"""A run of training that can be killed at any moment and started again with the same command.

    python -m tests.faults.resumed_run FOLDER STEPS

It prints what it is about to do, a word at a time, and goes on when it reads a line, so that whoever watches can end it
there; and at last it prints a digest of all that it has come to.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from tests.solver_states import state_arrays

EVERY = 4
BATCHES = 7
"""In each epoch, so that checkpoints fall into the middle of some."""


def batches(epoch: int) -> Iterator[Any]:
    """The batches of an epoch, in an order of its own."""
    for number in np.random.default_rng(epoch).permutation(BATCHES):
        rng = np.random.default_rng(number)
        yield rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(16, 1)).astype(np.float32)


def loss_of(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    with nn.parameter_scope("first"):
        h = F.dropout(F.tanh(PF.batch_normalization(PF.affine(x, 256))), 0.2)
    with nn.parameter_scope("second"):
        h = F.dropout(F.tanh(PF.affine(h, 256)), 0.2, seed=7)
    with nn.parameter_scope("third"):
        return F.mean(F.squared_error(PF.affine(h, 1), t))


def say(word: str) -> None:
    print(word, flush=True)


def enter(phase: str) -> None:
    say(phase)
    sys.stdin.readline()


def main(folder: str, steps: int) -> None:
    nn.seed(11)
    solver = S.Adam(1e-3)
    solver.loss_scaling(nn.DynamicLossScale(interval=5))
    history: dict[str, Any] = {"losses": []}
    feed = nn.feed(batches, epochs=None)
    checkpointer = nn.Checkpointer(folder, solver, feed=feed, extra={"history": history}, keep=2)
    with nn.deterministic(), checkpointer.saving_on_signals(), feed:
        step = nn.train_step(loss_of, nn.get_parameters, solver)
        enter("resume")
        done = checkpointer.restore()
        say(f"from {done}")
        for number in range(done + 1, steps + 1):
            enter("step")
            loss = step(*next(feed))
            history["losses"].append(float(loss))
            solver.set_learning_rate(1e-3 * 0.99**number)
            checkpointer.after_step(number, loss)
            if number % EVERY == 0:
                enter("save")
                checkpointer.save(number)
    digest = hashlib.sha256(repr((history, feed.get_state(), nn.random.get_draws())).encode())
    for name, p in nn.get_parameters(grad_only=False).items():
        digest.update(name.encode() + p.d.tobytes())
    for name, array in state_arrays(solver).items():
        digest.update(name.encode() + array.tobytes())
    say(f"end {digest.hexdigest()}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
