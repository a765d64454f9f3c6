"""The base class of recipes: networks with their training steps, their metrics, and a picture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import jax
import numpy as np

import nngrad as nn
import nngrad.solvers as S
from nngrad import hosts

from ...training.runs.log import NORM
from .configuration import ConfigurationError
from .settings import RecipeSettings

Array = np.ndarray[Any, Any]


class Recipe(ABC):
    """A training that `nngrad train` runs.

    All randomness in a step follows from the seed and the number of the step (`draws`), so a resumed run continues as
    if it had never been interrupted. Metrics and pictures are computed with copies of the parameters, by the first
    process alone, in float32.

    Args:
        settings: The configuration.

    Raises:
        ConfigurationError: Settings contradict each other.
    """

    title: ClassVar[str]
    """A description of the training, in one line."""
    defaults: ClassVar[RecipeSettings]

    def __init__(self, settings: RecipeSettings) -> None:
        if settings.batch % settings.accumulate:
            raise ConfigurationError(
                f"accumulate: a batch of {settings.batch} does not have {settings.accumulate} equal parts"
            )
        share = jax.process_count() * settings.accumulate
        if settings.batch % share:
            raise ConfigurationError(
                f"batch: {settings.batch} cannot be divided among {jax.process_count()} processes with "
                f"{settings.accumulate} parts each; a multiple of {share} can"
            )
        nn.seed(settings.seed)
        self.part = settings.batch // settings.accumulate
        """The number of examples for which the graph of a loss is built."""
        self.solvers: dict[str, S.Solver] = {}
        """The solver of each training step, by name."""
        self.averages: dict[str, nn.MovingAverage] = {}
        """The moving average of each training step's parameters, by name, if the configuration sets a decay."""
        self.losses: dict[str, jax.Array] = {}
        """The losses of the last step, each of shape (), by name."""
        self.gradient_norms: dict[str, jax.Array] = {}
        """The joint norms of all gradients of the last step, before clipping, each of shape (), by name."""
        self._finite: list[tuple[str, jax.Array]] = []
        self._settings = settings
        self._trained: OrderedDict[str, Any] = OrderedDict()
        self._copies: OrderedDict[str, Any] = OrderedDict()

    @abstractmethod
    def step(self, number: int) -> None:
        """Take a step of training; `number` counts from 0."""

    @abstractmethod
    def measured(self) -> dict[str, float]:
        """Metrics of the model with the copied parameters, by name."""

    @abstractmethod
    def drawn(self) -> Any:
        """A matplotlib figure of results of the model with the copied parameters."""

    def draws(self, *place: int) -> np.random.Generator:
        """A random generator that is the same in all runs with the same seed.

        Args:
            place: The number of a step, and numbers that distinguish several generators in a step.
        """
        return np.random.default_rng((self._settings.seed, *place))

    def train_step(self, name: str, loss: nn.Variable, inputs: Sequence[nn.Variable]) -> Callable[..., None]:
        """Make a function that takes a training step on the arrays of a whole batch, and records the loss under `name`.

        Args:
            name: The name of the step and its solver. If trained parameters have a scope of that name, the step trains
                those in it; otherwise all.
            loss: The loss, of shape ().
            inputs: Variables for `part` examples, which the arrays replace.
        """
        settings = self._settings
        solver = S.Adam(alpha=settings.solver.rate, beta1=settings.solver.beta1, beta2=settings.solver.beta2)
        everything = self.parameters()
        parameters = {n: p for n, p in everything.items() if n.startswith(f"{name}/")} or everything
        if settings.average:
            self.averages[name] = nn.MovingAverage(parameters, settings.average)
        with self.trained(), self._mesh():
            step = nn.train_step(
                loss, parameters, solver, inputs=inputs, aux=("finite", "gradient_norm"),
                accumulate=settings.accumulate,
                clip_grad_by_global_norm=settings.clip or None,
                averages=list(self.averages.values())[-1:] if settings.average else (),
            )
        self.solvers[name] = solver

        def on_a_batch(*arrays: Array) -> None:
            self.losses[name], (finite, norm) = step(*[hosts.part_of(array) for array in arrays])
            self.gradient_norms[name] = norm
            self._finite.append((name, finite))

        return on_a_batch

    @contextmanager
    def trained(self) -> Iterator[None]:
        """A scope in which to create the trained parameters and build their graphs."""
        with nn.parameter_scope("", scope=self._trained), nn.precision(self._settings.precision):
            yield

    @contextmanager
    def copies(self) -> Iterator[None]:
        """A scope for copies of the parameters with the same names, for metrics and pictures."""
        with nn.parameter_scope("", scope=self._copies):
            yield

    def parameters(self) -> dict[str, nn.Variable]:
        """The trained parameters by name."""
        with self.trained():
            return dict(nn.get_parameters(grad_only=False))

    def kept(self) -> dict[str, nn.Variable]:
        """The parameters and their averages by name, which a checkpoint saves in addition to the solvers."""
        averages = {
            f"average/{name}/{i}": leaf
            for name, average in self.averages.items() for i, leaf in enumerate(average.leaves)
        }  # fmt: skip
        return self.parameters() | averages

    def copy_parameters(self) -> dict[str, nn.Variable]:
        """Update the copies, from moving averages if there are any.

        Returns:
            The averages, or else the parameters themselves, by name.
        """
        values = self.parameters()
        for average in self.averages.values():
            values |= average.get_parameters()
        with self.copies():
            copies = nn.get_parameters(grad_only=False)
        for name, copy in copies.items():
            # Not `d`, which may be written to: with several processes all would have to check for writes.
            copy.d = np.array(values[name].data.raw())
        return values

    def set_rates(self, step: int) -> float:
        """Set the learning rate for a step, and return it."""
        rate = self._settings.solver.rate_at(step, self._settings.steps)
        for solver in self.solvers.values():
            solver.set_learning_rate(rate)
        return rate

    def taken(self, number: int) -> dict[str, Any]:
        """Take a training step, and return its losses and gradient norms by name."""
        self.step(number)
        return {f"{name}_loss": loss for name, loss in self.losses.items()} | {
            f"{name}{NORM}": norm for name, norm in self.gradient_norms.items()
        }

    def evaluated(self) -> dict[str, float]:
        """The metrics of the current parameters, by name."""
        self.copy_parameters()
        return self.measured()

    def not_finite(self) -> list[str]:
        """The losses that were infinite or NaN since the last call, or whose gradients were."""
        asked, self._finite = self._finite, []
        return sorted({name for name, finite in asked if not finite})

    def _mesh(self) -> AbstractContextManager[Any]:
        count = self._settings.devices or jax.device_count()
        return nullcontext() if count == 1 else nn.mesh(jax.devices()[:count], data=count)
