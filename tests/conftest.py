"""What holds for all tests: they compile what they run, whatever the disk has, and leave JAX's settings alone.

Programs are optimised as graphs and hardly as machine code: most of the time of a test is compilation, of which that is
the larger part. With `--optimised` they are compiled as users' programs are. A test that takes longer than `--limit`
seconds ends the process, which says which test it was and where each thread stood.

`--subset` is for other versions of Python and JAX than that of the whole suite. Every sixth case of tests with many
cases is run. Of files that rest on one version no more than on another a third is left, and another third on the next
version of Python. What each op computes (`test_rules.py`) is run in full.
"""

import faulthandler
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("NNGRAD_DISK_CACHE", "off")

import jax
import pytest

from .costs import Costs

FEW, EVERY = 6, 6
LIMIT = 900
"""Seconds, on a busy machine."""
RESTS_ON_VERSIONS = re.compile(
    "/tests/(faults|opening|jax_models)/|(rules|from_jax|jax_function|inside_jax|drop_in|named_axes|fork|hosts|disk|execut"
    "|tiers|background|pieces|layouts|lower|export|kept|nnabla_files|archives|storage|debug|precision|scaling|dtypes"
    "|loops|linear|solvers|random|show|cli|description)[^/]*$"
)
"""Files that rest on JAX's primitives and compilers, or on Python's frames and processes."""

QUICKLY_COMPILED = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=2",
)
"""Flags of XLA; not every version has all of them, and one that it does not know ends the process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="tests that are marked `slow` too")
    parser.addoption("--subset", action="store_true", help="what may differ on another version of Python or JAX")
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
    if not (config.getoption("--optimised") or hasattr(config, "workerinput")):  # workers have what is set here
        # before JAX starts, which reads it then, here and in processes from here
        os.environ["XLA_FLAGS"] = " ".join([*known(QUICKLY_COMPILED), os.environ.get("XLA_FLAGS", "")]).strip()
    config.pluginmanager.register(Costs(config))
    hear_interrupts()
    _stderr.append(os.dup(2))  # which nothing captures yet


def hear_interrupts() -> None:
    """Let Ctrl-C be heard here and in processes that are started from here: a shell starts what runs in the background
    without it, and Python leaves that so."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_stderr: list[int] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
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
    if not config.getoption("--subset"):
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = {
        item
        for test, group in cases.items() if len(group) > FEW and "test_rules.py" not in test
        for i, item in enumerate(group) if i % EVERY
    }  # fmt: skip
    others = [item for item in items if item not in left_out and not RESTS_ON_VERSIONS.search(str(item.path))]
    left_out.update([item for i, item in enumerate(others) if (i + sys.version_info.minor) % 3])
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


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
