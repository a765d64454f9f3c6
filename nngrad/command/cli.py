"""The `nngrad` command: demo, train, follow, ops, time, show, view, run, launch, cache, docs, doctor."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
from rich.console import Console
from rich.table import Table

import nngrad.functions as F
from backward_registry import registry
from nngrad_command import __version__, doctor, documentation, launch
from nngrad_command.arguments import natural, positive
from nngrad_command.following import command as following
from nngrad_command.installation import Requirement, install_command, missing
from nngrad_command.outcome import cause_of, complain, described, exit_code

from ..distributed import hosts
from ..execution import disk_command
from ..files.exporting import running
from ..graph import Composite, Op
from ..graph.spelling import did_you_mean
from ..inspection import command as showing
from ..inspection.timing import NETWORKS, loss_of, measure
from ..inspection.viewing import command as viewing
from .peers import PEERS, capability, functions_of_family, order_of, peers_of
from .recipes import NAMES

DESCRIPTION = "nngrad turns a computation into the graph of its gradients, to any order, on JAX."
COLUMNS = """\
columns of the table, in milliseconds:
  forward preparation   building the graph of the loss, listing it as a
                        program and finding its executable, on the host
  forward               running that, until the loss is there
  backward preparation  building the graph of the gradients, listing it and
                        finding its executable; loss.backward() needs this
                        for a structure that it has not met before
  backward              running loss and gradients as one executable, less
                        the time of forward
  iteration             the whole as a training loop has it: build the graph,
                        loss.forward(), loss.backward(), wait; no solver
below it, what the first iteration spent its time on, in seconds:
  build, trace, lower, compile, run"""
PIPED_WIDTH = 200
"""Columns of a table that is not printed to a terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (those of the process by default); returns the exit code.

    Raises:
        KeyboardInterrupt: With what was kept, where that is worth a word.
        OSError: The output cannot be written.
    """
    given = parser().parse_args(arguments)
    code: int = given.run(given)
    return code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="nngrad", description=DESCRIPTION)
    top.add_argument("--version", action="version", version=f"nngrad {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo", help="train a small GAN with a gradient penalty, and draw what it makes",
        description="Train a WGAN-GP on scikit-learn's 8x8 digits and write pictures of the digits that it draws and "
        "of the training curves. Takes about a minute on two CPU cores; needs matplotlib and scikit-learn.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--steps", type=positive, default=10000, metavar="N", help="steps of the generator")
    demo.add_argument("--output", type=Path, default=Path("nngrad-demo"), metavar="DIR", help="folder for the pictures")
    demo.add_argument("--seed", type=natural, default=0, metavar="S", help="seed of all that is random")
    demo.add_argument(
        "--device", choices=("cpu", "cuda"), default=argparse.SUPPRESS,
        help="where to run (default: a GPU where JAX sees one)",
    )
    demo.add_argument("--live", action="store_true", help="serve a page that follows the training, on loopback")
    demo.set_defaults(run=run_demo)

    train = commands.add_parser(
        "train", help="train one of the recipes, as a configuration says",
        description="Train a recipe. The folder of the run gets the configuration, metrics.csv, pictures and "
        "checkpoints; the same command resumes a run that was interrupted. Needs the packages of nngrad[demo,train].",
        epilog="recipes:\n" + "\n".join([f"  {name:8}{what}" for name, what in NAMES.items()]),
        formatter_class=_Paragraphs,
    )
    train.add_argument("recipe", type=_recipe, metavar="RECIPE",
                       help=f"{', '.join(NAMES)}, or a file of Python that was copied from one of them")
    train.add_argument("--config", type=Path, metavar="FILE",
                       help="configuration in TOML; a key that it lacks has its default")
    train.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                       help="the value of one key, as in solver.rate=1e-4; may be given several times")
    train.add_argument("--print-config", action="store_true",
                       help="print the configuration, with a comment for each key, and train nothing")
    train.add_argument("--out", type=Path, metavar="DIR", help="folder of the run (default: runs/RECIPE)")
    train.add_argument("--fresh", action="store_true", help="remove the run that is in the folder, and begin anew")
    train.add_argument("--changed", action="store_true",
                       help="resume the run in the folder although it began with another configuration")
    train.add_argument("--processes", type=positive, default=1, metavar="N",
                       help="train with several processes of this machine, as `nngrad launch` starts them (default: 1)")
    train.add_argument("--live", action="store_true",
                       help="serve a page that follows the run, on loopback, as `nngrad follow DIR` does")
    train.set_defaults(run=run_train)

    ops = commands.add_parser(
        "ops", help="list the functions and what is known of their backward rules",
        description="List every function of nngrad.functions: its name, nnabla's name for its type, where its gradient "
        "comes from, how often it can be differentiated, the file with the rule; and whether nnabla, Chainer, PyTorch "
        "and JAX can differentiate their function of that kind twice ('yes'), 'once' or not.",
    )
    ops.add_argument("--family", choices=F.FAMILIES, metavar="F", help=f"only this family: {', '.join(F.FAMILIES)}")
    ops.set_defaults(run=run_ops)

    show = commands.add_parser("show", help="print a graph of a script, or of a file, as text",
                               description=showing.DESCRIPTION)
    showing.add_arguments(show)
    show.set_defaults(run=showing.run)

    time = commands.add_parser(
        "time", help="time forward and backward of a network of the classic convnet benchmark",
        description="Time forward and backward of a network of the classic convnet benchmark, on random images: the "
        "averages in milliseconds, after a warm-up, each with the device waited for.",
        epilog=COLUMNS, formatter_class=_Paragraphs,
    )
    time.add_argument(
        "network", choices=tuple(NETWORKS), metavar="NETWORK",
        help="; ".join(f"{name} ({n.size}x{n.size} images, classic batch {n.classic_batch})"
                       for name, n in NETWORKS.items()),
    )
    time.add_argument("--batch-size", type=positive, default=16, metavar="N", help="images in a batch (default: 16)")
    time.add_argument("--iterations", type=positive, default=10, metavar="K",
                      help="iterations that are measured (default: 10)")
    time.add_argument("--warm-up", type=positive, default=1, metavar="W",
                      help="iterations before them; the first one compiles (default: 1)")
    time.add_argument("--device", choices=("cpu", "gpu", "tpu"),
                      help="where to run (default: a GPU where JAX sees one)")
    time.set_defaults(run=run_time)

    look = commands.add_parser("view", help="look at a graph of a script, or of a file, as a page",
                               description=viewing.DESCRIPTION)
    viewing.add_arguments(look)
    look.set_defaults(run=viewing.run)

    exported = commands.add_parser("run", help="run a function that nn.export has written, on arrays in files",
                                   description=running.DESCRIPTION)
    running.add_arguments(exported)
    exported.set_defaults(run=running.run)

    start = commands.add_parser(
        "launch", help="run a script as several processes, joined by JAX", description=launch.DESCRIPTION,
        epilog=launch.EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    launch.add_arguments(start)
    start.set_defaults(run=launch.run)

    follow = commands.add_parser("follow", help="show a page that follows a run, on loopback",
                                 description=following.DESCRIPTION)
    following.add_arguments(follow)
    follow.set_defaults(run=following.run)

    cache = commands.add_parser("cache", help="show the executables that are kept on disk, or remove them",
                                description=disk_command.DESCRIPTION)
    disk_command.add_arguments(cache)
    cache.set_defaults(run=disk_command.run)

    documentation.add_to(commands)

    examine = commands.add_parser(
        "doctor", help="show versions and devices, and what is missing or broken", description=doctor.DESCRIPTION
    )
    doctor.add_arguments(examine)
    examine.set_defaults(run=doctor.run)
    return top


class _Paragraphs(argparse.RawDescriptionHelpFormatter):
    """Wraps the description as usual, and leaves the lines below the options as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else argparse.HelpFormatter._fill_text(self, text, width, indent)


def _recipe(text: str) -> str:
    if text not in NAMES and not text.endswith(".py"):
        raise argparse.ArgumentTypeError(f"there is no recipe {text!r}{did_you_mean(text, NAMES)}; there are "
                                         f"{', '.join(NAMES)}, and files that end in .py")
    return text


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


# ---------------------------------------------------------------- demo


def run_demo(given: argparse.Namespace) -> int:
    """`nngrad demo`."""
    if _lacks("demo", missing("demo")):
        return 1
    try:
        from .demo.run import run
    except Exception as error:
        return _failed("demo", _broken(error))
    if not _jax_starts("demo"):
        return 1
    try:
        run(given.steps, given.output, given.seed, getattr(given, "device", None), _console(), given.live)
    except OSError as error:
        if error.filename is None:  # the output
            raise
        return _failed("demo", f"{error.filename}: {error.strerror}")
    except ValueError as error:
        return _failed("demo", str(error))
    return 0


def _failed(command: str, why: str, code: int = 1) -> int:
    complain(f"nngrad {command}: {why}")
    return code


def _lacks(command: str, lacking: list[Requirement]) -> bool:
    """Whether packages are missing; says so."""
    if lacking:
        names = " and ".join(r.wanted for r in lacking)
        complain(f"nngrad {command} needs {names}. This installs what is missing:\n\n    {install_command(lacking)}\n")
    return bool(lacking)


def _broken(error: Exception) -> str:
    return (f"what it needs is installed, but cannot be imported: {described(cause_of(error))}\n"
            "`nngrad doctor` says what is broken and what to do.")


def _jax_starts(command: str) -> bool:
    """Whether JAX finds devices, as it does not where JAX_PLATFORMS names what is not there."""
    try:
        jax.devices()
    except Exception as error:
        _failed(command, f"JAX finds no device: {described(error)}\n`nngrad doctor` says what to do.")
        return False
    return True


# ---------------------------------------------------------------- train


def run_train(given: argparse.Namespace) -> int:
    """`nngrad train`."""
    if _lacks("train", missing("demo") + [r for r in missing("train") if r.name == "orbax-checkpoint"]):
        return 1
    try:
        from .recipes.configuration import ConfigurationError, configured
        from .recipes.run import printed, recipe_named, run
    except Exception as error:
        return _failed("train", _broken(error))
    try:
        recipe = recipe_named(given.recipe)
        settings = configured(recipe.defaults, given.config, given.settings)
        if given.print_config:
            print(printed(recipe, settings), end="")
            return 0
        if given.processes > 1:
            return launch.main(["-n", str(given.processes), "-m", "nngrad", *_one_of_several(given)])
        out = given.out or Path("runs") / Path(given.recipe).stem
        hosts.initialize()
        if not _jax_starts("train"):
            return 1
        run(recipe, settings, out, given.fresh, given.changed, _console(), given.live)
    except OSError as error:
        if error.filename is None:  # the output
            raise
        return _failed("train", f"{error.filename}: {error.strerror}")
    except ConfigurationError as error:
        return _failed("train", str(error), 2)
    except (FloatingPointError, ImportError, ValueError) as error:
        return _failed("train", str(error))
    return 0


def _one_of_several(given: argparse.Namespace) -> list[str]:
    """The command of each process of a `nngrad train --processes`."""
    command = ["train", given.recipe, *[f"--set={setting}" for setting in given.settings]]
    command += [f"--{name}={path}" for name in ("config", "out") if (path := getattr(given, name)) is not None]
    return command + [f"--{name}" for name in ("fresh", "changed", "live") if getattr(given, name)]


# ---------------------------------------------------------------- ops


class Entry(NamedTuple):
    """A function of F, as `nngrad ops` shows it."""

    name: str
    type_name: str
    kind: str
    orders: str
    file: str
    nnabla: str = ""
    chainer: str = ""
    pytorch: str = ""
    jax: str = ""


def entries(family: str) -> list[Entry]:
    """The functions of a family, by name."""
    return [entry_of(name) for name in functions_of_family(family)]


def entry_of(name: str) -> Entry:
    """Returns what is known of a function of F, here and elsewhere."""
    function, orders = getattr(F, name), order_of(name)
    peers = {peer: capability(entry) for peer, entry in peers_of(name).items()}
    if isinstance(function, Op) and not isinstance(function, Composite):
        rule = registry.find(function)
        kind, file = ("no rule", "") if rule is None else (rule.kind, _file_of(rule.module))
        return Entry(name, function.type_name, kind, orders, file, **peers)
    if isinstance(function, Composite):
        return Entry(name, "", "composite", orders, _file_of(function.module), **peers)
    return Entry(name, "", "plain", orders, _file_of(function.__module__), **peers)


def _file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"


def run_ops(given: argparse.Namespace) -> int:
    """`nngrad ops`."""
    console = _console()
    count = 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("function", "type", "gradient", "orders", "file", *PEERS.values()):
        table.add_column(title, overflow="fold")
    for family in [given.family] if given.family else F.FAMILIES:
        table.add_section()
        for entry in entries(family):
            table.add_row(*entry)
            count += 1
    console.print(table)
    console.print(f"{count} functions", highlight=False)
    return 0


# ---------------------------------------------------------------- time


def run_time(given: argparse.Namespace) -> int:
    """`nngrad time`."""
    if not _jax_starts("time"):
        return 1
    network = NETWORKS[given.network]
    images = f"{given.batch_size} image{'s' * (given.batch_size > 1)} of 3x{network.size}x{network.size}"
    try:
        timing = measure(loss_of(given.network, given.batch_size), given.iterations, given.warm_up, given.device,
                         f"{network.title}, {images}")
    except ValueError as error:
        return _failed("time", str(error))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _failed("time", f"out of memory with {given.batch_size} images; give a smaller --batch-size")
    console = _console()
    console.print(timing.table())
    console.print(timing.caption(), highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
