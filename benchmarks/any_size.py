"""`python -m benchmarks.any_size`: which graphs are exported for any batch size, and whether they compute the same.

Layers, losses, decompositions and loops, each as it is, its gradients, and a second derivative; compared at two sizes
with `nn.to_jax`, which builds the graph of each size.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF

SIZES = (3, 6)
CLOSE = 1e-4
"""Of the largest element, or of 1 where that is less: gradients that are 0 but for rounding are among them."""


def _unbiased(x: nn.Variable) -> nn.Variable:
    return F.sum((x - F.mean(x, axis=0, keepdims=True)) ** 2) / (x.shape[0] - 1)


def _potential(x: nn.Variable) -> nn.Variable:
    return F.sum(PF.affine(F.tanh(PF.affine(x, 8, name="a")), 1, name="b"), axis=1)


def _looped(step: Callable[[nn.Variable], nn.Variable]) -> Callable[[nn.Variable], nn.Variable]:
    return lambda x: F.scan(lambda h, _: (step(h), None), x, None, length=3)[0]


CASES: dict[str, tuple[Callable[..., nn.Variable], tuple[int, ...]]] = {
    "affine": (lambda x: PF.affine(x, 4), (3,)),
    "mean of a network": (lambda x: F.mean(F.swish(PF.affine(x, 4))), (3,)),
    "convolution": (lambda x: PF.convolution(x, 4, (3, 3), pad=(1, 1), stride=(2, 2)), (2, 7, 7)),
    "deconvolution": (lambda x: PF.deconvolution(x, 4, (3, 3)), (2, 6, 6)),
    "depthwise": (lambda x: PF.depthwise_convolution(x, (3, 3)), (2, 6, 6)),
    "pooling": (lambda x: F.max_pooling(F.sin(x), (2, 2)) + F.average_pooling(x, (2, 2)), (2, 6, 6)),
    "interpolation": (lambda x: F.interpolate(x, scale=(2, 2)), (2, 4, 4)),
    "batch normalisation": (lambda x: PF.batch_normalization(x, batch_stat=False), (3,)),
    "layer normalisation": (PF.layer_normalization, (5,)),
    "instance normalisation": (PF.instance_normalization, (3, 5, 5)),
    "softmax over rows": (lambda x: F.softmax(x, axis=0), (5,)),
    "deviation over rows": (lambda x: F.std(x, axis=0), (5,)),
    "unbiased variance": (_unbiased, (5,)),
    "cross entropy": (lambda x: F.softmax_cross_entropy(x, F.constant(1, (x.shape[0], 1), dtype="int32")), (5,)),
    "products of rows": (lambda x: x @ F.transpose(x, (1, 0)), (5,)),
    "attention": (lambda x: F.softmax(F.batch_matmul(x, x, transpose_b=True)) @ x, (4, 5)),
    "LSTM": (lambda x: PF.lstm_cell(x, F.constant(0, (x.shape[0], 4)), F.constant(0, (x.shape[0], 4)), 4)[0], (3,)),
    "loop": (_looped(lambda h: F.tanh(PF.affine(h, 3))), (3,)),
    "loop with a mean": (_looped(lambda h: h * F.mean(h)), (3,)),
    "inverse": (lambda x: F.batch_inv(x + np.eye(3, dtype=np.float32) * 9), (3, 3)),
    "slices and pads": (lambda x: F.pad(F.concatenate(x[::-1, 1:3], F.sin(x[:, :2]), axis=1), (1, 1)), (5,)),
    "sort, gather, cumsum": (lambda x: F.gather(F.cumsum(F.sort(x), axis=0), np.int32([0, 2]), axis=1), (5,)),
    "Laplacian": (lambda x: nn.laplacian(_potential(x), x), (3,)),
    "third derivative": (lambda x: nn.nth_derivative(F.tanh(PF.affine(x, 4)), x, 3)[-1], (1,)),
}


def of_order(build: Callable[..., nn.Variable], order: int) -> Callable[[nn.Variable], list[nn.Variable]]:
    """The function itself, its gradients in the input and in parameters, or a second derivative."""
    def graph(x: nn.Variable) -> list[nn.Variable]:
        y = build(x)
        if order == 0:
            return [y]
        gradients: list[nn.Variable] = nn.grad(F.sum(y * y), [x, *nn.get_parameters().values()])
        return gradients if order == 1 else nn.grad(F.mean(gradients[0] ** 2), [x])

    return graph


def difference(found: Any, wanted: Any) -> float:
    """The largest difference, of the largest element or of 1."""
    return float(np.abs(np.asarray(found) - np.asarray(wanted)).max() / max(1.0, float(np.abs(wanted).max())))


def main() -> int:
    """Print a line for each graph; returns 1 if one that was exported computes something else."""
    wrong = exported = refused = 0
    rng = np.random.default_rng(0)
    path = Path(tempfile.mkdtemp()) / "graph.nnx"
    for name, (build, shape) in CASES.items():
        for order in range(3):
            nn.clear_parameters()
            graph = of_order(build, order)
            try:
                nn.export(graph, {"x": ("batch", *shape)}, path, platforms=["cpu"])
            except ValueError as error:
                refused += 1
                print(f"{name}, order {order}: {str(error).splitlines()[0]}", flush=True)
                continue
            run, each = nn.load_exported(path), nn.to_jax(graph)
            points = [rng.standard_normal((n, *shape)).astype(np.float32) for n in SIZES]
            largest = max([difference(a, b) for x in points for a, b in zip(run(x), each(x), strict=True)])
            exported += 1
            wrong += not largest < CLOSE
            print(f"{name}, order {order}: {largest:.0e}", flush=True)
    print(f"{exported} exported, {wrong} of them wrong; {refused} refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
