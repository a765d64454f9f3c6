"""What threads share is changed under its lock: each change takes it, and lets it go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from backward_registry import registry
from backward_registry.rules import Rule
from nngrad import parameter
from nngrad import random as nngrad_random
from nngrad.files import parameter_files
from nngrad.graph import Op


class Watched:
    """A lock that counts how often it is taken, and how often it is held.

    Args:
        order: Where locks are noted as they are taken.
    """

    def __init__(self, order: list[Watched] | None = None) -> None:
        self._lock = threading.RLock()
        self._order = order
        self.taken = self.held = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self.taken += 1
        self.held += 1
        if self._order is not None:
            self._order.append(self)

    def __exit__(self, *_: object) -> None:
        self.held -= 1
        self._lock.release()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with nn.parameter_scope("saved"):
        PF.affine(nn.Variable((2, 3)), 2)
        path = tmp_path / "parameters.safetensors"
        nn.save_parameters(path)
    return path


@pytest.fixture
def changes(saved: Path) -> dict[str, Callable[[], Any]]:
    def in_a_scope(change: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            with nn.parameter_scope("of this test"):
                return change()

        return run

    return {
        "a parameter is made": in_a_scope(lambda: nn.get_parameter_or_create("w", (2,))),
        "a scope is made": in_a_scope(lambda: nn.parameter_scope("inner").__enter__()),
        "parameters are read": in_a_scope(lambda: nn.load_parameters(saved)),
        "parameters are cleared": in_a_scope(nn.clear_parameters),
        "a parameter is set": in_a_scope(lambda: nn.set_parameter("v", nn.Variable((2,)))),
    }


def test_parameters(changes: dict[str, Callable[[], Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    for what, change in changes.items():
        lock = Watched()
        monkeypatch.setattr(parameter, "_lock", lock)
        monkeypatch.setattr(parameter_files, "_lock", lock)
        change()
        assert lock.taken > 0, what
        assert lock.held == 0, what


def test_streams_of_functions_with_a_seed_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Watched()
    monkeypatch.setattr(nngrad_random._streams, "_lock", lock)
    y = F.rand(shape=(2,), seed=31415)
    assert (lock.taken, lock.held) == (1, 0)
    assert np.all((y.d >= 0) & (y.d < 1))


def test_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(x: Any, /) -> Any:
        return 2 * x

    lock = Watched()
    monkeypatch.setattr(registry, "_lock", lock)
    registry.add(Op(doubled), Rule(lambda f, dy: (2 * dy,), "user", True, __name__))
    assert (lock.taken, lock.held) == (1, 0)
