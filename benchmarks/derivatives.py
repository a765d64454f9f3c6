"""The nth derivative of a tanh MLP, orders 1 to 12: size, time to the first result, run time, and accuracy."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn

from .counting import Size, size_of_graph, size_of_jaxpr
from .peers import Parameters
from .tanh_mlp import Field, along, jax_mlp, nngrad_mlp, tanh_parameters, taylor
from .timing import Contender, Row, forget, medians, shown, wait_for

HIGHEST = 12
NESTED, AT_ONCE = "nested nn.grad", "nn.nth_derivative"
GRAD, JVP, JET = "nested jax.grad", "nested jax.jvp", "jet"
OURS, PEERS = (NESTED, AT_ONCE), (GRAD, JVP, JET)

LAST = {NESTED: HIGHEST, AT_ONCE: HIGHEST, GRAD: 8, JVP: 10, JET: HIGHEST}
"""The highest order that is run. For the peers' next one, compilation alone takes minutes."""

ONCE = {GRAD: 5, JVP: 7}
"""The order above which a contender is so long in the making that it is made once, after the others."""

SLOW = 0.1
"""Seconds. A contender that takes longer to run is not run in turn with the others, which it would disturb."""


class Made(NamedTuple):
    """A contender, and how large its graph is."""

    run: Contender
    size: Callable[[], Size]


class Figures(NamedTuple):
    """What was measured of a contender at an order."""

    order: int
    name: str
    nodes: int
    """Functions of nngrad's, or equations of JAX's."""
    products: int
    """Matrix products among them."""
    first: float
    """Seconds until the first result is there: build, trace, compile, run."""
    run: float
    """Seconds for a result after that."""
    error: float
    """Largest error, relative to the largest value, against the derivative in float64."""


# ---------------------------------------------------------------- contenders


def nngrad_graph(derive: Callable[..., nn.Variable]) -> Callable[..., Made]:
    """Makes the contender that compiles the graph of `derive(y, x, order)`."""

    def make(parameters: Parameters, x: Any, order: int) -> Made:
        p = [nn.Variable.from_numpy_array(a, need_grad=True) for a in parameters]
        leaf = nn.Variable(x.shape, need_grad=True)
        y = derive(nngrad_mlp(p, leaf), leaf, order)
        compiled = nn.compile(y, [leaf])
        return Made(lambda: compiled(x), lambda: size_of_graph([y]))

    return make


def nested(y: nn.Variable, x: nn.Variable, order: int) -> nn.Variable:
    """`nn.grad` of `nn.grad`, as a user of nnabla writes it."""
    for _ in range(order):
        (y,) = nn.grad([y], [x])
    return y


def at_once(y: nn.Variable, x: nn.Variable, order: int) -> nn.Variable:
    """The last of the derivatives that `nn.nth_derivative` gives."""
    return nn.nth_derivative(y, x, order)[-1]


def jax_function(derive: Callable[[Field, int], Field]) -> Callable[..., Made]:
    """Makes the contender that jits the function `derive(f, order)`."""

    def make(parameters: Parameters, x: Any, order: int) -> Made:
        p = [jnp.asarray(a) for a in parameters]

        def function(p: list[Any], x: Any) -> Any:
            return derive(lambda x: jax_mlp(p, x), order)(x)

        jitted = jax.jit(function)
        return Made(lambda: jitted(p, x), lambda: size_of_jaxpr(jitted.trace(p, x).jaxpr))

    return make


def nested_grad(f: Field, order: int) -> Field:
    """`jax.grad` of `jax.grad`. The gradient of the sum is that of each row (this is smaller than `vmap`)."""
    for _ in range(order):
        f = jax.grad(lambda x, f=f: jnp.sum(f(x)))
    return f


def nested_jvp(f: Field, order: int) -> Field:
    """`jax.jvp` of `jax.jvp`."""
    for _ in range(order):
        f = along(f)
    return f


def jet_last(f: Field, order: int) -> Field:
    """The last of the derivatives that `jet` gives."""
    return lambda x: taylor(f, x, order)[1][-1]


MAKERS = {
    NESTED: nngrad_graph(nested),
    AT_ONCE: nngrad_graph(at_once),
    JET: jax_function(jet_last),
    JVP: jax_function(nested_jvp),
    GRAD: jax_function(nested_grad),
}
"""Those that compile longest come last: making a contender forgets what was compiled for those before it."""


# ---------------------------------------------------------------- the reference


def exact_derivatives(parameters: Parameters, x: np.ndarray, order: int) -> list[np.ndarray]:
    """The derivatives of the orders 0 to `order`, by arithmetic on Taylor series in float64.

    A series is a list of its coefficients. tanh' = 1 - tanh^2 gives the coefficients of w = tanh(u) one from
    the other: k w_k = sum over j from 1 to k of j u_j v_(k-j), with v = 1 - w^2 (Griewank and Walther,
    Evaluating Derivatives, chapter 13).
    """
    p = [a.astype(np.float64) for a in parameters]
    series = [x.astype(np.float64), np.ones(x.shape), *[np.zeros(x.shape)] * (order - 1)][: order + 1]
    for i in range(0, len(p), 2):
        series = [c @ p[i] for c in series]
        series[0] = series[0] + p[i + 1]
        if i + 2 < len(p):
            series = tanh_series(series)
    factorials = np.cumprod([1.0, *range(1, order + 1)])
    return [c * n for c, n in zip(series, factorials, strict=True)]


def tanh_series(u: list[np.ndarray]) -> list[np.ndarray]:
    """The Taylor coefficients of tanh(u) from those of u."""
    w, v = [np.tanh(u[0])], [1 - np.tanh(u[0]) ** 2]
    for k in range(1, len(u)):
        w.append(sum(j * u[j] * v[k - j] for j in range(1, k + 1)) / k)
        v.append(-sum(w[j] * w[k - j] for j in range(k + 1)))
    return w


def relative_error(result: Any, exact: np.ndarray) -> float:
    """The largest error, relative to the largest value."""
    return float(np.max(np.abs(np.asarray(result, np.float64) - exact)) / np.max(np.abs(exact)))


# ---------------------------------------------------------------- measuring


@functools.cache
def measured(smoke: bool) -> tuple[Figures, ...]:
    """The figures of every contender at every order that it is run at."""
    rng = np.random.default_rng(0)
    batch, widths = (16, (1, 8, 8, 8, 1)) if smoke else (1024, (1, 64, 64, 64, 1))
    parameters = tanh_parameters(rng, *widths)
    x = np.linspace(-1, 1, batch, dtype="f")[:, None]
    highest = 3 if smoke else HIGHEST
    exact = exact_derivatives(parameters, x, highest)
    for make in MAKERS.values():  # what Python and JAX load when they first need it is nobody's time
        wait_for(make(parameters, jnp.asarray(x), 1).run())
    return tuple(
        figures for order in range(1, highest + 1)
        for figures in measured_at(order, parameters, jnp.asarray(x), exact[order], smoke)
    )


def measured_at(order: int, parameters: Parameters, x: Any, exact: np.ndarray, smoke: bool) -> list[Figures]:
    """The figures of every contender at one order."""
    makers = {name: make for name, make in MAKERS.items() if order <= LAST[name]}
    firsts: dict[str, list[float]] = {name: [] for name in makers}
    made = {}
    rounds = 1 if smoke else 3
    for i in range(rounds):
        for name, make in makers.items():
            if i == rounds - 1 or order <= ONCE.get(name, HIGHEST):
                forget()
                start = time.perf_counter()
                made[name] = make(parameters, x, order)
                wait_for(made[name].run())
                firsts[name].append(time.perf_counter() - start)
    runs = run_times({name: m.run for name, m in made.items()}, smoke)
    return [
        Figures(order, name, *m.size(), statistics.median(firsts[name]), runs[name], relative_error(m.run(), exact))
        for name, m in made.items()
    ]


def run_times(contenders: dict[str, Contender], smoke: bool) -> dict[str, float]:
    """Seconds per call: in turn for all that are quick, and by itself for one that is slow."""
    quick, times = {}, {}
    for name, contender in contenders.items():
        wait_for(contender())
        start = time.perf_counter()
        wait_for(contender())
        if time.perf_counter() - start < SLOW:
            quick[name] = contender
        else:
            times |= medians({name: contender}, 3, 1)
    return times | medians(quick, 2 if smoke else 21, 1 if smoke else 5)


# ---------------------------------------------------------------- the lines of the table

GOALS = {
    "run": {6: {GRAD: 0.2, JET: 0.65, JVP: 1.0}, 10: {JET: 0.8, JVP: 1.0}},
    "first": {6: {GRAD: 0.2, JET: 1.0}, 8: {GRAD: 0.03, JVP: 0.25}, 10: {JET: 1.0}},
    "nodes": {6: 150, 10: 600},
}
"""By measure and order: the ratio to each peer that is wanted at most, or the number."""

TITLES = {"run": "run time", "first": "time to the first result"}


class Measured:
    """Figures by contender and order."""

    def __init__(self, figures: tuple[Figures, ...]) -> None:
        self.by_place = {(f.name, f.order): f for f in figures}
        self.orders = sorted({f.order for f in figures})
        self.ours = [name for name in OURS if (name, 1) in self.by_place]

    def of(self, name: str, order: int, measure: str) -> Any:
        """One figure."""
        return getattr(self.by_place[name, order], measure)

    def worst(self, order: int, measure: str) -> Any:
        """The larger of our two."""
        return max(self.of(name, order, measure) for name in self.ours)

    def both(self, order: int, measure: str, text: Callable[[Any], str]) -> str:
        """Our two, for the table."""
        return ", ".join(f"{name}: {text(self.of(name, order, measure))}" for name in self.ours)

    def best_peer(self, order: int, measure: str) -> str:
        """The peer with the smallest figure."""
        return min((n for n in PEERS if (n, order) in self.by_place), key=lambda n: self.of(n, order, measure))


def run(smoke: bool, torch: bool) -> list[Row]:
    """Lines of the table. Ratios are those of the slower, or larger, of nngrad's two ways."""
    m = Measured(measured(smoke))
    return [*size_rows(m), *time_rows(m), *overall_rows(m)]


def size_rows(m: Measured) -> list[Row]:
    """Matrix products and functions."""
    order = max(m.orders, key=lambda n: m.worst(n, "products") / (2 * n + 5))
    limit = 2 * order + 5
    what = f"matrix products in the graph of order n, where they are most (n = {order}), against 2n + 5"
    rows = [Row(what, m.both(order, "products", str), str(limit), m.worst(order, "products") / limit, 1.0)]
    for n, limit in GOALS["nodes"].items():
        if n in m.orders:
            what = f"functions in the graph of order {n}"
            rows.append(Row(what, m.both(n, "nodes", str), f"limit: {limit}", m.worst(n, "nodes") / limit, 1.0))
    return rows


def time_rows(m: Measured) -> list[Row]:
    """Time to the first result, and run time."""
    return [
        Row(
            f"{title}, order {n}", m.both(n, measure, shown), f"{peer}: {shown(m.of(peer, n, measure))}",
            m.worst(n, measure) / m.of(peer, n, measure), goal,
        )
        for measure, title in TITLES.items()
        for n, goals in GOALS[measure].items() if n in m.orders
        for peer, goal in goals.items()
    ]


def overall_rows(m: Measured) -> list[Row]:
    """The order at which each measure compares worst: run time with the best peer, accuracy with jet's."""
    rows = []
    for what, measure, text, goal in (
        ("run time, {}, against the best peer", "run", shown, None),
        ("largest relative error, {}, against jet's", "error", "{:.1e}".format, 1.0),
    ):
        def peer(n: int, measure: str = measure) -> str:
            return JET if measure == "error" else m.best_peer(n, measure)

        def ratio(n: int, measure: str = measure) -> float:
            return m.worst(n, measure) / m.of(peer(n, measure), n, measure)

        n = max(m.orders, key=ratio)
        theirs = f"{peer(n)}: {text(m.of(peer(n), n, measure))}"
        rows.append(Row(what.format(f"worst at order {n}"), m.both(n, measure, text), theirs, ratio(n), goal))
    return rows
