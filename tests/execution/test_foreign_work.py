"""What functions from outside cost, of which nothing is declared, is seen from their forwards."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import functions_of
from nngrad.memory.plan import arithmetic

X = np.random.default_rng(0).standard_normal((4, 4))


class Cubed(nn.FunctionNode):
    def forward(self, x: Any) -> Any:
        self.retain_inputs((0,))
        return x**3

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        (x,) = self.get_retained_inputs()
        return 3 * x**2 * grad_outputs[0]


class Squared(Cubed):
    def forward(self, x: Any) -> Any:
        return x @ x


class OnTheHost(Cubed):
    numpy = True


def applied(node: type[nn.FunctionNode]) -> Any:
    return lambda x: node()(x)


@pytest.mark.parametrize(("function", "heavy"), [
    (F.jax_function(jax.scipy.special.i0e), False),
    (F.jax_function(lambda x: jnp.sum(jax.nn.softmax(x), axis=1)), False),
    (F.jax_function(lambda x: x @ x), True),
    (F.jax_function(lambda x: jnp.linalg.inv(x)), True),
    (F.jax_function(lambda x: jax.lax.fori_loop(0, 3, lambda i, h: h * x, x)), True),
    (F.jax_function(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)), True),
    (F.jax_function(jax.jit(lambda x: jnp.cumsum(x)[jnp.arange(3)])), False),
    (applied(Cubed), False),
    (applied(Squared), True),
    (applied(OnTheHost), True),
    (F.batch_inv, True),
    (F.tanh, False),
])
def test_work_is_seen_from_the_forward(function: Any, heavy: bool) -> None:
    x = nn.Variable.from_numpy_array(X[None] if function is F.batch_inv else X)
    f = function(x).parent
    assert f.heavy is heavy
    assert (arithmetic(f) >= 32 * x.size) is (heavy and f.op.cost is not None)


def test_a_light_function_in_a_loop_is_computed_again_and_not_kept() -> None:
    kept, slopes = [], []
    for step in (applied(Cubed), lambda h: h**3):
        x = nn.Variable.from_numpy_array(X, need_grad=True)

        def body(h: nn.Variable, _: Any, step: Any = step) -> tuple[nn.Variable, None]:
            return F.sin(step(h)) * 0.5, None

        (g,) = nn.grad(F.mean(F.scan(body, x, None, length=3)[0]), x)
        assert nn.explain(g).orders[0].mode == "reverse"
        kept.append(sum([y.shape == (3, *X.shape) for f in functions_of([g]) for y in f.outputs]))
        slopes.append(g.d)
    assert kept[0] == kept[1], "as much is kept as with the op of its own"
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-12)
