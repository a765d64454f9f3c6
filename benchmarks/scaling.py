"""How training steps scale with the number of devices, by the compiler's counts for one device's program.

`python -m benchmarks.scaling COUNT [--smoke]` prints those for one number of virtual devices, in a process of its own,
as JSON. The devices are threads of this process, which nothing is run on: what is compiled for them is what would be
for as many processors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

from . import critic, physics
from .account import OPTIONS, account_of, compiled
from .harness import Case, Contender, Row
from .models import Parameters, jax_update, tanh_parameters, variables
from .report import KEPT

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_SECONDS = 900
"""So long one number of devices may take."""
LENGTH, WORDS, WIDTH, HEADS = 32, 64, 64, 4
Figure = dict[str, Any]
DEVICES = KEPT / "devices.json"
Built = tuple[nn.Variable, dict[str, nn.Variable], list[nn.Variable]]
"""A loss, its parameters, and its inputs, which are batches."""


def named(arrays: Parameters) -> dict[str, nn.Variable]:
    """Parameters with these values."""
    return {str(i): w for i, w in enumerate(variables(arrays))}


def critic_of(batch: int) -> Built:
    """A convolutional WGAN-GP critic on images of 3x32x32, with dropout before its output and drawn mixing weights."""
    parameters, network = named(critic.convolutional(False)[0]), critic.nngrad_conv(False)
    real, fake = nn.Variable((batch, 3, 32, 32)), nn.Variable((batch, 3, 32, 32))
    mix = F.rand(shape=(batch, 1, 1, 1))
    p = list(parameters.values())
    loss = critic.nngrad_loss(lambda p, x: network(p, F.dropout(x, 0.1)), p, real, fake, mix)
    return loss, parameters, [real, fake]


def equation_parameters() -> Parameters:
    """Those of a tanh network 2-64-64-64-1."""
    return tanh_parameters(np.random.default_rng(0), 2, 64, 64, 64, 1)


def equation_of(batch: int) -> Built:
    """The residual of Korteweg and de Vries' equation, with a third derivative, of that network."""
    parameters = named(equation_parameters())
    x, t = nn.Variable((batch, 1)), nn.Variable((batch, 1))
    return physics.nngrad_loss(physics.EQUATIONS[1], list(parameters.values()), x, t), parameters, [x, t]


def transformer_of(batch: int) -> Built:
    """Two layers of an encoder of width 64 on 32 words, with dropout, and cross-entropy of the next word."""
    words, following = nn.Variable((batch, LENGTH), dtype=np.int32), nn.Variable((batch, LENGTH), dtype=np.int32)
    with nn.parameter_scope("transformer"):
        h = F.transpose(PF.embed(words, WORDS, WIDTH), (1, 0, 2))
        for layer in range(2):
            h = PF.transformer_encode(h, WIDTH, HEADS, 4 * WIDTH, name=f"layer{layer}")
        scores = PF.affine(F.transpose(h, (1, 0, 2)), WORDS, base_axis=2, name="scores")
        loss = F.mean(F.softmax_cross_entropy(scores, F.reshape(following, (batch, LENGTH, 1))))
        return loss, nn.get_parameters(), [words, following]


MODELS: dict[str, tuple[Callable[[int], Built], int, int]] = {
    "critic": (critic_of, 16, 2048), "transformer": (transformer_of, 16, 2048), "PINN": (equation_of, 256, 65536),
}  # fmt: skip
"""Each with the examples of each device in weak scaling, and of all together in strong scaling."""


def equation_in_jax(count: int, batch: int) -> jax.stages.Compiled:
    """The step on the same equation by nested `jax.jvp` and optax, its batch split over devices."""
    mesh = jax.make_mesh((count,), ("data",))
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    optimizer, parameters = optax.adam(1e-3), equation_parameters()
    update = jax_update(partial(physics.jax_loss, physics.nested_jvp, physics.EQUATIONS[1]), optimizer)
    state = jax.eval_shape(optimizer.init, parameters)
    p, state = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole), (parameters, state))
    points = [jax.ShapeDtypeStruct((batch, 1), "f", sharding=split)] * 2
    return jax.jit(update, donate_argnums=(0, 1), out_shardings=whole).lower(p, state, *points).compile(OPTIONS)


def counted(count: int, smoke: bool) -> list[Figure]:
    """What one of so many devices computes, accesses and sends in a step of each model."""
    found: list[Figure] = []
    for name, (build, each, whole) in ({"PINN": (equation_of, 4, 32)} if smoke else MODELS).items():
        for way, batch in (("weak", each * count), ("strong", whole)):
            nn.clear_parameters()
            with nn.mesh(data=count) if count > 1 else nullcontext():
                loss, parameters, inputs = build(batch)
                step = nn.train_step(loss, parameters, S.Adam(1e-3), inputs=inputs)
            steps = {"nngrad": compiled(step)}
            if name == "PINN":
                steps["JAX"] = equation_in_jax(count, batch)
            for by, account in [(by, account_of(executable)) for by, executable in steps.items()]:
                size = sum([p.data.raw().nbytes for p in parameters.values()])
                found.append({"model": name, "way": way, "devices": count, "by": by, "batch": batch, "gradients": size}
                             | account._asdict())  # fmt: skip
    return found


def kept() -> list[Figure]:
    """What was counted for each number of devices."""
    found: list[Figure] = json.loads(DEVICES.read_text())
    return found


def relative(figures: Iterable[Figure]) -> dict[tuple[str, str], dict[int, float]]:
    """For each model and way, by number of devices, the FLOPs of one device over its part of what one alone has."""
    placed = {(f["model"], f["way"], f["devices"]): f["flops"] for f in figures}
    found: dict[tuple[str, str], dict[int, float]] = {}
    for (model, way, devices), value in placed.items():
        whole = placed[model, way, 1]
        found.setdefault((model, way), {})[devices] = value / (whole if way == "weak" else whole / devices)
    return found


def rows(smoke: bool) -> list[Row]:
    """The worst of all numbers of devices, for each model and way; all of them are kept and drawn."""
    figures: list[Figure] = []
    for count in (1, 2) if smoke else COUNTS:
        command = [sys.executable, "-m", "benchmarks.scaling", str(count), *["--smoke"][: int(smoke)]]
        flags = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}
        done = subprocess.run(command, env=flags, capture_output=True, text=True, timeout=MOST_SECONDS)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
        figures += json.loads(done.stdout.splitlines()[-1])
    if not smoke:
        DEVICES.write_text("[\n" + ",\n".join([json.dumps(f) for f in figures]) + "\n]\n")
    of_jax, figures = [[f for f in figures if (f["by"] == "JAX") == peers] for peers in (True, False)]
    found = []
    for (model, way), ratios in relative(figures).items():
        devices = max((n for n in ratios if n > 1), key=lambda n: ratios[n])
        what, most = f"{model}, {way} scaling", max(ratios)
        found.append(Row(f"{what}: FLOPs of a device, worst of up to {most}", f"{devices} devices",
                         "its part of those of one", ratios[devices]))  # fmt: skip
        several = [f for f in figures if (f["model"], f["way"]) == (model, way) and f["devices"] > 1]
        worst = max(several, key=lambda f: f["sent"] / f["gradients"])
        kinds = ", ".join([f"{n} {kind}" for kind, n in worst["collectives"].items()])
        sent, by = f"{what}: bytes of collectives, worst of up to {most}", f"{worst['sent']:,} ({kinds})"
        found.append(Row(sent, by, f"gradients once: {worst['gradients']:,}", worst["sent"] / worst["gradients"]))
        for other in [f for f in of_jax if (f["model"], f["way"], f["devices"]) == (model, way, worst["devices"])]:
            found.append(Row(sent, by, f"JAX, nested jvp: {other['sent']:,}", worst["sent"] / other["sent"]))
    return found


def in_mesh(smoke: bool, entered: bool) -> Contender:
    """A critic's step that was made in a mesh of one device, whose block calls perhaps enter."""
    mesh: Any = partial(nn.mesh, devices=jax.devices()[:1], data=1)
    with mesh():
        step: Any = critic.by_nngrad(critic.nngrad_mlp, critic.dense(smoke))()

    def within() -> Any:
        with mesh():
            return step()

    return within if entered else step


def cases(smoke: bool) -> Iterable[Case]:
    """What a mesh of one device costs."""
    yield Case("critic step, MLP 64-256-256-1, batch 64: made in nn.mesh(data=1)", {
        "without": critic.by_nngrad(critic.nngrad_mlp, critic.dense(smoke)),
        "in a mesh of 1": partial(in_mesh, smoke, False),
        "in a mesh of 1, entered by each call": partial(in_mesh, smoke, True),
    }, [("in a mesh of 1", "without"), ("in a mesh of 1, entered by each call", "without")])  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(counted(int(sys.argv[1]), "--smoke" in sys.argv)))
