"""What is taken from inside of JAX: nngrad goes on without it, says so, and takes it in one place only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nngrad
from nngrad.graph import process
from nngrad.graph.process import USES, Use
from nngrad_command import trial

ROOT = Path(nngrad.__file__).parents[1]

WITHOUT = """
import sys, types, warnings
import jax, numpy as np
from jax import lax, numpy as jnp

module, *names = sys.argv[1:]
inside = __import__(module, fromlist=["_"])

class Lacking(types.ModuleType):
    def __getattr__(self, name):
        if name in {each.split(".")[0] for each in names} and asks().startswith("nngrad"):
            raise AttributeError(name)
        return getattr(inside, name)

def asks():
    return sys._getframe(2).f_globals["__name__"]

sys.modules[module] = Lacking(module)  # what of JAX itself is imported later finds all of it
warnings.simplefilter("error")
import nngrad as nn, nngrad.functions as F, nngrad.jax as nj, nngrad.solvers as S
from nngrad.graph.process import missing_in_jax

assert len(missing_in_jax()) == len(names), missing_in_jax()
x = nn.Variable.from_numpy_array(np.array([0.5, -1.0]), need_grad=True)
for _ in range(2):
    (g,) = nn.grad([F.sum(x**3)], [x])
    (gg,) = nn.grad([F.sum(g**2)], [x])
    np.testing.assert_allclose(gg.d, 36 * x.d**3, rtol=1e-12)
    for n in (2, 3):  # the same shapes within, and another axis around
        rows = jnp.full((n, 2), 0.5)
        slopes = jax.vmap(nj.grad(lambda r: jnp.sum(jnp.sin(r)) * lax.psum(1, "i")), axis_name="i")(rows)
        np.testing.assert_allclose(slopes, n * np.cos(rows), rtol=1e-6)
(g,) = nn.grad([F.sum(nn.from_jax(jnp.sin)(x))], [x])
np.testing.assert_allclose(g.d, np.cos(x.d), rtol=1e-6)
step = nn.train_step(F.sum((x * 2.0) ** 2), {"x": x}, S.Sgd(0.25))
before = x.d.copy()
for _ in range(3):
    step()
np.testing.assert_allclose(x.d, before * (1 - 2.0) ** 3, rtol=1e-6)
"""


@pytest.mark.parametrize(
    "use", [USES[0], *[pytest.param(use, marks=pytest.mark.slow) for use in USES[1:]]], ids=lambda use: use.names[0]
)
def test_without_it_the_same_is_computed(use: Use) -> None:
    """But for what the table says; with a message where something is refused."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", WITHOUT, use.module, *use.names], env=settings, capture_output=True,
                          text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_all_of_it_is_there() -> None:
    assert process.missing_in_jax() == []


def test_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Use("jax._src.nowhere", ("nothing", "nobody"), "all is well")
    monkeypatch.setattr(process, "USES", (*USES, gone))
    for line, name in zip(trial._lacking(), gone.names, strict=True):
        assert re.fullmatch(rf"JAX [\d.]+ does not have jax\._src\.nowhere\.{name}: all is well", line)


def test_it_is_taken_in_one_place_and_listed() -> None:
    for folder in ("nngrad", "backward_registry", "nngrad_command"):
        for file in (ROOT / folder).rglob("*.py"):
            code = re.sub(r'"[^"\n]*"', "", file.read_text())
            assert not re.search(r"\bjax\._src\b", code), file
    page = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()
    for use in USES:
        for name in use.names:
            assert f"| `{use.module}.{name}` |" in page, use
        assert use.without in page
