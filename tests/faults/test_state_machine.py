"""Training, saving, loading and scopes in any order, interrupted anywhere, beside a model in NumPy."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from tests.solver_states import state_arrays

RATE, MOMENTUM = 0.01, 0.5
Arrays = dict[str, np.ndarray]
vectors = st.lists(st.integers(-3, 3), min_size=3, max_size=3).map(lambda v: np.array(v, np.float64))
moments = st.one_of(st.none(), st.floats(1e-5, 3e-3))


def residual(w: Arrays, x: np.ndarray) -> np.ndarray:
    """What is squared in the loss."""
    return w["scale"] * x + w["shift"]


def gradients(w: Arrays, x: np.ndarray) -> Arrays:
    """Those of the sum of squares."""
    r = residual(w, x)
    return {"scale": 2 * r * x, "shift": 2 * r}


class Training(RuleBasedStateMachine):
    """Two parameters, momentum, files and switches; `now` is what they are by NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "parameters.safetensors"
        self.states = Path(self.folder.name) / "states.safetensors"
        self.saved: Arrays | None = None
        self.in_file: Arrays | None = None
        self.saved_states: Arrays | None = None
        self.hook = sys.unraisablehook
        sys.unraisablehook = lambda _: None  # an interrupt that Python drops, while an object is collected

    def teardown(self) -> None:
        sys.unraisablehook = self.hook
        nn.clear_parameters()
        self.folder.cleanup()

    @initialize()
    def build(self) -> None:
        """The graph, its gradients, and a compiled step."""
        nn.clear_parameters()
        make = nn.get_parameter_or_create
        self.w = {name: make(name, initializer=np.ones(3), dtype="float64") for name in ("scale", "shift")}
        self.x = nn.Variable((3,), dtype="float64")
        self.loss = F.sum((self.w["scale"] * self.x + self.w["shift"]) ** 2.0)
        self.solver = S.Momentum(RATE, MOMENTUM)
        self.step = nn.train_step(self.loss, nn.get_parameters(), self.solver, inputs=self.x)
        self.now: Arrays = {f"{kind}{name}": np.ones(3) if not kind else np.zeros(3)
                            for kind in ("", "m:") for name in self.w}

    def after_step(self, now: Arrays, x: np.ndarray) -> Arrays:
        """What a step makes of it: v <- momentum v + lr g;  w <- w - v."""
        after = dict(now)
        for name, g in gradients(now, x).items():
            after[f"m:{name}"] = MOMENTUM * now[f"m:{name}"] + RATE * g
            after[name] = now[name] - after[f"m:{name}"]
        return after

    def is_at(self, model: Arrays) -> bool:
        """Whether parameters and state are what a model says."""
        held = {name: w.data.view for name, w in self.w.items()} | state_arrays(self.solver)
        return all([np.allclose(held[name], array, rtol=1e-9, atol=1e-12) for name, array in model.items()])

    def done_or_not(self, moment: float | None, act: Callable[[], Any], after: Arrays) -> bool:
        """Act, interrupted at a moment; all is as before, or as `after`, which `now` becomes. Whether it was done."""
        done = False
        if moment is None:
            act()
            done = True
        else:
            def interrupt(*_: Any) -> None:
                raise KeyboardInterrupt

            before = signal.signal(signal.SIGALRM, interrupt)
            try:
                signal.setitimer(signal.ITIMER_REAL, moment, 0.5)  # again, if Python drops it
                act()
                done = True
                signal.setitimer(signal.ITIMER_REAL, 0)
            except (KeyboardInterrupt, Exception):
                pass  # JAX makes errors of its own of some
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
        if self.is_at(after):
            self.now = after
            return True
        assert not done and self.is_at(self.now)
        return False

    @rule(x=vectors, moment=moments)
    def train(self, x: np.ndarray, moment: float | None) -> None:
        """A compiled step."""
        self.done_or_not(moment, lambda: self.step(x), self.after_step(self.now, x))

    @rule(x=vectors, moment=moments, elsewhere=st.booleans())
    def loop(self, x: np.ndarray, moment: float | None, elsewhere: bool) -> None:
        """A step as it is written in nnabla, here or in another thread."""

        def act() -> None:
            self.x.d = x
            self.solver.zero_grad()
            self.loss.forward()
            self.loss.backward()
            self.solver.update()

        if elsewhere:
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
            act = lambda: None  # noqa: E731
            moment = None
        self.done_or_not(moment, act, self.after_step(self.now, x))

    @rule(name=st.sampled_from(["scale", "shift"]), value=vectors, in_place=st.booleans())
    def write(self, name: str, value: np.ndarray, in_place: bool) -> None:
        """Set a parameter, as a whole or through its writable host view."""
        if in_place:
            self.w[name].d[...] = value
        else:
            self.w[name].d = value
        self.now[name] = value

    @rule(moment=moments)
    def save(self, moment: float | None) -> None:
        """To files, which are whole whatever comes."""
        self.done_or_not(moment, lambda: nn.save_parameters(self.file), dict(self.now))
        if moment is None:
            self.solver.save_states(self.states)
            self.saved_states = {f"m:{name}": self.now[f"m:{name}"] for name in self.w}
            self.saved = self.in_file = {name: self.now[name] for name in self.w}
        elif self.file.exists():
            with nn.parameter_scope("elsewhere", OrderedDict()):
                loaded = {name: np.array(p.d) for name, p in nn.load_parameters(self.file).items()}
            new = {name: self.now[name] for name in self.w}
            assert any([
                model is not None and all([np.allclose(loaded[name], model[name]) for name in self.w])
                for model in (self.in_file, new)
            ])
            self.in_file = loaded
            if self.saved is not None:  # what rules can follow does not depend on time
                self.saved = loaded

    @precondition(lambda self: self.saved is not None)
    @rule(moment=moments)
    def load(self, moment: float | None) -> None:
        """The parameters, all or none."""
        assert self.saved is not None
        self.done_or_not(moment, lambda: nn.load_parameters(self.file), {**self.now, **self.saved})

    @precondition(lambda self: self.saved_states is not None)
    @rule(moment=moments)
    def load_states(self, moment: float | None) -> None:
        """The solver's state, all or nothing."""
        assert self.saved_states is not None
        self.done_or_not(moment, lambda: self.solver.load_states(self.states), {**self.now, **self.saved_states})

    @rule(x=vectors, moment=moments)
    def differentiate(self, x: np.ndarray, moment: float | None) -> None:
        """Gradients of orders 1 and 2 as graphs, built anew, after an attempt that may be interrupted."""
        self.x.d = x

        def act() -> list[np.ndarray]:
            loss = F.sum((self.w["scale"] * self.x + self.w["shift"]) ** 2.0)
            first = nn.grad([loss], list(self.w.values()))
            second = nn.grad([F.sum(first[0] ** 2.0)], [self.w["scale"]])
            return [g.d for g in (*first, *second)]

        self.done_or_not(moment, act, self.now)
        expected = gradients(self.now, x)
        found = act()
        np.testing.assert_allclose(found[0], expected["scale"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found[1], expected["shift"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found[2], 8 * residual(self.now, x) * x**3, rtol=1e-9, atol=1e-12)

    @rule(order=st.permutations([0, 0, 1, 1, 2, 2]))
    def switch_in_tasks(self, order: list[int]) -> None:
        """Tasks that enter and leave scopes in any order."""
        scopes = [nn.no_grad, nn.auto_forward, lambda: nn.parameter_scope("inner")]

        async def main() -> None:
            events = [asyncio.Event() for _ in order]
            done = [asyncio.Event() for _ in order]

            async def task(kind: int) -> None:
                mine = [i for i, k in enumerate(order) if k == kind]
                await events[mine[0]].wait()
                with scopes[kind]():
                    done[mine[0]].set()
                    await events[mine[1]].wait()
                done[mine[1]].set()

            tasks = [asyncio.create_task(task(kind)) for kind in range(3)]
            for event, finished in zip(events, done, strict=True):
                event.set()
                await finished.wait()
                self.nothing_is_switched()
            await asyncio.gather(*tasks)

        asyncio.run(main())

    @rule(moment=st.floats(1e-5, 1e-3))
    def switch_and_interrupt(self, moment: float) -> None:
        """Scopes that are entered and left until an interrupt comes."""

        def act() -> None:
            while True:
                with nn.no_grad(), nn.parameter_scope("inner"), nn.auto_forward():
                    pass

        self.done_or_not(moment, act, self.now)

    @invariant()
    def nothing_is_switched(self) -> None:
        """Gradients pass, functions wait, and parameters are where they were."""
        if hasattr(self, "w"):
            assert not nn.get_auto_forward()
            y = self.w["scale"] * 2.0
            assert y.need_grad and y.cell.is_zero
            assert nn.get_parameter("scale") is self.w["scale"]

    @invariant()
    def nothing_is_lost(self) -> None:
        """Parameters and state are what the model says."""
        if hasattr(self, "w"):
            assert self.is_at(self.now)


class TestFewRuns(Training.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=3, stateful_step_count=20, deadline=None)


@pytest.mark.slow
class TestTraining(Training.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
