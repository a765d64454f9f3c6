"""`nngrad time`: time forward and backward of a loss in a script."""

from __future__ import annotations

import argparse

import jax

from nngrad_command.arguments import positive
from nngrad_command.outcome import complain, reported

from ..inspection.timing import measure
from .console import console_of_output
from .from_script import loss_named

DESCRIPTION = (
    "Time forward and backward of a loss: the averages in milliseconds, after a warm-up, each with the device waited "
    "for. SCRIPT:NAME is a global of a Python script: a function without arguments that builds the graph of a loss and "
    "returns the loss, or a loss whose graph is there. The script is run, but for what is under "
    '`if __name__ == "__main__":`.'
)
EPILOG = """\
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad time`."""
    parser.add_argument("loss", metavar="SCRIPT:NAME", help="the loss")
    parser.add_argument("--iterations", type=positive, default=10, metavar="K",
                        help="iterations that are measured (default: 10)")
    parser.add_argument("--warm-up", type=positive, default=1, metavar="W",
                        help="iterations before them; the first one compiles (default: 1)")
    parser.add_argument("--device", choices=("cpu", "gpu", "tpu"),
                        help="where to run (default: a GPU where JAX sees one)")


@reported("time", TypeError, ValueError, devices=jax.devices)
def run(given: argparse.Namespace) -> int:
    """`nngrad time`; returns the exit code."""
    try:
        title, loss = loss_named(given.loss)
        timing = measure(loss, given.iterations, given.warm_up, given.device, title)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        complain(f"nngrad time: out of memory with {given.loss}; give it a smaller batch")
        return 1
    console = console_of_output()
    console.print(timing.table())
    console.print(timing.caption(), highlight=False)
    return 0
