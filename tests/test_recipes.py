"""Recipes of `nngrad train` in tiny sizes: what a run writes, and that one which is resumed ends where others end."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

from rich.console import Console

import nngrad as nn
from nngrad.command import cli
from nngrad.command.recipes import NAMES
from nngrad.command.recipes.recipe import Recipe
from nngrad.command.recipes.run import recipe_file, recipe_named
from nngrad.files.storage import read_arrays
from nngrad.training.runs.log import MetricsFile, Shown

from .slow import slow_but

COMMON = {"steps": 6, "log.every": 2, "log.pictures": 0, "checkpoint.every": 2}
PICTURES = {"log.pictures": 3}
TINY: dict[str, dict[str, Any]] = {
    "gan": {"batch": 8, "model.width": 8, "model.noise": 4, "critic.steps": 2, "average": 0.5, "clip": 1.0},
    "pinn": {"batch": 16, "model.width": 8, "model.layers": 1, "accumulate": 2},
    "forces": {
        "batch": 4, "model.width": 4, "model.distances": 4, "model.layers": 1,
        "data.atoms": 4, "data.seen": 8, "data.unseen": 4,
    },
}  # fmt: skip
MEASURED = {
    "gan": ["critic_loss", "generator_loss", "critic_gradient_norm", "generator_gradient_norm", "recognised",
            "frechet"],
    "pinn": ["equation_loss", "equation_gradient_norm", "error", "largest_error"],
    "forces": ["forces_loss", "forces_gradient_norm", "force_error", "energy_error"],
}  # fmt: skip


def train(name: str, out: Path, *arguments: str, **settings: Any) -> int:
    """`nngrad train`, in this process and small."""
    given = [f"--set={key}={value}" for key, value in {**COMMON, **TINY[name], **settings}.items()]
    return cli.main(["train", name, "--out", str(out), *given, *arguments])


@pytest.fixture(scope="module", autouse=True)
def executables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What one run compiles is there for the next, as it is for users who resume one."""
    names = "jax_enable_compilation_cache", "jax_compilation_cache_dir"
    before = {name: jax.config.values[name] for name in names}
    jax.config.update("jax_enable_compilation_cache", True)
    nn.cache_compilations(tmp_path_factory.mktemp("compilations"))
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a run of a recipe that nothing has disturbed."""
    done: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in done:
            out = tmp_path_factory.mktemp("undisturbed") / name
            assert train(name, out, **PICTURES) == 0
            done[name] = out
        return done[name]

    return folder


def rows(out: Path) -> list[dict[str, str]]:
    """The lines of the metrics but for their times, which differ from run to run."""
    with open(out / "metrics.csv", newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def at_step(monkeypatch: pytest.MonkeyPatch, name: str, number: int, do: Callable[[Recipe], None]) -> None:
    """Let something happen once, after a step of a recipe; `number` counts from 1."""
    recipe = recipe_named(name)
    original = recipe.step
    left = [do]

    def step(self: Recipe, at: int) -> None:
        original(self, at)
        if at + 1 == number and left:
            left.pop()(self)

    monkeypatch.setattr(recipe, "step", step)


def kill(number: int) -> Callable[[Recipe], None]:
    return lambda _: os.kill(os.getpid(), number)


@pytest.mark.parametrize("name", slow_but(["pinn"], NAMES))
def test_what_a_run_writes(name: str, undisturbed: Callable[[str], Path]) -> None:
    out = undisturbed(name)
    found = rows(out)
    assert list(found[0]) == ["step", "rate", *MEASURED[name]]
    assert [row["step"] for row in found] == ["1", "2", "4", "6"]
    assert all(np.isfinite(float(value)) for row in found for value in row.values())
    assert sorted(path.name for path in (out / "samples").iterdir()) == ["step-00000003.png", "step-00000006.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (out / "samples").iterdir())
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["2", "4", "6"]
    assert (out / "config.toml").read_text().splitlines()[3].startswith(f'recipe = "{name}"')
    arrays, _ = read_arrays(out / "parameters.safetensors")
    assert arrays and all(np.isfinite(array).all() for array in arrays.values())
    assert not list(out.glob("tensorboard"))


@pytest.mark.parametrize("name", slow_but(["pinn"], NAMES))
def test_a_resumed_run_ends_as_an_undisturbed_one(
    name: str,
    undisturbed: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        at_step(patched, name, 3, kill(signal.SIGTERM))
        with pytest.raises(SystemExit) as ended:
            train(name, out, **PICTURES)
    assert ended.value.code == 128 + signal.SIGTERM
    assert f"saved: {out / 'checkpoints' / '3'}; repeat the command to resume" in capsys.readouterr().out
    if name == "pinn":
        with monkeypatch.context() as patched:
            at_step(patched, name, 5, kill(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt, match=r"saved: .*checkpoints/5; repeat the command to resume"):
                train(name, out, **PICTURES)
        assert f"{out}: goes on after step 3 of 6" in capsys.readouterr().out
    assert train(name, out, **PICTURES) == 0
    assert f"{out}: goes on after step {5 if name == 'pinn' else 3} of 6" in (said := capsys.readouterr().out)
    assert f"{out}: finished after 6 steps: {MEASURED[name][0].replace('_', ' ')} " in said
    expected = undisturbed(name)
    for file in ("parameters.safetensors", "config.toml", "samples/step-00000003.png", "samples/step-00000006.png"):
        assert (out / file).read_bytes() == (expected / file).read_bytes(), file
    assert rows(out) == rows(expected)
    before = (out / "metrics.csv").read_bytes()
    assert train(name, out) == 0
    assert f"{out}: finished after 6 steps: " in capsys.readouterr().out
    assert (out / "metrics.csv").read_bytes() == before


def test_a_killed_run_leaves_lines_that_are_taken_away(
    undisturbed: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the middle of a step, after the line of step 4 and half a line: the run goes on after step 4."""
    out = tmp_path / "run"

    def end(_: Recipe) -> None:
        with open(out / "metrics.csv", "a") as file:
            file.write("5,0.1,0.2,3,4,5\n6,0")
        raise RuntimeError("power failure")

    with monkeypatch.context() as patched:
        at_step(patched, "pinn", 5, end)
        with pytest.raises(RuntimeError, match="power failure"):
            train("pinn", out)
    assert train("pinn", out) == 0
    assert rows(out) == rows(undisturbed("pinn"))


@pytest.mark.slow
def test_another_configuration_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train("pinn", out, steps=2) == 0
    capsys.readouterr()
    assert train("pinn", out, steps=4, **{"solver.rate": 0.5}) == 2
    said = capsys.readouterr().err
    assert f"nngrad train: {out}: the run there began with another configuration:" in said
    assert "    steps: 2, now 4\n    solver.rate: 0.003, now 0.5\n" in said
    assert "--fresh" in said and "--changed" in said
    assert train("pinn", out, "--changed", steps=4, **{"solver.rate": 0.5}) == 0
    assert "goes on after step 2 of 4" in capsys.readouterr().out
    assert [row["step"] for row in rows(out)] == ["1", "2", "4"]
    assert "steps = 4 " in (out / "config.toml").read_text()
    # What does not change what is learned may be another.
    assert train("pinn", out, steps=4, **{"solver.rate": 0.5, "checkpoint.keep": 1}) == 0
    assert "keep = 1 " in (out / "config.toml").read_text()
    (out / "mine.txt").write_text("mine")
    capsys.readouterr()
    assert train("pinn", out, "--fresh", steps=2) == 0
    assert "goes on" not in capsys.readouterr().out
    assert [row["step"] for row in rows(out)] == ["1", "2"]
    assert (out / "mine.txt").exists()
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["2"]


def test_networks_of_other_sizes_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train("pinn", out, steps=1) == 0
    assert train("pinn", out, "--changed", **{"model.width": 9}) == 1
    said = capsys.readouterr().err
    assert "hidden1/affine/W" in said
    assert train("pinn", out, steps=1) == 0, "the run can no longer be resumed as it began"


def test_what_is_not_finite_ends_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    settings = {"solver.rate": 1e30, "checkpoint.every": 1, "log.every": 3}
    assert train("pinn", out, **settings) == 1
    said = capsys.readouterr().err
    assert "nngrad train: the loss 'equation' or its gradient is infinite or not a number, at step 2" in said
    assert "the last good checkpoint is of step 1" in said
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["1"]
    assert [row["step"] for row in rows(out)] == ["1"]


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("gan", {"accumulate": 3}, "accumulate: a batch of 8 does not have 3 equal parts"),
        ("pinn", {"equation.slow": 2.0}, "equation.fast: must be above equation.slow, got 1.4 and 2.0"),
    ],
)
def test_what_does_not_go_together(
    name: str, settings: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(name, out, **settings) == 2
    assert f"nngrad train: {said}" in capsys.readouterr().err
    assert not (out / "config.toml").exists()


def test_folders_that_are_not_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("")
    assert train("pinn", tmp_path, "--fresh") == 2
    assert "has files (letter.txt) but no run; give another --out" in capsys.readouterr().err
    assert train("pinn", tmp_path / "letter.txt") == 1
    assert "the folder cannot be written to" in capsys.readouterr().err


def test_one_run_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fcntl = pytest.importorskip("fcntl")
    out = tmp_path / "run"
    out.mkdir()
    with open(out / ".lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert train("pinn", out) == 1
    assert "another process trains there" in capsys.readouterr().err


def test_a_copy_of_a_recipe_is_one(
    tmp_path: Path,
    undisturbed: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    original = recipe_file("pinn")
    copy = tmp_path / "mine.py"
    copy.write_text(original.read_text().replace("    end: float", "    new: int = key(3, \"new\")\n    end: float"))
    monkeypatch.chdir(tmp_path)
    settings = {**COMMON, **PICTURES, **TINY["pinn"], "equation.new": 4}
    given = [f"--set={key}={value}" for key, value in settings.items()]
    assert cli.main(["train", str(copy), *given]) == 0
    assert rows(tmp_path / "runs" / "mine") == rows(undisturbed("pinn"))
    assert "new = 4 " in (tmp_path / "runs" / "mine" / "config.toml").read_text()
    capsys.readouterr()
    copy.write_text("RECIPE = 3")
    assert cli.main(["train", str(copy)]) == 2
    assert f"nngrad train: {copy}: has no RECIPE" in capsys.readouterr().err
    assert cli.main(["train", str(tmp_path / "none.py")]) == 1
    assert "none.py: No such file" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path: Path, undisturbed: Callable[[str], Path]) -> None:
    out = tmp_path / "run"
    given = [f"--set={key}={value}" for key, value in {**COMMON, **TINY["pinn"]}.items()]
    command = [sys.executable, "-m", "nngrad", "train", "pinn", "--out", str(out), "--processes", "2", *given]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=240)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, printed
    assert "6 steps, on 2 devices of 2 processes" in printed
    assert printed.count("finished after 6 steps") == 1, printed
    found, expected = rows(out), rows(undisturbed("pinn"))
    assert [row["step"] for row in found] == [row["step"] for row in expected]
    for row, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(*[[float(value) for value in r.values()] for r in (row, other)], rtol=2e-5)


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    out = tmp_path / "run"
    assert train("pinn", out, steps=2, **{"log.tensorboard": "true", "log.pictures": 2}) == 0
    (events,) = (out / "tensorboard").iterdir()
    content = events.read_bytes()
    assert b"largest_error" in content and b"samples" in content and b"PNG" in content


def test_a_terminal_shows_a_bar(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    shown = Shown(console, 20000, 0)
    shown.at(19998)
    shown.values(19999, {"forces_loss": 1.0, "force_error": 0.00971, "energy_error": 0.00975})
    shown.at(20000)
    shown.stop()
    last = [line for line in re.split(r"[\r\n]", screen.getvalue()) if "20000" in line][-1]
    assert "20000/20000 force error 0.00971, energy error 0.00975" in last


def test_metrics_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    first = MetricsFile(path, 0)
    for step in (1, 10, 20):
        first.append({"step": step, "seconds": step / 2, "a,b": 0.1})
    assert path.read_text() == 'step,seconds,"a,b"\n1,0.5,0.1\n10,5.0,0.1\n20,10.0,0.1\n'
    resumed = MetricsFile(path, 15)
    assert resumed.lines[-1] == {"step": "10", "seconds": "5.0", "a,b": "0.1"}
    resumed.append({"step": 20, "seconds": 7, "a,b": float("nan")})
    assert path.read_text() == 'step,seconds,"a,b"\n1,0.5,0.1\n10,5.0,0.1\n20,7,nan\n'
    resumed.append({"step": 21, "new": 1.5})
    resumed.append({"step": 22, "seconds": 8, "a,b": 0.2})
    assert path.read_text() == (
        'step,seconds,"a,b",new\n1,0.5,0.1,\n10,5.0,0.1,\n20,7,nan,\n21,,,1.5\n22,8,0.2,\n'
    )
    path.write_text("step,sec")
    assert MetricsFile(path, 5).columns == []
    assert path.read_bytes() == b""
    assert MetricsFile(tmp_path / "none.csv", 0).lines == []
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux tells which files are open")
def test_metrics_leave_no_file_open(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv", 0)
    for step in range(3):
        file.append({"step": step})
    opened = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
              if os.path.islink(f"/proc/self/fd/{name}")]
    assert str(tmp_path / "metrics.csv") not in opened
