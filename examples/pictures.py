"""Pictures of graphs: a gradient penalty with the gradient of its gradient, and the gradient of a loop.

They are SVG files, which nn.draw writes without any other program. Those of the documentation are made by this script:
`python examples/pictures.py --out docs/images`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nngrad as nn
import nngrad.functions as F


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
        "drawn_penalty_small.svg": nn.draw(penalty(), shapes=False, arguments=False),
        "drawn_loop.svg": nn.draw(loop(), title="The gradient of a loop"),
    }


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
    return 0


if __name__ == "__main__":
    sys.exit(main())
