"""Steering the backward pass: what hooks and debug mode cost when they are off, and the sum of many gradients.

What is off is compared with the same functions compiled without it: each look at hooks or debug mode is replaced
by False in their syntax trees, and the record of which rule emitted what is left out.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F
from nngrad.autodiff.walk import Grad
from nngrad.graph import engine, leaves_of
from nngrad.graph.engine import Engine

from .building import nngrad_chain
from .timing import Row, medians, row

Contender = Callable[[], Any]

LOOKS = {"watched", "is_watched"}
"""The functions that look whether somebody watches."""


class BareCall:
    """What a rule emits refers to the rule's function and nothing else."""

    __slots__ = ("_function", "context")
    grad_outputs = ()

    def __init__(self, f: Any, *_: Any) -> None:
        self.context = f.context
        self._function = weakref.ref(f)

    @property
    def function(self) -> Any:
        """The function, while it lives."""
        return self._function()


class _WithoutLooks(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in LOOKS:
            return ast.copy_location(ast.Constant(False), node)
        if isinstance(node.func, ast.Name) and node.func.id == "RuleCall":
            node.func.id = "BareCall"
        return self.generic_visit(node)


def cut(function: Any) -> Any:
    """`function` without any look at hooks and debug mode."""
    inner = inspect.unwrap(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(inner)))
    tree = ast.fix_missing_locations(_WithoutLooks().visit(tree))
    names = {**inner.__globals__, "BareCall": BareCall}
    exec(compile(tree, inspect.getfile(inner), "exec"), names)
    return names[inner.__name__]


reading = importlib.import_module("nngrad.execution.reading")
grad = importlib.import_module("nngrad.autodiff.grad")
backward = importlib.import_module("nngrad.execution.backward")
PLACES: list[tuple[ModuleType | Engine | type, str]] = [
    (Grad, "walk"), (grad, "question_of"), (reading, "forward"), (reading, "evaluate"), (backward, "_gradients_from"),
    (engine, "forward"), (engine, "evaluate"),
]
"""Where functions with looks are called from."""


@contextmanager
def without_watching() -> Iterator[Callable[[bool], None]]:
    """Gives a function that takes the looks out of nngrad (False) or puts them back (True)."""
    originals = [getattr(owner, name) for owner, name in PLACES]
    bare = {original: cut(original) for original in originals}

    def switch(on: bool) -> None:
        for (owner, name), original in zip(PLACES, originals, strict=True):
            setattr(owner, name, original if on else bare[original])

    try:
        yield switch
    finally:
        switch(True)


def network() -> tuple[nn.Variable, nn.Variable]:
    """A small network, where what surrounds the executable counts most."""
    rng = np.random.default_rng(0)
    x = nn.Variable.from_numpy_array(rng.standard_normal((8, 16)).astype(np.float32), need_grad=True)
    h = x
    for _ in range(8):
        h = F.tanh(F.affine(h, nn.Variable.from_numpy_array(rng.standard_normal((16, 16)).astype(np.float32))))
    return x, F.mean(h)


def overheads(smoke: bool) -> list[Row]:
    """What hooks and debug mode cost when they are off."""
    ops = 50 if smoke else 100
    _, start = nngrad_chain(ops)
    leaves = leaves_of([start])
    x, y = network()
    (gx,) = nn.grad(y, x)

    def build() -> Any:
        return nngrad_chain(ops)

    def differentiate() -> Any:
        return nn.grad([start], leaves) and None

    def run_forward() -> Any:
        y.forward()
        return y.cell.raw()

    def read() -> Any:
        gx.forward()
        return gx.cell.raw()

    def run_backward() -> Any:
        y.forward()
        y.backward()
        return x.grad.raw()

    def rebuilt() -> Any:
        leaf, loss = network()
        loss.forward()
        loss.backward()
        return leaf.grad.raw()

    tasks: dict[str, tuple[Contender, int]] = {
        f"build a graph of {ops} ops (the same code)": (build, 401),
        f"build its gradient, {ops} ops": (differentiate, 301),
        "forward": (run_forward, 4001),
        "run a gradient graph": (read, 4001),
        "forward and backward": (run_backward, 4001),
        "build, forward and backward": (rebuilt, 2001),
    }
    rows = []
    with without_watching() as switch:

        def switched(task: Contender, on: bool) -> Contender:
            def run() -> Any:
                switch(on)
                return task()

            return run

        for what, (task, rounds) in tasks.items():
            contenders = {"nngrad": switched(task, True), "without hooks and debug": switched(task, False)}
            times = medians(contenders, 3 if smoke else rounds, 1)  # call by call in turn: the machine is not still
            rows.append(row(f"hooks and debug off: {what}", times, "nngrad", "without hooks and debug", 1.02))
    return rows


def pairwise(gradients: list[nn.Variable]) -> nn.Variable:
    """The sum of gradients, one after the other, as other frameworks accumulate."""
    total = gradients[0]
    for g in gradients[1:]:
        total = F.add2(total, g)
    return total


def fan_out(uses: int, **options: Any) -> tuple[float, float, nn.Variable]:
    """Seconds to build the gradient of an input that is used many times and to its first value, and the gradient."""
    x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 1024, dtype=np.float32).reshape(32, 32), need_grad=True)
    y = F.add_n(*[F.sin(x * (1.0 + i / uses)) for i in range(uses)])
    start = time.perf_counter()
    (gx,) = nn.grad(y, x, **options)
    built = time.perf_counter()
    nn.executables.clear()
    gx.forward()
    jax.block_until_ready(gx.cell.raw())
    return built - start, time.perf_counter() - built, gx


def eager_fan_out(uses: int, rounds: int, **options: Any) -> float:
    """Seconds for that gradient op by op, the best of a few."""
    times = []
    for _ in range(rounds):
        x = nn.Variable.from_numpy_array(np.ones((32, 32), np.float32), need_grad=True)
        with nn.auto_forward():
            y = F.add_n(*[F.sin(x * (1.0 + i / uses)) for i in range(uses)])
            jax.block_until_ready(y.cell.raw())
            start = time.perf_counter()
            (gx,) = nn.grad(y, x, **options)
            jax.block_until_ready(gx.cell.raw())
            times.append(time.perf_counter() - start)
    return min(times[1:])


def jax_fan_out(uses: int) -> tuple[float, Contender]:
    """Seconds to the first value of the same gradient by jitted `jax.grad`, and a run of it."""
    x = jnp.linspace(-1, 1, 1024, dtype=jnp.float32).reshape(32, 32)

    def f(x: Any) -> Any:
        return sum(jnp.sin(x * (1.0 + i / uses)) for i in range(uses)).sum()  # type: ignore[union-attr]

    gradient = jax.jit(jax.grad(f))
    start = time.perf_counter()
    jax.block_until_ready(gradient(x))
    return time.perf_counter() - start, lambda: gradient(x)


def sums(smoke: bool) -> list[Row]:
    """One n-ary sum against pairwise ones, and against JAX."""
    uses = 50 if smoke else 1000
    with nn.simplify(False):  # which would make a single sum of pairwise ones
        measured = {"one sum": fan_out(uses), "pairwise": fan_out(uses, aggregate=pairwise)}
    jax_first, jax_run = jax_fan_out(uses)
    what = f"input used {uses:,} times"

    def run(gx: nn.Variable) -> Contender:
        def again() -> Any:
            gx.forward()
            return gx.cell.raw()

        return again

    times = medians(
        {**{name: run(gx) for name, (_, _, gx) in measured.items()}, "jitted jax.grad": jax_run}, 3 if smoke else 15, 1
    )
    rounds = 2 if smoke else 4
    with nn.simplify(False):
        eager = {"one sum": eager_fan_out(uses, rounds), "pairwise": eager_fan_out(uses, rounds, aggregate=pairwise)}
    first = {name: seconds for name, (_, seconds, _) in measured.items()} | {"jitted jax.grad": jax_first}
    return [
        row(f"{what}: build the gradient", {name: t for name, (t, _, _) in measured.items()}, "one sum", "pairwise"),
        row(f"{what}: compile and run", first, "one sum", "pairwise"),
        row(f"{what}: compile and run", first, "one sum", "jitted jax.grad"),
        row(f"{what}: run", times, "one sum", "pairwise"),
        row(f"{what}: run", times, "one sum", "jitted jax.grad"),
        row(f"{what}: op by op", eager, "one sum", "pairwise"),
    ]


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table."""
    return [*overheads(smoke), *sums(smoke)]
