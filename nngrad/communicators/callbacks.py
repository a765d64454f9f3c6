"""What a backward calls when its gradients are there, so that processes exchange them."""

from __future__ import annotations

from collections.abc import Callable


class AllReduceCallback:
    """Sums gradients over processes when a backward has them: for `backward(communicator_callbacks=...)`.

    Made by `comm.all_reduce_callback`.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Callable[[], None]) -> None:
        self._exchange = exchange

    def __call__(self) -> None:
        """Exchange the gradients. All processes of the group do so together."""
        self._exchange()
