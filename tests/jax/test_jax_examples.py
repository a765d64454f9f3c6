"""The examples for JAX users: what they differentiate is what JAX gives, and they run both ways."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.jax as nj
from nngrad_command.installation import Requirement
from tests.oracle import compiled_cheaply

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALLER = {"WIDTH": 4, "BATCH": 3, "OF_CRITIC": 1, "CHANNELS": 2}


def filled(tree: Any) -> Any:
    """Random arrays for a pytree that describes some."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda a: 0.4 * rng.standard_normal(a.shape) if hasattr(a, "shape") else a, tree)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a script of the folder, as it is when it is run, but smaller."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = set(sys.modules)

    def load(name: str) -> Any:
        module = importlib.import_module(name)
        for constant, value in SMALLER.items():
            if hasattr(module, constant):
                monkeypatch.setattr(module, constant, value)
        return module

    yield load
    for path in EXAMPLES.glob("*.py"):
        if path.stem not in before:
            sys.modules.pop(path.stem, None)


def test_residual_of_the_beam(example: Any) -> None:
    module = example("flax_pinn")
    network = module.Network()
    with jax.enable_x64(True):
        params = filled(jax.eval_shape(network.init, jax.random.key(0), 0.0, 0.0))
        points = [jnp.asarray([0.4, 1.1]), jnp.asarray([0.3, 0.9])]

        def of(grad: Any) -> Any:
            return compiled_cheaply(jax.vmap(lambda x, t: module.residual(grad, network, params, x, t)))(*points)

        np.testing.assert_allclose(of(nj.grad), of(jax.grad), rtol=1e-9)


def test_local_energy_of_fermions(example: Any, tmp_path: Path) -> None:
    module = example("fermions")
    with jax.enable_x64(True):
        params = jax.tree.map(lambda a: np.asarray(a, float), module.initial())
        walkers = np.random.default_rng(0).standard_normal((2, 6))

        def of(by: Any) -> Any:
            return compiled_cheaply(jax.vmap(module.local_energy(by), (None, 0)))(params, walkers)

        np.testing.assert_allclose(of(module.OURS), of(module.THEIRS), rtol=1e-9)
        swapped = walkers.reshape(2, 3, 2)[:, [1, 0, 2]].reshape(2, 6)
        logs = jax.vmap(module.log_of_wave_function, (None, 0))
        np.testing.assert_allclose(logs(params, swapped), logs(params, walkers), rtol=1e-9)
    module.draw(np.array([9.5, 9.1]), module.initial(), tmp_path / "fermions.png")
    assert (tmp_path / "fermions.png").read_bytes().startswith(b"\x89PNG")


def test_products_with_the_hessian_of_a_module(example: Any) -> None:
    module = example("equinox_spectrum")
    network = filled(eqx.filter_eval_shape(module.Network, jax.random.key(0)))
    parameters, rest = eqx.partition(network, eqx.is_inexact_array)
    images, labels = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32), np.asarray([3, 1])

    def of(hvp: Any) -> Any:
        return compiled_cheaply(
            lambda p: hvp(lambda p: module.loss_of(eqx.combine(p, rest), images, labels), (p,), (p,))
        )(parameters)

    for ours, theirs in zip(*[jax.tree.leaves(of(hvp)) for hvp in (nj.hvp, module.hvp_by_jax)], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_adversarial_network_trains(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("flax_gan")
    result = module.solve(2, nj.grad)
    assert 0 < result.timing.step < result.timing.first and 0 < result.error < 9
    critic = filled(jax.eval_shape(module.CRITIC.init, jax.random.key(0), np.zeros(2)))
    key = jax.random.key(0)
    real, drawn = np.random.default_rng(0).standard_normal((2, 3, 2))

    def of(grad: Any) -> Any:
        return compiled_cheaply(lambda c: jax.grad(module.loss_of_critic, 1)(grad, c, real, drawn, key))(critic)

    for ours, theirs in zip(jax.tree.leaves(of(nj.grad)), jax.tree.leaves(of(jax.grad)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_command_line(example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shared = example("jax_script")
    given, drawn = [], []

    def solve(steps: int, by: str) -> Any:
        given.append((steps, by))
        return shared.Result(0.5, shared.timed(iter([1, 2])), drawn.append)

    arguments = "What it does.", 7, 0.6, "ours", "theirs"
    assert shared.main(solve, *arguments, []) == 0
    assert shared.main(solve, *arguments, ["--peer", "jax", "--steps", "3"]) == 0
    assert given == [(7, "ours"), (3, "theirs")] and not drawn
    assert shared.main(solve, *arguments, ["--picture", "energy.png"]) == 0
    assert drawn == [Path("energy.png")]
    assert shared.main(solve, "What it does.", 7, 0.4, "ours", "theirs", []) == 1
    assert "ABOVE" in capsys.readouterr().out
    monkeypatch.setattr(shared, "missing", lambda extra: [Requirement("flax", ">=0.10", extra, None)])
    assert shared.main(solve, *arguments, []) == 1
    assert "install 'flax>=0.10'" in capsys.readouterr().err
