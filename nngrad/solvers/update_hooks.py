"""Solver hooks: functions called before and after parameters or gradients are changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

Hook = Callable[[], Any]

_hooks: ContextVar[Mapping[tuple[str, str], Hook]] = ContextVar("solver_hooks", default={})  # noqa: B039
"""Hooks by "pre" or "post", and key, the oldest first. The dict is replaced, never changed."""


def set_solver_pre_hook(key: str, solver_pre_hook: Hook | None) -> None:
    """Register `solver_pre_hook()` to be called before a solver changes parameters or gradients.

    It is called in `update`, `weight_decay`, `clip_grad_by_norm` and `scale_grad`, in this thread or asyncio task: once
    per call, since a solver changes all parameters together. A training step of `nn.train_step` calls no hooks.

    Args:
        key: The key for `unset_solver_pre_hook`; a hook with the same key is replaced.
        solver_pre_hook: The hook; None sets none.
    """
    _set("pre", key, solver_pre_hook)


def set_solver_post_hook(key: str, solver_post_hook: Hook | None) -> None:
    """Register a hook like that of `set_solver_pre_hook`, called afterwards.

    Args:
        key: The key for `unset_solver_post_hook`; a hook with the same key is replaced.
        solver_post_hook: The hook; None sets none.
    """
    _set("post", key, solver_post_hook)


def unset_solver_pre_hook(key: str) -> None:
    """Remove the hook that `set_solver_pre_hook` registered under `key`, if there is one.

    Args:
        key: The key.
    """
    _unset("pre", key)


def unset_solver_post_hook(key: str) -> None:
    """Remove the hook that `set_solver_post_hook` registered under `key`, if there is one.

    Args:
        key: The key.
    """
    _unset("post", key)


def call_hooks(when: str, of_call: Hook | None = None) -> None:
    """Call the registered "pre" or "post" hooks, and the hook of this call."""
    for (registered, _), hook in _hooks.get().items():
        if registered == when:
            hook()
    if of_call is not None:
        of_call()


def _set(when: str, key: str, hook: Hook | None) -> None:
    if hook is not None and not callable(hook):
        raise TypeError(f"solver_{when}_hook: expected a function of no arguments, got {hook!r}")
    if hook is not None:
        _unset(when, key)
        _hooks.set({**_hooks.get(), (when, key): hook})


def _unset(when: str, key: str) -> None:
    _hooks.set({registered: hook for registered, hook in _hooks.get().items() if registered != (when, key)})
