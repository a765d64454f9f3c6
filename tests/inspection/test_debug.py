"""Debug mode: where NaN and infinity begin, where functions were called, and what rules return."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable
from tests.slow import slow_but


def leaf(*values: float, name: str = "") -> Variable:
    x = Variable.from_numpy_array(np.array(values, np.float64), need_grad=True)
    x.name = name
    return x


def line_of(text: str) -> str:
    """`file:line` of the line of this file that contains `text`."""
    with open(__file__) as file:
        return next(f"{__file__}:{i}" for i, line in enumerate(file, 1) if text in line and "line_of" not in line)


def compute(y: Variable, route: str) -> None:
    if route == "forward":
        y.forward()
    elif route == "read":
        _ = y.d
    elif route == "backward":
        y.backward()
    else:
        nn.forward_all([y])


@pytest.mark.parametrize("route", ["forward", "read", "backward", "forward_all"])
def test_nan_is_traced_to_where_it_began(route: str) -> None:
    with nn.debug():
        x = leaf(-0.5, 1.0, name="x")
        h = F.log(x * 2.0)  # here
        y = F.sum(h * 3.0)
        with pytest.raises(FloatingPointError) as caught:
            compute(y, route)
    message = str(caught.value)
    assert "NaN in <Log(float64[2]) -> float64[2]> (order of differentiation 0), at [0]" in message
    assert "x: finite, -1 there" in message
    assert f"log was called at {line_of('h = F.log(x * 2.0)  # here')}" in message
    assert "h = F.log(x * 2.0)  # here" in message


def test_nan_in_a_gradient_names_the_function_and_both_places() -> None:
    with nn.debug():
        x = leaf(0.0, 4.0, name="x")
        y = F.sum(x**0.5)  # the root
        y.forward()
        with pytest.raises(FloatingPointError) as caught:
            y.backward()  # asked for
    message = str(caught.value)
    assert message.startswith("infinity in <PowScalar(float64[2], val=-0.5) -> float64[2]> (order of differentiation 1")
    assert "x 'x': finite, 0 there" in message
    assert "it is part of the gradient of pow_scalar (order 0), which was called at" in message
    assert line_of("y = F.sum(x**0.5)  # the root") in message
    assert f"which was requested at {line_of('y.backward()  # asked for')}" in message


def test_nan_in_a_gradient_of_a_gradient_has_its_order() -> None:
    with nn.debug():
        x = leaf(0.0, 4.0)
        (gx,) = nn.grad(F.sum(x**1.5), x)
        np.testing.assert_allclose(gx.d, [0, 3])
        (ggx,) = nn.grad(gx, x)
        with pytest.raises(FloatingPointError, match=r"<PowScalar.* \(order of differentiation 2,") as caught:
            _ = ggx.d
    assert "it is part of the gradient of pow_scalar (order 1)" in str(caught.value)


def test_nan_in_a_leaf_is_said_to_be_there_already() -> None:
    with nn.debug(), pytest.raises(FloatingPointError, match=r"NaN in <Exp.*\n.*\n  x 'w': not finite, nan there"):
        _ = F.exp(leaf(np.nan, 1.0, name="w")).d


def test_what_does_not_reach_a_result_is_no_error() -> None:
    with nn.debug():
        x = leaf(0.0, 1.0)
        y = F.where(F.greater_scalar(x, val=0.0), F.log(x), x)  # log(0) is not taken
        np.testing.assert_array_equal(y.d, [0, 0])
        np.testing.assert_array_equal((1.0 / (1.0 / x)).d, [0, 1])


def test_infinity_may_be_allowed() -> None:
    with nn.debug(inf=False):
        assert F.log(leaf(0.0)).d == -np.inf
        with pytest.raises(FloatingPointError, match="NaN"):
            _ = (F.log(leaf(0.0)) - F.log(leaf(0.0))).d
    with nn.debug(), pytest.raises(FloatingPointError, match="infinity"):
        _ = F.log(leaf(0.0)).d


def test_debug_mode_ends() -> None:
    with nn.debug():
        with nn.debug(False):
            assert np.isnan(F.log(leaf(-1.0)).d)
        with pytest.raises(FloatingPointError):
            F.log(leaf(-1.0)).forward()
    y = F.log(leaf(-1.0))
    assert np.isnan(y.d)
    assert y.parent is not None and not hasattr(y.parent, "location")
    for wrong in ({"on": 2}, {"inf": "no"}):
        with pytest.raises(TypeError, match="must be True or False"), nn.debug(**wrong):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize(("value", "lines"), slow_but([("1", 2)], [("1", 2), ("0", 0)]))
def test_the_environment_variable_switches_it_on(value: str, lines: int) -> None:
    program = (
        "import threading, nngrad as nn, nngrad.functions as F\n"
        "def f():\n"
        "    try:\n"
        "        F.log(nn.Variable.from_numpy_array([-1.0])).forward()\n"
        "    except FloatingPointError as error:\n"
        "        print(str(error).splitlines()[1])\n"
        "f()\n"
        "t = threading.Thread(target=f); t.start(); t.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "NNGRAD_DEBUG": value}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = [line.partition(": ")[0] for line in done.stdout.splitlines()]  # since 3.13 what is written there, too
    assert told == ["  log was called at <string>:4, in f"] * lines


# ---------------------------------------------------------------- what rules return


class Flawed(nn.CustomFunction):
    """Sine and cosine of two inputs, with a rule that returns what it is told."""

    def __init__(self, what: str) -> None:
        self.what = what

    def forward(self, a: Any, b: Any) -> Any:
        return jnp.sin(a) * jnp.cos(b)

    def backward(self, f: nn.Function, gy: Variable) -> Any:
        return {
            "count": (gy,),
            "type": (gy, 1.0),
            "shape": (gy, F.sum(gy)),
            "dtype": (F.cast(gy, dtype="int32"), gy),
        }[self.what]


@pytest.mark.parametrize(("what", "kind", "text"), [
    ("count", ValueError, r"must return one gradient for each of its 2 inputs \(x\[0\], x\[1\]\), .*, got 1"),
    ("type", TypeError, r"must return Variables or None, got float for its input x\[1\], float64\[2\]; use F"),
    ("shape", ValueError, r"must return shape \(2,\) for its input x\[1\], float64\[2\], got shape \(\)"),
    ("dtype", TypeError, r"must return a floating dtype for its input x\[0\], float64\[2\], got int32\[2\]"),
])
@pytest.mark.parametrize("mode", [True, False])
def test_gradients_are_checked(what: str, kind: type[Exception], text: str, mode: bool) -> None:
    x = leaf(1.0, 2.0)
    with nn.debug(mode):
        y = Flawed(what)(x, x)  # flawed
        with pytest.raises(kind, match=f"Flawed: its rule {text}") as caught:
            nn.grad(y, x)
    notes = "\n".join(caught.value.__notes__)
    assert ("Flawed was called at" in notes) == mode
    assert (line_of("y = Flawed(what)(x, x)  # flawed") in notes) == mode


@pytest.mark.parametrize("recording", [nn.source_locations, nn.debug])
def test_find_nan_and_a_step_name_the_lines(recording: Any) -> None:
    with recording():
        x = nn.Parameter(np.array([0.0, 4.0]))
        y = F.sum(F.sqrt(x))  # the sum of roots
        (g,) = nn.grad(y, x)  # slopes
        (h,) = nn.grad(F.sum(g), x)  # curvatures
        found = str(nn.find_nan(h))
        step = nn.train_step(y, [x], nn.solvers.Sgd(0.1), on_nan="raise")
        with pytest.raises(FloatingPointError) as raised:
            step()
    called = f"sqrt (order 0), which was called at {line_of('# the sum of roots')}"
    assert found.startswith("infinity in <PowScalar") and called in found
    assert f"which was requested at {line_of('# curvatures')}" in found
    assert called in str(raised.value)
    assert "called at" not in str(nn.find_nan(F.sqrt(x - 1.0)))
