"""Plain functions as hooks, under nnabla's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph import Function, build_options
from ...graph.options import put_layers
from .base import Arrays, FunctionHook

Callback = Callable[[Function], Any]


class _Callback(FunctionHook):
    """Calls a function with each Function that runs, forward and backward."""

    def __init__(self, name: str, callback: Callback) -> None:
        self.name, self._callback = name, callback


class _PreHook(_Callback):
    def forward_preprocess(self, function: Function, in_data: Arrays) -> None:
        self._callback(function)

    def backward_preprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        self._callback(function)


class _PostHook(_Callback):
    def forward_postprocess(self, function: Function, in_data: Arrays) -> None:
        self._callback(function)

    def backward_postprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        self._callback(function)


_KINDS = {"pre": _PreHook, "post": _PostHook}


def set_function_pre_hook(key: str, function_pre_hook: Callback | None) -> None:
    """From now on, in this thread or asyncio task, call a function with each Function before it runs, in forward and in
    backward.

    What is watched runs function by function, at once; see `nn.FunctionHook`, which is also told arrays and gradients.

    Args:
        key: By what `unset_function_pre_hook` finds it; a hook that has the key already is replaced.
        function_pre_hook: The function; None sets none.
    """
    _set("pre", key, function_pre_hook)


def set_function_post_hook(key: str, function_post_hook: Callback | None) -> None:
    """As `set_function_pre_hook`, but call it after each Function has run.

    Args:
        key: By what `unset_function_post_hook` finds it; a hook that has the key already is replaced.
        function_post_hook: The function; None sets none.
    """
    _set("post", key, function_post_hook)


def unset_function_pre_hook(key: str) -> None:
    """Call the function no more that `set_function_pre_hook` was given with `key`, if there is one."""
    _unset("pre", key)


def unset_function_post_hook(key: str) -> None:
    """Call the function no more that `set_function_post_hook` was given with `key`, if there is one."""
    _unset("post", key)


def _set(when: str, key: str, callback: Callback | None) -> None:
    if callback is None:
        return
    if not callable(callback):
        raise TypeError(f"function_{when}_hook: expected a function of a Function, got {callback!r}")
    _unset(when, key)
    hook = _KINDS[when](_name(when, key), callback)
    put_layers((*build_options().layers, (hook, {"hooks": (hook,)})))


def _unset(when: str, key: str) -> None:
    name = _name(when, key)
    layers = build_options().layers
    kept = tuple([layer for layer in layers if not (isinstance(layer[0], _Callback) and layer[0].name == name)])
    if len(kept) < len(layers):
        put_layers(kept)


def _name(when: str, key: str) -> str:
    return f"function_{when}_hook {key}"
