"""The table of the convnet benchmark: forward and backward of four networks, as `nn.timing.measure` measures them."""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

import nngrad as nn

from ..networks import CLASSES, NETWORKS, loss_of
from ..reproducing.experiment import Experiment, Measured, Quantity
from ..timing import shown

OURS, TORCH = "nngrad", "PyTorch"
BATCH, ROUNDS, ITERATIONS = 2, 3, 3
TABLE, AXIS = f"batch {BATCH}", "network"


class Timer(NamedTuple):
    """A network with its loss, in one library."""

    iterations: Callable[[], list[tuple[float, float]]]
    """Seconds of forward and of backward, of iterations after one that is not counted."""
    trained: int
    """How many numbers are trained."""


# ---------------------------------------------------------------- PyTorch


def in_torch(name: str) -> Any:
    """A network as a module of PyTorch, layer by layer as `benchmarks/networks.py` has it."""
    from torch import nn as tn

    def conv(m: int, n: int, kernel: int, pad: int = 0, stride: int = 1) -> Any:
        return tn.Sequential(tn.Conv2d(m, n, kernel, stride, pad), tn.ReLU())

    def dense(*widths: int) -> Any:
        hidden = [tn.Sequential(tn.Linear(m, n), tn.ReLU()) for m, n in itertools.pairwise(widths)]
        return tn.Sequential(tn.Flatten(), *hidden, tn.Linear(widths[-1], CLASSES))

    def halved() -> Any:
        return tn.MaxPool2d(3, 2, ceil_mode=True)

    class Inception(tn.Module):
        """Four branches side by side."""

        def __init__(self, m: int, ones: int, threes: tuple[int, int], fives: tuple[int, int], pooled: int) -> None:
            super().__init__()
            self.branches = tn.ModuleList([
                conv(m, ones, 1),
                tn.Sequential(conv(m, threes[0], 1), conv(*threes, 3, 1)),
                tn.Sequential(conv(m, fives[0], 1), conv(*fives, 5, 2)),
                tn.Sequential(tn.MaxPool2d(3, 1, 1), conv(m, pooled, 1)),
            ])

        def forward(self, x: Any) -> Any:
            """The channels of all."""
            import torch

            return torch.cat([branch(x) for branch in self.branches], 1)

    if name == "alexnet":
        layers = [
            conv(3, 64, 11, 2, 4), tn.MaxPool2d(3, 2), conv(64, 192, 5, 2), tn.MaxPool2d(3, 2), conv(192, 384, 3, 1),
            conv(384, 256, 3, 1), conv(256, 256, 3, 1), tn.MaxPool2d(3, 2), dense(9216, 4096, 4096),
        ]
    elif name == "overfeat":
        layers = [
            conv(3, 96, 11, 0, 4), tn.MaxPool2d(2), conv(96, 256, 5), tn.MaxPool2d(2), conv(256, 512, 3, 1),
            conv(512, 1024, 3, 1), conv(1024, 1024, 3, 1), tn.MaxPool2d(2), dense(36864, 3072, 4096),
        ]
    elif name == "vgg_a":
        layers, m = [], 3
        for n in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
            layers.append(conv(m, n, 3, 1) if n else tn.MaxPool2d(2))
            m = n or m
        layers.append(dense(25088, 4096, 4096))
    else:
        layers = [
            conv(3, 64, 7, 3, 2), halved(), conv(64, 64, 1), conv(64, 192, 3, 1), halved(),
            Inception(192, 64, (96, 128), (16, 32), 32), Inception(256, 128, (128, 192), (32, 96), 64), halved(),
            Inception(480, 192, (96, 208), (16, 48), 64), Inception(512, 160, (112, 224), (24, 64), 64),
            Inception(512, 128, (128, 256), (24, 64), 64), Inception(512, 112, (144, 288), (32, 64), 64),
            Inception(528, 256, (160, 320), (32, 128), 128), halved(), Inception(832, 256, (160, 320), (32, 128), 128),
            Inception(832, 384, (192, 384), (48, 128), 128), tn.AvgPool2d(7, 1), dense(1024),
        ]
    return tn.Sequential(*layers)


def torch_timer(name: str) -> Timer:
    """Forward, and gradients of the parameters."""
    import torch

    network = in_torch(name)
    size, rng = NETWORKS[name].size, np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((BATCH, 3, size, size), np.float32))
    t = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
    p = list(network.parameters())

    def iteration() -> tuple[float, float]:
        start = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(network(x), t)
        middle = time.perf_counter()
        torch.autograd.grad(loss, p)
        return middle - start, time.perf_counter() - middle

    return Timer(lambda: [iteration() for _ in range(ITERATIONS + 1)][1:], sum(w.numel() for w in p))


# ---------------------------------------------------------------- nngrad, and the table


def nngrad_timer(name: str) -> Timer:
    """The same by `nn.timing.measure`."""
    loss = loss_of(name, BATCH)
    trained = [v for v in nn.graph.leaves_of([loss()]) if v.need_grad]

    def iterations() -> list[tuple[float, float]]:
        samples = nn.timing.measure(loss, iterations=ITERATIONS, warm_up=1).samples
        return [(s.forward / 1e3, s.backward / 1e3) for s in samples]

    return Timer(iterations, sum(int(np.prod(v.shape)) for v in trained))


def measured(smoke: bool, names: Collection[str]) -> Iterable[Measured]:
    """Each network in both libraries, in turns; they are to train as many numbers."""
    makers = {OURS: nngrad_timer, TORCH: torch_timer}
    if importlib.util.find_spec("torch") is None:
        del makers[TORCH]
    for name in ["alexnet"] if smoke else NETWORKS:
        timers = {method: make(name) for method, make in makers.items()}
        counts = {timer.trained for timer in timers.values()}
        if len(counts) > 1:
            raise ValueError(f"{name}: the libraries train {counts} numbers")
        times: dict[str, list[tuple[float, float]]] = {method: [] for method in timers}
        for _ in range(1 if smoke else ROUNDS):
            for method, timer in timers.items():
                times[method] += timer.iterations()
        for method, found in times.items():
            forward = min([forward for forward, _ in found])
            backward = min([sum(both) for both in found]) - forward
            for quantity, seconds in (("forward", forward), ("backward", backward)):
                yield Measured(TABLE, AXIS, NETWORKS[name].title, method, quantity, seconds)
            print(f"{NETWORKS[name].title}: {method} forward {shown(forward)}, backward {shown(backward)}", flush=True)


EXPERIMENT = Experiment(
    title="Convnet benchmarks",
    paper="S. Chintala: convnet-benchmarks, 2014 to 2016",
    url="https://github.com/soumith/convnet-benchmarks",
    ran=f"""
The networks of `benchmarks/networks.py`, with batches of {BATCH} images of the classic sizes and a mean cross entropy.
`nn.timing.measure` times nngrad: forward, and the additional time of backward. PyTorch runs eagerly, forward and
`torch.autograd.grad`, with its default number of threads. Both have equally many parameters. Each has {ROUNDS} turns
of {ITERATIONS} iterations, after one that does not count.
""",
    differs="""
Two cores finish a batch of 2 in a few minutes. With a GPU's batches libraries choose other kernels, and the update of
weights, which the benchmark leaves out too, matters less. With batches this small, reading the weights bounds the
large dense layers of AlexNet, OverFeat and VGG-A. nngrad's convolutions are XLA's, and PyTorch's those of the
libraries that it ships: each is faster at some sizes. nngrad's forward keeps nothing for a backward pass, and its
backward is one program with the forward, so the sum of both says more than either.
""",
    ours=OURS,
    tables=lambda smoke: [],
    needs={TORCH: "torch"},
    quantities={"forward": Quantity("forward", 1e3, "ms"), "backward": Quantity("backward", 1e3, "ms")},
    measured=("forward", "backward"),
    further=measured,
    least=True,
)
