"""Trainings on one device and on meshes, side by side: `python -m tests.runs_on_meshes [--steps N] [--short]`.

A WGAN-GP with batch normalisation and dropout, a PINN with a third derivative, and a loss with a Hessian-vector
product; what random functions draw; and what the compiled steps send from device to device. Prints its findings as
JSON: for each run how far losses and parameters are off those of one device, relative to their size.

It needs eight devices: `XLA_FLAGS=--xla_force_host_platform_device_count=8` on a CPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from benchmarks.scaling.account import Account, account_of, collectives, compiled
from nngrad.initializer import NormalInitializer

Found = dict[str, Any]
BATCH = 32
SETTINGS = {"8": {"data": 8}, "4 x 2": {"data": 4, "model": 2}}


@contextmanager
def devices(sizes: dict[str, int] | None) -> Iterator[None]:
    """Begin anew, in a mesh of as many of the devices as it needs."""
    nn.clear_parameters()
    nn.seed(11)
    count = int(np.prod([*(sizes or {}).values()]))
    with nn.mesh(devices=jax.devices()[:count], **sizes) if sizes else nullcontext():
        yield


def layer(x: nn.Variable, units: int, name: str, number: int, bias: bool = True) -> nn.Variable:
    """An affine layer, the same in every run."""
    init = NormalInitializer(x.shape[1] ** -0.5, rng=np.random.RandomState(number))
    return PF.affine(x, units, w_init=init, with_bias=bias, name=name)


# ---------------------------------------------------------------- a WGAN-GP


def generated(batch: int) -> nn.Variable:
    """Generated samples of drawn noise, with batch normalisation. A bias before a normalisation, and the critic begins
    with one, would cancel out: its gradient is rounding alone, by which Adam would move it."""
    with nn.parameter_scope("generator"):
        h = PF.batch_normalization(layer(F.randn(shape=(batch, 6)), 24, "up", 1, bias=False), name="norm")
        return layer(F.relu(h), 8, "out", 2, bias=False)


def judged(x: nn.Variable, group: int = 1) -> nn.Variable:
    """What the critic thinks of samples, with batch normalisation and dropout; without a bias at the end, which would
    cancel out too."""
    with nn.parameter_scope("critic"):
        h = PF.batch_normalization(layer(x, 24, "in", 3, bias=False), group=group, name="norm")
        return layer(F.dropout(F.leaky_relu(h, 0.2), 0.2), 1, "out", 4, bias=False)


def critic_loss(real: nn.Variable, group: int = 1) -> nn.Variable:
    """The critic's loss, with the penalty on its gradient between samples."""
    fake = generated(real.shape[0])
    fake = fake.get_unlinked_variable(need_grad=False)
    mix = F.rand(shape=(real.shape[0], 1))
    between = mix * real + (1 - mix) * fake
    (slope,) = nn.grad([judged(between, group)], [between])
    norm = (F.sum(slope**2, axis=1) + 1e-6) ** 0.5
    return F.mean(judged(fake, group)) - F.mean(judged(real, group)) + 10 * F.mean((norm - 1) ** 2)


def gan(sizes: dict[str, int] | None, steps: int) -> tuple[list[float], Found]:
    """Steps of the critic and the generator in turn."""
    rng = np.random.default_rng(0)
    with devices(sizes):
        real = nn.Variable((BATCH, 8))
        of_critic, of_generator = critic_loss(real), -F.mean(judged(generated(BATCH)))
        parts = [
            nn.train_step(loss, {k: p for k, p in nn.get_parameters().items() if k.startswith(whose)}, solver, given)
            for loss, whose, solver, given in (
                (of_critic, "critic", S.Adam(1e-3, eps=1e-4), [real]),
                (of_generator, "generator", S.Adam(1e-3, eps=1e-4), []),
            )
        ]
        losses = []
        for _ in range(steps):
            losses.append(float(parts[0](rng.standard_normal((BATCH, 8), np.float32) * 2 + 1)))
            losses.append(float(parts[1]()))
        return losses, parameters()


# ---------------------------------------------------------------- a PINN, and a Hessian-vector product


def residual(points: nn.Variable) -> nn.Variable:
    """The mean square of the residual of u_t + 6 u u_x + u_xxx = 0."""
    x, t = F.split(points, axis=1)
    x, t = F.reshape(x, shape=(-1, 1)), F.reshape(t, shape=(-1, 1))
    h = F.tanh(layer(F.concatenate(x, t, axis=1), 16, "first", 5))
    u = layer(F.tanh(layer(h, 16, "second", 6)), 1, "last", 7)
    (u_t,), (u_x,) = nn.grad([u], [t]), nn.grad([u], [x])
    (u_xx,) = nn.grad([u_x], [x])
    (u_xxx,) = nn.grad([u_xx], [x])
    return F.mean((u_t + 6 * u * u_x + u_xxx) ** 2)


def curved(x: nn.Variable) -> nn.Variable:
    """A loss, and how the Hessian of its first weight acts on a direction."""
    h = F.tanh(layer(x, 16, "first", 8))
    loss = F.mean((layer(h, 1, "last", 9) - F.sum(x, axis=1, keepdims=True)) ** 2)
    w = nn.get_parameters()["first/affine/W"]
    direction = nn.Variable.from_numpy_array(np.random.default_rng(1).standard_normal(w.shape, np.float32))
    nn.shard(direction, None)  # it is no batch
    (product,) = nn.hvp(loss, [w], [direction])
    return loss + 0.1 * F.sum(product**2)


LOSSES: dict[str, tuple[Callable[[nn.Variable], nn.Variable], int]] = {"pinn": (residual, 2), "hvp": (curved, 8)}


def supervised(name: str, sizes: dict[str, int] | None, steps: int) -> tuple[list[float], Found]:
    """Steps of one of the losses."""
    rng = np.random.default_rng(0)
    loss, width = LOSSES[name]
    with devices(sizes):
        step = nn.train_step(loss, nn.get_parameters, S.Adam(1e-3, eps=1e-4))
        losses = [float(step(rng.uniform(-1, 1, (BATCH, width)).astype("f"))) for _ in range(steps)]
        return losses, parameters()


# ---------------------------------------------------------------- what is compared


def parameters() -> dict[str, np.ndarray]:
    """The parameters, running statistics among them."""
    return {name: p.d.copy() for name, p in nn.get_parameters(grad_only=False).items()}


def rms(x: np.ndarray) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def off(run: tuple[list[float], Found], alone: tuple[list[float], Found]) -> Found:
    """How far a run is off another: losses relative to the largest, all parameters relative to their norm, and each one
    by itself, in root mean squares, relative to itself or to all, whichever is larger: a bias may be 0 but for
    rounding."""
    losses, expected = np.array(run[0]), np.array(alone[0])
    every, whole = (np.concatenate([p.ravel() for p in of[1].values()]) for of in (run, alone))
    size = rms(whole)
    each = {k: rms(run[1][k] - p) / max(size, rms(p)) for k, p in alone[1].items()}
    return {
        "losses": float(np.max(np.abs(losses - expected)) / np.max(np.abs(expected))),
        "first loss": float(abs(losses[0] - expected[0]) / abs(expected[0])),
        "parameters": rms(every - whole) / size, "worst parameter": max(each.values()),
        "moved": float(np.ptp(expected)),
    }  # fmt: skip


def drawn() -> list[np.ndarray]:
    """What random functions draw, and gradients of orders 1 and 2 through them."""
    x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4))
    weights = np.ones((16, 4), np.float32)
    y = F.sum(F.dropout(x**3, 0.3) * F.rand(shape=(16, 1)), axis=1)
    y = y + F.sum(F.random_choice(x**2, weights, (3,)), axis=1)
    y = y + F.sum(F.gumbel_softmax(x, 0.7) * F.randn(shape=x.shape), axis=1)
    (g,) = nn.grad([y], [x])
    (gg,) = nn.grad([g**2], [x])
    others = [
        F.randint(0, 1000, shape=(16, 3)), F.rand_gamma(2.0, 1.0, shape=(16, 3)),
        F.rand_binomial(9, 0.4, shape=(16, 3)), F.random_shift(x, (3,)), F.random_flip(x, (1,)),
    ]  # fmt: skip
    outputs = [y, g, gg, *others]
    nn.forward_all(outputs)
    return [np.asarray(v.d, np.float64) for v in outputs]


def random_numbers() -> Found:
    """The largest difference to one device in what is drawn; and whether another seed gives others."""
    result: Found = {}
    alone: list[np.ndarray] = []
    for count in (1, 2, 4, 8):
        with devices({"data": count} if count > 1 else None):
            values = drawn()
            alone = alone or values
            result[str(count)] = max(float(np.max(np.abs(a - b))) for a, b in zip(values, alone, strict=True))
    nn.seed(12)
    result["another seed"] = min(float(np.max(np.abs(a - b))) for a, b in zip(drawn(), alone, strict=True))
    return result


# ---------------------------------------------------------------- what is sent


def second(h: nn.Variable) -> nn.Variable:
    """The batch as the second axis, as in sequences."""
    return F.transpose(h, (1, 0, *range(2, h.ndim)))


LEAN: dict[str, tuple[Callable[..., nn.Variable], list[tuple[int, ...]]]] = {
    "tanh, softmax": (lambda x: F.softmax(F.tanh(x)), [(8, 5)]),
    "batch_matmul": (lambda x, w: F.batch_matmul(x, w), [(8, 3, 4), (4, 5)]),
    "affine, two axes": (lambda x, w: F.affine(F.tanh(x), w), [(8, 3, 4), (12, 5)]),
    "affine, batch second": (lambda x, w: F.affine(second(x), w, base_axis=2), [(8, 3, 4), (4, 5)]),
    "convolution": (lambda x, w: F.convolution(x, w, pad=(1, 1), stride=(2, 2)), [(8, 2, 6, 6), (4, 2, 3, 3)]),
    "convolution, groups": (lambda x, w: F.convolution(x, w, group=2), [(8, 4, 5, 5), (4, 2, 3, 3)]),
    "convolution, channels last": (lambda x, w: F.convolution(x, w, channel_last=True), [(8, 5, 5, 2), (4, 3, 3, 2)]),
    "depthwise_convolution": (lambda x, w: F.depthwise_convolution(x, w), [(8, 3, 5, 5), (3, 3, 3)]),
    "deconvolution": (lambda x, w: F.deconvolution(x, w, stride=(2, 2)), [(8, 3, 3, 3), (3, 2, 3, 3)]),
    "max_pooling": (lambda x: F.max_pooling(x, (2, 2)), [(8, 2, 4, 4)]),
    "layer_normalization": (lambda x: F.layer_normalization(x), [(8, 4, 3)]),
    "instance_normalization": (lambda x: F.instance_normalization(x), [(8, 4, 3)]),
    "group_normalization": (lambda x: F.group_normalization(x, num_groups=2), [(8, 4, 3)]),
    "batch_normalization, groups": (lambda x: F.batch_normalization(x, group=8), [(16, 4, 3)]),
    "multi_head_attention": (
        lambda x, q, o: F.multi_head_attention(second(x), second(x), second(x), 2, q, q, q, o)[0],
        [(8, 3, 4), (4, 4), (4, 4)],
    ),
    "dropout": (lambda x: F.dropout(x**2), [(8, 6)]),
    "sort": (lambda x: F.sort(x) ** 2, [(8, 6)]),
    "top_k_data": (lambda x: F.top_k_data(x, 2) ** 2, [(8, 6)]),
    "take_along_axis": (lambda x: F.take_along_axis(x, F.argsort(x)) ** 2, [(8, 6)]),
    "select_item": (lambda x: F.select_item(x, F.max(x, axis=1, only_index=True)) ** 2, [(8, 6)]),
    "softmax_cross_entropy": (lambda x: F.softmax_cross_entropy(x, F.max(x, 1, True, only_index=True)), [(8, 6)]),
}  # fmt: skip
"""Functions of a batch, the first input, row by row; the other inputs are parameters."""


def lean() -> Found:
    """The collectives of each of these, of a loss and its gradients of orders 1 and 2, on eight devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    spec = jax.sharding.PartitionSpec
    result: Found = {}
    for name, (function, shapes) in LEAN.items():
        leaves = [nn.Variable(shape) for shape in shapes]
        first = nn.grad([F.mean(function(*leaves) ** 2)], leaves)
        second_order = nn.grad([F.sum(first[0] ** 2)], leaves)
        run = nn.to_jax([*first, *second_order], leaves)
        places = [spec("data"), *[spec()] * (len(leaves) - 1)]
        given = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.sharding.NamedSharding(mesh, place))
            for x, place in zip(leaves, places, strict=True)
        ]
        text = jax.jit(lambda *a, run=run: run(*a, key=jax.random.key(0))).lower(*given).compile(
            {"xla_backend_optimization_level": "0"}).as_text()  # fmt: skip
        result[name] = [[c.kind, list(c.shapes)] for c in collectives(text)]
    return result


def told(account: Account) -> Found:
    """An account for JSON."""
    return {
        "counts": {c.kind: account.number_of(c.kind) for c in account.collectives}, "arguments": account.arguments,
        "temporaries": account.temporaries, "flops": account.flops,
        "shapes": [[c.kind, list(shape)] for c in account.collectives for shape in c.shapes],
    }


def sent() -> Found:
    """Accounts of steps on eight devices."""
    result: Found = {}
    for name, (loss, width) in LOSSES.items():
        with devices({"data": 8}):
            x = nn.Variable((BATCH, width))
            result[name] = told(account_of(compiled(nn.train_step(loss(x), nn.get_parameters(), S.Adam(), [x]))))
            result[name]["sizes"] = [list(p.shape) for p in nn.get_parameters().values()]
    for group in (1, 8):
        with devices({"data": 8}):
            x = nn.Variable((BATCH, 8))
            loss = F.mean(judged(x, group) ** 2)
            step = nn.train_step(loss, nn.get_parameters(), S.Adam(), [x])
            result[f"batch statistics, group={group}"] = told(account_of(compiled(step)))
    for sharding in (False, True):
        with devices({"data": 4, "model": 2}):
            x = nn.Variable((BATCH, 64))
            columns, rows = {"W": (None, "model"), "b": ("model",)}, {"W": ("model", None)}
            h = F.tanh(PF.affine(x, 512, name="up", sharding=columns if sharding else None))
            y = PF.affine(h, 64, name="down", sharding=rows if sharding else None)
            step = nn.train_step(F.mean(y**2), nn.get_parameters(), S.Adam(), [x])
            result["divided" if sharding else "whole"] = told(account_of(compiled(step)))
    return result


def statistics() -> Found:
    """Batch normalisation of batches whose parts differ: values, gradients and running statistics."""
    x = np.repeat(np.arange(8, dtype=np.float32), 4)[:, None] + np.random.default_rng(2).random((BATCH, 3), np.float32)
    result: Found = {}
    for group in (1, 4):
        for count in (1, 4):
            with devices({"data": count} if count > 1 else None):
                v = nn.Variable.from_numpy_array(x)
                y = PF.batch_normalization(v, group=group)
                (g,) = nn.grad([F.sum(F.sin(y))], [v])
                (gg,) = nn.grad([F.sum(g**2)], [v])
                nn.forward_all([y, g, gg])
                found = [y.d, g.d, gg.d, *parameters().values()]
                result[f"{group} groups, {count} devices"] = [np.ravel(a).tolist() for a in found]
    return result


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--short", action="store_true", help="on one mesh alone")
    options = parser.parse_args()
    result: Found = {}
    runs: dict[str, Callable[..., tuple[list[float], Found]]] = {
        "gan": gan, **{name: lambda *a, name=name: supervised(name, *a) for name in LOSSES}
    }
    for name, run in runs.items():
        alone = run(None, options.steps)
        chosen = dict(list(SETTINGS.items())[:1]) if options.short else SETTINGS
        result[name] = {setting: off(run(sizes, options.steps), alone) for setting, sizes in chosen.items()}
    result["random numbers"] = random_numbers()
    result["statistics"] = statistics()
    result["sent"] = sent()
    result["lean"] = lean()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
