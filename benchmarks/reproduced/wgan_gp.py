"""WGAN-GP on images of digits: a step of the critic, and the time until generated images are near the real ones."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

from ..critic import jax_loss, jax_mlp, nngrad_loss, nngrad_mlp
from ..reproducing.experiment import Experiment, Measured, Point, Quantity, Step, Table
from . import _wgan_loop as loop

OURS, JAX, TORCH, NNABLA = "nngrad", "JAX", "PyTorch", "nnabla"
STEP, TRAINING, AXIS = "step of the critic", "training", "batch"
GOAL, MOST = 0.12, 400
"""The distance to reach, and after how many of the generator's steps one gives up."""
INTERPRETER = "NNABLA_PYTHON"
"""The environment variable that names a Python which has nnabla."""


def images() -> np.ndarray:
    """1,797 digits of 8 x 8 pixels from -1 to 1; drawn ones where scikit-learn is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        rng = np.random.default_rng(4)
        return np.tanh(rng.normal(size=(1797, 6)) @ rng.normal(size=(6, loop.PIXELS))).astype("f")
    found: np.ndarray = load_digits().data.astype("f") / 8 - 1
    return found


# ---------------------------------------------------------------- the libraries


def in_nngrad() -> loop.Trainer:
    """Two training steps, each one executable."""
    critic, generator = ([nn.Variable.from_numpy_array(a, need_grad=True) for a in p] for p in loop.first_parameters())
    real, z, mix = (nn.Variable((loop.BATCH, n)) for n in (loop.PIXELS, loop.LATENT, 1))
    fake = F.tanh(nngrad_mlp(generator, z))

    def step_on(loss: nn.Variable, p: list[nn.Variable], inputs: Any) -> Callable[..., Any]:
        solver = S.Adam(loop.RATE, *loop.BETAS)
        return nn.train_step(loss, {str(i): w for i, w in enumerate(p)}, solver, inputs=inputs)

    many = nn.Variable((loop.SEEN, loop.LATENT))
    return loop.Trainer(
        step_on(nngrad_loss(nngrad_mlp, critic, real, fake, mix), critic, [real, z, mix]),
        step_on(-F.mean(nngrad_mlp(critic, fake)), generator, [z]),
        nn.compile(F.tanh(nngrad_mlp(generator, many)), [many]),
    )


def in_jax() -> loop.Trainer:
    """Two jitted steps with `jax.grad`."""
    p = dict(zip(("critic", "generator"), jax.tree.map(jnp.asarray, loop.first_parameters()), strict=True))
    adam = optax.adam(loop.RATE, *loop.BETAS)
    state = {name: adam.init(a) for name, a in p.items()}

    def fake_of(p: Any, z: Any) -> Any:
        return jnp.tanh(jax_mlp(p["generator"], z))

    def critic_loss(critic: Any, p: Any, real: Any, z: Any, mix: Any) -> Any:
        return jax_loss(jax_mlp, critic, real, fake_of(p, z), mix)

    def generator_loss(generator: Any, p: Any, z: Any) -> Any:
        return -jnp.mean(jax_mlp(p["critic"], fake_of({"generator": generator}, z)))

    def step_on(name: str, loss_of: Callable[..., Any]) -> Callable[..., Any]:
        @jax.jit
        def update(p: Any, state: Any, *arrays: Any) -> Any:
            loss, grads = jax.value_and_grad(loss_of)(p[name], p, *arrays)
            updates, state = adam.update(grads, state)
            return optax.apply_updates(p[name], updates), state, loss

        def step(*arrays: Any) -> Any:
            p[name], state[name], loss = update(p, state[name], *arrays)
            return loss

        return step

    generate = jax.jit(fake_of)
    return loop.Trainer(step_on("critic", critic_loss), step_on("generator", generator_loss), lambda z: generate(p, z))


def in_torch() -> loop.Trainer:
    """Eager PyTorch, on one thread: the arrays are small."""
    import torch

    torch.set_num_threads(1)
    critic, generator = ([torch.tensor(a, requires_grad=True) for a in p] for p in loop.first_parameters())

    def mlp(p: list[Any], x: Any) -> Any:
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            x = torch.nn.functional.leaky_relu(x @ w + b, 0.2)
        return x @ p[-2] + p[-1]

    def critic_loss(*arrays: Any) -> Any:
        real, z, mix = arrays
        with torch.no_grad():
            fake = torch.tanh(mlp(generator, z))
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(mlp(critic, between).sum(), between, create_graph=True)
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
        return mlp(critic, fake).mean() - mlp(critic, real).mean() + loop.PENALTY * penalty

    def generator_loss(z: Any) -> Any:
        return -mlp(critic, torch.tanh(mlp(generator, z))).mean()

    def step_on(loss_of: Callable[..., Any], p: list[Any]) -> Callable[..., Any]:
        adam = torch.optim.Adam(p, lr=loop.RATE, betas=loop.BETAS)

        def step(*arrays: np.ndarray) -> float:
            loss = loss_of(*map(torch.from_numpy, arrays))
            for w, g in zip(p, torch.autograd.grad(loss, p), strict=True):
                w.grad = g
            adam.step()
            return float(loss.item())

        return step

    def generate(z: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            found: np.ndarray = torch.tanh(mlp(generator, torch.from_numpy(z))).numpy()
        return found

    return loop.Trainer(step_on(critic_loss, critic), step_on(generator_loss, generator), generate)


TRAINERS = {OURS: in_nngrad, JAX: in_jax, TORCH: in_torch}


# ---------------------------------------------------------------- what is measured


def tables(smoke: bool) -> Iterable[Table]:
    """The step of the critic, on one batch."""
    batch = loop.batch_of(np.random.default_rng(3), images())

    def step(make: Callable[[], loop.Trainer]) -> Step:
        return Step(functools.partial(make().critic_step, *batch))

    yield Table(STEP, AXIS, [Point(loop.BATCH, {n: functools.partial(step, m) for n, m in TRAINERS.items()}, 1e-3)])


def training(smoke: bool, names: Collection[str]) -> Iterable[Measured]:
    """Seconds until the distance is reached, and how many steps that takes; nnabla's step besides."""
    goal, most = (0.0, loop.EVERY) if smoke else (GOAL, MOST)
    trainings: dict[str, Callable[[], dict[str, float]]] = {
        name: lambda make=make: loop.trained(make(), images(), goal, most)
        for name, make in TRAINERS.items() if name in names
    }  # fmt: skip
    if INTERPRETER in os.environ:
        trainings[NNABLA] = lambda: of_nnabla(goal, most)
    least: dict[str, dict[str, float]] = {}
    for order in [[*trainings]] if smoke else [[*trainings], [*trainings][::-1]]:
        for name in order:
            told = trainings[name]()
            least[name] = min(least.get(name, told), told, key=lambda each: each["seconds"])
    for name, told in least.items():
        if "step" in told:
            yield Measured(STEP, AXIS, loop.BATCH, name, "time", told["step"])
        for quantity in ("seconds", "generator_steps", "distance"):
            yield Measured(TRAINING, AXIS, loop.BATCH, name, quantity, float(told[quantity]))


def of_nnabla(goal: float, most: int) -> dict[str, float]:
    """What nnabla's process tells."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "images.npy"
        np.save(kept, images())
        script = Path(__file__).with_name("_wgan_in_nnabla.py")
        command = [os.environ[INTERPRETER], str(script), str(kept), str(goal), str(most)]
        told: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return told


EXPERIMENT = Experiment(
    title="WGAN-GP",
    paper="I. Gulrajani, F. Ahmed, M. Arjovsky, V. Dumoulin, A. Courville: Improved training of Wasserstein GANs, 2017",
    url="https://arxiv.org/abs/1704.00028",
    ran=f"""
Dense networks of two layers of {loop.WIDTH} features with leaky rectifiers, on scikit-learn's 1,797 digits of 8 x 8
pixels, in batches of {loop.BATCH}. The penalty weight, the decays and the five steps are the paper's; the learning
rate is {loop.RATE}. All libraries start with the same weights (seed 0) and see the same images and random numbers,
drawn by NumPy.

- *Step of the critic*: loss, penalty, gradient and Adam. For nngrad this is `nn.train_step`, for JAX a jitted function
  with optax, for PyTorch eager code on one thread, for nnabla `nn.grad` for the penalty and `backward` for the step.
- *Training*: until the distance of {loop.SEEN} generated images from as many real ones is below {GOAL}. The distance
  is the maximum mean discrepancy for a Gaussian kernel, computed by NumPy for all; two halves of the real images are
  0.094 apart. It is measured every {loop.EVERY} steps of the generator. The time is the number of generator steps
  times the shortest time of one, including its critic steps.

nnabla 1.39 ran in a separate process, with the Python that `{INTERPRETER}` names; it is left out if that is not set.
""",
    differs="""
The paper trains convolutional and residual networks on photographs, on GPUs, and reports Inception scores. Nothing is
downloaded here. Training is the same in each library up to rounding, so all need equally many steps, and the time of a
step decides. The libraries train one after the other, twice, the second time in reverse order, and the shorter time
counts. The arrays are small, so call overhead dominates the step of an eager library.
""",
    ours=OURS,
    tables=tables,
    needs={TORCH: "torch"},
    quantities={
        "seconds": Quantity("time to the distance", 1.0, "s"),
        "generator_steps": Quantity("steps of the generator"),
        "distance": Quantity("distance at the end"),
    },
    measured=("time", "seconds", "generator_steps", "distance"),
    further=training,
    least=True,
)
