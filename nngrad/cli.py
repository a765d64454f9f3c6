"""The `nngrad` command: demo, ops, time, cache, doctor."""

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
from nngrad_command import __version__, doctor
from nngrad_command.installation import install_command, missing
from nngrad_command.outcome import cause_of, complain, described, exit_code

from .execution import executables
from .execution.disk_cache import described as described_disk
from .graph import Composite, Op
from .peers import capability, peers_of
from .peers.pages import TITLES, functions_of_family, order_of
from .timing import NETWORKS, loss_of, measure

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
    demo.add_argument("--steps", type=_positive, default=10000, metavar="N", help="steps of the generator")
    demo.add_argument("--output", type=Path, default=Path("nngrad-demo"), metavar="DIR", help="folder for the pictures")
    demo.add_argument("--seed", type=_natural, default=0, metavar="S", help="seed of all that is random")
    demo.add_argument(
        "--device", choices=("cpu", "cuda"), default=argparse.SUPPRESS,
        help="where to run (default: a GPU where JAX sees one)",
    )
    demo.set_defaults(run=run_demo)

    ops = commands.add_parser(
        "ops", help="list the functions and what is known of their backward rules",
        description="List every function of nngrad.functions: its name, nnabla's name for its type, where its gradient "
        "comes from, how often it can be differentiated, the file with the rule; and whether nnabla, Chainer, PyTorch "
        "and JAX can differentiate their function of that kind twice ('yes'), 'once' or not.",
    )
    ops.add_argument("--family", choices=F.FAMILIES, metavar="F", help=f"only this family: {', '.join(F.FAMILIES)}")
    ops.set_defaults(run=run_ops)

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
    time.add_argument("--batch-size", type=_positive, default=16, metavar="N", help="images in a batch (default: 16)")
    time.add_argument("--iterations", type=_positive, default=10, metavar="K",
                      help="iterations that are measured (default: 10)")
    time.add_argument("--warm-up", type=_positive, default=1, metavar="W",
                      help="iterations before them; the first one compiles (default: 1)")
    time.add_argument("--device", choices=("cpu", "gpu", "tpu"),
                      help="where to run (default: a GPU where JAX sees one)")
    time.set_defaults(run=run_time)

    cache = commands.add_parser(
        "cache", help="show the executables that are kept on disk, or remove them",
        description="Show where executables are kept from run to run, whether they are used, how many there are and "
        "how much room they take; or remove them all.",
    )
    cache.add_argument("action", nargs="?", choices=("show", "clear"), default="show",
                       help="what to do (default: show)")
    cache.set_defaults(run=run_cache)

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


def _natural(text: str) -> int:
    value = _whole(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


# ---------------------------------------------------------------- demo


def run_demo(given: argparse.Namespace) -> int:
    """`nngrad demo`."""
    lacking = missing("demo")
    if lacking:
        names = " and ".join(r.wanted for r in lacking)
        complain(f"nngrad demo needs {names}. This installs what is missing:\n\n    {install_command(lacking)}\n")
        return 1
    try:
        from .demo.run import run
    except Exception as error:
        return _failed("demo", f"what it needs is installed, but cannot be imported: {described(cause_of(error))}\n"
                       "`nngrad doctor` says what is broken and what to do.")
    if not _jax_starts("demo"):
        return 1
    try:
        run(given.steps, given.output, given.seed, getattr(given, "device", None), _console())
    except OSError as error:
        if error.filename is None:  # the output
            raise
        return _failed("demo", f"{error.filename}: {error.strerror}")
    except ValueError as error:
        return _failed("demo", str(error))
    return 0


def _failed(command: str, why: str) -> int:
    complain(f"nngrad {command}: {why}")
    return 1


def _jax_starts(command: str) -> bool:
    """Whether JAX finds devices, as it does not where JAX_PLATFORMS names what is not there."""
    try:
        jax.devices()
    except Exception as error:
        _failed(command, f"JAX finds no device: {described(error)}\n`nngrad doctor` says what to do.")
        return False
    return True


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
    for title in ("function", "type", "gradient", "orders", "file", *TITLES.values()):
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


# ---------------------------------------------------------------- cache


def run_cache(given: argparse.Namespace) -> int:
    """`nngrad cache`."""
    disk = executables.disk
    if given.action == "clear":
        try:
            count = disk.clear()
        except OSError as error:
            return _failed("cache clear", f"{disk.info().folder}: {error.strerror or error}")
        print(f"{count} executables removed from {disk.info().folder}")
        return 0
    for line in described_disk(disk.info()):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
