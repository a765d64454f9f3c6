"""How exactly a product multiplies is said of it, and holds for all products of its derivatives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from tests.nnabla.test_nnabla_networks import load, save

X, Y, B = jnp.ones((3, 4)), jnp.ones((4, 5)), jnp.ones((2, 3, 4))
IMAGES, FILTERS = jnp.ones((2, 3, 8, 8)), jnp.ones((4, 3, 3, 3))
HIGHEST = lax.Precision.HIGHEST

PROGRAMS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "matrices": (lambda x, y: jnp.tanh(lax.dot(x, y, precision=HIGHEST)), X, Y),
    "turned round": (lambda x, y: jnp.tanh(jnp.dot(x, y, precision=HIGHEST).T), X, Y),
    "a vector": (lambda x, y: jnp.tanh(jnp.dot(x[0], y, precision=HIGHEST)), X, Y),
    "one matrix for a batch": (lambda b, y: jnp.tanh(jnp.matmul(b, y, precision=HIGHEST)), B, Y),
    "batches": (lambda b, y: jnp.tanh(jnp.einsum("bij,bkj->bik", b, b * y[0, 0], precision=HIGHEST)), B, Y),
    "indices": (lambda b, y: jnp.tanh(jnp.einsum("bij,jk->kib", b, y, precision=HIGHEST)), B, Y),
    "mapped": (lambda b, y: jax.vmap(lambda m: jnp.tanh(jnp.dot(m, y, precision=HIGHEST)))(b), B, Y),
    "a loop": (lambda x, y: lax.scan(
        lambda h, _: (jnp.tanh(jnp.dot(h, y[:, :4], precision=HIGHEST)), None), x, None, length=3)[0], X, Y),
    "a convolution": (lambda x, w: jnp.tanh(lax.conv(x, w, (2, 2), "SAME", precision=HIGHEST)), IMAGES, FILTERS),
    "factors": (lambda x, y: jnp.linalg.cholesky(jnp.dot(x, x.T, precision=HIGHEST) + jnp.eye(3)) * y[0, 0], X, Y),
}  # fmt: skip


def products(function: Callable[..., Any], *arrays: Any) -> list[str]:
    """The lines of StableHLO that multiply."""
    text = jax.jit(function).lower(*arrays).as_text()
    return re.findall(r"stablehlo\.(?:dot_general|convolution)\b.*", text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_opened_products_multiply_as_exactly(name: str) -> None:
    program, *arrays = PROGRAMS[name]

    def value(*given: Any) -> Any:
        return jnp.sum(program(*given))

    def of_gradient(*given: Any) -> Any:
        return jnp.sum(nj.grad(value, 1)(*given) ** 2)

    for derived in (nj.grad(value), nj.hessian(value), nj.jvp, nj.grad(of_gradient)):
        if derived is nj.jvp:
            found = products(lambda *given: nj.jvp(value, given, given), *arrays)
        else:
            found = products(derived, *arrays)
        assert found
        assert all("HIGHEST" in line for line in found)


@pytest.mark.parametrize(("given", "said"), [
    (("high", "highest"), "HIGHEST"), ("bfloat16_3x", "HIGH, "), ("F32_F32_F32", "lhs_precision_type = f32"),
])
def test_each_way_to_say_it(given: Any, said: str) -> None:
    found = products(nj.grad(lambda x, y: jnp.sum(jnp.tanh(lax.dot(x, y, precision=given)))), X, Y)
    assert len(found) == 2
    assert all(said in line for line in found)


def test_a_file_of_nnabla_s_says_nothing_of_it(tmp_path: Any) -> None:
    a, b = nn.Variable((2, 3, 4)), nn.Variable((2, 4, 5))
    y = F.batch_matmul(a, b, matmul_precision="highest")
    a.d, b.d = np.random.default_rng(0).standard_normal((2, 3, 4)), np.ones((2, 4, 5))
    expected = y.d.copy()
    save(tmp_path / "n.nnp", {
        "networks": [{"name": "n", "batch_size": 2, "outputs": {"y": y}, "names": {"a": a, "b": b}}],
        "executors": [{"name": "run", "network": "n", "data": ["a", "b"], "output": ["y"]}],
    })  # fmt: skip
    variables = load([tmp_path / "n.nnp"]).networks["n"].variables
    variables["a"].d, variables["b"].d = a.d, b.d
    np.testing.assert_allclose(variables["y"].d, expected, rtol=1e-6)


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch_matmul: matmul_precision must be 'default', 'high', 'highest', "):
        F.batch_matmul(nn.Variable((3, 4)), nn.Variable((4, 5)), matmul_precision="fine")
