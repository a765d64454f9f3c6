"""The command where the installation is broken, and where its output or its pictures cannot be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

import nngrad_command

ROOT = Path(__file__).parents[2]
REQUIRED = {"jaxlib": "0.9", "jax": "0.9", "numpy": "2.4", "optax": "0.3", "safetensors": "0.6", "rich": "15.0"}
"""What nngrad cannot do without, with versions that will do."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without any packages."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


class Installation:
    """A folder of packages that do nothing, installed for a Python that has none."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder = python, folder
        self.packages = packages_alone(folder / "sources")
        needs = ["jax>=0.8", "numpy>=2.0", "optax>=0.2.4", "safetensors>=0.5", "rich>=13"]
        self.describe("nngrad", "0.1.0", [*needs, 'matplotlib>=3.8; extra == "demo"'])
        for name, version in REQUIRED.items():
            self.add(name, version)
        self.describe("jax", REQUIRED["jax"], ["jaxlib<=0.9,>=0.8", "numpy>=2.0"])
        self.describe("jaxlib", REQUIRED["jaxlib"], ["numpy>=2.0"])
        self.add("matplotlib", "3.9")

    def describe(self, name: str, version: str, needs: Sequence[str] = ()) -> None:
        """Write the metadata of a distribution."""
        for old in self.folder.glob(f"{name}-*.dist-info"):
            (old / "METADATA").unlink()
            old.rmdir()
        folder = self.folder / f"{name}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        (folder / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {n}" for n in needs), ""]))

    def add(self, name: str, version: str, code: str = "") -> None:
        """Install a package that runs `code` when it is imported."""
        self.describe(name, version)
        self.write(name, code)

    def write(self, name: str, code: str) -> None:
        """Replace what a package does when it is imported."""
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "__init__.py").write_text(code)

    def remove(self, name: str) -> None:
        """Uninstall a package."""
        self.describe(name, "0")
        (self.folder / f"{name}-0.dist-info" / "METADATA").unlink()
        (self.folder / f"{name}-0.dist-info").rmdir()
        shutil.rmtree(self.folder / name)  # bytecode may be in it

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command, which must not end in a traceback."""
        return command(arguments, python=self.python, path=[self.folder, self.packages], folder=self.folder)


def packages_alone(folder: Path) -> Path:
    """A folder with nngrad's packages, without the metadata and the other packages that may lie beside them."""
    folder.mkdir(exist_ok=True)
    for name in ("nngrad", "nngrad_command", "backward_registry"):
        (folder / name).symlink_to(Path(nngrad_command.__file__).parents[1] / name)
    return folder


def command(
    arguments: Sequence[str], python: str | Path = sys.executable, path: Sequence[Path] = (ROOT,), folder: Path = ROOT,
    **others: str,
) -> subprocess.CompletedProcess[str]:
    """Run the command with a module search path, in a folder, and with other environment variables."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **others}
    done = subprocess.run([python, "-m", "nngrad_command", *arguments], env=environment, capture_output=True, text=True,
                          check=False, timeout=60, cwd=folder)
    assert "Traceback" not in done.stdout + done.stderr
    return done


@pytest.fixture
def installation(bare: Path, tmp_path: Path) -> Installation:
    """Everything is installed; each test breaks something."""
    return Installation(bare, tmp_path)


# ---------------------------------------------------------------- packages


@pytest.mark.parametrize(("name", "error"), [("jax", "ImportError"), ("safetensors", "OSError")])
def test_doctor_names_a_required_package_that_cannot_be_imported(
    name: str, error: str, installation: Installation
) -> None:
    installation.write(name, f"raise {error}('no libsomething.so')")
    done = installation.run("doctor")
    assert done.returncode == 1
    assert f"\nimport {name}: fails: {error}: no libsomething.so (" in done.stdout
    assert "-m pip install --force-reinstall PACKAGE" in done.stdout
    assert done.stdout.count("Broken: ") == 1


@pytest.mark.parametrize("name", ["numpy", "rich"])
def test_doctor_names_a_required_package_that_is_absent_or_too_old(name: str, installation: Installation) -> None:
    installation.describe(name, "0.1")
    old = installation.run("doctor")
    installation.remove(name)
    absent = installation.run("doctor")
    for done, shown in ((old, "0.1 !"), (absent, "missing !")):
        assert done.returncode == 1
        assert any(line.split()[0:3] == [name, *shown.split()] for line in done.stdout.splitlines())
        assert f"Broken: nngrad cannot do without {name}" in done.stdout
        assert f"-m pip install '{name}" in done.stdout or f"-m pip install {name}" in done.stdout


def test_doctor_blames_what_others_fail_with(installation: Installation) -> None:
    installation.write("numpy", "raise ImportError('no BLAS')")
    installation.write("jaxlib", "import numpy")
    installation.write("jax", "import jaxlib")
    done = installation.run("doctor")
    assert "\nimport numpy: fails: ImportError: no BLAS (" in done.stdout
    assert done.stdout.count("fails: ") == 1


@pytest.mark.parametrize(("code", "says"), [
    ("import os; os.kill(os.getpid(), 11)", "the process crashed (SIGSEGV)"),
    ("import time; time.sleep(60)", "no answer within 1 s"),
    ("print('hello'); raise SystemExit('goodbye')", "SystemExit: goodbye"),
])
def test_doctor_survives_a_package_that_crashes_or_hangs(code: str, says: str, installation: Installation) -> None:
    installation.write("safetensors", code)
    done = installation.run("doctor", "--time-limit", "1" if "no answer" in says else "60")
    assert done.returncode == 1
    assert f"\nimport safetensors: fails: {says}" in done.stdout
    assert done.stdout.count("Broken: ") == 1


def test_doctor_where_nngrad_is_not_installed(bare: Path, tmp_path: Path) -> None:
    done = command(["doctor"], bare, [packages_alone(tmp_path)], tmp_path)
    assert done.returncode == 1
    assert "nngrad is not installed, only found on the path" in done.stdout
    assert "import nngrad: fails: ModuleNotFoundError" in done.stdout


def test_the_demo_points_to_the_doctor(installation: Installation) -> None:
    installation.write("jax", "raise ImportError('jaxlib is too old')")
    done = installation.run("demo")
    assert done.returncode == 1
    assert done.stderr.startswith("nngrad cannot be imported: ImportError: ")
    assert "`nngrad doctor`" in done.stderr


# ---------------------------------------------------------------- devices


@pytest.mark.parametrize(("code", "says"), [
    ("def devices(): raise RuntimeError('the driver is old')", "devices: fails: RuntimeError: the driver is old"),
    ("import time\ndef devices(): time.sleep(60)", "devices: fails: no answer within 1 s"),
])
def test_doctor_survives_a_backend_that_fails(code: str, says: str, installation: Installation) -> None:
    installation.write("jax", code)
    installation.write("nngrad", "")
    done = installation.run("doctor", "--time-limit", "1" if "no answer" in says else "60")
    assert done.returncode == 1
    assert says in done.stdout
    assert "JAX_PLATFORMS" in done.stdout


@pytest.mark.slow
def test_doctor_takes_a_step_on_each_device() -> None:
    done = command(["doctor"], JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert done.returncode == 0
    for expected in (*[f"device cpu:{number} (cpu): works" for number in range(2)], *REQUIRED, "python"):
        assert expected in done.stdout


FAILING = """
class Device:
    platform, device_kind = "gpu", "model"
    def __init__(self, number): self.id = number
    def __str__(self): return f"gpu:{self.id}"
def devices(platform=None):
    if platform == "cpu": raise RuntimeError("no CPU")
    return found
found = [Device(0), Device(1), Device(2)]
"""


def test_doctor_tells_which_device_fails(installation: Installation) -> None:
    installation.write("jax", FAILING)
    refusing = "def Context(platform, device_id): raise RuntimeError(f'number {device_id}')"
    installation.write("nngrad", f"context_scope = None\n{refusing}")
    for module in ("functions", "solvers"):
        (installation.folder / "nngrad" / f"{module}.py").write_text("")
    done = installation.run("doctor")
    assert done.returncode == 1
    for number in range(3):
        assert f"device gpu:{number} (model): fails: RuntimeError: number {number} (" in done.stdout, done.stdout


# ---------------------------------------------------------------- output


@pytest.mark.slow
def test_output_that_cannot_be_written(installation: Installation) -> None:
    with open("/dev/full", "w") as full:
        packages = installation.packages
        for python, path, arguments in ((installation.python, packages, "--version"),
                                        (installation.python, f"{installation.folder}:{packages}", "doctor")):
            done = subprocess.run([python, "-m", "nngrad_command", arguments], stdout=full, stderr=subprocess.PIPE,
                                  text=True, check=False, env={**os.environ, "PYTHONPATH": str(path)})
            assert done.stderr == "nngrad: cannot write the output: No space left on device\n"
            assert done.returncode == 1


def test_output_that_is_closed() -> None:
    closing = 'exec "$0" -m nngrad_command --version >&-'
    done = subprocess.run(["sh", "-c", closing, sys.executable], env={**os.environ, "PYTHONPATH": str(ROOT)},
                          stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "nngrad: cannot write the output: standard output is closed\n"
    assert done.returncode == 1


@pytest.mark.slow
def test_nothing_is_said_where_the_reader_has_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "nngrad_command", "--version"], stdout=writer,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 1
