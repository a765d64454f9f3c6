"""What a checker of types says of a user's program: nothing where it is right, and the line where it is wrong."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import nngrad
import nngrad.functions as F
import nngrad.parametric_functions as PF

RIGHT = '''
from collections.abc import Callable
from typing import Any, assert_type

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.initializer as I
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.files.exporting import ExportedFunction
from nngrad.graph import Array, composite, op
from nngrad.graph.arguments import Axes


@op(elementwise=True, diagonal=True)
def shifted(x: Array, /, by: float = 1.0) -> jax.Array:
    y: jax.Array = x + by
    return y


@op(multiple_results=True)
def halves(x: Array, /) -> tuple[jax.Array, jax.Array]:
    return x / 2, x / 2


@composite
def centred(x: Array, /, axis: Axes | None = None) -> nn.Variable:
    return F.sub2(x, F.mean(x, axis=axis, keepdims=True))


@PF.parametric_function_api("block")
def block(x: nn.Variable, units: int, activation: Callable[[nn.Variable], nn.Variable] = F.tanh) -> nn.Variable:
    return activation(PF.affine(x, units, w_init=I.NormalInitializer(0.1)))


def loss_of(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    h = block(x, 8)
    h = block(h, 8, activation=F.relu, name="second")
    h = F.dropout(PF.layer_normalization(h), p=0.1)
    return F.mean(F.squared_error(PF.affine(h, 1, fix_parameters=False, name="last"), t))


x = nn.Variable((4, 3), need_grad=True)
t = nn.Variable.from_numpy_array(np.ones((4, 1)))
loss = loss_of(x, t)
with nn.auto_forward(False), nn.no_grad(False):
    y: nn.Variable = shifted(x, by=2) + centred(x, axis=(0, 1)) * 2 - 1
first, second = halves(y)
first, *others = F.split(F.concatenate(first, second, axis=1), axis=0)
z = F.sum(F.reshape(first, (2, -1))[0] @ F.constant(1.0, shape=[3, 1]), axis=None, keepdims=False)
z.forward(function_post_hook=lambda f: print(f.name))
z.backward(1, retain_grad=True)
(gx,) = nn.grad([loss], [x])
gradients: list[nn.Variable] = nn.grad(F.sum(gx**2), x, grad_outputs=None, recompute=None)
product = nn.hvp(loss, x, np.ones((4, 3)))
solver = S.Adam(alpha=1e-3)
solver.set_parameters(nn.get_parameters())
step = nn.train_step(loss, nn.get_parameters(), S.Momentum(0.1, momentum=0.9), inputs=[x])
by_shape = nn.train_step(loss_of, nn.get_parameters, S.Sgd(0.1))
scores = nn.compile(lambda a: F.tanh(a))(step(x.d, t.d), by_shape(x.d, t.d))
as_jax = nn.to_jax({"loss": loss}, [{"x": x}, t])({"x": x.d}, t.d)
nn.export({"loss": loss}, {"x": x, "t": t}, "loss.nnx", platforms=["cpu"])
nn.export(loss_of, {"x": ("rows", 3), "t": ("rows", 1)}, "loss.nnx", parameters_inside=True)
exported: ExportedFunction = nn.load_exported("loss.nnx")
image = nn.Variable((1, 2, 8, 8))
h = PF.convolution(image, 4, (3, 3), pad=1, stride=(2, 2), with_bias=False, name="conv")
h = F.max_pooling(F.convolution(image, h, pad=[1, 1]), kernel=(2, 2))
blocks: tuple[tuple[nn.Variable, ...], ...] = nn.hessian(F.sum(x.T @ t), [x, t], batched=False)
row: tuple[nn.Variable, ...] = nn.jacobian(x.reshape((3, 4)), (x, t), batched=False)
number = x.mean(axis=0).max().astype("float64").item() + x.size_from_axis(1)
cell: nn.NdArray = 2 * (x.data + t.data) ** 2
cell += 1


class Layer(nn.Module):
    def call(self, x: nn.Variable) -> nn.Variable:
        return PF.affine(x, 3)


class Pair(nn.Module):
    def call(self, x: nn.Variable, width: int = 3) -> tuple[nn.Variable, nn.Variable]:
        return x, PF.affine(x, width)


def bowl(at: nn.Variable) -> nn.Variable:
    return F.sum(at**2)


h = nn.Sequential(Layer(), ("last", Layer()))(x)
assert_type(Layer()(x), nn.Variable)
assert_type(Pair()(x, width=4), tuple[nn.Variable, nn.Variable])
assert_type(step(x.d), jax.Array)
assert_type(by_shape(x.d, t.d), jax.Array)
with_norm = nn.train_step(loss, nn.get_parameters(), S.Sgd(0.1), aux={"norm": "gradient_norm"}, on_nan="raise")
assert_type(with_norm(), tuple[jax.Array, Any])
assert_type(nn.minimize(bowl, np.zeros(3))[0], nn.Variable)
assert nn.minimize(lambda p: F.sum(p["a"] ** 2), {"a": np.zeros(3)})[0]["a"].shape == (3,)
nn.set_function_pre_hook("names", lambda f: print(f.name, f.tags))
x.visit(lambda f: print(f.need_grad))
array: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = gx.d
'''

WRONG = [
    ("F.sn(x)", "sin"),
    ("F.sum(x, axi=0)", "axi"),
    ("F.sum(x, axis='rows')", "axis"),
    ("F.sum(x, keepdims='yes')", "keepdims"),
    ("F.dropout(x, p='big')", "\"p\""),
    ("F.reshape(x)", "shape|few"),
    ("F.reshape(x, ('a', 2))", "str"),
    ("F.cast(x, 32)", "int"),
    ("F.add2(x)", "few"),
    ("F.dropout(x, 0.1, sead=1)", "sead"),
    ("F.exp(x).dd", "dd"),
    ("F.exp(x, 1)", "many"),
    ("nn.functions.tanhh(x)", "tanhh"),
    ("PF.afine(x, 3)", "affine"),
    ("PF.affine(x, 3, with_bais=False)", "with_bais"),
    ("PF.affine(x, 3, name='a', with_bais=False)", "with_bais"),
    ("PF.affine(x)", "n_outmaps"),
    ("PF.convolution(x, 3, kernel='three')", "kernel"),
    ("PF.affine(x, 3, name=3)", "name"),
    ("block(x, 'many')", "overload|incompatible"),
    ("block(x, unit=3)", "overload|unit"),
    ("Layer()('x')", "str"),
    ("Layer()(x, 3)", "many"),
    ("Pair()(x, widht=3)", "widht"),
    ("nn.train_step(x, {}, S.Sgd(0.1), acumulate=2)", "overload|acumulate"),
    ("S.Admm()", "Admm"),
    ("S.Adam(rate=0.1)", "rate"),
    ("S.Sgd('fast')", "str"),
    ("S.Adam().update(weight_decay=1)", "weight_decay"),
    ("nn.gard([x], [x])", "gard"),
    ("x.sum(axes=0)", "axes"),
    ("nn.hessian(x, ['y'])", "overload|list-item|str"),
    ("nn.grad([x])", "inputs"),
    ("nn.grad([x], [x], grad_output=x)", "grad_output"),
    ("nn.hvp(x, x, vector=x)", "vector"),
    ("nn.train_step(x, [x], S.Sgd(), input=x)", "train_step"),
    ("nn.compile(F.tanh, [x])", "compile"),
    ("nn.export(x, {'x': 3}, 'a.nnx')", "incompatible|int"),
    ("nn.Variable((2, 3), needs_grad=True)", "needs_grad"),
    ("x.backward(retain=True)", "retain"),
    ("x.forward(function_prehook=print)", "function_prehook"),
    ("nn.parameter_scope()", "name"),
    ("shifted(x, to=2)", "to"),
]
"""Lines of a user's, and what the message about each has in it."""

START = '''
import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from right import Layer, Pair, block, shifted

x = nn.Variable((2, 3))
'''.lstrip()


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], str]:
    """What mypy, which finds nngrad as it is installed, says of both programs: its errors by file and line."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(START + "".join(f"{line}\n" for line, _ in WRONG))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "--no-pretty"]
    done = subprocess.run(
        [*command, "--hide-error-context", "--no-color-output", "right.py", "wrong.py"],
        cwd=folder, capture_output=True, text=True, timeout=400, check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    errors: dict[tuple[str, int], str] = {}
    for file, line, message in re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        errors[file, int(line)] = f"{errors.get((file, int(line)), '')}{message} "
    return errors


@pytest.mark.slow
def test_nothing_is_said_of_a_right_program(said: dict[tuple[str, int], str]) -> None:
    assert {key: message for key, message in said.items() if key[0] != "wrong.py"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WRONG)), ids=[line for line, _ in WRONG])
def test_what_is_wrong_is_said_at_its_line(said: dict[tuple[str, int], str], number: int) -> None:
    _, named = WRONG[number]
    message = said.get(("wrong.py", START.count("\n") + number + 1), "")
    assert re.search(named, message), message or "nothing is said of it"


def test_signatures_at_run_time_say_what_a_caller_may_give_and_gets() -> None:
    parameters = inspect.signature(F.reshape).parameters
    assert parameters["x"].annotation is inspect.Parameter.empty
    assert str(parameters["shape"].annotation) == "collections.abc.Sequence[int]"
    assert str(inspect.signature(F.sum).parameters["axis"].annotation) == "int | collections.abc.Sequence[int] | None"
    assert inspect.signature(F.sum).return_annotation is nngrad.Variable
    assert inspect.signature(F.split).return_annotation == tuple[nngrad.Variable, ...]


def test_name_is_for_the_decorator_of_parametric_functions_to_add() -> None:
    with pytest.raises(TypeError, match=r"^own: parametric_function_api adds the argument `name`\. Remove"):

        @PF.parametric_function_api("own")
        def own(x: nngrad.Variable, name: str | None = None) -> nngrad.Variable:
            return x
