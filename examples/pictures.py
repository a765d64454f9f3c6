"""Pictures of graphs: a gradient penalty with the gradient of its gradient, the gradient of a loop, and plots.

The pictures of graphs are SVG files, which nn.draw writes without any other program; the plots are drawn by matplotlib.
Those of the documentation are made by this script: `python examples/pictures.py --out docs/images`.
"""

from __future__ import annotations

import argparse
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import script

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF


def penalty() -> nn.Variable:
    """The gradient of a gradient penalty by the weights of a critic, which is the graph of all that leads to it."""
    x = nn.Variable((64, 8), name="x")
    w = nn.Variable((8, 16), need_grad=True, name="W")
    v = nn.Variable((16, 1), need_grad=True, name="v")
    score = F.batch_matmul(F.tanh(F.batch_matmul(x, w)), v)
    (slope,) = nn.grad([F.sum(score)], [x])
    slope.name = "slope"
    loss = F.mean((F.norm(slope, axis=1) - 1) ** 2)
    (gw,) = nn.grad([loss], [w])
    gw.name = "gW"
    return gw


def loop() -> nn.Variable:
    """The gradient of a recurrent network by its weights: a loop beside a loop."""
    w = nn.Variable((4, 4), need_grad=True, name="W")
    begin, inputs = nn.Variable((1, 4), name="begin"), nn.Variable((50, 1, 4), name="inputs")
    last, _ = F.scan(lambda h, x: (F.tanh(F.batch_matmul(h, w) + x), None), begin, inputs)
    (gw,) = nn.grad([F.sum(last**2)], [w])
    gw.name = "gW"
    return gw


def drawn() -> dict[str, nn.viewing.Drawing]:
    """The pictures, by the names of their files."""
    return {
        "drawn_penalty.svg": nn.draw(penalty(), title="The gradient of a gradient penalty"),
        "drawn_penalty_print.svg": nn.draw(penalty(), style="print", shapes=False, arguments=False),
        "drawn_loop.svg": nn.draw(loop(), title="The gradient of a loop"),
    }


def plotted() -> Any:
    """A figure with the four plots, of a classifier that has not been trained."""
    nn.seed(0)
    rng = np.random.default_rng(0)
    with nn.parameter_scope("", scope=OrderedDict()):
        h = nn.Variable.from_numpy_array(rng.normal(size=(64, 6)).astype("f"))
        label = nn.Variable.from_numpy_array(rng.integers(0, 3, (64, 1)))
        for name in ("first", "second"):
            h = F.tanh(PF.affine(h, 16, name=name))
        loss = F.mean(F.softmax_cross_entropy(PF.affine(h, 3, name="logits"), label))
        parameters = nn.get_parameters()
    t = nn.Variable((8,), need_grad=True)
    figure = script.figure(9, 6)
    (a, b), (c, d) = figure.subplots(2, 2)
    nn.plot.growth(F.tanh(F.sin(t)), t, 10, ax=a, others={"doubling": [2**n for n in range(1, 8)]})
    nn.plot.memory([loss, *nn.grad([loss], list(parameters.values()))], ax=b)
    nn.plot.hessian_spectrum(loss, parameters, vectors=8, iterations=100, ax=c)
    loss.forward()
    loss.backward()
    nn.plot.gradient_norms(parameters, ax=d)
    return figure


def main() -> int:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    folder = Path("nngrad-examples")
    parser.add_argument("--out", type=Path, default=folder, metavar="DIR", help="folder for the pictures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawn().items():
        drawing.save(out / name)
        print(out / name)
    script.save(plotted(), out / "plots.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
