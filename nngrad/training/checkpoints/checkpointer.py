"""`Checkpointer`: saves the whole state of a training run, and restores it."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ...extend import Variable, checked_count, explained
from ...solvers import Solver
from ..modules import Module
from .contents import PARAMETERS, CheckpointContents, accessors
from .storing import delete_checkpoints, file_of, read_checkpoint, steps_in, write_checkpoint

_LATE = 8
"""The number of steps after which a loss is checked: by then it is ready, so nothing waits for it. The number is fixed,
so that all processes of a run stop at the same step."""


class RecentLosses:
    """The losses of recent steps, each checked some steps later."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Any]] = deque()

    def add(self, step: int, loss: Any) -> None:
        """Record the loss of a step, and check that of an earlier one, as `look` does."""
        self._waiting.append((step, loss))
        self.look(_LATE)

    def look(self, late: int = 0) -> None:
        """Check recorded losses, waiting for them, until `late` are left.

        Raises:
            FloatingPointError: A loss is not finite.
        """
        while len(self._waiting) > late:
            step, loss = self._waiting.popleft()
            if not np.isfinite(value := np.asarray(loss)).all():
                self._waiting.clear()
                raise FloatingPointError(f"the loss of step {step} is {value}")


class Checkpointer:
    """Saves the whole state of a training run, and restores it.

    A checkpoint holds all parameters, including untrained ones, and their `need_grad`; state, learning rate and loss
    scale of solvers; the random state; the position of the input; and anything in `extra`. It is a snapshot of one
    moment: a safetensors file named after its step, which is there only when it is complete. It contains a digest, so
    that damage is detected.

        checkpointer = nn.Checkpointer("runs/one", solver, feed=batches, every=1000)
        first = checkpointer.restore()                       # 0 if there is none yet
        with checkpointer.saving_on_signals():
            for done, (x, t) in zip(range(first + 1, 100_001), batches):
                checkpointer.after_step(done, step(x, t))

    On several hosts every process calls each method, and all share the directory.

    Args:
        path: The directory of the files.
        solver: The solver, or several by name.
        parameters: Variables by name, or a Module; by default all parameters in the current scope and below, also those
            created later. If there are none, `nn.fit` takes those of the Module that its step trains.
        feed: The iterator of batches, with `get_state()` and `set_state(state)`, such as the result of `nn.feed`.
        extra: Other state to save, by name: objects with `get_state()` and `set_state(state)`, such as another feed;
            or with `get_states()` and `set_states(states)`, such as an `nn.MovingAverage`; or dicts, which are
            refilled when they are restored. States are arrays, bytes, and JSON values.
        keep: The number of latest checkpoints to keep; None for all.
        every: The number of steps between checkpoints by `after_step`; None for never.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: `keep` or `every` is less than 1, or a name in `solver` or `extra` is taken.
    """

    @explained
    def __init__(
        self,
        path: str | Path,
        solver: Solver | Mapping[str, Solver] | None = None,
        *,
        parameters: Mapping[str, Variable] | Module | None = None,
        feed: Any = None,
        extra: Mapping[str, Any] | None = None,
        keep: int | None = 3,
        every: int | None = None,
    ) -> None:
        if parameters is not None and not isinstance(parameters, Mapping | Module):
            raise TypeError(f"parameters: expected Variables by name or a Module, got {type(parameters).__name__}")
        for name, value in (("keep", keep), ("every", every)):
            if value is not None:
                checked_count(value, name, others=" or None")
        solvers, holders = _named_solvers(solver), dict(extra or {})
        names = [*solvers, *holders, "parameters", "random", "feed"]
        for name in names:
            if not isinstance(name, str) or "/" in name or names.count(name) > 1:
                raise ValueError("solver, extra: names must be different strings without '/', and not 'parameters', "
                                 f"'random' or 'feed', got {name!r}")
        self._contents = CheckpointContents(parameters, solvers, {})
        self.hold(**holders, **({} if feed is None else {"feed": feed}))
        self._path, self._keep, self._every = Path(path).absolute(), keep, every
        self._by_default = parameters is None
        self._losses = RecentLosses()
        self._ending: Callable[[int], int | None] = lambda step: None  # the signal that ends the run
        self._at: int | None = None  # the last completed step
        self._begun: int | None = None  # the step of the last checkpoint that was begun or restored
        self._saved: int | None = None  # the step of the last one that was completed or restored

    def hold(self, **holders: Any) -> None:
        """Save and restore further objects, like those in `extra`.

        Raises:
            TypeError: An object has no state.
        """
        self._contents.holders |= {name: accessors(holder, name) for name, holder in holders.items()}

    def hold_by_default(self, module: Module) -> None:
        """Save and restore the parameters of a module, if no others were given and the scope has none."""
        if self._by_default and not self._contents.parameters():
            self._contents.hold_module(module)

    @property
    def kept(self) -> str:
        """Describe where the last checkpoint is."""
        steps = self.steps()
        return str(file_of(self._path, steps[-1])) if steps else "nothing, because there is no checkpoint yet"

    # ---------------------------------------------------------------- saving

    def after_step(self, step: int, loss: Any = None) -> None:
        """Check the loss, save if a checkpoint is due, and end the run if a signal came.

        The check is of the loss of an earlier step, so that nothing waits for the device.

        Args:
            step: The number of completed steps, including this one.
            loss: The loss of this step, as `train_step` returned it: floating, of shape ().

        Raises:
            FloatingPointError: A loss, or a parameter at a checkpoint, is not finite. Nothing is saved, and the message
                names the step and the last good checkpoint.
            SystemExit: A signal came within `saving_on_signals`, and everything is saved.
            OSError: A checkpoint could not be written.
        """
        self._at = step
        if loss is not None:
            self._finite_or_end(lambda: self._losses.add(step, loss))
        ending = self._ending(step)
        if ending is not None or (self._every is not None and step % self._every == 0):
            self.save(step)
        if ending is not None:
            raise SystemExit(128 + ending)

    def save(self, step: int) -> None:
        """Save a checkpoint. Once this has returned, it is on the disk. Saving a step again does nothing.

        Args:
            step: The number of completed steps.

        Raises:
            FloatingPointError: A parameter, or the loss of a step since the last checkpoint, is not finite.
            ValueError: There are checkpoints of later steps, from another run or another branch of this one.
            OSError: The checkpoint could not be written.
        """
        step = checked_count(step, "step", 0)
        if step == self._saved:
            return
        steps = self.steps()
        later = [other for other in steps if other >= step and not other == step == self._begun]
        if later:
            raise ValueError(f"step: must come after those of the checkpoints in {self._path}, {later}, got {step}; "
                             "restore() the last one first, use another path, or delete them")
        self._finite_or_end(self._losses.look)
        arrays, facts = self._contents.snapshot()
        if not arrays:
            raise ValueError("nothing to save yet: there are no parameters, and no state with arrays")
        self._finite_or_end(lambda: _check_finite(arrays, step))
        self._begun = step
        write_checkpoint(self._path, step, arrays, facts)
        if self._keep is not None:
            delete_checkpoints(self._path, self.steps()[: -self._keep])
        self._at = self._saved = step

    def steps(self) -> list[int]:
        """The steps that have checkpoints, in ascending order."""
        return steps_in(self._path)

    def _finite_or_end(self, check: Callable[[], None]) -> None:
        try:
            check()
        except FloatingPointError as error:
            steps = self.steps()
            last = f"the last good checkpoint is of step {steps[-1]}" if steps else "there is no checkpoint"
            raise FloatingPointError(f"{error}; {last}, in {self._path}") from None

    # ---------------------------------------------------------------- restoring

    def restore(self, step: int | None = None, only: Collection[str] | None = None) -> int:
        """Restore the last checkpoint, or a specific one, into parameters, solvers and everything else.

        Missing parameters are created. If everything is restored, a resumed run reaches the same parameters as an
        uninterrupted one, bit for bit.

        Args:
            step: The step of the checkpoint; None for the last.
            only: The parts to restore: "parameters", "random", "feed", and "solver" or the names in `solver` and
                `extra`; None for all.

        Returns:
            The number of completed steps; 0 if there is no checkpoint and none was requested.

        Raises:
            FileNotFoundError: There is no checkpoint of that step.
            ValueError: The checkpoint is damaged, or something does not fit: names, shapes, dtypes, another solver. The
                message lists all misfits, and nothing is changed.
        """
        parts = {"parameters", "random", *self._contents.solvers, *self._contents.holders}
        unknown = set() if only is None else {only} - parts if isinstance(only, str) else set(only) - parts
        if unknown or isinstance(only, str):
            raise ValueError(f"only: expected some of {sorted(parts)}, got {only!r}")
        steps = self.steps()
        if step is None:
            step = steps[-1] if steps else -1
            if jax.process_count() > 1:  # which may see a shared folder at different times
                step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
            if step < 0:
                return 0
        elif step not in steps:
            raise FileNotFoundError(f"{self._path}: no checkpoint of step {step}, only of {steps}")
        self._contents.restore(file_of(self._path, step), *read_checkpoint(self._path, step), only)
        self._losses = RecentLosses()
        if only is None:
            self._at = self._begun = self._saved = step
        return step

    # ---------------------------------------------------------------- ending

    @contextmanager
    def saving_on_signals(self) -> Iterator[Checkpointer]:
        """Within the block, SIGTERM and Ctrl-C let the step finish, save a checkpoint, and then end the process.

        `after_step` does so by raising SystemExit with 128 plus the signal's number, as shells do: 143 for SIGTERM, 130
        for Ctrl-C. At the end of the block the signals do what they did before. A second Ctrl-C is a KeyboardInterrupt.
        With several processes only SIGTERM does so, which JAX shares.

        Raises:
            ValueError: This is not the main thread.
        """
        are_several = jax.process_count() > 1
        noted: list[int] = []

        def note(number: int, _: FrameType | None) -> None:
            if number == signal.SIGINT and noted[-1:] == [signal.SIGINT]:
                raise KeyboardInterrupt  # a second Ctrl-C means not to wait
            noted.append(number)

        def noted_by_all(step: int) -> int | None:
            return signal.SIGTERM if multihost_utils.reached_preemption_sync_point(step) else None

        if are_several:  # JAX notes SIGTERM, and makes all agree on the step after which they end
            multihost_utils.reached_preemption_sync_point(0)  # raises if the service is off
        before = {} if are_several else {
            number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        outer, self._ending = self._ending, noted_by_all if are_several else lambda step: noted[-1] if noted else None
        try:
            yield self
            if self._at is not None and (ending := self._ending(self._at)) is not None:  # after the last step
                self.save(self._at)
                raise SystemExit(128 + ending)
        finally:
            self._ending = outer
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)

    def __repr__(self) -> str:
        return f"<checkpoints of {', '.join(['parameters', *self._contents.solvers, *self._contents.holders])} in " \
               f"{self._path}>"


def _named_solvers(solver: Any) -> dict[str, Solver]:
    named = {} if solver is None else dict(solver) if isinstance(solver, Mapping) else {"solver": solver}
    for value in named.values():
        if not isinstance(value, Solver):
            raise TypeError(f"solver: expected a Solver or a dict of Solvers, got {type(value).__name__}; for an optax "
                            "transformation use nngrad.solvers.Solver.from_optax")
    return named


def _check_finite(arrays: Mapping[str, np.ndarray[Any, Any]], step: int) -> None:
    names = [repr(name.removeprefix(PARAMETERS)) for name, array in arrays.items()
             if name.startswith(PARAMETERS) and array.dtype.kind not in "biu" and not np.isfinite(array).all()]
    if names:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise FloatingPointError(f"after step {step}, {shown} contains infinities or NaN")
