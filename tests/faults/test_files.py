"""Files of parameters and states: interrupts, killed processes, full disks, special files, names, rights."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.solvers as S
from nngrad import Variable
from nngrad.files.storage import read_arrays, write_arrays

from .scripts import output_of


@pytest.fixture(autouse=True)
def _empty_and_bounded() -> Iterator[None]:
    nn.clear_parameters()
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    nn.clear_parameters()


def _too_long(*_: object) -> None:
    raise TimeoutError("the test hangs")


def values(number: float, count: int = 3) -> dict[str, Variable]:
    return {f"layer{i}/w": Variable.from_numpy_array(np.full((2, 3), number, np.float32)) for i in range(count)}


def in_file(path: Path) -> set[float]:
    return {float(x) for array in read_arrays(path)[0].values() for x in array.ravel()}


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a//b", "a/b"], "'a//b' and 'a/b' name the same parameter"),
        (["/a/", "a"], "'/a/' and 'a' name the same parameter"),
        (["a", "a/b"], "'a/b' needs 'a' as a scope, but that is a parameter"),
        (["a/b/c", "a/b"], "'a/b/c' needs 'a/b' as a scope, but that is a parameter"),
        ([""], "a parameter cannot be named ''"),
        (["/"], "a parameter cannot be named '/'"),
        (["a/__metadata__"], "a parameter cannot be named 'a/__metadata__'"),
    ],
)
def test_names_that_cannot_be_there_side_by_side(tmp_path: Path, names: list[str], message: str) -> None:
    path = tmp_path / "p.safetensors"
    w = nn.parameter.get_parameter_or_create("w", (2,))
    params = {name: Variable((i + 1,)) for i, name in enumerate(names)}
    with pytest.raises(ValueError, match=rf"p\.safetensors: {message}"):
        nn.save_parameters(path, params)
    assert not path.exists()
    write_arrays(path, {"w": np.ones(2, np.float32), **{name: p.d for name, p in params.items()}}, {})
    with pytest.raises(ValueError, match=rf"p\.safetensors: {message}"):
        nn.load_parameters(path)
    assert list(nn.get_parameters()) == ["w"] and not w.d.any()


def test_names_that_files_change_or_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    with pytest.raises(ValueError, match=r"'a//b' would be loaded as 'a/b'; save it by that name"):
        nn.save_parameters(path, {"a//b": Variable(())})
    with pytest.raises(ValueError, match=r"p\.safetensors.*is not valid Unicode"):
        nn.save_parameters(path, {"a\ud800": Variable(())})
    with pytest.raises(TypeError, match="must be a str, got 3"):
        nn.save_parameters(path, {3: Variable(())})
    with pytest.raises(TypeError, match="params: expected Variables by name, got list"):
        nn.save_parameters(path, [Variable(())])
    assert os.listdir(tmp_path) == []
    write_arrays(path, {"a//b": np.ones(2)}, {})
    assert list(nn.load_parameters(path)) == ["a//b"]
    assert nn.get_parameters()["a/b"].d.tolist() == [1, 1]


# ---------------------------------------------------------------- interrupts


LIBRARY = str(Path(nn.__file__).parent)


class Interrupt(Exception):
    """Stands for what a signal's handler raises."""


def interrupted_at_each_line(work: Callable[[], Any], check: Callable[[], None]) -> int:
    """Run `work` again and again, interrupted before its first line, its second and so on; how many there were.

    A `with` is left out: tracing can raise after its block and before its end, where Python handles no signal.
    """
    line = 0
    while True:
        line += 1
        left = line

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.startswith(LIBRARY):
                return None
            if event == "line" and not getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
                left -= 1
                if left == 0:
                    raise Interrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            work()
        except Interrupt:
            pass
        else:
            return line
        finally:
            sys.settrace(before)
        check()


def test_an_interrupted_load_changes_all_or_nothing(tmp_path: Path) -> None:
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    nn.save_parameters(old, values(1.0))
    nn.save_parameters(new, {**values(2.0), "more/x": Variable.from_numpy_array(2.0), "y": Variable((2, 3))})
    seen = set()

    def check() -> None:
        names = list(nn.get_parameters(grad_only=False))
        kept = {float(x) for name, p in nn.get_parameters(grad_only=False).items() if name != "y" for x in p.d.ravel()}
        assert (kept, len(names)) in (({1.0}, 3), ({2.0}, 5))
        assert len(names) == 5 or nn.parameter.get_parameter("more") is None
        nn.set_parameter("more" if len(names) == 3 else "free", Variable(()))  # no scope was left behind
        seen.add(len(names))
        begin()

    def begin() -> None:
        nn.clear_parameters()
        nn.load_parameters(old)

    begin()
    assert interrupted_at_each_line(lambda: nn.load_parameters(new), check) > 50
    assert seen == {3, 5}
    other = threading.Thread(target=nn.get_parameters)  # which waits where a lock was not given back
    other.start()
    other.join(10)
    assert not other.is_alive()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of a file that an interrupt finds open, before its `with`
def test_an_interrupted_save_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    before, after = values(1.0), values(2.0)
    nn.save_parameters(path, before)
    seen = set()

    def check() -> None:
        assert os.listdir(tmp_path) == ["p.safetensors"]
        seen.update(in_file(path))
        nn.save_parameters(path, before)

    assert interrupted_at_each_line(lambda: nn.save_parameters(path, after), check) > 50
    assert seen == {1.0, 2.0}


@pytest.mark.slow
def test_killed_processes_leave_a_whole_file(tmp_path: Path) -> None:
    assert output_of("""
import os, signal, sys, time
import numpy as np
import nngrad as nn
from nngrad.files.storage import read_arrays
folder = sys.argv[1]
path = folder + "/p.safetensors"
def save(i):
    nn.save_parameters(path, {f"w{k}": nn.Variable.from_numpy_array(np.full(4000, i, np.float32)) for k in range(99)})
save(0)
for attempt in range(25):
    if (pid := os.fork()) == 0:
        while True:
            for i in range(100):
                save(i)
    time.sleep(0.02 + 0.0037 * attempt)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    arrays, _ = read_arrays(path)
    assert len({float(x) for a in arrays.values() for x in (a.min(), a.max())}) == 1 and len(arrays) == 99
print("whole")
""", tmp_path) == ["whole"]


@pytest.mark.slow
def test_processes_that_save_at_a_time_leave_each_others_files_alone(tmp_path: Path) -> None:
    lines = output_of("""
import os, sys
import nngrad as nn
pids = []
for k in range(4):
    if (pid := os.fork()) == 0:
        for i in range(150):
            nn.save_parameters(f"{sys.argv[1]}/{k % 2}.safetensors", {"w": nn.Variable((9,))})
        os._exit(0)
    pids.append(pid)
print([os.waitpid(pid, 0)[1] for pid in pids])
print(sorted(os.listdir(sys.argv[1])))
""", tmp_path)
    assert lines == ["[0, 0, 0, 0]", "['0.safetensors', '1.safetensors']"]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    others = [f"p.safetensors.{os.getpid()}-{i}.tmp" for i in range(3000)]
    others += [".nngrad-notes.tmp", f".nngrad-{'0' * 32}-{'0' * 32}.tmp", ".nngrad-.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"kept")
    nn.save_parameters(path, values(1.0))
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "p.safetensors"])
    assert all((tmp_path / name).read_bytes() == b"kept" for name in others)
    nn.save_parameters(tmp_path / f"{'n' * 243}.safetensors", values(1.0))  # the longest name that there can be


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    lines = output_of("""
import os, resource, sys
import numpy as np
import nngrad as nn
import nngrad.solvers as S
folder = sys.argv[1]
path = folder + "/p.safetensors"
nn.save_parameters(path, {"w": nn.Variable.from_numpy_array(np.ones(3))})
before = open(path, "rb").read()
sys.dont_write_bytecode = True  # it would be cut off, for good
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))
large = nn.Variable.from_numpy_array(np.ones(3000))
solver = S.Momentum()
solver.set_parameters({"w": large})
for save in (lambda p: nn.save_parameters(p, {"w": large}), solver.save_states):
    try:
        save(path)
    except OSError as error:
        print(error, open(path, "rb").read() == before, os.listdir(folder))
""", tmp_path)
    path = tmp_path / "p.safetensors"
    assert lines == [f"[Errno 27] cannot be written: File too large: '{path}' True ['p.safetensors']"] * 2


# ---------------------------------------------------------------- special files and rights


def test_special_files_are_neither_replaced_nor_read(tmp_path: Path) -> None:
    fifo, folder = tmp_path / "fifo.safetensors", tmp_path / "folder.safetensors"
    os.mkfifo(fifo)
    folder.mkdir()
    solver = S.Adam()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.safetensors"))
        for path in (fifo, tmp_path / "s.safetensors"):
            (tmp_path / "link.safetensors").unlink(missing_ok=True)
            (tmp_path / "link.safetensors").symlink_to(path)
            for name in (path, tmp_path / "link.safetensors"):
                for work in (nn.save_parameters, nn.load_parameters, solver.save_states, solver.load_states):
                    with pytest.raises(OSError, match=r"cannot be .*: it is a device, a pipe or a socket.*safetensors"):
                        work(name)
    assert stat.S_ISFIFO(fifo.stat().st_mode) and stat.S_ISSOCK((tmp_path / "s.safetensors").stat().st_mode)
    with pytest.raises(IsADirectoryError, match=r"it is a folder: .*folder\.safetensors"):
        nn.save_parameters(folder)
    with pytest.raises(IsADirectoryError, match=r"folder\.safetensors"):
        nn.load_parameters(folder)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_rights_stay(tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "p.safetensors", tmp_path / "link.safetensors"
    nn.save_parameters(path, values(1.0))
    link.symlink_to(path)
    path.chmod(mode)
    if os.geteuid() == 0:  # nobody else may give a file away
        os.chown(path, 1234, 4321)
    before = path.stat()
    if mode == 0o400:
        monkeypatch.setattr(os, "access", lambda *_: False)  # as it is for all but root
        with pytest.raises(PermissionError, match=r"it is read-only: .*p\.safetensors"):
            nn.save_parameters(path, values(2.0))
        assert in_file(path) == {1.0}
        return
    nn.save_parameters(link, values(2.0))
    after = path.stat()
    assert in_file(path) == {2.0} and link.is_symlink()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
