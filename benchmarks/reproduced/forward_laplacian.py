"""The forward Laplacian: the networks of folx's README and of many electrons, beside folx."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import jax

from ..frontier.forward_laplacian.networks import Case, cases
from ..frontier.forward_laplacian.table import OURS as ALL_OURS
from ..frontier.forward_laplacian.table import by_jax, laplacians
from ..reproducing.experiment import Experiment, Make, Point, Table, in_jax

OURS, NESTED, SPARSE, DENSE = ALL_OURS[1], "trace of jax.hessian", "folx, sparse", "folx, dense"
LABELS = (
    "tanh MLP", "silu MLP", "determinant", "attention", "pairs", "determinant, energy", "attention, energy", "README",
)
"""Short names of the cases, in their order."""


def makers(case: Case) -> dict[str, Make]:
    """nngrad, folx where it is installed, and what one writes in JAX."""
    found = laplacians(case)
    if case.points[0].size <= 64:
        found[NESTED] = jax.vmap(partial(by_jax, case))
    return {name: partial(in_jax, found[name], case.points) for name in (OURS, SPARSE, DENSE, NESTED) if name in found}


def tables(smoke: bool) -> Iterable[Table]:
    """The networks."""
    chosen = list(zip(LABELS, cases(smoke), strict=True))
    yield Table("Laplacians", "network", [
        Point(label, makers(case), 1e-3) for label, case in (chosen[:1] if smoke else chosen)
    ])  # fmt: skip


EXPERIMENT = Experiment(
    title="Forward Laplacian",
    paper="R. Li and others: A computational framework for neural network-based variational Monte Carlo with forward "
    "Laplacian, 2023, and folx, by its authors",
    url="https://arxiv.org/abs/2307.08214",
    ran="""
Laplacians in float32, with numbers drawn from fixed seeds. The README's network is silu with 10 layers of 100 on each
of 100 particles with 4 numbers, summed, at 20 points. The others are dense networks of 30 inputs and functions of 8
electrons: a determinant of orbitals, attention before it, pair features, and local energies.
`benchmarks/frontier/forward_laplacian/networks.py` has them all. All methods compute the same numbers.

- *nngrad, batched*: `nj.laplacian(f, batched=True)` of a function of all points.
- *folx, sparse*: with the threshold 6 that its authors recommend, under `vmap`; *folx, dense*: without sparse
  Jacobians, where they fit into memory.
- *trace of jax.hessian*: the direct way in JAX, up to 64 inputs.
""",
    differs="""
folx is made for GPUs, and for larger systems than these. It searches for zeros when it compiles, which costs time then
and none at run time. On the tanh network nngrad has the same matrix products as folx, but sums the squares of
derivatives over the directions by a product with ones, for which the compiler stores them; this explains the
difference. Reducing over a leading axis of directions, as nngrad has it, does not help: with 50 directions at 512
points it made the Laplacian of a similar network three times as slow.
""",
    ours=OURS,
    tables=tables,
    least=True,
    needs={SPARSE: "folx", DENSE: "folx"},
    measured=("time", "temporaries", "first"),
)
