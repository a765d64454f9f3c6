"""Checkpoints: complete or not there, verified when read, and resumed from bit for bit."""

from .checkpointer import Checkpointer as Checkpointer
