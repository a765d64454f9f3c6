"""The examples run: nnabla's as they stand, compared with JAX; the scripts with few steps.

What the scripts hold for the known solution is checked by other means.
"""

from __future__ import annotations

import importlib
import itertools
import runpy
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from backward_registry import registry
from nngrad.extend import Switched
from nngrad_command.installation import Requirement
from tests.oracle import compiled_cheaply
from tests.slow import slow_but

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each example has parameters and a context of its own, and draws the same every time."""
    np.random.seed(7)
    nn.seed(7)
    with nn.parameter_scope("example", scope=OrderedDict()), Switched(context=None):
        yield


def run(name: str) -> dict[str, Any]:
    """The names that an example leaves behind."""
    return copy_context().run(runpy.run_path, str(EXAMPLES / name))  # they set a default context


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
    assert names["loss"].dtype == np.float32  # as in nnabla: the context is of type 'float'
    layers = "conv1/conv", "conv2/conv", "pred/affine"
    assert set(parameters) == {f"{layer}/{part}" for layer in layers for part in "Wb"}
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(p.d, jnp.float64) for name, p in parameters.items()}
        x, labels = jnp.asarray(names["x"].d, jnp.float64), jnp.asarray(names["y"].d)
        value, grads = compiled_cheaply(jax.value_and_grad(penalized))(arrays, x, labels)
    np.testing.assert_allclose(names["loss"].d, value, rtol=1e-4)
    for name, p in parameters.items():
        expected = np.asarray(grads[name])
        np.testing.assert_allclose(p.g, expected, atol=1e-4 * np.abs(expected).max(), err_msg=name)


# ---------------------------------------------------------------- scripts

FEW_STEPS = {
    "allen_cahn": 9,
    "boundary_layer": 20,
    "burgers": 100,
    "cavity": 20,
    "data_cleaning": 6,
    "derivatives_of_sin": 100,
    "force_matching": 100,
    "gauss_newton": 10,
    "hessian_spectrum": 30,
    "high_dimensions": 60,
    "hyperparameters": 30,
    "korteweg_de_vries": 100,
    "kuramoto_sivashinsky": 60,
    "mean_flow": 200,
    "minimal_surface": 1,
    "interatomic_potential": 60,
    "operator_network": 200,
    "recurrent_critic": 100,
}
SMALLER = {
    ("pinn", "POINTS"): 128,
    ("allen_cahn", "POINTS"): 160,
    ("allen_cahn", "WIDTH"): 8,
    ("boundary_layer", "CANDIDATES"): 200,
    ("boundary_layer", "SEEDS"): 1,
    ("boundary_layer", "WIDE"): 0.2,
    ("cavity", "POINTS"): 60,
    ("cavity", "ON_EACH_WALL"): 10,
    ("cavity", "WIDTH"): 8,
    ("hessian_spectrum", "PROBES"): 1,
    ("hessian_spectrum", "ITERATIONS"): 40,
    ("hessian_spectrum", "WIDTH"): 8,
    ("force_matching", "CLUSTERS"): 200,
    ("force_matching", "HELD_OUT"): 20,
    ("high_dimensions", "DIMENSION"): 10,
    ("interatomic_potential", "STRUCTURES"): 20,
    ("interatomic_potential", "HELD_OUT"): 2,
    ("high_dimensions", "DIRECTIONS"): 4,
    ("high_dimensions", "HELD_OUT"): 50,
    ("mean_flow", "BATCH"): 256,
    ("mean_flow", "HELD_OUT"): 100,
    ("minimal_surface", "NODES"): 22,
    ("recurrent_critic", "BATCH"): 8,
    ("recurrent_critic", "HELD_OUT"): 20,
    ("recurrent_critic", "UNITS"): 8,
}
"""Constants of the scripts, made small."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a script of the folder, as it is when it is run, with the constants of `SMALLER`."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = set(sys.modules)

    def load(name: str) -> ModuleType:
        module = importlib.import_module(name)
        for (place, constant), value in SMALLER.items():
            if place in sys.modules:
                monkeypatch.setattr(sys.modules[place], constant, value)
        return module

    yield load
    for path in EXAMPLES.glob("*.py"):
        if path.stem not in before:
            sys.modules.pop(path.stem, None)


def test_every_example_is_tested() -> None:
    of_nnabla, shared = {"gradient_penalty", "nth_derivative_of_sin"}, {"pinn", "script"}
    of_processes = {"data_parallel"}  # in test_communicators.py
    drawn = {"pictures"}  # in test_draw.py
    of_demo = {"digits"}  # in test_cli.py
    of_jax = {"jax_script", "flax_pinn", "fermions", "equinox_spectrum", "flax_gan"}  # in test_jax_examples.py
    elsewhere = {*of_nnabla, *shared, *of_processes, *drawn, *of_demo, *of_jax}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*FEW_STEPS, *elsewhere}


@pytest.mark.parametrize("name", slow_but(["derivatives_of_sin"], FEW_STEPS))
def test_script_learns(name: str, script: Any, tmp_path: Path) -> None:
    module = script(name)
    result = module.solve(FEW_STEPS[name], tmp_path)
    assert np.mean(result.losses[-2:]) < 0.8 * result.losses[0]
    assert 0 <= result.error < 2
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert 0 < module.BOUND < 0.1
    assert 10 * FEW_STEPS[name] <= module.STEPS


@pytest.mark.parametrize("error, code", [(0.5, 0), (1.0, 0), (1.5, 1), (np.nan, 1)])
def test_exit_code_says_whether_the_error_is_within_the_bound(
    error: float, code: int, script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("script")
    given = []

    def solve(steps: int, out: Path) -> Any:
        given.append((steps, out))
        return module.Result([], error)

    folder = tmp_path / "pictures"
    assert module.main(solve, "What it does.", 7, 1.0, ["--steps", "3", "--out", str(folder)]) == code
    assert given == [(3, folder)] and folder.is_dir()
    assert ("within" if code == 0 else "ABOVE") in capsys.readouterr().out


def test_what_is_not_installed_is_named(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("script")
    lacking = [Requirement("matplotlib", ">=3.8", "demo", None)]
    monkeypatch.setattr(module, "missing", lambda extra: lacking if extra == "demo" else [])
    assert module.main(pytest.fail, "What it does.", 7, 1.0, ["--out", str(tmp_path)]) == 1
    assert "install 'matplotlib>=3.8'" in capsys.readouterr().err


def wide(*values: float) -> nn.Variable:
    """A Variable of float64, of shape (n, 1)."""
    return nn.Variable.from_numpy_array(np.array(values)[:, None], dtype=np.float64)


def test_soliton_solves_its_equation(script: Any) -> None:
    kdv = script("korteweg_de_vries")
    x, t = wide(-3.0, -1.5, 0.0, 0.5, 2.0), wide(0.0, 0.3, 1.0, 1.7, 2.0)
    u = kdv.soliton(x, t)
    (u_t,) = nn.grad([u], [t])
    assert np.max(np.abs(u_t.d)) > 0.1
    np.testing.assert_allclose(kdv.residual(u, x, t).d, 0, atol=1e-12)
    np.testing.assert_allclose(kdv.known(x.d[:, 0], t.d[:, 0])[2, 2], u.d[2, 0], rtol=1e-12)
    assert kdv.known(np.array([-kdv.HALF, kdv.HALF]), np.array([0.0, kdv.END])).max() < 2e-4


def test_integral_of_cole_and_hopf_solves_burgers_equation(script: Any) -> None:
    burgers = script("burgers")
    h = 1e-3
    x, t = np.array([-0.6, -0.1, 0.0, 0.05, 0.7]), np.array([0.2, 0.5, 0.9])
    u, left, right = burgers.known(x, t), burgers.known(x - h, t), burgers.known(x + h, t)
    u_t = (burgers.known(x, t + h) - burgers.known(x, t - h)) / (2 * h)
    u_x, u_xx = (right - left) / (2 * h), (right - 2 * u + left) / h**2
    assert np.max(np.abs(u_t)) > 0.5
    np.testing.assert_allclose(u_t, burgers.VISCOSITY * u_xx - u * u_x, atol=2e-2)
    np.testing.assert_allclose(burgers.known(x, np.zeros(1))[0], -np.sin(np.pi * x), atol=1e-12)


@pytest.mark.parametrize("name", ["burgers", "korteweg_de_vries", "kuramoto_sivashinsky"])
def test_initial_and_boundary_conditions_hold_by_construction(name: str, script: Any) -> None:
    module = script(name)
    problem = module.PROBLEM
    low, high = problem.place
    x, zero = np.linspace(low, high, 9), np.zeros(1)
    np.testing.assert_allclose(script("pinn").on_grid(problem.solution, x, zero), problem.known(x, zero), atol=1e-5)
    ends = script("pinn").on_grid(problem.solution, np.array([low, high]), np.linspace(0, problem.end, 5))
    if name == "kuramoto_sivashinsky":
        np.testing.assert_allclose(ends[:, 0], ends[:, 1], atol=1e-5)
    else:
        np.testing.assert_allclose(ends, np.broadcast_to(ends[0], ends.shape), atol=1e-5)


def test_flow_of_kovasznay_conserves_momentum(script: Any) -> None:
    """A steady solution in closed form, behind a grid (1948)."""
    module = script("cavity")
    rng = np.random.default_rng(0)
    x, y = wide(*rng.uniform(size=6)), wide(*rng.uniform(size=6))
    k = module.REYNOLDS / 2 - np.sqrt(module.REYNOLDS**2 / 4 + 4 * np.pi**2)
    psi, pressure = y - F.exp(k * x) * F.sin(2 * np.pi * y) / (2 * np.pi), -F.exp(2 * k * x) / 2
    for along in module.momentum(psi, pressure, x, y):
        np.testing.assert_allclose(along.d, 0, atol=1e-11)
    u, v = module.velocity(psi, x, y)
    waves = np.exp(k * x.d) * np.cos(2 * np.pi * y.d), np.exp(k * x.d) * np.sin(2 * np.pi * y.d)
    np.testing.assert_allclose(u.d, 1 - waves[0], rtol=1e-11)
    np.testing.assert_allclose(v.d, k / (2 * np.pi) * waves[1], rtol=1e-11)


def test_forces_stresses_and_hessians_of_a_crystal(script: Any) -> None:
    module = script("interatomic_potential")
    rng = np.random.default_rng(0)
    positions, lattice = module.structure(rng)
    along = rng.standard_normal(positions.shape)

    def energy(positions: np.ndarray, lattice: np.ndarray) -> Any:
        """Over all images, whether near or not."""
        images = np.array(list(itertools.product((-1, 0, 1), repeat=3))) @ lattice
        r = np.linalg.norm(positions[None, :, None] - positions[:, None, None] + images, axis=-1)
        near = (r > 0) & (r < module.CUTOFF)
        smooth = np.where(near, (1 - (r / module.CUTOFF) ** 2) ** 4, 0)
        density = np.sum(12 * np.exp(-5 * (r - 1)) * smooth, axis=(1, 2))
        return np.sum(0.8 * np.exp(-10 * (r - 1)) * smooth) - np.sum(np.sqrt(density))

    def at(positions: np.ndarray, room: int) -> Any:
        whole = module.together([(positions, lattice)], room, rng)
        _, offsets = module.neighbours(positions, lattice)
        shifts = np.zeros((room, 3))
        shifts[: len(offsets)] = offsets
        arrays = whole._replace(positions=positions, along=along, offsets=shifts)
        return module.derivatives(module.gupta, module.Leaves(*map(nn.Variable.from_numpy_array, arrays)), 1)

    count, h = module.neighbours(positions, lattice)[0].shape[1], 1e-5
    found, with_more = at(positions, count), at(positions, count + 7)
    for a, b in zip(found, with_more, strict=True):
        np.testing.assert_allclose(a.d, b.d, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.energy.d[0], energy(positions, lattice), rtol=1e-12)
    moved = [energy(positions + step * along, lattice) for step in (h, -h)]
    np.testing.assert_allclose(-np.sum(found.forces.d * along), (moved[0] - moved[1]) / (2 * h), rtol=1e-6)
    strain = np.array([[0.3, 0.2, -0.5], [0.2, -0.7, 0.1], [-0.5, 0.1, 0.4]])
    ends = [energy(positions @ (np.eye(3) + step * strain), lattice @ (np.eye(3) + step * strain)) for step in (h, -h)]
    np.testing.assert_allclose(np.sum(found.stress.d[0] * strain), (ends[0] - ends[1]) / (2 * h), rtol=1e-6)
    after, before = (at(positions + step * along, count + 7).forces.d for step in (h, -h))
    np.testing.assert_allclose(with_more.hessian.d, -(after - before) / (2 * h), rtol=1e-5, atol=1e-4)
