"""`nn.fit`: a training loop over batches with a log, evaluation, checkpoints and callbacks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np

from ...extend import checked_count
from ..checkpoints import Checkpointer
from ..checkpoints.checkpointer import RecentLosses
from ..feeding import Feed, is_of_grain, source_of
from ..step import TrainStep
from ..train_step import TrainStepByShape
from .log import TrainingLog, training_log, value_of


def _batches_of(data: Any, epochs: int | None, steps: int | None) -> Feed:
    """The batches of `nn.fit`, which stay where they are unless they are those of `nn.feed`.

    Raises:
        TypeError: `data` is not a source of batches.
        ValueError: `data` does not support the given `epochs` and `steps`.
    """
    if data is None:
        if steps is None or epochs is not None:
            raise ValueError("steps: without data, pass steps and not epochs")
        data = repeat(())
    if isinstance(data, Feed):
        if epochs is not None:
            raise ValueError(f"epochs: must be None for a feed, got {epochs}; use nn.feed(..., epochs={epochs})")
        return data
    if isinstance(data, tuple) or hasattr(data, "__array__"):
        raise TypeError(f"data: expected an iterable of batches, got {type(data).__name__}; to use the same batch at "
                        "each step, pass [(x, t)]")
    if (steps is None or epochs is not None) and all([hasattr(data, name) for name in ("next", "epoch", "size")]):
        raise ValueError(f"steps: a {type(data).__name__} has no end; pass steps and not epochs")
    once = 1 if steps is None or hasattr(data, "__next__") or is_of_grain(data) else None
    return Feed(source_of(data, once if epochs is None else epochs, "data"), False)


def _steps_of(data: Any, epochs: int | None, steps: int | None) -> int | None:
    """The number of batches that will be taken, if it is known."""
    known = len(data) * (epochs or 1) if hasattr(data, "__len__") and (epochs is not None or steps is None) else None
    return min([n for n in (known, steps) if n is not None], default=None)


Evaluate = Callable[[], Mapping[str, Any]]


class Run:
    """A run of `nn.fit`: the argument of callbacks, and the result."""

    def __init__(self, batches: Feed, log: TrainingLog, callbacks: list[Callable[[Run], object]]) -> None:
        self.step = 0
        """The number of completed steps."""
        self.result: Any = None
        """The result of the last step."""
        self.metrics: dict[str, float] = {}
        """The values measured after the last step; empty if no measurement was due."""
        self.stopped = ""
        """The reason why a callback stopped the run; empty if none did."""
        self.log = log
        self.callbacks = callbacks
        self._batches = batches

    @property
    def history(self) -> list[dict[str, float]]:
        """The lines of the log: the measured values, with `step` and `seconds`."""
        return self.log.lines

    def stop(self, reason: str = "a callback stopped it") -> None:
        """End the run after this step."""
        self.stopped = reason

    def get_state(self) -> dict[str, Any]:
        """The state of the run for a checkpoint: the position in the data, and the states of callbacks."""
        states = [call.get_state() if _has_state(call) else None for call in self.callbacks]  # type: ignore[attr-defined]
        return {"data": self._batches.get_state(), "stopped": self.stopped, "callbacks": states}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that `get_state` returned.

        Raises:
            ValueError: The run had other callbacks, or other data.
        """
        if [held is not None for held in state["callbacks"]] != list(map(_has_state, self.callbacks)):
            raise ValueError("callbacks: differ from those of the run to resume")
        self._batches.set_state(state["data"])
        self.stopped = state["stopped"]
        for call, held in zip(self.callbacks, state["callbacks"], strict=True):
            if held is not None:
                call.set_state(held)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<run, {self.step} steps{self.stopped and ', stopped: ' + self.stopped}>"


def _has_state(call: object) -> bool:
    return hasattr(call, "get_state") and hasattr(call, "set_state")


def fit(
    step: Callable[..., Any],
    data: Any = None,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    every: int = 100,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
    log: TrainingLog | str | Path | None = None,
    checkpoints: Checkpointer | None = None,
    callbacks: Iterable[Callable[[Run], object]] = (),
) -> Run:
    """Train: call a step with each batch, and log, evaluate, save and stop as requested.

        step = nn.train_step(loss_of, nn.get_parameters, solver, on_nan="raise")
        nn.fit(step, batches, epochs=10, evaluate=lambda: {"accuracy": accuracy()}, log="runs/one",
               checkpoints=nn.Checkpointer("runs/one/checkpoints", solver, every=1000))

    With `checkpoints` the same call resumes after the last one, and reaches the same parameters, bit for bit, as an
    uninterrupted run. The last step is saved too. Ctrl-C and SIGTERM let the step finish and save it; a second Ctrl-C
    does not wait. A loss that is infinite or NaN ends the run; a step of `nn.train_step(..., on_nan="raise")` also
    names the function that made it.

    Args:
        step: The result of `nn.train_step`, or any function of a batch. It returns a loss, or a loss and a dict of
            metrics, or such a dict; of these, numbers and arrays of one element are logged.
        data: Batches: an iterable; a function from the number of an epoch, from 0, to an iterable; the result of
            `nn.feed`; or a loader of grain. A tuple or a list becomes the arguments of the step, anything else its only
            argument. None: the step has no arguments.
        epochs: The number of times to iterate over `data`; by default once or, if `steps` is given, as often as needed.
        steps: The number of steps after which the run ends, unless the data end first.
        every: The number of steps between lines of the log; the first and the last step always have one.
        evaluate: A function without arguments that evaluates the model and returns numbers by name.
        evaluate_every: The number of steps between its calls, by default `every`; the first and last step have one too.
        log: A folder for `metrics.jsonl`, or the result of `nn.training_log`; by default there is only a progress bar.
        checkpoints: Saves and restores the run, with its own `every`.
        callbacks: Functions to call with the `Run` after each step. Their results are ignored. The state of those with
            `get_state` and `set_state` is saved in checkpoints.

    Returns:
        The `Run`: its `history` is a list of the lines, each a dict.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The data do not support the numbers, there are no batches, or `evaluate` and the step return the
            same name.
        FloatingPointError: The loss is infinite or NaN.
        KeyboardInterrupt: Ctrl-C; with checkpoints the message says what was saved.
        SystemExit: SIGTERM ended the run, and everything is saved.
    """
    for name, value in (("epochs", epochs), ("steps", steps), ("every", every), ("evaluate_every", evaluate_every)):
        if value is not None:
            checked_count(value, name)
    if checkpoints is not None and not isinstance(checkpoints, Checkpointer):
        raise TypeError(f"checkpoints: expected an nn.Checkpointer, got {type(checkpoints).__name__}")
    callbacks = list(callbacks)
    for call in (step, *callbacks) if evaluate is None else (step, evaluate, *callbacks):
        if not callable(call):
            raise TypeError(f"fit: expected a function for step, evaluate and each of callbacks, got {call!r}")
    batches, most = _batches_of(data, epochs, steps), _steps_of(data, epochs, steps)
    log = log if isinstance(log, TrainingLog) else training_log(log)
    run = Run(batches, log, callbacks)
    if checkpoints is not None:
        checkpoints.hold(fit=run)
        if isinstance(step, TrainStep | TrainStepByShape) and step.module is not None:
            checkpoints.hold_by_default(step.module)
        run.step = checkpoints.restore()
    log.step, log.steps = run.step, most
    begin, losses = run.step, RecentLosses()
    measured = evaluated = begin  # the last steps with measurement and evaluation
    left = 0 if run.stopped else None if steps is None else max(steps - begin, 0)
    try:
        with _saving(checkpoints), log, nullcontext() if data is batches else batches:
            for batch in islice(batches, left):
                number = run.step + 1
                try:
                    run.result = step(*(batch if isinstance(batch, tuple | list) else (batch,)))
                except FloatingPointError as error:
                    saved = "" if checkpoints is None else f"; saved: {checkpoints.kept}"
                    error.add_note(f"nn.fit: in step {number}{saved}")
                    raise
                run.step, run.metrics = number, {}
                values = logged_of(run.result)
                writes, evaluates = (number in (1, most) or number % n == 0 for n in (every, evaluate_every or every))
                if evaluates and evaluate is not None:
                    values, evaluated = values | _evaluated(evaluate, values), number
                if writes or evaluated == number:
                    run.metrics, measured = log.write(number, values), number
                else:
                    log.moved(number)
                for call in callbacks:  # before the checkpoint, which holds what they know after this step
                    call(run)
                if checkpoints is None:
                    losses.add(number, values.get("loss", 0.0))
                else:
                    checkpoints.after_step(number, values.get("loss"))
                if run.stopped:
                    break
            if run.step == 0:
                raise ValueError("data: must have at least one batch")
            losses.look()
            # The last step has a line, too, where nobody knew before that it was the last.
            values = logged_of(run.result) if measured != run.step else {}
            if evaluate is not None and evaluated != run.step:
                values |= _evaluated(evaluate, values)
            if values or measured != run.step:
                run.metrics = log.write(run.step, values)
            if checkpoints is not None and run.step > begin:
                checkpoints.save(run.step)
    except SystemExit as ending:
        if checkpoints is None or ending.code != 128 + signal.SIGINT:
            raise
        raise KeyboardInterrupt(f"saved: {checkpoints.kept}; repeat the call of nn.fit to resume") from None
    return run


def _saving(checkpoints: Checkpointer | None) -> AbstractContextManager[object]:
    """Let signals end the run after the current step; only the main thread can, since Python delivers them there."""
    if checkpoints is None or threading.current_thread() is not threading.main_thread():
        return nullcontext()
    return checkpoints.saving_on_signals()


def _evaluated(evaluate: Evaluate, values: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that `evaluate` returns beside `values` of a step, by name."""
    metrics = evaluate()
    if not isinstance(metrics, Mapping):
        raise TypeError(f"evaluate: expected numbers by name, as {{'accuracy': 0.5}}, got {metrics!r}")
    for name in metrics:
        if name in values:
            raise ValueError(f"evaluate: the step already returns {name!r}; choose another name, such as 'val_{name}'")
    return {name: value_of(value) for name, value in metrics.items()}


def logged_of(result: Any) -> dict[str, Any]:
    """The loggable part of a step's result (a loss, a loss and more, or a dict); nothing is read yet."""
    if result is None:
        return {}
    loss, more = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if isinstance(loss, Mapping):
        return {name: value_of(value) for name, value in loss.items()}
    named = more if isinstance(more, Mapping) else {}
    return {"loss": value_of(loss), **{name: value for name, value in named.items() if np.size(value) == 1}}
