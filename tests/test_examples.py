"""The examples run as they stand; what they compute is compared with JAX."""

from __future__ import annotations

import runpy
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
from backward_registry import registry
from nngrad.graph import building

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each example has parameters and a context of its own, and draws the same every time."""
    np.random.seed(7)
    nn.seed(7)
    with nn.parameter_scope("example", scope=OrderedDict()), building.having("context", None):
        yield


def run(name: str) -> dict[str, Any]:
    """The names that an example leaves behind."""
    return runpy.run_path(str(EXAMPLES / name))


def test_nth_derivative_of_sin(capsys: pytest.CaptureFixture[str]) -> None:
    run("nth_derivative_of_sin.py")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["True", "True"]
    assert len(lines) - 2 == len(registry.ops())
    assert any(line.startswith("Convolution ") and "bilinear" in line for line in lines)


def penalized(parameters: dict[str, Any], x: Any, labels: Any) -> Any:
    """The loss and penalty of `gradient_penalty.py`, written with JAX alone."""

    def pooled(h: Any) -> Any:
        n, c, height, width = h.shape
        return jnp.max(h.reshape(n, c, height // 2, 2, width // 2, 2), axis=(3, 5))

    def loss(p: dict[str, Any]) -> Any:
        h = x
        for name in ("conv1", "conv2"):
            h = jax.lax.conv_general_dilated(h, p[f"{name}/conv/W"], (1, 1), [(1, 1), (1, 1)])
            h = pooled(jax.nn.relu(h + p[f"{name}/conv/b"][:, None, None]))
        logits = h.reshape(len(h), -1) @ p["pred/affine/W"] + p["pred/affine/b"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels, axis=1))

    value, grads = jax.value_and_grad(loss)(parameters)
    return value + sum(jnp.sqrt(jnp.sum(g**2)) ** 2 for g in grads.values())


def test_gradient_penalty() -> None:
    names = run("gradient_penalty.py")
    parameters = nn.get_parameters()
    layers = "conv1/conv", "conv2/conv", "pred/affine"
    assert set(parameters) == {f"{layer}/{part}" for layer in layers for part in "Wb"}
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(p.d, jnp.float64) for name, p in parameters.items()}
        x, labels = (jnp.asarray(names[name].d) for name in "xy")
        value, grads = jax.jit(jax.value_and_grad(penalized))(arrays, x, labels)
    np.testing.assert_allclose(names["loss"].d, value, rtol=1e-4)
    for name, p in parameters.items():
        expected = np.asarray(grads[name])
        np.testing.assert_allclose(p.g, expected, atol=1e-4 * np.abs(expected).max(), err_msg=name)
