"""A classifier that several processes train together, each with its part of every batch, as programs for nnabla do it.

    mpirun -n 2 python examples/data_parallel.py        # docs/hosts.md has other ways to start processes

Batches are normalised by the statistics of all parts, and the loss has a penalty on its own gradients, so that
gradients go through the statistics twice. The parameters come out as those of one process with whole batches do, up to
rounding: `python examples/data_parallel.py`.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.nnabla.communicators as C
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.context import get_extension_context

CLASSES, BATCH = 4, 24

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=300, help="steps of training")
parser.add_argument("--callback", action="store_true", help="sum gradients by a callback of backward")
parser.add_argument("--out", type=Path, help="a file for what came out, as JSON")
arguments = parser.parse_args()

# Communicator and context
ctx = get_extension_context("cpu")
comm = C.MultiProcessDataParallelCommunicator(ctx)
comm.init()
ctx.device_id = str(comm.local_rank)
nn.set_default_context(ctx)
part = BATCH // comm.size
assert part * comm.size == BATCH, f"give a number of processes that divides {BATCH}"

# Network and loss of this process's part of a batch
np.random.seed(comm.rank)  # processes start with parameters of their own, until they get those of the first
x, t = nn.Variable((part, 1, 8, 8), need_grad=True), nn.Variable((part, 1))
h = PF.convolution(x, 8, (3, 3), (1, 1), with_bias=False, name="conv")
h = F.swish(PF.sync_batch_normalization(h, comm, name="norm"))
h = F.average_pooling(h, (2, 2))
scores = PF.affine(h, CLASSES, name="scores")
error = F.mean(F.top_n_error(scores, t))
loss = F.sum(F.softmax_cross_entropy(scores, t)) / part
(gx,) = nn.grad(loss, x)
loss = loss + 0.1 * part * F.sum(gx**2)

# The same parameters in all processes
parameters = nn.get_parameters()
comm.bcast([p.data for p in parameters.values()], src=0)
solver = S.Adam(3e-3)
solver.set_parameters(parameters)
gradients = [p.grad for p in parameters.values()]

# Training: every process draws the same batches, and takes its own part
rng = np.random.RandomState(7)
patterns = rng.randn(CLASSES, 1, 8, 8)
average = nn.NdArray((2,))
losses = []
for step in range(arguments.steps):
    labels = rng.randint(CLASSES, size=BATCH)
    images = patterns[labels] + 1.5 * rng.randn(BATCH, 1, 8, 8)
    own = slice(comm.rank * part, (comm.rank + 1) * part)
    x.d, t.d = images[own], labels[own, None]
    F.sink(loss, error).forward()
    solver.zero_grad()
    if arguments.callback:
        loss.backward(communicator_callbacks=comm.all_reduce_callback(gradients, 1 << 20, division=True))
    else:
        loss.backward()
        comm.all_reduce(gradients, division=True)
    solver.update()
    average.data = [float(loss.d), float(error.d)]
    comm.all_reduce(average, division=True)
    losses.append(average.data.tolist())
    if comm.rank == 0 and (step + 1) % 50 == 0:
        print(f"step {step + 1}: loss {losses[-1][0]:.4f}, error {losses[-1][1]:.3f}")

if comm.rank == 0 and arguments.out is not None:
    kept = {name: p.d.tolist() for name, p in nn.get_parameters(grad_only=False).items()}
    arguments.out.write_text(json.dumps({"losses": losses, "parameters": kept}))
