"""What a run of the tests costs: compilations, and seconds of CPU, in XLA, in tracing and lowering, in references.

JAX reports when it begins and ends to trace, to lower and to compile. The end of a run says how much that was in all
workers; `--costs FILE` writes seconds and compilations of each test to a file, the dearest first.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import pytest

P = ParamSpec("P")
R = TypeVar("R")

COMPILATION = "/jax/core/compile/backend_compile_duration"
REFERENCE = "/tests/reference"
PARTS = {
    COMPILATION: "XLA",
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    REFERENCE: "references",
}
SAID = (
    "{compilations:.0f} compilations; of {CPU:.1f} s of CPU {XLA:.1f} s in XLA, {tracing:.1f} s in tracing, "
    "{lowering:.1f} s in lowering, {processes:.1f} s in processes that tests start; {references:.1f} s in references"
)


def of_references(f: Callable[P, R]) -> Callable[P, R]:
    """`f`, whose time counts as that of references."""

    @functools.wraps(f)
    def timed(*args: P.args, **kwargs: P.kwargs) -> R:
        jax.monitoring.record_scalar(REFERENCE, 0.0)
        try:
            return f(*args, **kwargs)
        finally:
            jax.monitoring.record_event_duration_secs(REFERENCE, 0.0)

    return timed


@contextmanager
def compilations() -> Iterator[list[float]]:
    """The seconds of each compilation by XLA within."""
    from jax._src import monitoring

    seconds: list[float] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == COMPILATION:
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seconds
    finally:
        remove = getattr(monitoring, "unregister_event_duration_listener", None)
        remove = remove or monitoring._unregister_event_duration_listener_by_callback  # type: ignore[attr-defined]
        remove(listen)  # `clear_event_listeners` takes off those of others too


class Costs:
    """A plugin of pytest, in each process."""

    def __init__(self, config: pytest.Config) -> None:
        self.file = config.getoption("--costs")
        self.has_workers = bool(config.getoption("numprocesses", None))
        self.moments: list[tuple[int, str, bool, float]] = []
        self.within: dict[int, list[tuple[str, float]]] = {}
        """For each thread, what has begun and not ended, and when, with what others within it took taken off."""
        self.total: Counter[str] = Counter()
        self.tests: dict[str, dict[str, float]] = {}
        self.used = dict.fromkeys(("CPU", "processes"), 0.0)
        jax.monitoring.register_scalar_listener(functools.partial(self.listen, True))
        jax.monitoring.register_event_duration_secs_listener(functools.partial(self.listen, False))

    def listen(self, begins: bool, event: str, *_: Any, **__: Any) -> None:
        """Note the moment in seconds of CPU, which are the same on a busy machine."""
        if event in PARTS:
            self.moments.append((threading.get_ident(), event, begins, time.process_time()))

    def since(self) -> Counter[str]:
        """What was used since this was asked before."""
        costs: Counter[str] = Counter()
        moments, self.moments = self.moments, []
        for thread, event, begins, now in moments:
            within = self.within.setdefault(thread, [])
            if begins:
                within.append((event, now))
                continue
            while within and within[-1][0] != event:  # what an interrupt has ended
                within.pop()
            if within:
                took = now - within.pop()[1]
                costs[PARTS[event]] += took
                if event != REFERENCE:
                    within[:] = [(outer, start + took * (outer != REFERENCE)) for outer, start in within]
            costs["compilations"] += event == COMPILATION
        now = os.times()
        used = {"processes": 0.0 if self.has_workers else now.children_user + now.children_system}
        used["CPU"] = now.user + now.system + used["processes"]
        costs.update({name: used[name] - self.used[name] for name in used})
        self.used = used
        self.total += costs
        return costs

    def pytest_collection_finish(self) -> None:
        self.since()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if call.when == "teardown":
            report.user_properties.append(("costs", dict(self.since())))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.tests[report.nodeid] = dict(report.user_properties)["costs"]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.since()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["costs"] = dict(self.total)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended; one that was killed has no output."""
        self.total.update(getattr(node, "workeroutput", {}).get("costs", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        names = ("compilations", *PARTS.values(), "CPU", "processes")
        terminalreporter.write_line(SAID.format_map({name: self.total[name] for name in names}))
        if self.file:
            lines = [f"{c['CPU']:.2f}\t{c.get('compilations', 0)}\t{test}\n" for test, c in self.tests.items()]
            Path(self.file).write_text("".join(sorted(lines, key=lambda line: -float(line.partition("\t")[0]))))
