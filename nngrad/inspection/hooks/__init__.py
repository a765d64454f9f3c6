"""Hooks that observe functions as they run, forward and backward."""

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
