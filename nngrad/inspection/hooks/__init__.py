"""Hooks: what watches functions run, forward and backward, and hooks that are ready to use."""

from .base import FunctionHook, label
from .callbacks import (
    set_function_post_hook,
    set_function_pre_hook,
    unset_function_post_hook,
    unset_function_pre_hook,
)
from .memory import MemoryHook
from .norm import GradientNormHook
from .printing import PrintHook
from .timer import TimerHook

__all__ = [
    "FunctionHook",
    "GradientNormHook",
    "MemoryHook",
    "PrintHook",
    "TimerHook",
    "label",
    "set_function_post_hook",
    "set_function_pre_hook",
    "unset_function_post_hook",
    "unset_function_pre_hook",
]
