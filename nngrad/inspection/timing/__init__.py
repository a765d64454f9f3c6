"""Timing: how long a model's forward and backward take, and the networks of the classic convnet benchmark."""

from .measurement import Milliseconds, Stages, Timing, measure
from .networks import NETWORKS, Network, loss_of, network_of

__all__ = ["NETWORKS", "Milliseconds", "Network", "Stages", "Timing", "loss_of", "measure", "network_of"]
