"""What one of two processes finds, each of which gives its part of batches.

Started as `python -m tests.parts_of_batches RANK PORT`; without arguments, it says what a single process finds. Who
starts it sets a limit on time.
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

from .on_meshes import COLUMNS, Found, batches, error_of

PROCESSES = 2


def loss_of(x: nn.Variable) -> nn.Variable:
    """With batch statistics and random masks."""
    h = PF.batch_normalization(PF.affine(x, 8, name="up"), name="normalized")
    return F.mean(F.dropout(F.tanh(h), 0.3) ** 2)


def parts(rank: int | None, *rows: int) -> list[np.ndarray]:
    """Batches, or this process's halves of them."""
    whole = batches(*[PROCESSES * n for n in rows])
    return whole if rank is None else [b[rank * n : (rank + 1) * n] for b, n in zip(whole, rows, strict=True)]


def mesh(rank: int | None) -> Any:
    return nullcontext() if rank is None else nn.mesh(data=-1)


def losses(rank: int | None) -> list[float]:
    """Of batches that the devices of a process divide evenly, or do not, or that are fewer than these."""
    nn.seed(3)
    with mesh(rank):
        step = nn.train_step(loss_of, nn.get_parameters, S.Sgd(0.1))
        x = nn.Variable((8, COLUMNS))
        fixed = nn.compile(loss_of(x), [x])
    found = []
    for part in parts(rank, 4, 5, 3, 1):
        found.append(float(step(part)))
        if not rank:  # a process may look at parameters by itself
            weights = nn.get_parameters()["up/affine/W"].d
            assert weights.flags.writeable == (rank is None)
    found += [float(fixed(part)) for part in parts(rank, 4)]
    x.d = batches(8)[0]  # a leaf is whole in each process
    with mesh(rank):
        y = loss_of(x)
        y.forward()
    return [*found, float(y.d)]


def refused(rank: int) -> Found:
    """Errors that all processes have together."""
    with nn.mesh(data=-1):
        step = nn.train_step(loss_of, nn.get_parameters, S.Sgd(0.1))
        x = nn.Variable((8, COLUMNS))
        fixed = nn.compile(loss_of(x), [x])
        y = F.sin(x)
        y.forward()
    found = {
        "lengths": error_of(lambda: step(np.ones((4 + rank, COLUMNS), np.float32))),
        "fixed": error_of(lambda: fixed(np.ones((3, COLUMNS), np.float32))),
        "reading": error_of(lambda: y.d),
    }
    nn.seed(3)
    with nn.parameter_scope("other"), nn.mesh(data=-1):
        w = nn.parameter.get_parameter_or_create("w", (COLUMNS,), np.full(COLUMNS, 1.0 + rank))
        found["values"] = error_of(F.sum(x * w).forward)
        nn.seed(rank)
        found["keys"] = error_of(F.dropout(F.sin(x), 0.5).forward)
    return found


def main() -> None:
    """Print what is found."""
    rank = int(sys.argv[1]) if sys.argv[1:] else None
    if rank is not None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", PROCESSES, rank)
    found: Found = {"losses": losses(rank)}
    if rank is not None:
        found |= refused(rank)
        jax.distributed.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
