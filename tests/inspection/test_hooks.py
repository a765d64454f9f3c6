"""Function hooks: what they see, on every route, and what the timer says."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad import hooks
from nngrad.extend import Variable
from tests.autodiff.test_properties import SETTINGS, Recipe, draw_leaves, follow, recipes
from tests.leaves import vector


class Recorder(nn.FunctionHook):
    """Keeps what it is called with, in order: names, and the numbers in the arrays."""

    def __init__(self, name: str = "Recorder") -> None:
        self.name = name
        self.events: list[str] = []
        self.arrays: list[Any] = []

    def _keep(self, what: str, function: nn.Function, *arrays: Any) -> None:
        self.events.append(f"{what} {hooks.label(function)}")
        self.arrays.append([[None if a is None else np.asarray(a).tolist() for a in each] for each in arrays])

    def added(self, function: None) -> None:
        self.events.append(f"added {function}")

    def deleted(self, function: None) -> None:
        self.events.append(f"deleted {function}")

    def forward_preprocess(self, function: nn.Function, in_data: Any) -> None:
        self._keep("->", function, in_data)

    def forward_postprocess(self, function: nn.Function, in_data: Any) -> None:
        self._keep("=>", function, in_data)

    def backward_preprocess(self, function: nn.Function, in_data: Any, out_grad: Any) -> None:
        self._keep("<-", function, in_data, out_grad)

    def backward_postprocess(self, function: nn.Function, in_data: Any, out_grad: Any) -> None:
        self._keep("<=", function, in_data, out_grad)


def model(x: Variable) -> Variable:
    return F.sum(F.exp(F.sin(x * 2.0)))


def forward_then_backward(x: Variable) -> Any:
    y = model(x)
    y.forward()
    y.backward()
    return x.g


def backward_alone(x: Variable) -> Any:
    model(x).backward()
    return x.g


def backward_of_several(x: Variable) -> Any:
    nn.backward([model(x)], [1.0])
    return x.g


def backward_with_variables(x: Variable) -> Any:
    model(x).backward(enable_double_backprop=True, retain_grad=True)
    return x.g


def grad_then_forward(x: Variable) -> Any:
    y = model(x)
    (gx,) = nn.grad(y, x)
    nn.forward_all([y, gx])
    return gx.d


def grad_and_read(x: Variable) -> Any:
    (gx,) = nn.grad(model(x), x)
    return gx.d


def grad_eagerly(x: Variable) -> Any:
    with nn.auto_forward():
        (gx,) = nn.grad(model(x), x)
    return gx.d


ROUTES = [
    forward_then_backward, backward_alone, backward_of_several, backward_with_variables, grad_then_forward,
    grad_and_read, grad_eagerly,
]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.__name__)
@pytest.mark.parametrize("simplified", [True, False])
def test_hooks_see_the_same_on_every_route(route: Callable[[Variable], Any], simplified: bool) -> None:
    x = vector(0.5, 1.0)
    with nn.simplify(simplified), Recorder() as seen:
        gx = route(x)
    np.testing.assert_allclose(gx, 2 * np.cos(2 * x.d) * np.exp(np.sin(2 * x.d)), rtol=1e-14)
    forward = [e for e in seen.events if e[1] == ">"]
    backward = [e for e in seen.events if e[0] == "<"]
    own = ["mul_scalar", "sin", "exp", "sum"]
    if route is grad_and_read:
        own.remove("sum")  # its value is in no gradient
    assert forward == [f"{sign} {name}" for name in own for sign in ("->", "=>")]
    names = ["sum", "exp", "sin", "mul_scalar"]
    assert backward == [f"{sign} {name}" for name in names for sign in ("<-", "<=")]


def test_backward_hooks_are_given_inputs_and_gradients() -> None:
    x = vector(0.5, 1.0)
    with Recorder() as seen:
        forward_then_backward(x)
    (at,) = [i for i, e in enumerate(seen.events) if e == "<- sin"]
    in_data, out_grad = seen.arrays[at - 1]  # the first event is `added`
    np.testing.assert_allclose(in_data, [[1.0, 2.0]])
    np.testing.assert_allclose(out_grad, [np.exp(np.sin([1.0, 2.0]))])


def test_a_gradient_of_a_gradient() -> None:
    x = vector(0.5, 1.0)
    with Recorder() as seen:
        (gx,) = nn.grad(F.sum(F.sin(x) ** 3), x)
        (ggx,) = nn.grad(gx, x)
        assert ggx.d.shape == (2,)
    s, c = np.sin(x.d), np.cos(x.d)
    np.testing.assert_allclose(ggx.d, 6 * s * c * c - 3 * s**3)
    backward = [e[3:] for e in seen.events if e.startswith("<-")]
    assert backward[:3] == ["sum", "pow_scalar", "sin"]
    assert any(e.endswith("(order 1)") for e in backward[3:])
    assert all(e.endswith(("(order 1)", "pow_scalar", "sin")) for e in backward[3:])
    pairs = [e for e in seen.events if e[0] == "<"]
    assert [e[3:] for e in pairs[::2]] == [e[3:] for e in pairs[1::2]]  # nothing runs in between


def test_names_are_distinct() -> None:
    with Recorder(), pytest.raises(KeyError, match="a hook named 'Recorder' is already in force"), Recorder():
        pass
    with Recorder(), Recorder("another"):
        pass


def test_a_hook_that_fails_is_taken_off_and_leaves_the_graph_usable() -> None:
    class Failing(nn.FunctionHook):
        def backward_preprocess(self, function: nn.Function, in_data: Any, out_grad: Any) -> None:
            raise RuntimeError("no")

    x = vector(0.5)
    y = F.sin(x)
    with pytest.raises(RuntimeError, match="no"), Failing():
        y.backward()
    y.backward()
    assert x.g == pytest.approx(np.cos(0.5))


def test_hooks_of_another_thread_are_not_called() -> None:
    with Recorder() as seen:
        other = threading.Thread(target=lambda: backward_alone(vector(0.5)))
        other.start()
        other.join()
    assert seen.events == ["added None", "deleted None"]


def test_compiled_graphs_are_not_watched() -> None:
    x = vector(0.5)
    y = F.sin(x)
    run = nn.compile(y, x)
    with Recorder() as seen:
        assert run(np.array([1.0])) == pytest.approx(np.sin(1.0))
    y.forward()
    with Recorder() as late:
        assert y.d == pytest.approx(np.sin(0.5))  # it was promised outside
    assert seen.events == late.events == ["added None", "deleted None"]


def test_a_forward_is_watched_once() -> None:
    x = vector(0.5)
    with Recorder() as seen:
        y = model(x)
        y.forward()
        y.backward()
        y.backward()
        assert y.d == pytest.approx(np.exp(np.sin(1.0)))
    assert [e for e in seen.events if e == "-> sin"] == ["-> sin"]
    assert [e for e in seen.events if e == "<- sin"] == ["<- sin"] * 2
    x.d = [1.0]
    with Recorder() as seen:
        y.forward()
    assert [e for e in seen.events if e == "-> sin"] == ["-> sin"]
    assert y.d == pytest.approx(np.exp(np.sin(2.0)))


def test_what_was_written_to_an_output_does_not_mislead_a_watched_backward() -> None:
    x = vector(0.5)
    h = F.exp(x)
    y = h * h
    with Recorder():
        y.forward()
        h.d = [100.0]
        y.backward()
    assert x.g == pytest.approx(2 * np.exp(1.0))


def test_hooked_graphs_are_not_kept_alive() -> None:
    with hooks.TimerHook(), Recorder():
        x = vector(0.5, 1.0)
        y = model(x)
        y.forward()
        y.backward()
        (gx,) = nn.grad(y, x)
        nn.grad(gx, x)[0].forward()
        assert y.parent is not None and gx.parent is not None
        alive = [weakref.ref(y.parent), weakref.ref(gx.parent), weakref.ref(x)]
        del x, y, gx
        gc.collect()
        assert [ref() for ref in alive] == [None] * 3


@settings(SETTINGS, max_examples=15)
@given(
    recipe=recipes(exact=False),
    watching=st.sets(st.sampled_from(["recorder", "timer", "debug"])),
    retain=st.booleans(),
    scale=st.sampled_from([None, 2.0, 1024.0]),
    backward=st.booleans(),
)
def test_watching_changes_no_values(
    recipe: Recipe, watching: set[str], retain: bool, scale: float | None, backward: bool
) -> None:
    def gradients(steered: bool) -> list[Any]:
        leaves = [Variable.from_numpy_array(a, need_grad=True) for a in draw_leaves(recipe)]
        outputs = follow(recipe, leaves, ours=True)
        options: dict[str, Any] = {"retain_grad": retain, "loss_scale": scale} if steered else {}
        factor = scale if steered and scale else 1.0
        if backward:
            nn.backward(outputs, [None] * len(outputs), **options)
            return [x.g / factor for x in leaves]
        gs = nn.grad(outputs, leaves, **options)
        again = nn.grad(gs, leaves, **options)
        return [g.d / factor for g in gs] + [g.d / factor**2 for g in again]

    wanted = gradients(steered=False)
    from contextlib import ExitStack

    contexts: dict[str, Any] = {
        "recorder": Recorder, "timer": hooks.TimerHook, "debug": nn.debug,
    }
    with ExitStack() as stack:
        for name in sorted(watching):
            stack.enter_context(contexts[name]())
        found = gradients(steered=True)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- times


def test_timer() -> None:
    with hooks.TimerHook() as timer:
        forward_then_backward(vector(0.5, 1.0))
    times = timer.times
    assert set(times) == {
        (name, way) for name in ("mul_scalar", "sin", "exp", "sum") for way in ("forward", "backward")
    }
    assert all(t.calls == 1 and 0 < t.median <= t.longest <= t.total for t in times.values())
    assert timer.total == pytest.approx(sum(t.total for t in times.values()))
    lines = timer.summary().splitlines()
    assert lines[0].split() == ["function", "calls", "total", "ms", "median", "ms", "longest", "ms"]
    assert lines[-1].split()[:2] == ["total", "8"]
    assert len(lines) == 11


# ---------------------------------------------------------------- what goes wrong


class Failing(Recorder):
    """Raises when it is put in force."""

    def added(self, function: None) -> None:
        raise OSError("no file to write to")


def test_a_hook_that_cannot_start_is_not_in_force() -> None:
    y = F.sin(vector(0.5))
    with pytest.raises(OSError, match="no file"), Failing():
        pass
    with Recorder() as seen:
        y.forward()
    assert seen.events == ["added None", "-> sin", "=> sin", "deleted None"]
