"""A model that counts its own steps: what it holds after k steps is known exactly, whatever comes between."""

from __future__ import annotations

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from tests.solver_states import state_arrays


class Counting:
    """Parameters whose gradients are ones, moved by momentum 1 at a rate of 1, and a running statistic.

    After k steps the momentum of each is k, each parameter is -k(k+1)/2, and the statistic of batch normalisation is
    what averaging ones k times gives. All are whole numbers, or computed in one way only, so they are compared exactly.

    Args:
        sizes: Sizes of the parameters.
        statistics: Whether there is a running statistic.
    """

    def __init__(self, sizes: tuple[int, ...] = (5, 1000, 70_000), statistics: bool = False) -> None:
        self.parameters = {f"w{n}": nn.Variable((n,), need_grad=True) for n in sizes}
        self.mean = nn.Variable((1, 1))
        self.variance = nn.Variable((1, 1))
        self.x = nn.Variable((4, 1))
        self.loss = F.add_n(*[F.sum(w) for w in self.parameters.values()]) + F.sum(self.x) * 0.0
        if statistics:
            scale, bias = nn.Variable((1, 1)), nn.Variable((1, 1))
            normal = F.batch_normalization(self.x, bias, scale, self.mean, self.variance, axes=[1], decay_rate=0.5)
            self.loss = self.loss + F.sum(normal)
        self.statistics = statistics
        self.since = 0
        """The step at which the statistic was last set to 0; after some 24 more it is 1, and tells nothing."""
        self.solver = S.Momentum(1.0, momentum=1.0)
        self.ones = np.ones((4, 1), np.float32)

    def train_step(self) -> nn.training.TrainStep:
        """The step as one executable."""
        return nn.train_step(self.loss, self.parameters, self.solver, inputs=self.x)

    def warm_step(self) -> nn.training.TrainStep:
        """The step, called a few times: it is compiled."""
        step = self.train_step()
        for _ in range(3):
            step(self.ones)
        return step

    def arrays(self) -> dict[str, np.ndarray]:
        """What parameters and momentum are."""
        return {name: np.array(w.data.view) for name, w in self.parameters.items()}

    def restart_statistics(self) -> int:
        """Set the statistic to 0; returns the number of steps."""
        k = self.count()
        self.mean.d = 0.0
        self.since = k
        return k

    def count(self) -> int:
        """After how many steps all is as it should be; raises if it is as after none."""
        states = {name: array for name, array in state_arrays(self.solver).items() if array.ndim}
        (k,) = {float(v) for array in states.values() for v in np.unique(array)}
        (w,) = {float(v) for array in self.arrays().values() for v in np.unique(array)}
        assert w == -k * (k + 1) / 2, f"parameters are {w} after {k} steps"
        if self.statistics:
            mean = float(self.mean.data.view[0, 0])
            assert mean == np.float32(1 - 0.5 ** (k - self.since)), f"the mean is {mean} after {k} steps"
        return int(k)
