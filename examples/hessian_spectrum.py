"""The spectrum of the Hessian of a small classifier's loss on handwritten digits, by the method of Lanczos.

The product of the Hessian and a vector is the derivative of the gradient along the vector: a graph as any other, at the
cost of about two gradients, however many parameters there are. Lanczos' method needs nothing but such products. From
one random vector it finds the largest eigenvalues; from several, the whole density of eigenvalues (stochastic Lanczos
quadrature; Ghorbani, Krishnan and Xiao, 2019). The network is small enough for its full Hessian, which JAX computes
here, as a check.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import script
from rich.progress import track

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

WIDTH = 16
STEPS = 300
BOUND = 1e-4
TOP = 10
"""Eigenvalues that are compared with those of the full Hessian: the largest."""
PROBES = 8
"""Random vectors for the density, each with a run of Lanczos' method."""
ITERATIONS = 100

Array = np.ndarray[Any, Any]


def digits() -> tuple[Array, Array]:
    """scikit-learn's 1,797 handwritten digits, of shape (1797, 64) in [-1, 1], and their labels, of shape (1797, 1)."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.data / 8 - 1).astype(np.float32), data.target.reshape(-1, 1)


def classifier(x: nn.Variable) -> nn.Variable:
    """Logits of shape (n, 10) for images of shape (n, 64)."""
    h = F.tanh(PF.affine(x, WIDTH, name="hidden"))
    return PF.affine(h, 10, name="logits")


def full_spectrum(loss: nn.Variable, parameters: list[nn.Variable]) -> Array:
    """All eigenvalues (ascending) of the Hessian, of which JAX computes every column: differentiated without nngrad."""
    f = nn.to_jax(loss, parameters)
    point, unflatten = jax.flatten_util.ravel_pytree([jnp.asarray(p.d) for p in parameters])
    gradient = jax.grad(lambda flat: f(*unflatten(flat)))
    columns = jax.jit(lambda e: jax.lax.map(lambda v: jax.jvp(gradient, (point,), (v,))[1], e, batch_size=32))
    hessian = np.asarray(columns(jnp.eye(len(point))), np.float64)
    return np.linalg.eigvalsh((hessian + hessian.T) / 2)


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of the largest eigenvalues, relative to the largest of all."""
    images, labels = digits()
    nn.seed(0)
    with nn.parameter_scope("classifier", scope=OrderedDict()):
        x, label = nn.Variable.from_numpy_array(images), nn.Variable.from_numpy_array(labels)
        logits = classifier(x)
        loss = F.mean(F.softmax_cross_entropy(logits, label))
        parameters = list(nn.get_parameters().values())
        solver = S.Adam()
        losses = script.train(nn.train_step(loss, parameters, solver), solver, 1e-2, steps)
    accuracy = float(np.mean(logits.d.argmax(axis=1) == labels[:, 0]))
    size = sum(p.size for p in parameters)
    runs = [nn.lanczos(loss, parameters, ITERATIONS, seed=i)[:2] for i in track(range(PROBES), "Lanczos")]
    largest = runs[0][0][-TOP:]
    everything = full_spectrum(loss, parameters)
    print(f"{size} parameters, {accuracy:.1%} of the digits known; the largest eigenvalues:")
    print("  Lanczos     ", largest[::-1].round(4))
    print("  full Hessian", everything[-TOP:][::-1].round(4))
    draw(runs, everything, out / "hessian_spectrum.png")
    error = np.max(np.abs(largest - everything[-TOP:])) / everything[-1]
    return script.Result(losses, float(error))


def density(runs: list[tuple[Array, Array]], at: Array, width: float) -> Array:
    """The density of eigenvalues on a symmetric logarithmic axis, from values and weights, each widened to a bell."""
    values, weights = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    bells = np.exp(-(((at[:, None] - symlog(values)) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    return bells @ weights / len(runs)


def symlog(values: Array, unit: float = 1e-3) -> Array:
    """About linear below `unit`, and a logarithm to base 10 above, with the sign of the value."""
    return np.arcsinh(values / unit) / np.log(10)


def draw(runs: list[tuple[Array, Array]], everything: Array, path: Path) -> None:
    """The density of eigenvalues by Lanczos' method and by the full Hessian, and the largest ones."""
    figure = script.figure(10, 3.6)
    left, right = figure.subplots(1, 2)
    at = np.linspace(symlog(everything[0]) - 0.5, symlog(everything[-1]) + 0.5, 600)
    full = [(everything, np.full(len(everything), 1 / len(everything)))]
    left.fill_between(at, density(full, at, 0.15), color=script.GREY, alpha=0.5, label="full Hessian")
    left.plot(at, density(runs, at, 0.15), color=script.BLUE, linewidth=1.2, label=f"Lanczos, {PROBES} vectors")
    ticks = np.array([-1e-1, -1e-2, -1e-3, 0, 1e-3, 1e-2, 1e-1, 1, 10])
    ticks = ticks[(symlog(ticks) > at[0]) & (symlog(ticks) < at[-1])]
    left.set_xticks(symlog(ticks), [f"{tick:g}" for tick in ticks])
    left.set(title="density of eigenvalues", xlabel="eigenvalue", yscale="log", ylim=(1e-4, None))
    count = min(40, len(everything))
    rank = np.arange(1, count + 1)
    right.plot(rank, everything[::-1][:count], "o", color=script.GREY, markersize=7, label="full Hessian")
    right.plot(rank, runs[0][0][::-1][:count], ".", color=script.BLUE, markersize=5, label="Lanczos, 1 vector")
    right.set(title="largest eigenvalues", xlabel="rank", yscale="log")
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
