"""What holds for all tests: they compile what they run, whatever a cache has, and leave JAX's settings alone.

Programs are optimised as graphs and hardly as machine code: most of the time of a test is compilation, of which that is
the larger part. With `--optimised` they are compiled as users' programs are. A test that takes longer than `--limit`
seconds ends the process, which says which test it was and where each thread stood.

They run on the CPU, but for those of `-m gpu`. `JAX_PLATFORMS=cuda` has all run on a GPU, where those fail that look at
what XLA makes for CPUs, or at the signs of eigenvectors.

`--subset` is for other versions of Python and JAX than that of the whole suite: the files that rest on them most.
"""

import faulthandler
import gc
import importlib.util
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")

import hypothesis
import jax
import pytest

from .costs import Costs

hypothesis.settings.register_profile("the same in each run", derandomize=True, database=None)
hypothesis.settings.load_profile("the same in each run")

LIMIT = 900
"""Seconds, on a busy machine."""
RESTS_ON_VERSIONS = re.compile(
    "/tests/(faults|opening)/|/test_(rules|from_jax|jax_function|inside_jax|drop_in|named_axes|custom_gradient"
    "|execution|compilation_cache|tiers|frames|replay|lowering|exporting|nnabla_files|checkpoint|segments"
    "|debug|precision|dtypes|linear|show|cli|description)[^/]*$"
)
"""Rules, the ways from and to JAX, execution, files and faults: on JAX's primitives and compilers, Python's frames."""

QUICKLY_COMPILED = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
"""Flags of XLA; not every version has all of them, and one that it does not know ends the process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="tests that are marked `slow` too")
    parser.addoption("--subset", action="store_true", help="what may differ on another version of Python or JAX")
    parser.addoption("--part", metavar="K/N", help="the test files that the K-th of N parts has (K from 0)")
    parser.addoption("--installed", action="store_true", help="refuse to test packages that are not in site-packages")
    parser.addoption("--kernel", action="store_true", help="without the packages of nngrad outside of its kernel")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="files in a random order, and the tests of each")
    parser.addoption("--optimised", action="store_true", help="compile programs as users' are, which takes longer")
    parser.addoption("--costs", metavar="FILE", help="write seconds of CPU and compilations of each test to a file")
    parser.addoption("--limit", type=float, default=LIMIT, help="after how many seconds a test ends the process")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Workers take neighbouring tests, which share what they compile (`together.py`), and what others have left.

    Slow tests are run where they are named, by `-m`, `-k`, a file or a test, or where `--all` is asked for.
    """
    option = config.option
    if not (option.all or option.markexpr or option.keyword) and all([Path(name).is_dir() for name in config.args]):
        option.markexpr = "not slow"
    if getattr(option, "numprocesses", None) and option.dist == "no":
        option.dist = "worksteal"


def known(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Those flags that this version of XLA knows, which other processes are started to find out."""

    def starts(flags: tuple[str, ...]) -> bool:
        settings = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)}
        return not subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=settings,
                                  capture_output=True).returncode  # fmt: skip

    return flags if starts(flags) else tuple([flag for flag in flags if starts((flag,))])


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "gpu" and not os.environ.get("JAX_PLATFORMS"):  # many look at programs for CPUs
        os.environ["JAX_PLATFORMS"] = "cpu"  # for processes from here
        jax.config.update("jax_platforms", "cpu")
    if config.getoption("--installed"):
        check_installed()
    if not (config.getoption("--optimised") or hasattr(config, "workerinput")):  # workers have what is set here
        # before JAX starts, which reads it then, here and in processes from here
        os.environ["XLA_FLAGS"] = " ".join([*known(QUICKLY_COMPILED), os.environ.get("XLA_FLAGS", "")]).strip()
    if config.getoption("--kernel"):
        sys.meta_path.insert(0, LeftOut)
    config.pluginmanager.register(Costs(config))
    hear_interrupts()
    _stderr.append(os.dup(2))  # which nothing captures yet


KERNEL = ("autodiff", "derivatives", "execution", "extend", "functions", "graph", "random", "rewrite")
"""The packages that gradients need."""


class LeftOut:
    """An import finder that has all other packages of nngrad missing."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise an error for them, as Python would if they were not there."""
        package, _, rest = name.partition(".")
        if package == "nngrad" and rest.partition(".")[0] not in ("", *KERNEL):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Leave out files of tests that import what `--kernel` leaves out."""
    report: Any = yield
    if collector.config.getoption("--kernel") and report.failed and _LEFT_OUT.search(str(report.longrepr)):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, "Skipped: it imports what is left out")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """And tests that ask for it."""
    report: Any = yield
    if item.config.getoption("--kernel") and report.failed and _LEFT_OUT.search(str(call.excinfo)):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: it asks for what is left out")
    return report


_LEFT_OUT = re.compile(rf"No module named 'nngrad\.(?!(?:{'|'.join(KERNEL)})\b)|cannot import name '\w+' from 'nngrad'")


def check_installed() -> None:
    """Refuse packages that lie beside these tests: a wheel is not what is tested then. So a test that reads files of
    the packages finds them by `nngrad.__file__`, and one that reads pages or pyproject.toml by its own."""
    for name in ("nngrad", "backward_registry", "nngrad_command"):
        found = importlib.util.find_spec(name)
        file = found and found.origin
        if file is None or Path(sysconfig.get_path("purelib")) not in Path(file).parents:
            raise pytest.UsageError(f"--installed: {name} is found in {file}, not in {sysconfig.get_path('purelib')}")


def hear_interrupts() -> None:
    """Let Ctrl-C be heard here and in processes that are started from here: a shell starts what runs in the background
    without it, and Python leaves that so."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_stderr: list[int] = []
_tests = itertools.count()
SEEN_THROUGH = 25
"""After so many tests, what is left of them is no longer looked through by the garbage collector: what JAX and nngrad
keep would be, in each collection, and took an eighth of all time."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if next(_tests) % SEEN_THROUGH == 0:
        gc.collect()
        gc.freeze()
    limit = item.config.getoption("--limit")
    timer = threading.Timer(limit, _end, (item.nodeid, limit))
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(limit + 30, exit=True, file=_stderr[0])  # where Python itself stands still
    try:
        return (yield)
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def _end(test: str, limit: float) -> None:
    os.write(_stderr[0], f"\n{test} takes longer than {limit:g} s\n".encode())
    faulthandler.dump_traceback(_stderr[0])
    os._exit(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--subset"):
        left_out = [item for item in items if not RESTS_ON_VERSIONS.search(str(item.path))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if RESTS_ON_VERSIONS.search(str(item.path))]
    if part := config.getoption("--part"):
        chosen, parts = map(int, part.split("/"))
        others = {item.path for item in items if zlib.crc32(item.path.name.encode()) % parts != chosen % parts}
        config.hook.pytest_deselected(items=[item for item in items if item.path in others])
        items[:] = [item for item in items if item.path not in others]
    if (seed := config.getoption("--shuffle")) is not None:  # file by file: what a file's tests share is made once
        draw = random.Random(seed).random
        place = {path: draw() for path in dict.fromkeys([item.path for item in items])}
        items.sort(key=lambda item: (place[item.path], draw()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """A name that selects nothing is a mistake, or that of an op without a sample."""
    name = session.config.option.keyword
    if name and not session.items and not hasattr(session.config, "workerinput"):
        raise pytest.UsageError(
            f"-k {name!r} selects no test: `pytest --collect-only -q` lists their names; an op's are made of its "
            "lines in tests/samples/ (docs/add_an_op.md)"
        )


@pytest.fixture(autouse=True)
def settings_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves 64-bit types switched on, or an exception that is being handled, which would be the context of
    those of others, is the one that fails, and not those that come after it.

    But for interrupts: one that comes just as `jax.enable_x64` leaves finds it still in force, in JAX by itself too.
    """
    before = sys.exception()
    yield
    assert sys.exception() is before, "an exception is still being handled: an interrupt left an `except`"
    left = jax.config.jax_enable_x64
    if left:
        jax.enable_x64(False).__enter__()  # for those that come after it
    interrupts = any([name in request.module.__name__ for name in ("interrupted", "state_machine")])
    assert not left or interrupts, "jax_enable_x64 was left on"
