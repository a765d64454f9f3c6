"""Solver hooks: functions called before and after parameters or gradients are changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

Hook = Callable[[], Any]

_before: ContextVar[Mapping[str, Hook]] = ContextVar("solver_pre_hooks", default={})  # noqa: B039  it is never changed
_after: ContextVar[Mapping[str, Hook]] = ContextVar("solver_post_hooks", default={})  # noqa: B039
"""Hooks by key, the oldest first. The dicts are replaced, never changed."""


def set_solver_pre_hook(key: str, solver_pre_hook: Hook | None) -> None:
    """Register `solver_pre_hook()` to be called before a solver changes parameters or gradients.

    It is called in `update`, `weight_decay`, `clip_grad_by_norm` and `scale_grad`, in this thread or asyncio task: once
    per call, since a solver changes all parameters together. A training step of `nn.train_step` calls no hooks.

    Args:
        key: The key for `unset_solver_pre_hook`; a hook with the same key is replaced.
        solver_pre_hook: The hook; None sets none.
    """
    _set(_before, key, solver_pre_hook, "solver_pre_hook")


def set_solver_post_hook(key: str, solver_post_hook: Hook | None) -> None:
    """Register a hook like that of `set_solver_pre_hook`, called afterwards.

    Args:
        key: The key for `unset_solver_post_hook`; a hook with the same key is replaced.
        solver_post_hook: The hook; None sets none.
    """
    _set(_after, key, solver_post_hook, "solver_post_hook")


def unset_solver_pre_hook(key: str) -> None:
    """Remove the hook that `set_solver_pre_hook` registered under `key`, if there is one.

    Args:
        key: The key.
    """
    _before.set({k: hook for k, hook in _before.get().items() if k != key})


def unset_solver_post_hook(key: str) -> None:
    """Remove the hook that `set_solver_post_hook` registered under `key`, if there is one.

    Args:
        key: The key.
    """
    _after.set({k: hook for k, hook in _after.get().items() if k != key})


def call_before(own: Hook | None = None) -> None:
    """Call the registered pre-hooks, and one of this call's own."""
    _call(_before, own)


def call_after(own: Hook | None = None) -> None:
    """Call the registered post-hooks, and one of this call's own."""
    _call(_after, own)


def _set(hooks: ContextVar[Mapping[str, Hook]], key: str, hook: Hook | None, name: str) -> None:
    if hook is None:
        return
    if not callable(hook):
        raise TypeError(f"{name}: expected a function of no arguments, got {hook!r}")
    hooks.set({**{k: h for k, h in hooks.get().items() if k != key}, key: hook})


def _call(hooks: ContextVar[Mapping[str, Hook]], own: Hook | None) -> None:
    for hook in hooks.get().values():
        hook()
    if own is not None:
        own()
