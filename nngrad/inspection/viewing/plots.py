"""`nn.plot`: measurements of graphs and of training, drawn with matplotlib.

Each function draws into the given axes, or into new ones, and returns them; it does not save or show anything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...extend import Variable, checked_count, did_you_mean, grad
from .. import MemoryReport, count, memory_report
from ..shown import unit_of_bytes
from .spectrum import Spectrum, hessian_spectrum_of

__all__ = ["gradient_norms", "growth", "hessian_spectrum", "memory"]

_COLOURS = ("#2a6fbb", "#d9722e", "#2f8a4b", "#8a4aa3", "#98790f", "#1f8288", "#6a7683")
_MARKERS, _DASHES = "osD^vPX", ("-", "--", "-.", ":")
"""Markers and dashes that distinguish lines without colour."""
_GREY = "#9aa0a6"
_BELL = 0.18
"""The width of the Gaussian that smooths an eigenvalue, in decades."""
_QUANTITIES = {
    "functions": "functions in the graph", "matrix_products": "matrix products", "flops": "operations",
    "bytes": "bytes read and written",
}  # fmt: skip

Ax = Any
"""matplotlib's Axes."""


def growth(
    output: Variable, input: Variable, orders: int = 8, *, quantity: str = "functions",
    others: Mapping[str, Sequence[float]] | None = None, ax: Ax = None,
) -> Ax:  # fmt: skip
    """Plot the growth of a graph with the order of differentiation: `nn.count` of the nth derivative by nested
    `nn.grad`, for n = 1 to `orders`.

    Args:
        output: The Variable to differentiate.
        input: The Variable to differentiate with respect to.
        orders: The highest order.
        quantity: 'functions', 'matrix_products', 'flops' or 'bytes', each of the whole graph.
        others: The same quantity for other methods or libraries: by name, the numbers for n = 1, 2, ...
        ax: The axes to draw into; new ones by default.

    Returns:
        The Axes.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: `output` or `input` is not a Variable, `orders` is not an integer, or `others` is not a dict.
        ValueError: There is no such quantity, or `orders` is below 1.
    """
    if quantity not in _QUANTITIES:
        raise ValueError(f"quantity: must be one of {', '.join(_QUANTITIES)}, got {quantity!r}"
                         f"{did_you_mean(quantity, _QUANTITIES)}")
    orders = checked_count(orders, "orders")
    if not isinstance(others, Mapping | None):
        raise TypeError(f"others: expected a dict of figures by name, got {type(others).__name__}")
    figures = []
    y = output
    for _ in range(orders):
        (y,) = grad([y], [input])
        figures.append(getattr(count(y), quantity))
    ax = _axes(ax)
    named = {"nngrad": figures, **(others or {})}
    for (name, values), colour, marker, dash in zip(
        named.items(), itertools.cycle(_COLOURS), itertools.cycle(_MARKERS), itertools.cycle(_DASHES)
    ):  # fmt: skip
        ax.plot(range(1, len(values) + 1), values, color=colour, marker=marker, linestyle=dash, markersize=4,
                label=name)  # fmt: skip
    ax.set(xlabel="order of differentiation", ylabel=_QUANTITIES[quantity])
    everything = [*itertools.chain(*named.values())]
    if 0 < 20 * min(everything) < max(everything):
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    if others:
        ax.legend(frameon=False)
    return ax


def memory(outputs: Variable | Iterable[Variable] | MemoryReport, *, ax: Ax = None) -> Ax:
    """Plot the live bytes at each step of a graph's schedule, as predicted by `nn.memory_report`, and their peak,
    predicted and as compiled.

    Args:
        outputs: A Variable or Variables, or the report.
        ax: The axes to draw into; new ones by default.

    Returns:
        The Axes.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Something is not a Variable.
    """
    report = outputs if isinstance(outputs, MemoryReport) else memory_report(outputs)
    ax = _axes(ax)
    live = report.timeline.live or (0,)  # leaves need no computation
    unit, name = unit_of_bytes(max([report.peak, report.compiled or 0]))
    # Repeat the last value, so that the last step has a width.
    ax.fill_between(range(len(live) + 1), [n / unit for n in [*live, *live[-1:]]], step="post", color=_COLOURS[0],
                    alpha=0.35, linewidth=0)  # fmt: skip
    ax.step(range(len(live) + 1), [n / unit for n in [*live, *live[-1:]]], where="post", color=_COLOURS[0], linewidth=1)
    ax.axhline(report.peak / unit, color=_COLOURS[0], linestyle="--", linewidth=0.9,
               label=f"predicted peak, {report.peak / unit:.3g} {name}")  # fmt: skip
    if report.compiled is not None:
        ax.axhline(report.compiled / unit, color=_COLOURS[1], linestyle=":", linewidth=1.4,
                   label=f"as compiled, {report.compiled / unit:.3g} {name}")  # fmt: skip
    ax.set(xlabel="step of the schedule", ylabel=f"live temporaries, {name}", xlim=(0, max(len(live), 1)),
           ylim=(0, None))  # fmt: skip
    ax.legend(frameon=False)
    return ax


def hessian_spectrum(
    loss: Variable | Spectrum, parameters: Mapping[str, Variable] | Iterable[Variable] = (), *, vectors: int = 4,
    iterations: int = 64, seed: int = 0, ax: Ax = None,
) -> Ax:  # fmt: skip
    """Plot the density of the eigenvalues of a loss's Hessian at the current parameters, by stochastic Lanczos
    quadrature: from Hessian-vector products, without forming the Hessian.

    The axis is logarithmic on both sides of 0, and linear near it, where the number of products does not suffice to
    separate eigenvalues; the smallest and the largest eigenvalue are marked.

    Args:
        loss: A loss of shape (), or a `Spectrum` from `nngrad.inspection.viewing.spectrum.hessian_spectrum_of`.
        parameters: The parameters that the loss is differentiated with respect to.
        vectors: The number of random vectors; more of them make the density smoother.
        iterations: The maximum number of products for each vector; more of them make the density finer.
        seed: The seed of the vectors.
        ax: The axes to draw into; new ones by default.

    Returns:
        The Axes.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: The loss or a parameter is not a Variable, or a number is not an integer.
        ValueError: The loss has another shape, there are no parameters, a number is below 1, or the Hessian is not
            finite.
    """
    ax = _axes(ax)
    spectrum = loss if isinstance(loss, Spectrum) else hessian_spectrum_of(loss, parameters, vectors, iterations, seed)
    low, high = spectrum.smallest, spectrum.largest
    # Below this, the number of products does not suffice to separate eigenvalues.
    unit = 2 * (high - low) / min([len(run.values) for run in spectrum.runs]) or abs(high) or 1.0

    def scale(values: Any) -> Any:
        return np.arcsinh(np.asarray(values) / unit) / math.log(10)

    ends = scale([min(low, 0.0), max(high, 0.0)])
    at = np.linspace(ends[0] - 0.8, ends[1] + 0.8, 800)
    density = spectrum.density(at, _BELL, scale)
    ax.fill_between(at, density, 0, color=_COLOURS[0], alpha=0.25, linewidth=0)
    ax.plot(at, density, color=_COLOURS[0], linewidth=1.2)
    for value, name, side in ((low, "smallest", "right"), (high, "largest", "left")):
        ax.axvline(scale(value), color=_GREY, linestyle=":", linewidth=1)
        ax.annotate(f" {name} {value:.3g} ", (scale(value), 0.96), xycoords=("data", "axes fraction"), ha=side,
                    va="top", fontsize="small", rotation=90)  # fmt: skip
    decades = range(math.ceil(math.log10(unit)), math.ceil(math.log10(max(abs(low), abs(high), unit))) + 1)
    ticks = [0.0, *[sign * 10.0**e for e in decades for sign in (-1, 1)]]
    ticks = sorted([t for t in ticks if at[0] <= scale(t) <= at[-1]])
    ax.set_xticks(scale(ticks), [f"{tick:g}" for tick in ticks])
    top = float(density.max())
    ax.set(xlabel="eigenvalue", ylabel="density", yscale="log", ylim=(top * 1e-4, top * 8))
    return ax


def gradient_norms(
    norms: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, steps: Sequence[float] | None = None,
    depth: int | None = None, ax: Ax = None,
) -> Ax:  # fmt: skip
    """Plot L2 norms of gradients by layer (the parameters of a scope): as bars for one step, or as lines over steps.

    Args:
        norms: By parameter name, such as 'conv1/W', the norm of its gradient, or the parameter itself with its gradient
            in `.g`, as after `loss.backward()`. For several steps a list of such dicts, such as the results of
            `nn.train_step(..., aux='gradient_norms')`.
        steps: The numbers of these steps; 0, 1, ... by default.
        depth: The number of scope components of a layer: with 1, 'critic/conv1/W' is in 'critic'. All by default.
        ax: The axes to draw into; new ones by default.

    Returns:
        The Axes.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: `norms` is not a dict or a list of dicts, a value is not a number or Variable, or `depth` not an int.
        ValueError: There is nothing to draw, parameters differ between steps, `steps` has the wrong length, or `depth`
            is below 1.
    """
    if depth is not None:
        depth = checked_count(depth, "depth")
    listed = [norms] if isinstance(norms, Mapping) or not isinstance(norms, Iterable) else list(norms)
    for each in listed:
        if not isinstance(each, Mapping):
            raise TypeError(f"norms: expected a dict of norms or parameters by name, or a list of them, got "
                            f"{type(each).__name__}")
    layers = [_by_layer(each, depth) for each in listed]
    if not layers or not layers[0]:
        raise ValueError("norms: expected at least one norm, got none")
    if any([each.keys() != layers[0].keys() for each in layers]):
        raise ValueError("norms: all steps must have the same parameters")
    ax = _axes(ax)
    names = list(layers[0])
    if isinstance(norms, Mapping):
        ax.barh(names, [layers[0][name] for name in names], color=_COLOURS[0], height=0.62)
        ax.invert_yaxis()
        ax.set(xlabel="norm of the gradient")
        values = layers[0].values()
        if min(values) > 0 and max(values) > 50 * min(values):
            ax.set_xscale("log")
        return ax
    at = range(len(layers)) if steps is None else steps
    if len(at) != len(layers):
        raise ValueError(f"steps: expected {len(layers)} numbers, one for each dict of norms, got {len(at)}")
    for name, dash, colour in zip(names, itertools.cycle(_DASHES), itertools.cycle(_COLOURS)):
        ax.plot(at, [each[name] for each in layers], color=colour, linestyle=dash, linewidth=1.3, label=name)
    ax.set(xlabel="step", ylabel="norm of the gradient")
    if all([value > 0 for each in layers for value in each.values()]):
        ax.set_yscale("log")
    ax.legend(frameon=False, fontsize="small")
    return ax


def _by_layer(norms: Mapping[str, Any], depth: int | None) -> dict[str, float]:
    """The joint norm of the gradients in each scope."""
    squares: dict[str, float] = {}
    for name, value in norms.items():
        scope = name.split("/")[:-1]
        layer = "/".join(scope[:depth]) or name
        squares[layer] = squares.get(layer, 0.0) + _norm(name, value) ** 2
    return {layer: math.sqrt(square) for layer, square in squares.items()}


def _norm(name: str, value: Any) -> float:
    if isinstance(value, Variable):
        return float(np.linalg.norm(np.ravel(np.asarray(value.g, np.float64))))
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"norms[{name!r}]: expected a number or a parameter, got {type(value).__name__}") from None


def _axes(ax: Ax) -> Ax:
    """The given axes, or new ones."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("nn.plot needs matplotlib: pip install 'nngrad[plot]'") from None
    if ax is None:
        _, ax = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    if not hasattr(ax, "spines"):
        raise TypeError(f"ax: expected matplotlib Axes or None, got {type(ax).__name__}")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
