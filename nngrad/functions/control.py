"""Functions that steer gradients and effects: sink, unlink, update."""

from __future__ import annotations
