"""nnabla's communicators: exchange arrays and gradients between processes, each with its own graph."""

from __future__ import annotations

from ...context import Context
from .communicator import Communicator as Communicator
from .exchanges import AllReduceCallback as AllReduceCallback


def MultiProcessDataParallelCommunicator(ctx: Context | None = None) -> Communicator:  # noqa: N802  nnabla's name
    """A communicator of all processes of the run. Call its `init()` before anything is computed.

    Args:
        ctx: The Context that functions run in, or None.

    Raises:
        TypeError: `ctx` is not a Context.
    """
    return Communicator(ctx)


def DataParallelCommunicator(ctx: Context | None = None) -> Communicator:  # noqa: N802  nnabla's name
    """A communicator of this process alone, whose `allreduce` sums the gradients of parameters of several contexts.

    Args:
        ctx: A Context, or None.

    Raises:
        TypeError: `ctx` is not a Context.
    """
    return Communicator(ctx, several=False)


# nnabla's other names for these two; its examples use the misspelt ones.
MultiProcessCommunicator = MultiProcessDataParalellCommunicator = MultiProcessDataParallelCommunicator
Comm = Dist = MultiProcessDataParallelCommunicator
DataParalellCommunicator = DataParallelCommunicator
