"""`Checkpointer`: saves the whole state of a training run, and restores it."""

from __future__ import annotations

import signal
import threading
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
from .contents import CheckpointContents, check_holder
from .finite import RecentLosses
from .storing import CheckpointStore, local_parts, of_all_processes


class Checkpointer:
    """Saves the whole state of a training run, and restores it.

    A checkpoint holds all parameters, including untrained ones, and their `need_grad`; state, learning rate and loss
    scale of solvers; the random state; the position of the input; and anything in `extra`. It is a snapshot of one
    moment, and gets its name, the step, only when it is complete. It contains digests of its files, so that damage is
    detected.

        checkpointer = nn.Checkpointer("runs/one", solver, feed=batches, every=1000)
        first = checkpointer.restore()                       # 0 if there is none yet
        with checkpointer.saving_on_signals():
            for done, (x, t) in zip(range(first + 1, 100_001), batches):
                checkpointer.after_step(done, step(x, t))

    On several hosts every process calls each method, and all share the directory.

    Args:
        path: The directory; each checkpoint is a subdirectory named after its step.
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
        self._contents = CheckpointContents(parameters, _named_solvers(solver), _named_holders(feed, extra))
        taken = self._contents.solvers.keys() & self._contents.holders.keys()
        if taken:
            raise ValueError(f"extra: {', '.join(map(repr, sorted(taken)))} is also a name in solver; choose another")
        self._store = CheckpointStore(Path(path).absolute(), keep)
        self._by_default = parameters is None
        self._every = every
        self._losses = RecentLosses()
        self._noted: Callable[[int], signal.Signals | None] = lambda step: None  # the signal that ends the run
        self._at: int | None = None  # the last completed step

    def hold(self, **holders: Any) -> None:
        """Save and restore further objects, like those in `extra`.

        Raises:
            TypeError: An object has no state.
        """
        self._contents.holders |= _named_holders(None, holders)

    def hold_by_default(self, module: Module) -> None:
        """Save and restore the parameters of a module, if no others were given and the scope has none."""
        if self._by_default and not self._contents.parameters():
            self._contents.hold_module(module)

    @property
    def kept(self) -> str:
        """Describe where the last checkpoint is."""
        steps = self.steps()
        return str(self._store.path / str(steps[-1])) if steps else "nothing, because there is no checkpoint yet"

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
        ending = self._noted(step)
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
        step, store = checked_count(step, "step", 0), self._store
        if step == store.last:
            return
        steps = store.steps()
        if step != store.begun or step not in steps:  # else an interrupt came after it was written
            later = [other for other in steps if other >= step]
            if later:
                raise ValueError(f"step: must come after those of the checkpoints in {store.path}, {later}, got "
                                 f"{step}; restore() the last one first, use another path, or delete them")
            self._finite_or_end(self._losses.look)
            arrays, facts, must_be_finite = self._contents.snapshot()
            if not arrays:
                raise ValueError("nothing to save yet: there are no parameters, and no state with arrays")
            self._finite_or_end(lambda: _check_finite({name: arrays[name] for name in must_be_finite}, step))
            store.write(step, arrays, facts)
        store.complete(step)
        self._at = step

    def steps(self) -> list[int]:
        """The steps that have checkpoints, in ascending order."""
        return self._store.steps()

    def _finite_or_end(self, check: Any) -> None:
        try:
            check()
        except FloatingPointError as error:
            steps = self._store.steps()
            last = f"the last good checkpoint is of step {steps[-1]}" if steps else "there is no checkpoint"
            raise FloatingPointError(f"{error}; {last}, in {self._store.path}") from None

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
        steps = self._store.steps()
        if step is None:
            step = steps[-1] if steps else -1
            if jax.process_count() > 1:  # which may see a shared folder at different times
                step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
            if step < 0:
                return 0
        elif step not in steps:
            raise FileNotFoundError(f"{self._store.path}: no checkpoint of step {step}, only of {steps}")
        self._contents.restore(self._store, step, only)
        self._losses.waiting.clear()
        if only is None:
            self._at = self._store.begun = self._store.last = step
        return step

    # ---------------------------------------------------------------- ending

    @contextmanager
    def saving_on_signals(self, *signals: int) -> Iterator[Checkpointer]:
        """Within the block, a signal to terminate lets the step finish, saves a checkpoint, and then ends the process.

        `after_step` does so by raising SystemExit with 128 plus the signal's number, as shells do: 143 for SIGTERM. At
        the end of the block the signals do what they did before. A second Ctrl-C is a KeyboardInterrupt.

        Args:
            signals: The signals; by default SIGTERM. `signal.SIGINT` is Ctrl-C.

        Raises:
            RuntimeError: This is not the main thread.
            ValueError: There are several processes and a signal other than SIGTERM, the only one that JAX shares.
        """
        wanted = tuple(map(signal.Signals, signals or (signal.SIGTERM,)))
        are_several = jax.process_count() > 1
        if are_several and wanted != (signal.SIGTERM,):
            raise ValueError("signals: must be SIGTERM alone with several processes, because no other reaches all, got "
                             + ", ".join([s.name for s in wanted]))
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("saving_on_signals: must be entered in the main thread, where Python delivers signals")
        noted: list[signal.Signals] = []

        def note(number: int, _: FrameType | None) -> None:
            if number == signal.SIGINT and noted[-1:] == [signal.SIGINT]:
                raise KeyboardInterrupt  # a second Ctrl-C means not to wait
            noted.append(signal.Signals(number))

        def noted_by_all(step: int) -> signal.Signals | None:
            return signal.SIGTERM if multihost_utils.reached_preemption_sync_point(step) else None

        if are_several:  # JAX notes SIGTERM, and makes all agree on the step after which they end
            multihost_utils.reached_preemption_sync_point(0)  # raises if the service is off
        before = {} if are_several else {number: signal.signal(number, note) for number in wanted}
        outer, self._noted = self._noted, noted_by_all if are_several else lambda step: noted[-1] if noted else None
        try:
            yield self
            if self._at is not None and (ending := self._noted(self._at)) is not None:  # after the last step
                self.save(self._at)
                raise SystemExit(128 + ending)
        finally:
            self._noted = outer
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def __repr__(self) -> str:
        return f"<checkpoints of {', '.join(['parameters', *self._contents.solvers, *self._contents.holders])} in " \
               f"{self._store.path}>"


def _named_solvers(solver: Any) -> dict[str, Solver]:
    named = {} if solver is None else dict(solver) if isinstance(solver, Mapping) else {"solver": solver}
    for name, value in named.items():
        if not isinstance(name, str) or not name or "/" in name or name in _TAKEN:
            raise ValueError(f"solver: a name must be a str without '/', not one of {_TAKEN}, got {name!r}")
        if not isinstance(value, Solver):
            raise TypeError(f"solver: expected a Solver or a dict of Solvers, got {type(value).__name__}; for an optax "
                            "transformation use nngrad.solvers.Solver.from_optax")
    return named


def _named_holders(feed: Any, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    named = dict(extra or {})
    for name, value in named.items():
        if not isinstance(name, str) or not name or "/" in name or name in (*_TAKEN, "feed"):
            raise ValueError(f"extra: a name must be a str without '/', not one of {(*_TAKEN, 'feed')}, got {name!r}")
        check_holder(value, f"extra[{name!r}]")
    if feed is not None:
        check_holder(feed, "feed")
        named["feed"] = feed
    return named


def _check_finite(arrays: Mapping[str, Any], step: int) -> None:
    own = [name for name, array in arrays.items() if not all([np.isfinite(x).all() for _, x in local_parts(array)])]
    found = list(dict.fromkeys([name for names in of_all_processes(own) for name in names]))
    if found:
        names = ", ".join([repr(name.partition("/")[2]) for name in found[:5]]) + (", ..." if len(found) > 5 else "")
        raise FloatingPointError(f"after step {step}, {names} contains infinities or NaN")


_TAKEN = ("parameters", "random")
