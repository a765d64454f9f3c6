"""Hooks: what watches functions run, forward and backward, and hooks that are ready to use."""

from .base import (
    FunctionHook,
    label,
    set_function_post_hook,
    set_function_pre_hook,
    unset_function_post_hook,
    unset_function_pre_hook,
)
from .printing import GradientNormHook, PrintHook
from .timer import MemoryHook, TimerHook

__all__ = [
    "FunctionHook", "GradientNormHook", "MemoryHook", "PrintHook", "TimerHook", "label", "set_function_post_hook",
    "set_function_pre_hook", "unset_function_post_hook", "unset_function_pre_hook",
]  # fmt: skip
