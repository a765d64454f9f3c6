"""A run of a recipe from start to end: begin or resume, train, measure, draw, save. Also the folder of a run: its
files, and a lock so that only one run at a time writes to it."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import sys
from contextlib import ExitStack
from importlib.metadata import files
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
from rich.console import Console

import nngrad as nn
from nngrad_command.in_clone import SOURCES

from ...files.replacing import read_whole, write_whole
from ...training.runs.log import METRICS, RATE, SAMPLES, TENSORBOARD, TrainingLog
from . import NAMES
from .configuration import ConfigurationError, as_toml, changed_keys, values_in
from .recipe import Recipe
from .settings import RecipeSettings

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked there
    fcntl = None  # type: ignore[assignment]


LOCK = ".lock"


class TrainingFolder:
    """The folder of a run; a context manager that locks it against other processes.

        config.toml              the configuration in use
        metrics.csv              the measured values
        samples/step-00001000.png        pictures
        checkpoints/             checkpoints to resume from
        tensorboard/             TensorBoard's files, if requested
        parameters.safetensors   the parameters, once the run is finished

    A missing folder is created.

    Raises:
        OSError: The folder cannot be created or written to, or another process uses it; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.configuration = path / "config.toml"
        self.checkpoints = path / "checkpoints"
        self.parameters = path / "parameters.safetensors"
        self._locked = ExitStack()

    def __enter__(self) -> TrainingFolder:
        with ExitStack() as opened:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = opened.enter_context(open(self.path / LOCK, "ab"))
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                why = "another process trains there; wait for it, or give another --out"
                raise OSError(errno.EBUSY, why, str(self.path)) from None
            except OSError as error:
                why = f"the folder cannot be written to: {error.strerror}; give another --out"
                raise OSError(error.errno, why, str(self.path)) from error
            self._locked = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._locked.close()

    def clear(self) -> bool:
        """Remove a run's files, `config.toml` last, since it marks the folder as a run's.

        Returns:
            Whether there was a run.
        """
        if not self.configuration.exists():
            return False
        for folder in self.checkpoints, self.path / SAMPLES, self.path / TENSORBOARD:
            shutil.rmtree(folder, ignore_errors=True)
        for file in self.path / METRICS, self.parameters, self.configuration:
            file.unlink(missing_ok=True)
        return True

    def check(self, configuration: Any, changed: bool) -> None:
        """Raise a ConfigurationError unless a run with this configuration can begin here or be resumed. With `changed`,
        the existing run may have begun with another configuration."""
        if not self.configuration.exists():
            others = sorted(name for name in os.listdir(self.path) if name != LOCK)
            if others:
                raise ConfigurationError(
                    f"{self.path}: has files ({', '.join(others[:3])}) but no run; give another --out"
                )
            return
        found = changed_keys(values_in(self.configuration), configuration, lambda key: not key.free)
        if found and not changed:
            raise ConfigurationError(
                f"{self.path}: the run there began with another configuration:\n"
                + "".join(f"    {line}\n" for line in found)
                + "--fresh removes it and begins anew, --changed goes on with what is given now; or give another --out"
            )

    def write(self, configuration: Any, text: str) -> None:
        """Write the configuration, with `text` as its TOML file, unless it exists."""
        if not self.configuration.exists() or changed_keys(values_in(self.configuration), configuration):
            write_whole(self.configuration, text.encode())


_IN = "recipe in "
"""The prefix of the name of a recipe's module."""


def recipe_named(name: str) -> type[Recipe]:
    """The recipe with a name, or in a Python file, whose `RECIPE` is its class.

    Raises:
        ConfigurationError: The file defines no recipe.
        OSError: The file cannot be read.
        ImportError: A package that the recipe needs is not installed.
    """
    return _shipped(name) if name in NAMES else _defined_in(name, Path(name))


@functools.cache
def _shipped(name: str) -> type[Recipe]:
    return _defined_in(name, recipe_file(name))


def _defined_in(name: str, file: Path) -> type[Recipe]:
    module = ModuleType(f"{_IN}{name}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look up the types of their fields there
    exec(compile(read_whole(file), str(file), "exec"), module.__dict__)
    recipe = getattr(module, "RECIPE", None)
    if not isinstance(recipe, type) or not issubclass(recipe, Recipe):
        raise ConfigurationError(f"{name}: has no RECIPE, a class derived from nngrad.command.recipes.recipe.Recipe")
    return recipe


def recipe_file(name: str) -> Path:
    """The file of a recipe: among the examples of a clone, or where the wheel installed it."""
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
    recipe: type[Recipe], settings: RecipeSettings, out: Path, fresh: bool, changed: bool, console: Console
) -> None:
    """Begin a run in a folder, or resume the one there.

    SIGTERM and Ctrl-C let the step finish, and save it. On several hosts only SIGTERM does, since all must save the
    same step; a run that is interrupted there continues from the last checkpoint.

    With `fresh`, an existing run is removed; with `changed`, it may be resumed with another configuration.

    Raises:
        ConfigurationError: The existing run began with another configuration, or settings contradict each other.
        FloatingPointError: A loss is infinite or NaN; the message says which, when, and what is kept.
        ValueError: There are too few devices, or a checkpoint does not fit.
        OSError: A file cannot be read or written; the message names it. An error without a file comes from printing.
        KeyboardInterrupt: Ctrl-C; the message says what was kept.
        SystemExit: SIGTERM ended the run.
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
        log = RecipeLog(trained, settings, folder, console)
        try:
            nn.fit(
                lambda number: _take(trained, settings, keeper, number), range(settings.steps),
                steps=settings.steps, every=settings.log.every, evaluate=trained.evaluated if is_first else None,
                log=log, checkpoints=keeper, callbacks=[lambda run: log.draw_due(run.step)],
            )  # fmt: skip
        except SystemExit:
            log.say(f"{out}: ended by a signal; saved: {keeper.kept}; repeat the command to resume")
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"saved: {keeper.kept}; repeat the command to resume") from None
        if is_first and not log.was_finished:
            nn.save_parameters(folder.parameters, trained.copy_parameters())
        log.say(f"{out}: finished after {log.step:,} steps: {log}."
                f"{' --fresh begins anew.' if log.was_finished else ''}")


class RecipeLog(TrainingLog):
    """The log of a recipe's run, which also prints how the run begins, and draws pictures."""

    def __init__(self, recipe: Recipe, settings: RecipeSettings, folder: TrainingFolder, console: Console) -> None:
        super().__init__(folder.path, 0, settings.steps, 1, settings.log.tensorboard, console)
        self._recipe, self._settings, self._run_folder, self._console = recipe, settings, folder, console
        self.was_finished = False
        """Whether the run was already finished."""

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
    """Take a step, and return its values for the log. From time to time, check that everything is finite."""
    values = {RATE: recipe.set_rates(number), **recipe.taken(number)}
    step = number + 1
    is_measured = step in (1, settings.steps) or step % settings.log.every == 0
    wrong = recipe.not_finite() if is_measured or step % settings.checkpoint.every == 0 else []
    if wrong:
        steps = keeper.steps()
        kept = f"the last good checkpoint is of step {steps[-1]:,}" if steps else "there is no checkpoint yet"
        raise FloatingPointError(
            f"the loss {' and '.join(map(repr, wrong))} or its gradient is infinite or not a number, at step {step:,} "
            f"or shortly before; {kept}. A lower solver.rate may help, or clip"
        )
    return values
