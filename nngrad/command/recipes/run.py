"""A run from end to end: begun or resumed, trained, measured, drawn, and kept."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
from rich.console import Console

import nngrad as nn
from nngrad_command.following.beside import FollowedBeside

from ...files.replacing import read_whole
from .configuration import ConfigurationError, as_toml
from .folder import TrainingFolder
from .recipe import Recipe
from .record import RunRecord
from .settings import RecipeSettings


def recipe_named(name: str) -> type[Recipe]:
    """The recipe of a name, or of a file of Python, which says by `RECIPE` which class it is.

    Raises:
        ConfigurationError: The file has none.
        OSError: It cannot be read.
        ImportError: What the recipe needs is not installed.
    """
    if not name.endswith(".py"):
        recipe: Any = import_module(f"{__package__}.{name}").RECIPE
    else:
        module = ModuleType(f"recipe in {name}")
        module.__file__ = name
        sys.modules[module.__name__] = module  # where dataclasses look for the types of their fields
        exec(compile(read_whole(name), name, "exec"), module.__dict__)
        recipe = getattr(module, "RECIPE", None)
        if not isinstance(recipe, type) or not issubclass(recipe, Recipe):
            raise ConfigurationError(f"{name}: has no RECIPE, a class derived from "
                                     "nngrad.command.recipes.recipe.Recipe")
    found: type[Recipe] = recipe
    return found


def printed(recipe: type[Recipe], settings: RecipeSettings) -> str:
    """A configuration as a TOML file, with a comment for each key."""
    name = recipe.__module__.removeprefix(f"{__package__}.").removeprefix("recipe in ")
    return as_toml(settings, f"{recipe.title}\n`nngrad train {name} --config FILE` trains with this file.")


def train(
    recipe: type[Recipe], settings: RecipeSettings, out: Path, fresh: bool, changed: bool, console: Console,
    live: bool = False,
) -> None:  # fmt: skip
    """Begin a run in a folder, or resume the one that is there.

    SIGTERM and Ctrl-C let the step finish and save. On several hosts only SIGTERM does, since all have to save the same
    step; a run that is interrupted there goes on from the last checkpoint.

    Args:
        recipe: What is trained.
        settings: How.
        out: The folder; made where it is missing.
        fresh: Whether a run that is there is removed.
        changed: Whether a run that is there may be resumed with another configuration.
        console: Where the first process prints.
        live: Whether a process beside it serves a page that follows the run.

    Raises:
        ConfigurationError: The run that is there began with another configuration, or keys do not go together.
        FloatingPointError: A loss is infinite or not a number; the message says which, when, and what is kept.
        ValueError: There are fewer devices than wanted, or a checkpoint does not fit.
        OSError: A file cannot be read or written; the message names it. One that names no file is that of printing.
        KeyboardInterrupt: It was interrupted; the message says what was kept.
        SystemExit: SIGTERM has ended it.
    """
    folder = TrainingFolder(out)
    is_first = nn.hosts.is_first()
    with ExitStack() as entered:
        entered.enter_context(nn.deterministic())
        if is_first:
            entered.enter_context(folder)
            if not (fresh and folder.clear()):
                folder.check(settings, changed)
        trained = recipe(settings)
        keeper = entered.enter_context(nn.Checkpointer(
            folder.checkpoints, trained.solvers, parameters=trained.kept(), keep=settings.checkpoint.keep,
            every=settings.checkpoint.every,
        ))
        begin = keeper.restore()
        if is_first:
            folder.write(settings, printed(recipe, settings))
        record = RunRecord(trained, settings, folder, console, begin) if is_first else None

        def say(text: str) -> None:
            if is_first:
                console.print(text, highlight=False, markup=False, soft_wrap=True)

        if begin >= settings.steps:
            say(f"{out}: finished after {begin:,} steps: {record}. --fresh begins anew.")
            return
        say(f"{trained.title}\n{out}: {_beginning(settings, begin)}")
        try:
            if record is not None:
                if live:
                    say(entered.enter_context(FollowedBeside(out)).said)
                entered.enter_context(record)
            _train(trained, settings, keeper, record, begin)
        except SystemExit as ending:
            kept = f"kept: {_last(keeper, folder)}; the same command goes on"
            if ending.code == 128 + signal.SIGINT:
                raise KeyboardInterrupt(kept) from None
            say(f"{out}: ended by a signal; {kept}")
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"kept: {_last(keeper, folder)}; the same command goes on") from None
        if record is not None:
            record.finish()
        say(f"{out}: finished after {settings.steps:,} steps: {record}.")


def _beginning(settings: RecipeSettings, begin: int) -> str:
    count = settings.devices or jax.device_count()
    where = f"{count} devices" if count > 1 else jax.devices()[0].device_kind
    processes = f" of {jax.process_count()} processes" if jax.process_count() > 1 else ""
    steps = f"goes on after step {begin:,} of {settings.steps:,}" if begin else f"{settings.steps:,} steps"
    return f"{steps}, on {where}{processes}"


def _train(
    recipe: Recipe, settings: RecipeSettings, keeper: nn.Checkpointer, record: RunRecord | None, begin: int
) -> None:
    log, steps = settings.log, settings.steps
    signals = (signal.SIGTERM,) if jax.process_count() > 1 else (signal.SIGTERM, signal.SIGINT)
    with keeper.saving_on_signals(*signals):
        for step in range(begin + 1, steps + 1):
            rate = recipe.set_rates(step - 1)
            recipe.step(step - 1)
            measures = step in (1, steps) or step % log.every == 0
            if measures or step % settings.checkpoint.every == 0:
                _check_finite(recipe, step, keeper)
            if record is not None:
                record.moved(step)
                if measures:
                    record.measure(step, rate)
                if log.pictures and (step == steps or step % log.pictures == 0):
                    record.draw(step)
            if step == steps:
                keeper.save(step)
            keeper.after_step(step)


def _check_finite(recipe: Recipe, step: int, keeper: nn.Checkpointer) -> None:
    wrong = recipe.not_finite()
    if wrong:
        steps = keeper.steps()
        kept = f"the last good checkpoint is that of step {steps[-1]:,}" if steps else "there is no checkpoint yet"
        raise FloatingPointError(
            f"the loss {' and '.join(map(repr, wrong))} or its gradient is infinite or not a number, at step {step:,} "
            f"or shortly before; {kept}. A lower solver.rate may help, or clip"
        )


def _last(keeper: nn.Checkpointer, folder: TrainingFolder) -> str:
    steps = keeper.steps()
    return f"{folder.checkpoints / str(steps[-1])}" if steps else "nothing, since there is no checkpoint yet"
