"""What users are told when they write something that cannot mean what they think."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from tests.refusals import refused

from_ = nn.Variable.from_numpy_array
X = from_([1.0, 2.0, 3.0])
WHOLE = nn.Variable((3,), dtype="int32")
OTHER = nn.Variable((3,), name="other")
SUM = F.sum(X * X)


test_what_is_wrong_and_what_to_do = refused([
    (lambda: F.tahn, AttributeError, "no function 'tahn'; did you mean .*'tanh'"),
    (lambda: F.quux, AttributeError, "no function 'quux'; dir\\(nngrad.functions\\) lists"),
    (lambda: PF.afine, AttributeError, "no function 'afine'; did you mean 'affine'"),
    (lambda: S.Adm, AttributeError, "nngrad.solvers has no 'Adm'; did you mean 'Adam'"),
    (lambda: F.silu, AttributeError, "no function 'silu'; torch.nn.functional.silu is F.swish here$"),
    (lambda: F.conv2d, AttributeError, "no function 'conv2d'; torch.nn.functional.conv2d is F.convolution or"),
    (lambda: F.clamp, AttributeError, "torch.clamp is F.clip_by_value here$"),
    (lambda: nn.relu, AttributeError, "nngrad has no 'relu'; there is F.relu in nngrad.functions$"),
    (lambda: nn.Linear, AttributeError, r"nngrad has no 'Linear'; torch.nn.Linear is PF.affine\(x, size\) here$"),
    (lambda: X.sum(dim=0), TypeError, "^sum: there is no argument 'dim'; it is 'axis' here"),
    (lambda: X.sum(0, True, 0), TypeError, r"^sum\(\) takes"),
    (lambda: X.reshape(size=(2,)), TypeError, "^reshape: there is no argument 'size'; expected shape, unlink"),
    (lambda: nn.grad(SUM, X, retain_graph=True), TypeError, "^grad: there is no argument 'retain_graph'; graphs a"),
    (lambda: nn.LeakyReLU, AttributeError, r"torch.nn.LeakyReLU is F.leaky_relu\(x, 0.01\) here"),
    (lambda: nn.gradd, AttributeError, "nngrad has no 'gradd'; did you mean 'grad'"),
    (lambda: F.sum(X, axes=0), TypeError, "^sum: there is no argument 'axes'; did you mean 'axis'"),
    (lambda: F.mean(X, axes=0), TypeError, "^mean: there is no argument 'axes'; did you mean 'axis'"),
    (lambda: F.tanh(X, blub=0), TypeError, "^tanh: there is no argument 'blub'; expected x"),
    (lambda: PF.affine(X, 3, base_axes=1), TypeError, "^affine: there is no argument 'base_axes'; did you mean"),
    (lambda: nn.Variable((2,), needs_grad=True), TypeError, "^Variable: .*'needs_grad'; did you mean 'need_grad'"),
    (lambda: nn.Variable((2,), value=1), TypeError, "^Variable: .* 'value'; expected shape, need_grad"),
    (lambda: nn.grad([SUM], [X], grad_output=1), TypeError, "^grad: there is no argument 'grad_output'; did you mean"),
    (lambda: nn.jvp(SUM, X, vector=X), TypeError, "^jvp: there is no argument 'vector'; expected outputs, inputs, t"),
    (lambda: nn.seed(sead=1), TypeError, "^seed: there is no argument 'sead'; expected value$"),
    (lambda: nn.forward_all([SUM], function_prehook=print), TypeError, "^forward_all: .*mean 'function_pre_hook'"),
    (lambda: SUM.forward(function_prehook=print), TypeError, "^forward: .*did you mean 'function_pre_hook'"),
    (lambda: S.Adam(rate=0.1), TypeError, "^Adam: there is no argument 'rate'; expected alpha, .*eps, lr$"),
    (lambda: S.Momentum(momentun=0.1), TypeError, "^Momentum: .*did you mean 'momentum'"),
    (lambda: nn.DynamicLossScale(scal=2), TypeError, "^DynamicLossScale: .*did you mean 'scale'"),
    (lambda: nn.seed(), TypeError, r"^seed\(\) missing 1 required positional argument"),
    (lambda: nn.Variable(4, 3), TypeError, r"^need_grad: .* got 3; give the shape as a tuple: nn.Variable\(\(4, 3\)\)"),
    (lambda: nn.Variable((2**70,)), ValueError, "^shape: .*too large for any memory"),
    (lambda: nn.NdArray((2**40, 2**40)), ValueError, "^shape: .*too large for any memory"),
    (lambda: nn.NdArray((2**70, 0)), ValueError, "^shape: .*too large for any memory"),
    (lambda: nn.Variable(3, True, dtype="int32"), TypeError, "^need_grad: .* a floating dtype, got int32"),
    (lambda: from_([1, 2], need_grad=True), TypeError, "^need_grad: .* a floating dtype, got int32"),
    (lambda: WHOLE.apply(need_grad=True), TypeError, "^need_grad: .* a floating dtype, got int32"),
    (lambda: nn.compile(SUM, [X, OTHER]), ValueError, r"^inputs\[1\] \(.*'other'.*no output depends on it"),
    (lambda: nn.compile(F.sum(WHOLE), WHOLE)([1.5, 2, 3]), ValueError, "^array 0: int32 holds integers .*, got 1.5"),
    (lambda: nn.to_jax(F.sum(WHOLE), WHOLE)(np.array([1, 2, 2**40])),
     ValueError, "^array 0: int32 holds integers .*, got 1099511627776"),
    (lambda: jax.jit(nn.to_jax(F.sum(WHOLE), WHOLE))(jnp.ones(3)), TypeError,
     "^array 0 is float32, but input 0 is int32"),
    (lambda: S.Adam().set_parameters([X]), TypeError, "^set_parameters: expected a dict of Variables.*got list"),
    (lambda: jax.grad(lambda a: F.sum(F.sin(a)))(jnp.ones(3)), TypeError, "^sin: x: got a JAX tracer.*nn.to_jax"),
    (lambda: jax.jit(lambda a: a * X)(jnp.ones(3)),
     TypeError, r"^\*: other: got a JAX tracer.*F.jax_function.*nn.to_jax"),
    (lambda: F.jax_function(lambda a: F.exp(a))(X),
     TypeError, "^exp: x: got a JAX tracer.*F.jax_function.*use jax.numpy"),
    (lambda: np.sin(X), TypeError, r"^np.sin: a Variable is .*Use F.sin, or the value"),
    (lambda: np.arctan(X), TypeError, r"^np.arctan: .*Use F.atan, or"),
    (lambda: F.stack([X, X]), TypeError, r"^stack: x\[0\] is a list .*one by one: F.stack\(\*variables\)"),
    (lambda: F.einsum(X, X), TypeError, r"^einsum: give an equation, as in F.einsum\('ij,jk->ik', x, y\)"),
    (lambda: F.linear, AttributeError, r"no function 'linear'; torch.nn.functional.linear is F.affine\("),
    (lambda: X // 2, TypeError, r"^//: a Variable has no floor division.*Use F.floor\(x / y\), or x % y"),
    (lambda: np.degrees(X), TypeError, "^np.degrees: .*Use a function of F, or"),
    (lambda: np.add.reduce(X), TypeError, "^np.add: .*Use F.add2, or"),
    (lambda: np.linalg.norm(X), TypeError, "^np.linalg.norm: a Variable is not an array. Use F.norm, or the value"),
    (lambda: np.ones(3).dot(X), TypeError, "^array.dot: a Variable is not an array.*array @ variable"),
    (lambda: np.add(np.ones(3), X, out=np.ones(3)), TypeError, r"^np.add: .*`a = a \+ x`"),
    (lambda: X[X > 2], IndexError, r"Variable of float32.*F.where\(mask, x, 0\).*x\[mask.d != 0\]"),
    (lambda: f"{X:.3f}", TypeError, r"'.3f' formats one number, not a Variable of shape \(3,\)"),
])


test_what_a_variable_lacks = pytest.mark.skipif(sys.version_info < (3, 12), reason="messages of Python's own")(refused([
    (lambda: X.detach(), AttributeError, r"a Variable has no attribute 'detach'; torch.Tensor.detach is F.unlink"),
    (lambda: X.requires_grad, AttributeError, "torch.Tensor.requires_grad is x.need_grad here$"),
    (lambda: X.softmax(), AttributeError, "a Variable has no attribute 'softmax'; there is F.softmax in"),
    (lambda: X.need_grads, AttributeError, "a Variable has no attribute 'need_grads'; did you mean 'need_grad'"),
], AttributeError))


def test_an_error_in_a_forward_of_the_users_shows_its_line() -> None:
    class Broken(nn.nnabla.FunctionNode):
        def forward(self, x: Any) -> Any:
            raise ValueError("the line of the user's")

    with pytest.raises(ValueError, match="the line of the user's") as caught:
        Broken()(X)
    assert "raise ValueError(" in "".join(traceback.format_exception(caught.value))


def test_numpy_leaves_operators_to_the_variable() -> None:
    a = np.array([2.0, 3.0, 4.0])
    for y, expected in (
        (a + X, a + X.d), (a - X, a - X.d), (a / X, a / X.d), (a**X, a**X.d), (a @ X, a @ X.d), (a < X, a < X.d),
        (a >= X, a >= X.d), (a == X, a == X.d), (np.multiply(X, a), X.d * a), (np.subtract(a, X), a - X.d),
        (np.float64(2) - X, 2 - X.d),
    ):
        assert isinstance(y, nn.Variable)
        np.testing.assert_allclose(y.d, expected)


def test_what_is_idle_is_warned_of_at_the_users_line(tmp_path: Path) -> None:
    y = F.sum(OTHER)
    with pytest.warns(UserWarning, match="^backward: no leaf needs a gradient") as caught:
        y.backward()
    with pytest.warns(UserWarning, match="^save_parameters: params is empty, so .* is empty") as empty:
        nn.save_parameters(tmp_path / "none.safetensors", {})
    with pytest.warns(UserWarning, match="^save_parameters: the current scope has no parameters"), \
            nn.parameter_scope("nobody"):
        nn.save_parameters(tmp_path / "none.safetensors")
    assert {w.filename for w in [*caught, *empty]} == {__file__}
