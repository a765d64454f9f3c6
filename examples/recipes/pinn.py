"""Two solitons of the equation of Korteweg and de Vries, u_t + 6 u u_x + u_xxx = 0, by a physics-informed network.

The fast wave overtakes the slow one; both come out of it as they were, but for a shift. The network is trained until it
satisfies the equation, with its derivatives up to the third, at points that are drawn at random (Raissi, Perdikaris and
Karniadakis, 2019). Initial and boundary conditions hold by construction, so the equation is all of the loss. Hirota's
solution (1971), which the network is compared with, is not used in training but at the time 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.command.recipes.configuration import ConfigurationError, key
from nngrad.command.recipes.pictures import BLUE, GREY, ORANGE, figure
from nngrad.command.recipes.recipe import Array, Recipe
from nngrad.command.recipes.settings import RecipeSettings, SolverSettings

PLACES, TIMES = 201, 101
"""The grid on which the network is compared with the known solution."""


@dataclass(frozen=True, kw_only=True)
class SolitonEquation:
    """What is solved, and where."""

    fast: float = key(1.4, "wave number of the fast soliton; its speed is the square, its height half of that", above=0)
    slow: float = key(0.8, "wave number of the slow one", above=0)
    begin_fast: float = key(-6.0, "place of the fast one at the time 0")
    begin_slow: float = key(-2.0, "place of the slow one")
    half: float = key(12.0, "half of the interval of places, around 0; both waves should stay inside", above=0)
    end: float = key(3.0, "time runs from 0 to this", above=0)
    grow: float = key(0.7, "share of the steps in which the times that are drawn grow to the end", least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class PinnModel:
    """The size of the network."""

    width: int = key(64, "units of a hidden layer", least=1)
    layers: int = key(3, "hidden layers", least=1)


@dataclass(frozen=True, kw_only=True)
class PinnConfiguration(RecipeSettings):
    """The configuration of this recipe."""

    recipe: str = key("pinn", "what is trained", choices=("pinn",))
    steps: int = key(20000, "steps of training", least=1)
    batch: int = key(1024, "points at which the equation is imposed, drawn anew at each step", least=1)
    equation: SolitonEquation = SolitonEquation()
    model: PinnModel = PinnModel()
    solver: SolverSettings = SolverSettings(rate=3e-3)


def solitons(x: Any, t: Any, equation: SolitonEquation) -> Any:
    """The known solution at places x and times t, which are Variables or arrays of one shape."""
    k, m = equation.fast, equation.slow
    cosh = F.cosh if isinstance(x, nn.Variable) else np.cosh
    root = (k - m) / (k + m)
    p = k * (x - k**2 * t - equation.begin_fast) + np.log(root)
    q = m * (x - m**2 * t - equation.begin_slow) + np.log(root)
    above = (k - m) ** 2 + root * (k**2 * cosh(q) + m**2 * cosh(p))
    return above / (root * cosh((p + q) / 2) + cosh((p - q) / 2)) ** 2


def residual(u: nn.Variable, x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Zero where u solves the equation."""
    u_x, u_t = nn.grad([u], [x, t])
    (u_xx,) = nn.grad([u_x], [x])
    (u_xxx,) = nn.grad([u_xx], [x])
    return u_t + 6 * u * u_x + u_xxx


class Pinn(Recipe):
    """The recipe `pinn`."""

    title = "Two solitons of the Korteweg-de Vries equation by a network with derivatives to the third order."
    defaults = PinnConfiguration()

    def __init__(self, configuration: PinnConfiguration) -> None:
        super().__init__(configuration)
        self._equation, self._model = configuration.equation, configuration.model
        self._batch, self._steps = configuration.batch, configuration.steps
        if self._equation.fast <= self._equation.slow:
            raise ConfigurationError(
                f"equation.fast: must be above equation.slow, got {self._equation.fast} and {self._equation.slow}"
            )
        x, t = nn.Variable((self.part, 1)), nn.Variable((self.part, 1))
        with self.trained():
            loss = F.mean(residual(self._solution(x, t), x, t) ** 2)
        self._train = self.train_step("equation", loss, [x, t])
        self._times = np.linspace(0, self._equation.end, TIMES)
        self._places = np.linspace(-self._equation.half, self._equation.half, PLACES)
        grid = nn.Variable((TIMES * PLACES, 1)), nn.Variable((TIMES * PLACES, 1))
        with self.copies():
            self._on_grid = nn.compile(self._solution(*grid), grid)
        self._known = solitons(self._places, self._times[:, None], self._equation)

    def _solution(self, x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """The network, which is the known solution at t = 0, and keeps u at both ends and u_x at the right one."""
        s = x / self._equation.half
        h = F.concatenate(x / 2, t, axis=1)
        for i in range(self._model.layers):
            h = F.tanh(PF.affine(h, self._model.width, name=f"hidden{i + 1}"))
        inside = t * (1 - s**2) * (1 - s)
        u: nn.Variable = solitons(x, 0.0, self._equation) + inside * PF.affine(h, 1, name="out")
        return u

    def step(self, number: int) -> None:
        """A step at points that are drawn anew."""
        rng = self.draws(number)
        x = rng.uniform(-self._equation.half, self._equation.half, (self._batch, 1))
        # A network that meets late times too early finds waves that do not come from the early ones.
        grown = min(1.0, (number + 1) / (self._equation.grow * self._steps)) if self._equation.grow else 1.0
        t = rng.uniform(0, grown * self._equation.end, (self._batch, 1))
        self._train(x.astype(np.float32), t.astype(np.float32))

    def _found(self) -> Array:
        """The network's solution on the grid, of shape (times, places)."""
        t, x = np.meshgrid(self._times, self._places, indexing="ij")
        u = self._on_grid(*[a.reshape(-1, 1).astype(np.float32) for a in (x, t)])
        return np.asarray(u).reshape(t.shape)

    def measured(self) -> dict[str, float]:
        """`error`: the distance from the known solution, relative to that in the L2 norm; `largest_error`: where it is
        largest, relative to the largest height."""
        off = self._found() - self._known
        error = np.linalg.norm(off) / np.linalg.norm(self._known)
        return {"error": float(error), "largest_error": float(np.max(np.abs(off)) / np.max(np.abs(self._known)))}

    def drawn(self) -> Any:
        """The network's solution, and both at three times."""
        found = self._found()
        drawn = figure(8, 3.3)
        left, right = drawn.subplots(1, 2)
        image = left.pcolormesh(self._places, self._times, found, shading="gouraud", rasterized=True)
        drawn.colorbar(image, ax=left)
        left.set(title="network", xlabel="x", ylabel="t")
        for row, color in (0, GREY), (TIMES // 2, ORANGE), (TIMES - 1, BLUE):
            right.plot(self._places, self._known[row], color=color, linewidth=4, alpha=0.35)
            right.plot(self._places, found[row], color=color, linewidth=1.2, label=f"t = {self._times[row]:g}")
        right.set(title="known (broad), network (thin)", xlabel="x", ylabel="u")
        right.legend(frameon=False)
        right.spines[["top", "right"]].set_visible(False)
        return drawn


RECIPE = Pinn
