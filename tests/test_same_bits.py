"""One training, run in ways that differ in nothing but the machine and what is looked at: all end in the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

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
from nngrad.execution import tiers

tiers.SHARE_LOST = 1e-3  # so that the optimised tier takes over within the run
ways = sys.argv[1:]
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
    "cold disk": (),
    "warm disk": (),
    "no disk": ("none",),
    "busy machine": ("none",),
    "pauses": ("paused",),
    "loss and gradients printed": ("none", "read"),
    "graphs built anew": ("none", "anew"),
    "graphs shown": ("shown",),
    "no collections": ("none", "anew", "uncollected"),
    "collections at each step": ("anew", "collected"),
    "executables forgotten on the way": ("none", "anew", "forgotten"),
    "executables forgotten, with the disk": ("forgotten",),
}


def ran(folder: Path, ways: Sequence[str]) -> list[str]:
    """The digest of the parameters in the end, and how many executables were quick, and replaced."""
    environment = {**os.environ, "NNGRAD_DISK_CACHE": "off" if "none" in ways else str(folder)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, *ways], env=environment, capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip
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
    _, *tiers = found["cold disk"]
    assert all([int(count) >= 2 for count in tiers]), found  # both tiers have run
    assert found["no disk"] == found["busy machine"] == found["cold disk"]
    assert found["warm disk"][1] == "0"
