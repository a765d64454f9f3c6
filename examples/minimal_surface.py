"""A minimal surface by Newton's method, with the sparse Hessian of its area.

A soap film spans a frame: the area of 20,000 triangles is a function of the heights of 10,000 nodes, each joined to its
neighbours alone. `nn.sparse_hessian` finds which elements of the Hessian are not 0, and computes them from a few
products. The frame is that of Scherk's surface (1834), which is minimal: z = log(cos x / cos y).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import script
from scipy.sparse.linalg import spsolve

import nngrad as nn
import nngrad.functions as F

NODES, HALF = 102, 1.2
STEPS = 10
BOUND = 1e-3

Array = np.ndarray[Any, Any]


def scherk() -> Array:
    """The known heights, (NODES, NODES)."""
    x = np.linspace(-HALF, HALF, NODES)
    heights: Array = np.log(np.cos(x)[:, None] / np.cos(x))
    return heights


def area(z: nn.Variable) -> nn.Variable:
    """The area of all triangles."""
    h = 2 * HALF / (NODES - 1)
    along_x, along_y = (z[1:] - z[:-1]) / h, (z[:, 1:] - z[:, :-1]) / h
    lower = 1 + along_x[:, :-1] ** 2 + along_y[:-1] ** 2
    upper = 1 + along_x[:, 1:] ** 2 + along_y[1:] ** 2
    return F.sum(lower**0.5 + upper**0.5) * h**2 / 2


def solve(steps: int, out: Path) -> script.Result:
    """The error is that of the heights, relative in the L2 norm; the losses are norms of the gradient."""
    known = scherk()
    frame = known.copy()
    frame[1:-1, 1:-1] = 0
    inside = nn.Variable.from_numpy_array(np.zeros((NODES - 2, NODES - 2)), need_grad=True)
    total = area(F.pad(inside, (1, 1, 1, 1)) + frame)
    (slope,) = nn.grad(total, inside)
    hessian = nn.sparse_hessian(total, inside)
    print(hessian)
    norms = []
    for _ in range(steps):
        nn.forward_all([slope, hessian.values])
        norms.append(float(np.linalg.norm(slope.d)))
        inside.d = inside.d - spsolve(hessian.to_scipy().tocsc(), slope.d.ravel()).reshape(inside.shape)
    slope.forward()
    norms.append(float(np.linalg.norm(slope.d)))
    found, wanted = inside.d, known[1:-1, 1:-1]
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    frame[1:-1, 1:-1] = found
    draw(frame, hessian.to_scipy(), norms, out / "minimal_surface.png")
    return script.Result(norms, float(error))


def draw(heights: Array, hessian: Any, norms: list[float], path: Path) -> None:
    """The surface, where the Hessian is not 0, and the gradient at each step."""
    figure = script.figure(10, 3.4)
    left = figure.add_subplot(1, 3, 1, projection="3d")
    x = np.linspace(-HALF, HALF, NODES)
    left.plot_surface(*np.meshgrid(x, x, indexing="ij"), heights, cmap="viridis", linewidth=0)
    left.set(title="Scherk's surface")
    middle, right = figure.add_subplot(1, 3, 2), figure.add_subplot(1, 3, 3)
    few = min(3 * (NODES - 2), hessian.shape[0])
    middle.spy(hessian[:few, :few], markersize=0.3, color=script.BLUE)
    middle.set_title(f"Hessian: {few:,} rows of {hessian.shape[0]:,}", fontsize=11)
    right.semilogy(norms, ".-", color=script.BLUE)
    right.set(title="norm of the gradient", xlabel="Newton step")
    right.spines[["top", "right"]].set_visible(False)
    script.save(figure, path)


if __name__ == "__main__":
    sys.exit(script.main(solve, __doc__, STEPS, BOUND))
