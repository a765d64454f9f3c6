"""The one harness: a case is a computation and the ways to do it, nngrad's among them.

All ways of a case are made, compared with the first, timed in turns so that what disturbs the machine disturbs them
alike, and accounted for by the compiler. A ratio of times is the median of those of the rounds. Each case is measured
in a process of its own, and one that is `apart` has a process for each way, in which nothing has been traced or
compiled. `--smoke` runs all of them in one process.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

Contender = Callable[[], Any]
Account = dict[str, float]
Figures = dict[str, Account]
"""By way: 'time', 'round 0' and so on, of which that is the median, 'first result' and what its account says."""
SECONDS, ROUNDS, MOST_CALLS = 2.0, (5, 100), 300
"""About how long the ways of a case are timed, in how many rounds, of how many calls each."""
SETTLED = 0.02
"""For how many seconds a way runs before it is timed, unless each call takes as long. Right after PyTorch's turn, whose
threads go on waiting actively for some milliseconds, a call of 1.9 ms takes 4.2, and the tenth 2.0."""
NEEDS = {"PyTorch": "torch", "torch.func": "torch", "folx": "folx", "asdex": "asdex"}
"""The packages that ways need whose names begin with these words."""
EARLY = "steps 3 to 100"
"""A measure: what one of these steps takes, right after everything is compiled."""
TIMES = ("time", "first result", EARLY)
COUNTED = ("temporaries", "arithmetic")
"""What the compiler tells, whatever else the machine does."""
WITHOUT_YNNPACK: dict[str, str | bool] = {"xla_cpu_experimental_ynn_fusion_type": ""}


class Step(NamedTuple):
    """What a way has made: a call computes everything once more."""

    run: Contender
    account: Callable[[], Account] | None = None
    """What is known of it, once times are taken: 'temporaries' (bytes), 'arithmetic' (operations), 'tracing'."""


Way = Callable[[], Step | Contender]


class Case(NamedTuple):
    """A computation."""

    what: str
    ways: Mapping[str, Way]
    """Each makes a step. Those whose packages are not installed are left out."""
    pairs: Sequence[tuple[str, str]] = ()
    """Which way is compared with which other; the first with all others by default."""
    measures: Sequence[str] = ("time",)
    """The figures that are shown."""
    tolerance: float | None = 1e-3
    """How far first results may differ, relative to the norm of each array; None where they are not compared."""
    apart: bool = False
    """Whether each way has a process of its own."""
    double: bool = False
    """Whether it is computed in double precision."""


class Row(NamedTuple):
    """One line of the table of results."""

    what: str
    ours: str
    peer: str
    ratio: float
    low: float | None = None
    """Of times in turns: a bound that the ratio is above, but for chance once in twenty."""


# ---------------------------------------------------------------- ways


def in_jax(function: Callable[..., Any], *arrays: Any) -> Step:
    """`function(*arrays)` by one executable of JAX's."""
    given = jax.tree.map(jnp.asarray, arrays)
    start = time.perf_counter()
    traced = jax.jit(function).trace(*given)
    tracing = time.perf_counter() - start
    lowered = traced.lower()
    executable = lowered.compile()
    return Step(lambda: executable(*given), lambda: {"tracing": tracing, **account_of(lowered, executable)})


def in_nngrad(outputs: Any, inputs: Sequence[nn.Variable]) -> Step:
    """`outputs` by `nn.compile`, at the arrays that `inputs` hold."""
    given = [jnp.asarray(x.data.raw()) for x in inputs]
    compiled = nn.compile(outputs, inputs)

    def account() -> Account:
        lowered = jax.jit(nn.to_jax(outputs, inputs)).lower(*given)
        return account_of(lowered, lowered.compile())

    return Step(lambda: compiled(*given), account)


def in_torch(run: Contender) -> Step:
    """What eager PyTorch computes; memory is the highest sum of its allocations, less that of the results."""

    def detached() -> list[Any]:
        return [tensor.detach() for tensor in jax.tree.leaves(run())]

    return Step(detached, lambda: {"temporaries": peak(detached)})


def account_of(lowered: Any, executable: Any) -> Account:
    """The compiler's account.

    XLA may hand any part of a program to YNNPACK, and does not count what that allots: the account is of an executable
    that makes no use of it.
    """
    if "__ynn_fusion" in (executable.as_text() or ""):
        executable = lowered.compile(compiler_options=WITHOUT_YNNPACK)
    temporaries = float(executable.memory_analysis().temp_size_in_bytes)
    return {"temporaries": temporaries, "arithmetic": (executable.cost_analysis() or {}).get("flops", 0.0)}


def peak(run: Contender) -> float:
    """The highest sum of allocations in a call of `run`, by PyTorch's account, less what the results take."""
    import torch

    run()
    if torch.get_default_device().type != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        results = run()
        return float(torch.cuda.max_memory_allocated() - before - sum(a.nbytes for a in results))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        results = run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return float(highest - sum(a.nbytes for a in results))


def needed(way: str) -> str | None:
    """The package that a way needs, beside JAX."""
    return NEEDS.get(way.split()[0].rstrip(","))


def installed(way: str) -> bool:
    """Whether it is there."""
    package = needed(way)
    return package is None or importlib.util.find_spec(package) is not None


# ---------------------------------------------------------------- measuring


def figures_of(
    ways: Mapping[str, Way], tolerance: float | None, smoke: bool, measures: Iterable[str],
    of_rounds: Callable[[list[float]], float] = statistics.median, rounds: tuple[int, int] = ROUNDS,
) -> Figures:
    """Make the ways, compare what they compute, time them in turns, and ask for their accounts."""
    begin(ways)
    if "first result" in measures and len(ways) > 1 and not smoke:  # packages load parts of themselves as they are used
        peer = [*ways.values()][-1]()
        wait_for(peer.run() if isinstance(peer, Step) else peer())
    found: Figures = {}
    steps: dict[str, Step] = {}
    results: dict[str, list[np.ndarray]] = {}
    for name, make in ways.items():
        forget()
        start = time.perf_counter()
        made = make()
        steps[name] = made if isinstance(made, Step) else Step(made)
        first = steps[name].run()
        wait_for(first)
        found[name] = {"first result": time.perf_counter() - start}
        results[name] = [as_numpy(a).ravel() for a in jax.tree.leaves(first)]
    if tolerance is not None:
        agreeing(results, tolerance)
    runs = {name: step.run for name, step in steps.items()}
    if EARLY in measures:
        wait_for([run() for run in runs.values()])
        for name, rounds_of in turns(runs, 7, 14).items():
            found[name][EARLY] = statistics.mean(rounds_of)
    for name, seconds in in_turns(runs, smoke, rounds).items():
        found[name] |= {"time": of_rounds(seconds), **{f"round {i}": s for i, s in enumerate(seconds)}}
    for name, step in steps.items():
        found[name] |= {f"norm {i}": float(np.linalg.norm(a)) for i, a in enumerate(results[name])}
        if step.account is not None and not set(TIMES).issuperset(measures):
            found[name] |= step.account()
    return found


def in_turns(runs: Mapping[str, Contender], smoke: bool, rounds: tuple[int, int]) -> dict[str, list[float]]:
    """Seconds per call of each round.

    From the third call on: what nngrad reads is compiled quickly for the first, at its best for the second.
    """
    once = {}
    for name, run in runs.items():
        for _ in range(2):
            wait_for(run())
        start = time.perf_counter()
        wait_for(run())
        once[name] = time.perf_counter() - start
    calls = 1 if smoke else max(1, min(MOST_CALLS, round(5e-3 / max(once.values()))))
    settled = 0.0 if smoke or max(once.values()) > SETTLED else SETTLED
    fewest, most = rounds
    seconds = calls * sum(once.values()) + settled * len(runs)
    count = 1 if smoke else round(min(max(SECONDS / seconds, fewest), most))
    return turns(runs, calls, count, settled)


def turns(runs: Mapping[str, Contender], calls: int, count: int, settled: float = 0.0) -> dict[str, list[float]]:
    """Seconds per call of each round, after `settled` seconds of calls that do not count. Results are waited for at its
    end; every other round is in reverse order."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(count):
        for name in list(runs)[:: 1 if i % 2 == 0 else -1]:
            until = time.perf_counter() + settled
            while time.perf_counter() < until:
                wait_for(runs[name]())
            start = time.perf_counter()
            for _ in range(calls):
                result = runs[name]()
            wait_for(result)
            times[name].append((time.perf_counter() - start) / calls)
    return times


def agreeing(results: Mapping[str, list[np.ndarray]], tolerance: float) -> None:
    """Raise unless all give the same numbers as the first, whose arrays others may have stacked."""
    (name, expected), *others = results.items()
    whole = float(np.linalg.norm(np.concatenate(expected)))
    ends = np.cumsum([a.size for a in expected])
    for other, arrays in others:
        flat = np.concatenate(arrays)
        if flat.size != ends[-1]:
            raise ValueError(f"{other} gives {flat.size} numbers, where {name} gives {ends[-1]}")
        for a, b in zip(expected, np.split(flat, ends[:-1]), strict=True):
            difference = float(np.linalg.norm(b - a)) / max(float(np.linalg.norm(a)), 1e-3 * whole)
            if not difference <= tolerance:
                raise ValueError(f"a result of {other} differs by {difference:.1e} from that of {name}")


def forget() -> None:
    """Drop what has been traced, compiled and recorded, and what is known of shapes, as in a new process."""
    jax.clear_caches()
    nn.executables.clear()
    for op, _ in nn.registry.ops():
        op._specs.clear()
    gc.collect()


def wait_for(result: Any) -> None:
    """Wait for what JAX or PyTorch still computes."""
    jax.block_until_ready(result)
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_default_device().type != "cpu":
        torch.cuda.synchronize()


def as_numpy(array: Any) -> np.ndarray:
    """In float64, from whichever device: NumPy itself does not read what PyTorch has on a GPU."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array, np.float64)


def begin(names: Collection[str]) -> None:
    """Start JAX, and load what else is loaded when it is first used, which is the time of no way among several.

    PyTorch is to compute on the GPU where JAX does, in the same precision of products. JAX's products of float32 are
    exact on a CPU; on a GPU they are in TF32, unless `jax_default_matmul_precision` asks for more.
    """
    x = nn.Variable.from_numpy_array(np.ones(2, "f"), need_grad=True)
    wait_for(nn.compile(nn.grad(F.sum(F.tanh(x)), [x]), [x])(jnp.ones(2)) if len(names) > 1 else jnp.ones(2))
    if "torch" in map(needed, names):
        import torch

        if jax.default_backend() == "gpu":
            torch.set_default_device("cuda")
            exact = jax.config.jax_default_matmul_precision in ("highest", "float32")
            torch.set_float32_matmul_precision("highest" if exact else "high")
            torch.backends.cudnn.allow_tf32 = not exact
        torch.zeros(1)


# ---------------------------------------------------------------- cases in processes


def module_of(part: str) -> ModuleType:
    """The file of a part, which has `cases(smoke)`, or `rows(smoke)` where lines are no times in turns, or both."""
    return importlib.import_module(f"benchmarks.{part}")


def measured(part: str, smoke: bool) -> list[Row]:
    """The lines of a part."""
    module = module_of(part)
    rows: list[Row] = []
    for i, case in enumerate(module.cases(smoke) if hasattr(module, "cases") else ()):
        rows += measured_case(part, i, case, smoke)
    return rows + (module.rows(smoke) if hasattr(module, "rows") else [])


def measured_case(part: str, i: int, case: Case, smoke: bool) -> list[Row]:
    """The lines of a part's `i`-th case."""
    ways = [name for name in case.ways if installed(name)]
    groups = [[name] for name in ways] if case.apart else [ways]
    figures: Figures = {}
    for names in groups:
        figures |= of_group(case, names, smoke) if smoke else in_process(part, i, names, case.measures)
    if case.apart and case.tolerance is not None:
        norms = {name: [v for k, v in each.items() if k.startswith("norm ")] for name, each in figures.items()}
        agreeing({name: [np.array(each)] for name, each in norms.items()}, case.tolerance)
    told = ", ".join([f"{name} {shown(each['time'])}" for name, each in figures.items()])
    print(f"{case.what}: {told}", flush=True)
    return rows_of(case, figures)


def of_group(case: Case, names: Sequence[str], smoke: bool) -> Figures:
    """The figures of some ways of a case."""
    with jax.enable_x64(case.double):
        return figures_of({name: case.ways[name] for name in names}, case.tolerance, smoke, case.measures)


def in_process(part: str, case: int, names: Sequence[str], measures: Sequence[str]) -> Figures:
    """The same, measured by a process of its own."""
    command = [sys.executable, "-m", "benchmarks.harness", part, str(case), ",".join(measures), *names]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-4000:]}")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def rows_of(case: Case, figures: Figures) -> list[Row]:
    """A line for each measure of each pair, where both have it."""
    ours, *others = figures
    pairs = case.pairs or [(ours, other) for other in others]
    return [
        row(case.what, measure, figures, *pair, paired=not case.apart)
        for pair in pairs if set(pair) <= figures.keys()
        for measure in case.measures if all([measure in figures[way] for way in pair])
    ]  # fmt: skip


def row(what: str, measure: str, figures: Figures, ours: str, peer: str, paired: bool = True) -> Row:
    """The line that compares two ways; of times in turns, whose rounds are `paired`, by the ratio of each round."""
    values = {way: figures[way][measure] for way in (ours, peer)}
    texts = [f"{way}: {text_of(measure, value)}" for way, value in values.items()]
    rounds = [[s for name, s in figures[way].items() if name.startswith("round ")] for way in (ours, peer)]
    if measure == "time" and paired and rounds[0]:
        ratios = [a / b for a, b in zip(*rounds, strict=True)]
        return Row(title(what, measure), *texts, statistics.median(ratios), lower_bound(ratios))
    return Row(title(what, measure), *texts, max(values[ours], 1e-9) / max(values[peer], 1e-9))


def title(what: str, measure: str) -> str:
    """What a row of this measure is called."""
    return what if measure == "time" else f"{what}: {measure}"


def lower_bound(ratios: Sequence[float]) -> float | None:
    """What their median is above with a confidence of 95%, whatever their distribution; None of fewer than five.

    It is the one with which the sign test, that as many are below as above, no longer fails: the k-th smallest, where
    of as many tosses of a coin less than k are heads in at most 5%.
    """
    n = len(ratios)
    chances = itertools.accumulate([math.comb(n, k) / 2**n for k in range(n)])
    k = sum([chance <= 0.05 for chance in chances])
    return sorted(ratios)[k - 1] if k else None


def text_of(measure: str, value: float) -> str:
    """A figure for the table."""
    if measure == "temporaries":
        return f"{value / 1e6:.3f} MB" if value < 1e6 else f"{value / 1e6:.1f} MB"
    if measure == "arithmetic":
        return f"{value / 1e6:.1f} Mflop"
    return shown(value) if measure in (*TIMES, "tracing") else f"{value:,g}"


def shown(seconds: float) -> str:
    """A time for the table."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def worker(part: str, case: str, measures: str, *names: str) -> None:
    """Measure some ways of a case, and print their figures as JSON."""
    cases: Iterable[Case] = module_of(part).cases(False)
    print(json.dumps(of_group(list(cases)[int(case)]._replace(measures=measures.split(",")), names, False)))


if __name__ == "__main__":
    from benchmarks import harness  # the module whose classes the cases are made of, not a second one

    harness.worker(*sys.argv[1:])
