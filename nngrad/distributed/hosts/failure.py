"""What is raised where processes cannot go on together."""

from __future__ import annotations


class HostError(RuntimeError):
    """Another process has failed, has died, hangs, or has not come; the message names it.

    Raised by `nn.hosts.initialize`, by `nn.hosts.barrier` and by training steps. A process cannot go on without the
    others: it ends in any case, a few seconds after the failure is known.
    """
