"""`nngrad train`: train a recipe with a configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

import jax

from nngrad_command import commands
from nngrad_command.arguments import positive
from nngrad_command.installation import missing
from nngrad_command.outcome import complain, has_devices, reported

from ..distributed import hosts
from ..graph.messages import did_you_mean
from .console import complain_of_import, console_of_output, lacks
from .recipes import NAMES

DESCRIPTION = (
    "Train a recipe. The folder of the run gets the configuration, metrics.csv, pictures and checkpoints; the same "
    "command resumes a run that was interrupted. Needs the packages of nngrad[demo,train]."
)
EPILOG = "recipes:\n" + "\n".join([f"  {name:8}{what}" for name, what in NAMES.items()])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad train`."""
    parser.add_argument("recipe", type=_recipe, metavar="RECIPE",
                        help=f"{', '.join(NAMES)}, or a file of Python that was copied from one of them")
    parser.add_argument("--config", type=Path, metavar="FILE",
                        help="configuration in TOML; a key that it lacks has its default")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                        help="the value of one key, as in solver.rate=1e-4; may be given several times")
    parser.add_argument("--print-config", action="store_true",
                        help="print the configuration, with a comment for each key, and train nothing")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the run (default: runs/RECIPE)")
    parser.add_argument("--fresh", action="store_true", help="remove the run that is in the folder, and begin anew")
    parser.add_argument("--changed", action="store_true",
                        help="resume the run in the folder although it began with another configuration")
    parser.add_argument("--processes", type=positive, default=1, metavar="N",
                        help="train with several processes of this machine, as `nngrad launch` starts them "
                        "(default: 1)")


def _recipe(text: str) -> str:
    if text not in NAMES and not text.endswith(".py"):
        raise argparse.ArgumentTypeError(f"there is no recipe {text!r}{did_you_mean(text, NAMES)}; there are "
                                         f"{', '.join(NAMES)}, and files that end in .py")
    return text


@reported("train", FloatingPointError, ImportError, ValueError)
def run(given: argparse.Namespace) -> int:
    """`nngrad train`; returns the exit code."""
    if lacks("train", missing("demo")):
        return 1
    try:
        from .recipes.configuration import ConfigurationError, configured
        from .recipes.run import printed, recipe_named, train
    except Exception as error:
        complain_of_import("train", error)
        return 1
    try:
        recipe = recipe_named(given.recipe)
        settings = configured(recipe.defaults, given.config, given.settings)
        if given.print_config:
            print(printed(recipe, settings), end="")
            return 0
        if given.processes > 1:
            launched = ["launch", "-n", str(given.processes), "-m", "nngrad", *_one_of_several(given)]
            return commands.run(commands.ALONE, launched)
        out = given.out or Path("runs") / Path(given.recipe).stem
        hosts.initialize()
        if not has_devices("train", jax.devices):
            return 1
        train(recipe, settings, out, given.fresh, given.changed, console_of_output())
    except ConfigurationError as error:
        complain(f"nngrad train: {error}")
        return 2
    return 0


def _one_of_several(given: argparse.Namespace) -> list[str]:
    """The command line of a single process of `nngrad train --processes`."""
    command = ["train", given.recipe, *[f"--set={setting}" for setting in given.settings]]
    command += [f"--{name}={path}" for name in ("config", "out") if (path := getattr(given, name)) is not None]
    return command + [f"--{name}" for name in ("fresh", "changed") if getattr(given, name)]
