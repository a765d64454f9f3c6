"""One training, run in ways that differ in nothing but the machine and what is looked at: all end in the same bits."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from tests.slow import slow_but

SCRIPT = """
import gc
import hashlib
import sys
import time

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

_, folder, *ways = sys.argv
nn.cache_compilations(folder)
STEPS = 18

rng = np.random.default_rng(0)
images = rng.normal(size=(STEPS, 4, 3, 8, 8)).astype("f")
x = nn.Variable((4, 3, 8, 8))


def built():
    h = x
    for i in range(3):
        h = F.tanh(PF.batch_normalization(PF.convolution(h, 4, (3, 3), pad=(1, 1), name=f"c{i}"), name=f"b{i}"))
    y = PF.affine(h, 1, name="y")
    (gx,) = nn.grad(F.sum(y), x)
    return F.mean(y * y - y) + 10 * F.mean((F.sum(gx * gx, axis=(1, 2, 3)) ** 0.5 - 1) ** 2)


if "uncollected" in ways:
    gc.disable()
nn.seed(1)
loss = built()
w = nn.get_parameters()
for name in sorted(w):
    w[name].d = rng.normal(0, 0.3, w[name].shape) + name.endswith("gamma")
solver = S.Adam(0.01)
solver.set_parameters(w)
called = []
for step in range(STEPS):
    x.d = images[step]
    if "anew" in ways:
        loss = built()
    loss.forward()
    if "read" in ways and step % 2:
        print(loss.d, file=sys.stderr)
    solver.zero_grad()
    loss.backward()
    if "read" in ways:
        print(loss.d, w["c0/conv/W"].g.sum(), w["c1/conv/W"].d.sum(), file=sys.stderr)
    solver.update()
    if "paused" in ways and step % 8 == 1:
        time.sleep(0.5)
    if "shown" in ways and step % 8 == 2:
        print(loss, nn.count(loss), nn.draw(loss), file=sys.stderr)
    if "forgotten" in ways and step % 7 == 3:
        nn.executables.clear()
    if "collected" in ways:
        gc.collect()
    info = nn.executables.info()
    called.append((info.quick, info.optimised))
held = [w[name].d.tobytes() for name in sorted(w)]
print(hashlib.sha256(b"".join(held)).hexdigest(), *called[-1])
"""

WAYS: dict[str, Sequence[str]] = {
    "cold cache": (),
    "warm cache": (),
    "no cache": ("none",),
    "busy machine": ("none",),
    "pauses": ("paused",),
    "loss and gradients printed": ("none", "read"),
    "graphs built anew": ("none", "anew"),
    "graphs shown": ("shown",),
    "no collections": ("none", "anew", "uncollected"),
    "collections at each step": ("anew", "collected"),
    "executables forgotten on the way": ("none", "anew", "forgotten"),
    "executables forgotten, with the cache": ("forgotten",),
}


def ran(folder: Path, ways: Sequence[str]) -> list[str]:
    """The digest of the parameters in the end, and how many executables were quick, and replaced."""
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false" if "none" in ways else "true"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder), *ways], env=environment, capture_output=True,
                          text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@contextmanager
def busy() -> Iterator[None]:
    """Within, other processes want all of the processor."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


@pytest.mark.slow
def test_whatever_the_machine_does_and_is_looked_at_a_training_ends_in_the_same_bits(tmp_path: Path) -> None:
    found = {}
    for name, ways in WAYS.items():
        if name == "busy machine":
            with busy():
                found[name] = ran(tmp_path, ways)
        else:
            found[name] = ran(tmp_path, ways)
    assert len({digest for digest, *_ in found.values()}) == 1, found
    _, *tiers = found["cold cache"]
    assert all([int(count) >= 1 for count in tiers]), found  # both tiers have run
    assert found["no cache"] == found["busy machine"] == found["cold cache"] == found["warm cache"]


# ---------------------------------------------------------------- what is looked at on the way, in one process


def bits(y: Any) -> bytes:
    return np.asarray(y.data.view).tobytes()


class Net:
    """A net with running statistics, noise, and a gradient penalty, always with the same numbers."""

    def __init__(self, depth: int = 3, noise: float = 0.2) -> None:
        nn.clear_parameters()
        nn.seed(3)
        rng = np.random.default_rng(0)
        self.x = nn.Variable.from_numpy_array(rng.standard_normal((6, 5)).astype("f"))
        h, self.values = self.x, []
        for i in range(depth):
            h = PF.batch_normalization(PF.affine(h, 7, name=f"a{i}"), axes=[1], name=f"b{i}")
            h = F.tanh(F.dropout(h, noise) * 1.7 if noise else h * 1.7)
            self.values.append(h)
        self.y = F.mean(F.exp(0.3 * h) * h)
        (self.gradient,) = nn.grad(self.y, [self.x])
        self.penalty = F.mean((F.sum(self.gradient * self.gradient, axis=1) ** 0.5 - 1) ** 2)
        self.loss = self.y + 0.7 * self.penalty
        self.values += [self.y, self.penalty, self.gradient, self.loss]
        self.parameters = nn.get_parameters(grad_only=False)
        for name, w in sorted(self.parameters.items()):
            if w.need_grad:
                w.d = rng.normal(0, 0.5, w.shape) + name.endswith("gamma")
        self.solver = S.Momentum(0.05)
        self.solver.set_parameters(nn.get_parameters())

    def state(self) -> list[bytes]:
        return [bits(w) for _, w in sorted(self.parameters.items())]


def nothing(net: Net) -> None:
    pass


def values_upwards(net: Net) -> None:
    for y in net.values:
        _ = y.d


def values_downwards(net: Net) -> None:
    for y in net.values[::-1]:
        print(y, nn.count(y), y.data.view.sum())


def loss_alone(net: Net) -> None:
    print(net.loss.d, net.loss)


def statistics(net: Net) -> None:
    for w in net.parameters.values():
        _ = w.d


def views_of_statistics(net: Net) -> None:
    for w in net.parameters.values():
        _ = w.data.view


def pictures(net: Net) -> None:
    print(nn.draw(net.loss), nn.count(net.loss), nn.show(net.loss), repr(net.loss.parent), repr(net.loss))


LOOKS = [nothing, loss_alone, values_upwards, values_downwards, statistics, views_of_statistics, pictures]


@contextmanager
def collecting(on: bool) -> Iterator[None]:
    (gc.enable if on else gc.disable)()
    try:
        yield
    finally:
        gc.enable()


def trained(look: Callable[[Net], None], forward: bool = True, steps: int = 3) -> list[bytes]:
    """Parameters, statistics and losses, where somebody looks before and after each forward, backward and update."""
    net = Net()
    found = []
    for step in range(steps):
        net.x.d = net.x.d + np.float32(0.1 * step)
        if forward:
            net.loss.forward()
        look(net)
        net.solver.zero_grad()
        net.loss.backward()
        found.append(bits(net.loss))
        look(net)
        net.solver.update()
        look(net)
        found += net.state()
    return found


@pytest.mark.parametrize("forward", slow_but([False], [True, False]))
def test_what_is_looked_at_changes_no_bits_of_a_training(forward: bool) -> None:
    expected = trained(nothing, forward)
    for look in LOOKS[1:]:
        assert trained(look, forward) == expected, look.__name__
    with collecting(False):
        assert trained(values_upwards, forward) == expected


@pytest.mark.parametrize("forward", [True, False])
def test_values_of_a_deep_graph_have_the_bits_that_they_have_alone(forward: bool) -> None:
    def read(order: Sequence[int]) -> dict[int, bytes]:
        x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 9, dtype="f"))
        h, state, values = x, x * 0.3, []
        for _ in range(60):
            state = F.sin(state) * h + 0.4
            h = F.tanh(h * 1.3 + state)
            values.append(h)
        if forward:
            values[-1].forward()
        return {i: bits(values[i]) for i in order}

    some = [3, 11, 19, 20, 29, 44, 50, 58]
    alone = {i: read([i])[i] for i in some}
    assert read(some) == alone
    assert read(some[::-1]) == alone


def test_noise_does_not_follow_from_the_order_in_which_values_are_read() -> None:
    def noises(order: Sequence[int], seeded_before: bool, forward: bool) -> list[bytes]:
        nn.seed(5)
        x = nn.Variable.from_numpy_array(np.ones(50))
        ys = [F.dropout(x, 0.5), F.dropout(x, 0.5), F.randn(shape=(4,), seed=7), F.rand(shape=(3,))]
        if not seeded_before:
            nn.seed(6)
        for i in order:
            _ = ys[i].d
        total = F.sum(ys[0] * 2 + ys[1]) + F.sum(ys[3])
        if forward:
            total.forward()
        return [*map(bits, [*ys, total] if not forward else [total])]

    for seeded_before in (True, False):
        for forward in (True, False):
            expected = noises([0, 1, 2, 3], seeded_before, forward)
            assert noises([3, 2, 1, 0], seeded_before, forward) == expected
            assert noises([], seeded_before, forward) == expected
            assert noises([1], seeded_before, forward) == expected
            assert len(set(expected)) == len(expected)


def test_what_was_written_to_an_output_before_a_backward_remains() -> None:
    net = Net()
    net.loss.forward()
    read = net.y.d
    net.loss.d[...] = 5.0
    mean = net.parameters["b0/bn/mean"]
    mean.d[...] = 0.25
    before = read.copy()
    net.loss.backward()
    assert net.loss.d == 5.0
    assert np.all(mean.d == 0.25)
    np.testing.assert_array_equal(net.y.d, before)
