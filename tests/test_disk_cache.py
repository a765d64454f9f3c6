"""Executables on disk: found by the next process, never trusted unseen, and no result depends on them."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.command import cli
from nngrad.execution import disk as disk_module
from nngrad.execution import on_disk
from nngrad.execution.compiled import executable_of
from nngrad.execution.disk import MAGIC, Folder
from nngrad.execution.lower import linearize
from nngrad.execution.program import digest_of_program, surroundings

DISK = nn.executables.disk
ROOT = Path(nn.__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of the test's own, with the cache switched on, and nothing compiled."""
    before = DISK._folder, DISK._is_named
    path = tmp_path / "executables"
    DISK.switch(True, path)
    nn.executables.clear()
    yield path
    DISK._folder, DISK._is_named = before
    DISK.switch(False)
    nn.executables.clear()


def slope(at: float = 0.5) -> np.ndarray:
    """A gradient, of a graph of its own."""
    x = nn.Variable.from_numpy_array(np.full((2, 3), at, np.float32), need_grad=True)
    (g,) = nn.grad(F.sum(F.tanh(x) * x), x)
    return g.d.copy()


def expected(at: float = 0.5) -> np.ndarray:
    """The same by hand."""
    return np.full((2, 3), np.tanh(at) + at * (1 - np.tanh(at) ** 2), np.float32)


def entries(folder: Path) -> list[Path]:
    """The files of a folder."""
    return sorted(folder.iterdir()) if folder.exists() else []


def again() -> np.ndarray:
    """The gradient as a process computes it that has compiled nothing."""
    nn.executables.clear()
    return slope()


# ---------------------------------------------------------------- from process to process

PROGRAM = """
import os, sys
import jax, numpy as np, nngrad as nn, nngrad.functions as F, nngrad.parametric_functions as PF, nngrad.solvers as S
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **about: compiled.append(about.get("fun_name")) if "backend_compile" in event else None)
def show(*values):
    print(*[np.asarray(v).tobytes().hex() for v in values])
"""


def environment_with(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a process that has its executables in `folder`, compiled as a user's are."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "NNGRAD_DISK_CACHE": str(folder), "XLA_FLAGS": "", **variables}


def lines_of(folder: Path, body: str, **variables: str) -> list[str]:
    """The lines that a process prints which has its executables in `folder`."""
    environment = environment_with(folder, **variables)
    done = subprocess.run([sys.executable, "-c", PROGRAM + body], env=environment, timeout=300, capture_output=True,
                          text=True, check=False, cwd=folder.parents[1])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


GRAPHS = """
x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), need_grad=True)
(g,) = nn.grad(F.sum(F.tanh(x @ F.transpose(x, (1, 0)))), x)
show(g.d)
show(*[F.sum(F.sin(x) * number).d for number in (0.1, 0.2, 0.3)])             # the second with its number as an input
show(F.sum(F.exp(nn.Variable.from_numpy_array(np.arange(3.0)))).d)            # in 64 bits
with nn.context_scope(nn.Context("cpu", device_id=0)):
    show(F.sum(F.cos(nn.Variable.from_numpy_array(np.ones(3, np.float32)))).d)
with nn.auto_forward():
    show(F.exp(nn.Variable.from_numpy_array(np.ones(3, np.float32))).d)
show(nn.compile(g, x)(np.ones((2, 3), np.float32)))
(h,) = nn.grad(F.sum(F.sigmoid(F.tanh(x))), x, recompute="sqrt")
show(h.d)
matrix = nn.Variable.from_numpy_array(np.array([[[2.0, 1.0], [0.0, 3.0]]], np.float32))
show(F.batch_inv(matrix).d, F.batch_det(matrix).d)                            # by LAPACK, which JAX has to make ready
last, steps = F.scan(lambda c, row: (F.tanh(c + row), F.cond(F.sum(c) > 0, F.sin, F.cos, c)), x[0], x)
(s,) = nn.grad(F.sum(last) + F.sum(steps), x)
show(s.d)                                                                     # bodies of loops and branches
info = nn.executables.disk.info()
assert info.on and not info.trouble, info
print(info.hits, info.misses, info.size, nn.executables.info().disk_hits, len(compiled))
"""


def test_another_process_compiles_nothing_and_without_a_disk_the_values_are_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "executables"
    *first, told = lines_of(folder, GRAPHS, PYTHONHASHSEED="1")
    hits, misses, size, read, compiled = map(int, told.split())
    assert hits == read == 0
    assert misses == size == compiled > 8
    *second, told = lines_of(folder, GRAPHS, PYTHONHASHSEED="2")
    assert list(map(int, told.split())) == [size, 0, size, size, 0]
    body = GRAPHS.replace("assert info.on", "assert not info.on")
    *others, told = lines_of(tmp_path / "none", body, NNGRAD_DISK_CACHE="off")
    assert first == second == others
    assert not (tmp_path / "none").exists()
    assert told.split()[:2] == ["0", "0"]


def test_a_quick_executable_comes_from_disk_and_is_used_for_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nngrad.execution.compiling.LARGE", 1)
    np.testing.assert_allclose(slope(), expected(), rtol=1e-6)
    assert nn.executables.info().quick == 1
    x = nn.Variable.from_numpy_array(np.full((2, 3), 0.5, np.float32), need_grad=True)
    (g,) = nn.grad(F.sum(F.tanh(x) * x), x)
    nn.executables.clear()
    for _ in range(4):
        g.forward()
        np.testing.assert_allclose(g.d, expected(), rtol=1e-6)
    info = nn.executables.info()
    assert (info.disk_hits, info.quick, info.optimised, len(entries(folder))) == (1, 0, 0, 1)


def trained() -> list[bytes]:
    """Losses and parameters of a training, by steps and then by loops."""
    nn.clear_parameters()
    nn.seed(1)
    x, t = nn.Variable((4, 3)), nn.Variable((4, 2))
    loss = F.mean(F.squared_error(PF.affine(F.tanh(PF.affine(x, 5, name="a")), 2, name="b"), t))
    step = nn.train_step(loss, nn.get_parameters(), S.Adam(0.1), inputs=[x, t])
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(4, 3)).astype("f"), rng.normal(size=(4, 2)).astype("f")
    found = [step(inputs, targets) for _ in range(6)] + [p.d.copy() for p in nn.get_parameters().values()]
    solver = S.Sgd(0.1)
    solver.set_parameters(nn.get_parameters())
    for _ in range(3):
        x.d, t.d = inputs, targets
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
    found += [p.d.copy() for p in nn.get_parameters().values()]
    nn.clear_parameters()
    return [np.asarray(a).tobytes() for a in found]


def test_training_goes_on_without_compiling(folder: Path) -> None:
    first = trained()
    assert DISK.hits == 0
    nn.executables.clear()
    assert trained() == first
    assert (DISK.hits, DISK.misses) == (3, 0)  # the training step, gradients, and the update


SOLVERS = """
import jax
import optax

nn.seed(1)
x = nn.Variable.from_numpy_array(np.random.default_rng(0).normal(size=(4, 3)).astype("f"))

class Halved(S.Adam):
    def transformation(self, lr):
        return super().transformation(lr / 2)

def scaled(solver, scale):
    solver.loss_scaling(scale)
    return solver

def changed(solver):
    solver.transformation = lambda lr: optax.scale(-3 * lr)
    return solver

traced = []
traces = S.Solver.pure_update
S.Solver.pure_update = lambda self, *given: (traced.append(type(self).__name__), traces(self, *given))[1]
for make in (
    lambda: S.Adam(0.1), lambda: S.Adam(0.1, beta1=0.5), lambda: S.Adam(0.1, eps=0.1), lambda: S.AdamW(0.1, wd=0.5),
    lambda: S.AdamW(0.1, wd=0.25), lambda: Halved(0.1), lambda: S.Sgd(0.1), lambda: changed(S.Sgd(0.1)),
    lambda: scaled(S.Adam(0.1), nn.DynamicLossScale(interval=1)), lambda: scaled(S.Adam(0.1), nn.DynamicLossScale()),
    lambda: scaled(S.Adam(0.1), 2.0),
):
    for in_one in (True, False):
        w = nn.Variable.from_numpy_array(np.ones((3, 2), np.float32), need_grad=True)
        loss = F.mean(F.tanh(x @ w))
        solver = make()
        solver.set_parameters({"w": w})
        step = nn.train_step(loss, {"w": w}, solver) if in_one else None
        for _ in range(2):
            if in_one:
                step()
            else:
                loss.forward(); solver.zero_grad(); loss.backward(loss_scale=solver.loss_scale); solver.update()
        show(w.d, *jax.tree.leaves(solver.state))
print(len(traced), *sorted(set(traced)))
"""


@pytest.mark.slow
def test_solvers_do_not_take_each_others_steps(tmp_path: Path) -> None:
    """By its settings an update is known, and the user's own are traced."""
    *without, _ = lines_of(tmp_path / "none", SOLVERS, NNGRAD_DISK_CACHE="off")
    *first, traced = lines_of(tmp_path / "executables", SOLVERS)
    *second, traced_again = lines_of(tmp_path / "executables", SOLVERS)
    assert first == without
    assert second == without
    for way in (without[::2], without[1::2]):  # of the two XLA may round one otherwise
        assert len(way) == 11 and len(set(way[:-1])) == 10  # a loss scale of 2 changes no digit
    assert traced.split()[1:] == ["Adam", "AdamW", "Halved", "Sgd"]
    assert traced_again.split()[1:] == ["Halved", "Sgd"]


def test_a_graph_that_is_compiled_in_partitions_is_remembered_one_by_one(folder: Path) -> None:
    x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 4, dtype=np.float32), need_grad=True)
    values = []
    for counts in ((0, 2), (2, 0)):  # of 64 functions, and of what is left
        nn.executables.clear()
        y = x
        for _ in range(2100):
            y = F.sin(y)
        with nn.unrolled():
            y.forward()
            values.append(y.d.tobytes())
        assert (DISK.hits, DISK.misses) == counts
    assert values[0] == values[1]


@pytest.mark.slow
def test_processes_that_write_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "executables"
    body = """
total = 0.0
for size in range(1, 6):
    total += float(F.sum(F.exp(nn.Variable.from_numpy_array(np.ones(size, np.float32)))).d)
print(total, nn.executables.info().disk_hits)
"""
    environment = environment_with(folder)
    started = [
        subprocess.Popen([sys.executable, "-c", PROGRAM + body], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    totals = {process.communicate(timeout=300)[0].split()[0] for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    (line,) = lines_of(folder, body)
    total, hits = line.split()
    assert totals == {total}
    assert hits == "5"
    assert len(entries(folder)) == 5  # and nothing that is half written


# ---------------------------------------------------------------- what cannot be trusted


def flipped(place: int) -> Callable[[bytes], bytes]:
    """Damage: another bit at a place."""
    return lambda held: held[: place % len(held)] + bytes([held[place] ^ 1]) + held[place % len(held) :][1:]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda held: b"",
    "a part of the header": lambda held: held[:20],
    "a byte less": lambda held: held[:-1],
    "half": lambda held: held[: len(held) // 2],
    "a byte more": lambda held: held + b"\0",
    "zeros": lambda held: b"\0" * len(held),
    "another version": lambda held: held.replace(MAGIC, MAGIC[:-1] + b"\x02"),
    "bit of the name": flipped(0),
    "bit of the key": flipped(len(MAGIC)),
    "bit of the checksum": flipped(len(MAGIC) + 32),
    "bit of the facts": flipped(len(MAGIC) + 64),
    "bit of the code": flipped(-1),
}


def test_what_is_damaged_is_replaced(folder: Path) -> None:
    slope()
    (entry,) = entries(folder)
    for name, damage in DAMAGES.items():
        entry.write_bytes(damage(entry.read_bytes()))
        np.testing.assert_allclose(again(), expected(), rtol=1e-6)
        assert (DISK.hits, DISK.misses) == (0, 1), name
        assert again().tobytes() == slope().tobytes()
        assert DISK.hits == 1, name
        assert len(entry.read_bytes()) > 1000, name


def test_files_that_cannot_be_trusted_or_read_are_not_run(folder: Path, tmp_path: Path) -> None:
    slope()
    (entry,) = entries(folder)
    F.sum(nn.Variable.from_numpy_array(np.ones((2, 3), np.float32)) * 7.0).d.copy()
    (other,) = set(entries(folder)) - {entry}
    entry.write_bytes(other.read_bytes())
    np.testing.assert_allclose(again(), expected(), rtol=1e-6)
    assert DISK.hits == 0
    content = entry.read_bytes()[len(MAGIC) + 64 :]
    size = 4 + int.from_bytes(content[:4], "little")
    Folder(folder, 1 << 30).write(bytes.fromhex(entry.name), content[:size] + zlib.compress(b"no executable"))
    np.testing.assert_allclose(again(), expected(), rtol=1e-6)
    assert (DISK.hits, DISK.misses) == (0, 1)
    for mode in (0o660, 0o602, 0o644):
        entry.chmod(mode)
        np.testing.assert_allclose(again(), expected(), rtol=1e-6)
        assert DISK.hits == 0
        assert entry.stat().st_mode & 0o777 == 0o600  # written anew
    away = tmp_path / "away"
    for make in (lambda: entry.symlink_to(away), lambda: os.mkfifo(entry, 0o600)):
        entry.replace(away)
        make()
        np.testing.assert_allclose(again(), expected(), rtol=1e-6)
        assert DISK.hits == 0
        assert entry.is_file()  # written anew
        assert not entry.is_symlink()


def test_a_folder_in_the_place_of_an_entry_costs_that_entry_alone(folder: Path) -> None:
    slope()
    (entry,) = entries(folder)
    entry.unlink()
    (entry / "of the user's").mkdir(parents=True)
    unfinished = folder / f"{'0' * 64}.{'0' * 16}"
    unfinished.mkdir()
    os.utime(unfinished, (0, 0))
    for _ in range(2):
        np.testing.assert_allclose(again(), expected(), rtol=1e-6)
        assert (DISK.hits, DISK.misses) == (0, 1)
    assert (DISK.is_on, DISK.info().on, DISK.info().trouble, DISK.info().size) == (True, True, "", 0)
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32))
    for hits in (0, 1):
        nn.executables.clear()
        assert F.sum(x * 7.0).d == 42
        assert DISK.hits == hits
    limit = DISK.info().most_bytes
    DISK.resize(1)
    DISK.resize(limit)
    assert DISK.clear() == 0
    assert entries(folder) == sorted([entry, unfinished]) and list(entry.iterdir())


def test_somebody_elses_files_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slope()
    mine = os.geteuid()
    with monkeypatch.context() as patched, pytest.warns(UserWarning, match="the folder must be your own"):
        patched.setattr(os, "geteuid", lambda: mine + 1)
        np.testing.assert_allclose(again(), expected(), rtol=1e-6)
        assert DISK.hits == 0
        assert not DISK.is_on
        assert "the folder must be your own" in DISK.info().trouble
        with pytest.raises(PermissionError, match="the folder must be your own"):
            DISK.clear()
    DISK.switch(True)
    again()
    assert DISK.hits == 1


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707, 0o777])
def test_a_folder_that_is_open_to_others_is_not_used(folder: Path, mode: int) -> None:
    slope()
    folder.chmod(mode)
    with pytest.warns(UserWarning, match="closed to others"):
        np.testing.assert_allclose(again(), expected(), rtol=1e-6)
    assert DISK.hits == 0
    np.testing.assert_allclose(again(), expected(), rtol=1e-6)  # and is not spoken of again
    assert len(entries(folder)) == 1


def test_a_folder_that_is_a_link_is_not_used(folder: Path, tmp_path: Path) -> None:
    slope()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="not kept on disk"):
        np.testing.assert_allclose(again(), expected(), rtol=1e-6)
    assert DISK.hits == 0


def test_folder_and_files_are_private(folder: Path) -> None:
    before = os.umask(0)
    try:
        slope()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    (entry,) = entries(folder)
    assert entry.stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- folders that cannot be used


SUMS = """
import resource, sys, warnings
sys.dont_write_bytecode = True  # it would be cut off, for good
if limited:
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for size in (3, 4):
        value = float(F.sum(F.exp(nn.Variable.from_numpy_array(np.zeros(size, np.float32)))).d)
        assert value == size
assert len(said) == 1, said
info = nn.executables.disk.info()
assert info.trouble and (info.on or not limited), info
"""


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_and_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert lines_of(tmp_path / "file" / "executables", "limited = False" + SUMS) == []
    assert lines_of(tmp_path / "executables", "limited = True" + SUMS) == []
    assert entries(tmp_path / "executables") == []


def test_a_folder_that_can_only_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slope()

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    np.testing.assert_allclose(again(), expected(), rtol=1e-6)
    assert DISK.hits == 1
    with pytest.warns(UserWarning, match="Read-only file system"):
        assert F.sum(nn.Variable.from_numpy_array(np.ones(5, np.float32)) + 1).d == 10
    assert F.sum(nn.Variable.from_numpy_array(np.ones(6, np.float32)) + 1).d == 12  # without another warning
    again()
    assert DISK.hits == 1  # what is there is still read
    assert len(entries(folder)) == 1


def test_nothing_is_said_where_nobody_asked(folder: Path) -> None:
    slope()
    folder.chmod(0o755)
    DISK._is_named = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(again(), expected(), rtol=1e-6)
    assert "closed to others" in DISK.info().trouble


def test_an_unknown_version_of_jax_is_done_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "IS_SUPPORTED", False)
    DISK.switch(True)
    assert not DISK.is_on
    assert jax.__version__ in DISK.info().trouble
    np.testing.assert_allclose(again(), expected(), rtol=1e-6)
    assert not folder.exists()


# ---------------------------------------------------------------- the folder


def test_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "executables", 5000)
    keys = [bytes([n]) * 32 for n in range(6)]
    for n, key in enumerate(keys[:4]):
        folder.write(key, bytes(1000))
        os.utime(tmp_path / "executables" / key.hex(), (n, n))
    assert folder.read(keys[0]) == bytes(1000)  # which is a use
    folder.write(keys[4], bytes(1000))
    assert folder.usage()[0] == 4
    assert folder.usage()[1] <= 5000
    assert [folder.read(key) is not None for key in keys] == [True, False, True, True, True, False]
    assert folder.clear() == 4
    assert folder.usage() == (0, 0)


def test_the_limit_is_set_by_the_user(folder: Path) -> None:
    slope()
    F.sum(nn.Variable.from_numpy_array(np.ones((2, 3), np.float32))).d.copy()
    assert DISK.info().size == 2
    most = DISK.info().most_bytes
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="most_bytes: must be 1 or more"):
            DISK.resize(wrong)
    for wrong in (True, "many", None, 1.5):
        with pytest.raises(TypeError, match="most_bytes: expected an int"):
            DISK.resize(wrong)
    try:
        DISK.resize(DISK.info().nbytes - 1)
        assert DISK.info().size == 1
    finally:
        DISK.resize(most)
    with pytest.raises(TypeError, match="on: expected True or False"):
        DISK.switch("no")


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "executables", 5000)
    folder.write(bytes(32), b"content")
    left, fresh = [tmp_path / "executables" / f"{'a' * 64}.{c * 16}" for c in "bc"]
    strange = tmp_path / "executables" / "of somebody else"
    for path in (left, fresh, strange):
        path.write_bytes(b"part")
    os.utime(left, (1, 1))
    os.utime(strange, (1, 1))
    assert folder.usage()[0] == 1
    assert not left.exists()
    assert fresh.exists()
    assert folder.clear() == 1
    assert strange.exists()


def test_threads_read_all_or_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "executables", 40_000)
    contents = [bytes([n]) * 5000 for n in range(10)]

    def work(seed: int) -> None:
        for n in np.random.default_rng(seed).integers(0, 10, 100):
            key = bytes([n]) * 32
            found = folder.read(key)
            if found is None:
                folder.write(key, contents[n])
            assert found in (None, contents[n])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    count, nbytes = folder.usage()
    assert 0 < count <= 10
    assert nbytes <= 40_000 + 4 * 6000


# ---------------------------------------------------------------- what is the same


def structure(y: nn.Variable) -> bytes | None:
    """The digest of the program of a Variable."""
    return digest_of_program(linearize([y]).program)


def test_structures_are_told_apart() -> None:
    x, y = nn.Variable((2, 3)), nn.Variable((2, 3))
    graphs = [
        F.tanh(x), F.tanh(nn.Variable((3, 2))), F.exp(x), x * y, x * x, x + y, F.add_scalar(x, 0.0),
        F.add_scalar(x, -0.0), F.add_scalar(x, 1.0), F.add_scalar(x, float("nan")), F.sum(x, 0), F.sum(x, 1),
        F.sum(x, (0, 1)), F.sum(x, 0, keepdims=True), F.tanh(F.exp(x)), F.exp(F.tanh(x)), x[0], x[0:1], x[..., 0],
        *[F.scan(lambda c, row, f=f: (f(c + row), c), y[0], y)[0] for f in (F.tanh, F.sin)],
        F.scan(lambda c, row: (F.tanh(c + row), c), y[0], y, reverse=True)[0],
        *[F.cond(F.sum(x) > 0, f, F.cos, x) for f in (F.tanh, F.sin)],
        F.cast(x, "float16"), F.cast(x, "bfloat16"), F.tanh(nn.Variable.from_numpy_array(np.ones((2, 3)))),
    ]  # fmt: skip
    found = [structure(graph) for graph in graphs]
    assert None not in found
    assert len(set(found)) == len(found)
    assert structure(F.tanh(nn.Variable((2, 3)))) == found[0]


def test_code_of_the_users_has_no_structure(folder: Path) -> None:
    class Twice(nn.PythonFunction):
        numpy = True

        def setup_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].reset_shape(inputs[0].shape, True)

        def forward_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].data = inputs[0].data * 2

        def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
            inputs[0].grad = outputs[0].grad * 2

    x = nn.Variable.from_numpy_array(np.ones(3, np.float32))
    factor = 3.0
    by_jax = F.jax_function(lambda a: a * factor)(x)
    assert structure(by_jax) is None
    np.testing.assert_array_equal(by_jax.d, [3.0, 3.0, 3.0])
    by_hand = Twice()(x)
    assert structure(by_hand) is None
    np.testing.assert_array_equal(by_hand.d, [2.0, 2.0, 2.0])
    assert entries(folder) == []


def test_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    device = jax.devices("cpu")[0]
    found = [surroundings(device), surroundings(device, (("level", 0),)), surroundings(device, (("level", 1),))]
    for context in (jax.default_matmul_precision("float32"), jax.numpy_dtype_promotion("strict")):
        with context:
            found.append(surroundings(device))
    assert None not in found
    assert len(set(found)) == len(found)
    assert surroundings(device) == found[0]
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/somewhere")
    assert surroundings(device) is None  # or nothing would be seen of what is compiled


@pytest.mark.slow
def test_sources_are_a_part_of_the_surroundings(tmp_path: Path) -> None:
    body = """
for _ in range(2):
    nn.executables.clear()
    F.sum(nn.Variable((3,)) * 2.0).d
    print(nn.executables.info().disk_hits)
"""
    library = tmp_path / "library"
    for package in ("nngrad", "backward_registry", "nngrad_command"):
        shutil.copytree(ROOT / package, library / package)
    folder = tmp_path / "executables"
    assert lines_of(folder, body, PYTHONPATH=str(library)) == ["0", "1"]
    with open(library / "nngrad" / "functions" / "reduction.py", "a") as source:
        source.write("\n# edited\n")
    assert lines_of(folder, body, PYTHONPATH=str(library)) == ["0", "1"]


# ---------------------------------------------------------------- calls


def test_calls_do_not_pass_through_python_in_jax(folder: Path) -> None:
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32))
    run = linearize([F.tanh(x) * 2.0]).program
    array = jax.numpy.ones((2, 3))
    entered: list[str] = []
    for counts in ((0, 1), (1, 0)):
        entered.clear()
        nn.executables.clear()
        executable = executable_of(run)
        first = executable(array)
        assert (DISK.hits, DISK.misses) == counts
        sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
        try:
            second = executable(array)
        finally:
            sys.setprofile(None)
        assert entered == ["__call__"]  # nothing of JAX
        np.testing.assert_array_equal(first[0], second[0])


def test_a_setting_of_jax_has_an_executable_of_its_own(folder: Path) -> None:
    x = nn.Variable.from_numpy_array(np.ones((2, 2), np.float32))
    run = nn.compile(x @ x)
    for _ in range(2):
        np.testing.assert_array_equal(run(), [[2.0, 2.0], [2.0, 2.0]])
        with jax.default_matmul_precision("float32"):
            np.testing.assert_array_equal(run(), [[2.0, 2.0], [2.0, 2.0]])
    assert DISK.misses == 2
    assert len(entries(folder)) == 2


def test_nothing_is_kept_within_a_mesh(folder: Path) -> None:
    x = nn.Variable.from_numpy_array(np.ones(3, np.float32))
    with jax.set_mesh(jax.make_mesh((1,), ("devices",))):
        assert F.sum(F.exp(x) * 0.0).d == 0
    assert entries(folder) == []


def test_executables_can_be_traced_and_looked_into(folder: Path) -> None:
    x = nn.Variable((3,))
    run = nn.compile(F.log(x) * 2.0, [x])
    np.testing.assert_allclose(run(np.ones(3, np.float32)), np.zeros(3))
    np.testing.assert_allclose(jax.jit(lambda a: run(a))(np.ones(3, np.float32)), np.zeros(3))
    with jax.disable_jit():
        np.testing.assert_allclose(run(np.ones(3, np.float32)), np.zeros(3))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        run(-np.ones(3, np.float32))
    assert len(entries(folder)) == 1


DEVICES = """
a, b = jax.devices()
for on in (True, True, False):
    nn.executables.clear()
    nn.executables.disk.switch(on)
    x = nn.Variable((3,))
    run = nn.compile(F.sum(F.exp(x)), [x])
    array = np.zeros(3, np.float32)
    for given in (array, jax.device_put(array, a), jax.device_put(array, b), jax.numpy.zeros(3)):
        value = run(given)
        print(float(value), value.devices().pop().id, value.committed)
    with jax.default_device(b):
        value = run(array)
        print(float(value), value.devices().pop().id, value.committed)
    try:
        y = nn.Variable((3,))
        nn.compile(x + y, [x, y])(jax.device_put(array, a), jax.device_put(array, b))
    except ValueError as error:
        print("incompatible devices" in str(error))
    print(nn.executables.info().disk_hits)
"""


@pytest.mark.slow
def test_executables_run_where_the_arrays_are(tmp_path: Path) -> None:
    """Compiled, from disk, and without it."""
    printed = lines_of(tmp_path / "executables", DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    expected = ["3.0 0 False", "3.0 0 True", "3.0 1 True", "3.0 0 False", "3.0 1 False", "True"]
    assert [printed[i : i + 6] for i in (0, 7, 14)] == [expected] * 3
    first, second, without = map(int, printed[6::7])
    assert second >= first + 2 and without == 0


# ---------------------------------------------------------------- the command


def test_the_command_shows_and_removes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slope()
    assert cli.main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"executables on disk: {folder}\n    1 with 0.0")
    assert shown.endswith("; in use\n")
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"1 executables removed from {folder}\n"
    assert entries(folder) == []
    folder.chmod(0o755)
    assert cli.main(["cache", "clear"]) == 1
    assert "closed to others" in capsys.readouterr().err
    DISK.switch(False)
    assert cli.main(["cache"]) == 0
    assert "not in use" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("told", "said"), [
    ("executables", "an executable is found again (1 hit)"), ("off", "not in use: NNGRAD_DISK_CACHE says so"),
    ("file/executables", "not in use: Not a directory"),
])  # fmt: skip
def test_the_doctor_tries_it(tmp_path: Path, told: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    value = told if told == "off" else str(tmp_path / told)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NNGRAD_DISK_CACHE": value}
    done = subprocess.run([sys.executable, "-m", "nngrad_command", "doctor"], env=environment, timeout=300,
                          capture_output=True, text=True, check=False)
    assert said in done.stdout
    if told == "executables":
        assert f"executables on disk: {tmp_path / told}\n" in done.stdout


def test_the_module_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk_module.IS_SUPPORTED
    monkeypatch.setattr(disk_module, "IS_SUPPORTED", False)
    DISK.switch(True)
    try:
        assert not DISK.is_on
        assert "does not support file owners" in DISK.info().trouble
    finally:
        monkeypatch.undo()
        DISK.switch(False)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux tells which files are open")
def test_a_folder_is_not_left_open(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "kept", 10**6)
    assert folder.read(bytes(32)) is None
    folder.write(bytes(32), bytes(1000))
    assert folder.read(bytes(32)) == bytes(1000)
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    assert not [path for path in names if os.path.islink(path) and os.readlink(path).startswith(str(tmp_path))]
