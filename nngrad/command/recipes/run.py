"""A run of a recipe from start to end: begin or resume, train, measure, draw, save."""

from __future__ import annotations

import errno
import functools
import sys
from contextlib import ExitStack
from importlib.metadata import files
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
from rich.console import Console

import nngrad as nn
from nngrad_command.following.beside import FollowedBeside
from nngrad_command.in_clone import SOURCES

from ...files.replacing import read_whole
from ...training.runs.log import RATE, TrainingLog
from . import NAMES
from .configuration import ConfigurationError, as_toml
from .folder import TrainingFolder
from .recipe import Recipe
from .settings import RecipeSettings

_IN = "recipe in "
"""What the name of a recipe's module begins with."""


def recipe_named(name: str) -> type[Recipe]:
    """The recipe of a name, or of a Python file, whose `RECIPE` is its class.

    Raises:
        ConfigurationError: The file has none.
        OSError: It cannot be read.
        ImportError: What the recipe needs is not installed.
    """
    return _shipped(name) if name in NAMES else _defined_in(name, Path(name))


@functools.cache
def _shipped(name: str) -> type[Recipe]:
    return _defined_in(name, recipe_file(name))


def _defined_in(name: str, file: Path) -> type[Recipe]:
    module = ModuleType(f"{_IN}{name}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # where dataclasses look for the types of their fields
    exec(compile(read_whole(file), str(file), "exec"), module.__dict__)
    recipe = getattr(module, "RECIPE", None)
    if not isinstance(recipe, type) or not issubclass(recipe, Recipe):
        raise ConfigurationError(f"{name}: has no RECIPE, a class derived from nngrad.command.recipes.recipe.Recipe")
    return recipe


def recipe_file(name: str) -> Path:
    """The file of a recipe: in a clone among the examples, else where the wheel has installed it."""
    cloned = SOURCES / "examples" / "recipes" / f"{name}.py"
    if cloned.is_file():
        return cloned
    for installed in files("nngrad") or ():
        if installed.match(f"share/nngrad/recipes/{name}.py"):
            return Path(str(installed.locate()))
    raise FileNotFoundError(errno.ENOENT, "the recipe is not among the installed files of nngrad", f"{name}.py")


def printed(recipe: type[Recipe], settings: RecipeSettings) -> str:
    """A configuration as a TOML file, with a comment for each key."""
    name = recipe.__module__.removeprefix(_IN)
    return as_toml(settings, f"{recipe.title}\n`nngrad train {name} --config FILE` trains with this file.")


def train(
    recipe: type[Recipe], settings: RecipeSettings, out: Path, fresh: bool, changed: bool, console: Console,
    live: bool = False,
) -> None:  # fmt: skip
    """Begin a run in a folder, or resume the one there.

    SIGTERM and Ctrl-C let the step finish and save. On several hosts only SIGTERM does, since all have to save the same
    step; a run that is interrupted there goes on from the last checkpoint.

    A run that is there is removed where this one is to be `fresh`, and may be resumed with another configuration where
    that is `changed`. With `live` a process beside it serves a page that follows the run.

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
        log = RecipeLog(trained, settings, folder, console, live)
        try:
            nn.fit(
                lambda number: _take(trained, settings, keeper, number), range(settings.steps),
                steps=settings.steps, every=settings.log.every, evaluate=trained.evaluated if is_first else None,
                log=log, checkpoints=keeper, callbacks=[lambda run: log.draw_due(run.step)],
            )  # fmt: skip
        except SystemExit:
            log.say(f"{out}: ended by a signal; kept: {keeper.kept}; the same command goes on")
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"kept: {keeper.kept}; the same command goes on") from None
        if is_first and not log.was_finished:
            nn.save_parameters(folder.parameters, trained.copy_parameters())
        log.say(f"{out}: finished after {log.step:,} steps: {log}."
                f"{' --fresh begins anew.' if log.was_finished else ''}")


class RecipeLog(TrainingLog):
    """The log of a recipe's run, which also prints how the run begins, and draws."""

    def __init__(
        self, recipe: Recipe, settings: RecipeSettings, folder: TrainingFolder, console: Console, live: bool
    ) -> None:
        super().__init__(folder.path, 0, settings.steps, 1, settings.log.tensorboard, console)
        self._recipe, self._settings, self._run_folder, self._console = recipe, settings, folder, console
        self._live = live
        self.was_finished = False
        """Whether nothing was left to be done."""

    def say(self, text: str) -> None:
        """Print a line in the first process."""
        if nn.hosts.is_first():
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> RecipeLog:
        settings, folder, is_first = self._settings, self._run_folder, nn.hosts.is_first()
        if is_first:
            folder.write(settings, printed(type(self._recipe), settings))
        self.was_finished = self.step >= settings.steps
        if self.was_finished:
            self._progress = self._tensorboard = False
        else:
            self.say(f"{self._recipe.title}\n{folder.path}: {_beginning(settings, self.step)}")
        super().__enter__()
        if self._live and is_first and not self.was_finished:
            self.say(self._closed.enter_context(FollowedBeside(folder.path)).said)
        return self

    def draw_due(self, step: int) -> None:
        """Draw a picture if one is due after a step."""
        pictures = self._settings.log.pictures
        if pictures and nn.hosts.is_first() and (step == self._settings.steps or step % pictures == 0):
            self._recipe.copy_parameters()
            self.draw(step, self._recipe.drawn())


def _beginning(settings: RecipeSettings, begin: int) -> str:
    count = settings.devices or jax.device_count()
    where = f"{count} devices" if count > 1 else jax.devices()[0].device_kind
    processes = f" of {jax.process_count()} processes" if jax.process_count() > 1 else ""
    steps = f"goes on after step {begin:,} of {settings.steps:,}" if begin else f"{settings.steps:,} steps"
    return f"{steps}, on {where}{processes}"


def _take(recipe: Recipe, settings: RecipeSettings, keeper: nn.Checkpointer, number: int) -> dict[str, Any]:
    """Take a step, and return its values for the log. Now and then it checks that everything is finite."""
    values = {RATE: recipe.set_rates(number), **recipe.taken(number)}
    step = number + 1
    is_measured = step in (1, settings.steps) or step % settings.log.every == 0
    wrong = recipe.not_finite() if is_measured or step % settings.checkpoint.every == 0 else []
    if wrong:
        steps = keeper.steps()
        kept = f"the last good checkpoint is that of step {steps[-1]:,}" if steps else "there is no checkpoint yet"
        raise FloatingPointError(
            f"the loss {' and '.join(map(repr, wrong))} or its gradient is infinite or not a number, at step {step:,} "
            f"or shortly before; {kept}. A lower solver.rate may help, or clip"
        )
    return values
