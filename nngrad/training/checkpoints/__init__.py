"""Checkpoints of training: written beside it, checked when they are read, and resumed from to the bit."""

from .checkpointer import Checkpointer as Checkpointer
