"""`nn.cache_compilations`: a second process compiles nothing, with the same bits; and directories that will not do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nngrad as nn

PROGRAM = """
import sys
from collections import Counter

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

found = Counter()
jax.monitoring.register_event_listener(lambda event, **_: found.update([event.rpartition("/")[2]]))
jax.jit(lambda x: x + 1)(1.0)  # JAX has compiled something before
print(nn.cache_compilations(sys.argv[1] or None))
x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 5, dtype="f"), need_grad=True)
(g,) = nn.grad(F.sum(F.tanh(x)), x)  # a small program, which compiles in milliseconds
print(g.d.tobytes().hex())
h = x
for _ in range(30):
    h = F.sin(h) * 1.1 + F.cos(x)  # a large one, which has a quick tier
(g,) = nn.grad(F.sum(h), x)
print(g.d.tobytes().hex())
step = nn.train_step(F.sum((x - 1) ** 2), {"x": x}, S.Momentum(0.1))
for _ in range(4):
    step()
print(x.d.tobytes().hex(), nn.executables.info().quick)
print(found["cache_hits"], found["cache_misses"])
"""


def run(folder: str, **settings: str) -> tuple[list[str], int, int]:
    """What the program prints, and how many of its programs it has found and has not found in the cache."""
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "true", **settings}
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, folder], env=environment, text=True,
                          capture_output=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    *lines, counts = done.stdout.splitlines()
    hits, misses = map(int, counts.split())
    return lines, hits, misses


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_has_the_same_bits(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    first, hits, misses = run(str(folder))
    assert hits == 0 and misses >= 3
    assert first[0] == str(folder) and folder.stat().st_mode & 0o077 == 0
    assert run(str(folder)) == (first, misses, 0)
    assert run("", JAX_COMPILATION_CACHE_DIR=str(folder)) == (first, misses, 0)
    assert run(str(folder), JAX_ENABLE_COMPILATION_CACHE="false") == (first, 0, 0)


@pytest.mark.skipif(os.name != "posix", reason="others' rights are POSIX's")
def test_a_directory_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match=r"directory: .* can be written to by everybody"):
        nn.cache_compilations(tmp_path)
    tmp_path.chmod(0o700)
