"""An interrupt, whenever it comes, leaves nothing switched, and what is computed next is right."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.graph.options import build_options
from tests.slow import slow_but_every

from .moments import INTERRUPTED, Interrupts, instructions_of


@pytest.fixture(autouse=True)
def lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python drops what is raised while an object is taken down, an interrupt too; that is no failure."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    yield
    nn.clear_parameters()


def leaf(*values: float) -> nn.Variable:
    return nn.Variable.from_numpy_array(np.array(values), need_grad=True)


def state() -> tuple[Any, ...]:
    """What is in force, as far as what is built shows it."""
    x = leaf(1.0)
    y, again = F.tanh(x), F.tanh(x)
    f = y.parent
    return (
        again.parent is f,
        y.need_grad,
        f.mark is not None,
        hasattr(f, "location"),
        f.context,
        build_options().watched,
        nn.get_auto_forward(),
        id(nn.get_current_parameter_scope()),
        gc.isenabled(),
    )


def interrupted(action: Callable[[], Any], moment: int, later: tuple[str, ...] = ()) -> bool:
    """Run `action`, interrupted at `moment`, and see that all is as before while the interrupt is handled; or, if that
    falls into one of the functions `later`, when it is forgotten. False if it was over before."""
    interrupts = Interrupts(moment)
    try:
        with interrupts:
            action()
    except INTERRUPTED:
        assert interrupts.where
        if interrupts.where not in later:
            assert state() == PLAIN, interrupts.where
    assert state() == PLAIN, interrupts.where
    return interrupts.where != ""


PLAIN = state()


def check_gradient() -> None:
    """A gradient of second order that needs two calls of one function to be two."""
    x = leaf(0.5, 2.0)
    y = F.sum(F.tanh(x) * F.tanh(x))
    (gx,) = nn.grad([y], [x])
    (ggx,) = nn.grad([gx], [x])
    t = np.tanh([0.5, 2.0])
    np.testing.assert_allclose(gx.d, 2 * t * (1 - t * t), rtol=1e-13)
    np.testing.assert_allclose(ggx.d, 2 * (1 - t * t) * (1 - 3 * t * t), rtol=1e-12)
    y.backward()
    np.testing.assert_allclose(x.g, 2 * t * (1 - t * t), rtol=1e-13)
    thread = threading.Thread(target=lambda: setattr(x, "d", x.d + 1.0))  # no lock is held
    thread.start()
    thread.join(20)
    np.testing.assert_array_equal(x.d, [1.5, 3.0])


# ---------------------------------------------------------------- every moment


def test_grad_at_every_instruction() -> None:
    x = leaf(0.5, 2.0)
    y = F.tanh(x)

    def action() -> None:
        nn.grad([y], [x])

    action()
    moment = 1
    while interrupted(action, moment):
        moment += 1
        if moment % 200 == 0:
            check_gradient()
            np.testing.assert_allclose(nn.grad([y], [x])[0].d, 1 - np.tanh([0.5, 2.0]) ** 2, rtol=1e-13)
    assert moment > 300


X = leaf(0.5, 2.0)
Y = F.sum(X * F.tanh(X))
Y.forward()
WHOLE = {
    "grad": lambda: nn.grad([Y], [X], 2.0, loss_scale=4.0, retain_grad=True),
    "grad of grad": lambda: nn.grad(nn.grad([Y], [X]), [X]),
    "plain": nn.simplify(False)(lambda: nn.grad([Y], [X])),
    "recompute": lambda: nn.grad([Y], [X], recompute="sqrt"),
    "backward": lambda: Y.backward(),
    "hessian": lambda: nn.hessian(Y, X, batched=False),
    "laplacian": lambda: nn.laplacian(Y, X, batched=False),
    "nth_derivative": lambda: nn.nth_derivative(Y, X, 2),
    "train_step": lambda: nn.train_step(Y, {"x": X}, S.Sgd(0.1)),
    "memory_report": lambda: nn.memory_report([Y, *nn.grad([Y], [X])], compile=False),
}


@pytest.mark.parametrize("action", slow_but_every(5, WHOLE.values()), ids=list(WHOLE))
def test_all_that_builds_gradients_at_random_instructions(action: Callable[[], Any]) -> None:
    action()
    total = instructions_of(action)
    blocks = ("WithBlock.__enter__", "WithBlock.__exit__") if action is WHOLE["plain"] else ()
    for moment in random.Random(0).sample(range(1, total + 1), 20):
        interrupted(action, moment, later=blocks)
    X.grad.zero()
    check_gradient()


def test_blocks_at_every_instruction() -> None:
    def action() -> None:
        with nn.no_grad(), nn.parameter_scope("a"), nn.simplify(False), nn.recompute(), nn.context_scope(cpu):
            pass

    cpu = nn.Context("cpu")
    moment = 1
    while interrupted(action, moment, later=("WithBlock.__enter__", "WithBlock.__exit__")):
        moment += 1
    assert moment > 200


def test_parameters_at_every_instruction() -> None:
    """A parametric function that is interrupted makes all of its parameters or none."""
    x = nn.Variable((1, 2))

    def action() -> None:
        PF.affine(x, 3, w_init=np.ones((2, 3)), name="layer")

    nn.clear_parameters()
    moment, more = 0, True
    while more:
        moment += 1
        nn.clear_parameters()
        more = interrupted(action, moment)
        assert len(nn.get_parameters()) in (0, 2)
        action()
        assert list(nn.get_parameters()) == ["layer/affine/W", "layer/affine/b"]
    assert moment > 200


def test_what_is_interrupted_while_it_adds_gradients_has_added_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    x, w = leaf(2.0), leaf(3.0)
    y = F.sum(x * w)
    x.grad.zero()
    w.g = [5.0]
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["nngrad.execution.backward"], "_sums", interrupt)
        nn.executables.clear()  # of sums, too
        with pytest.raises(KeyboardInterrupt):
            y.backward()
    nn.executables.clear()
    assert (x.g.item(), w.g.item()) == (0.0, 5.0)
    y.backward()
    assert (x.g.item(), w.g.item()) == (3.0, 7.0)


# ---------------------------------------------------------------- while something is compiled


class AtMiss:
    """Raises KeyboardInterrupt at the n-th time that one of JAX's caches has not what it is asked for, and counts."""

    def __init__(self, n: int) -> None:
        self.n, self.count = n, 0

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_qualname.startswith("_weakref_lru_cache.") and "jax" in code.co_filename:
            self.count += 1
            if self.count == self.n:
                sys.settrace(None)
                raise KeyboardInterrupt

    def __enter__(self) -> AtMiss:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


def computed(size: int) -> np.ndarray:
    """A gradient of `where`, which is a jitted function of JAX's own, for a structure that may be new."""
    x = leaf(*np.linspace(-1.0, 1.0, size))
    return nn.grad([F.sum(F.where(F.greater_scalar(x, 0.0), F.tanh(x), x * x))], [x])[0].d


def trained(size: int) -> np.ndarray:
    """A parameter after a step of 0.5 along a gradient, compiled as a whole."""
    w = leaf(*np.linspace(-1.0, 1.0, size))
    nn.train_step(F.sum(F.sin(w)), {"w": w}, S.Sgd(0.5))()
    return w.d


def accumulated(size: int) -> np.ndarray:
    """A gradient with decay of weights, by `backward` and small executables of solvers."""
    w = leaf(*np.linspace(-1.0, 1.0, size))
    solver = S.Sgd(0.5)
    solver.set_parameters({"w": w})
    F.sum(F.sin(w)).backward()
    solver.weight_decay(0.25)
    return w.g


def points(size: int) -> np.ndarray:
    return np.linspace(-1.0, 1.0, size)


COMPILED = {
    computed: lambda x: np.where(x > 0, 1 - np.tanh(x) ** 2, 2 * x),
    trained: lambda x: x - 0.5 * np.cos(x),
    accumulated: lambda x: np.cos(x) + 0.25 * x,
}


@pytest.mark.parametrize("action", COMPILED, ids=lambda a: a.__name__)
def test_a_structure_interrupted_in_its_first_compilation_is_made_anew(action: Callable[[int], np.ndarray]) -> None:
    sizes = itertools.count(list(COMPILED).index(action) * 1000 + 37)
    action(next(sizes))
    with AtMiss(-1) as counting:
        action(next(sizes))
    assert counting.count > 5 or not CALLS_AT_A_MISS
    for n in range(1, counting.count + 1, 1 + counting.count // 10):
        size = next(sizes)
        with suppress(KeyboardInterrupt), AtMiss(n):
            action(size)
        in_thread: list[np.ndarray] = []
        thread = threading.Thread(target=lambda *given: given[0].append(action(given[1])), args=(in_thread, size),
                                  daemon=True)
        thread.start()
        thread.join(20)
        for found in (action(size), *in_thread):
            np.testing.assert_allclose(found, COMPILED[action](points(size)), rtol=1e-13)
        assert in_thread, "a thread waits for what was interrupted"


def calls_at_a_miss() -> bool:
    """Whether this JAX calls Python there."""
    with AtMiss(-1) as counting:
        computed(2)
    return counting.count > 0


CALLS_AT_A_MISS = calls_at_a_miss()
