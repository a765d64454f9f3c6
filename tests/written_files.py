"""Files that a version of nngrad writes, which every later one must read: `test_written_files.py` does.

    python -m tests.written_files

writes those of this version to `tests/data/written_by_VERSION/`, which is done once, when it is released.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.nnabla.utils.save import save

DATA = Path(__file__).with_name("data")
STEPS, MORE = 3, 2
"""Steps of training before files are written, and after."""
PARAMETERS = ("parameters.safetensors", "parameters.h5")
STATES = ("states.safetensors", "states.h5", "states.protobuf")


class Model(NamedTuple):
    """A small classifier."""

    x: nn.Variable
    t: nn.Variable
    y: nn.Variable
    loss: nn.Variable


def model() -> Model:
    """The graph, of the parameters that are there, or of new ones."""
    x, t = nn.Variable((4, 1, 6, 6)).apply(name="x"), nn.Variable((4, 1)).apply(name="t")
    h = PF.batch_normalization(PF.convolution(x, 3, (3, 3), name="conv"), batch_stat=False, name="bn")
    y = PF.affine(F.max_pooling(F.relu(h), (2, 2)), 5, name="out")
    return Model(x, t, y, F.mean(F.softmax_cross_entropy(y, t)))


def data() -> tuple[Any, Any]:
    """A batch, without a generator of random numbers, which another version may have otherwise."""
    return np.sin(np.arange(144.0)).reshape(4, 1, 6, 6).astype(np.float32), np.array([[0], [3], [1], [4]])


def trained(built: Model, solver: S.Solver, steps: int) -> list[float]:
    """The losses of so many steps."""
    built.x.d, built.t.d = data()
    losses = []
    for _ in range(steps):
        built.loss.forward()
        solver.zero_grad()
        built.loss.backward()
        losses.append(float(built.loss.d))
        solver.update()
    return losses


def main() -> None:
    """Write the files of this version."""
    folder = DATA / f"written_by_{nn.__version__}"
    folder.mkdir()
    nn.clear_parameters()
    nn.seed(0)
    built, solver = model(), S.Adam(0.01)
    solver.set_parameters(nn.get_parameters())
    trained(built, solver, STEPS)
    for parameters in PARAMETERS:
        nn.save_parameters(folder / parameters)
    for states in STATES:
        solver.save_states(folder / states)
    (gradient,) = nn.grad([built.loss], [built.x])
    results = {"y": built.y, "loss": built.loss, "gradient": gradient}
    nn.export(results, {"x": built.x, "t": built.t}, folder / "program.nngrad", platforms=("cpu",))
    network = {"name": "net", "batch_size": 4, "outputs": {"y": built.y}, "names": {"x": built.x}}
    save(str(folder / "network.nnp"), {"networks": [network]})
    with tempfile.TemporaryDirectory() as place:
        nn.Checkpointer(Path(place) / "checkpoints", solver).save(STEPS)
        shutil.make_archive(str(folder / "checkpoints"), "zip", place)
    nn.forward_all(list(results.values()))
    expected = {name: value.d.tolist() for name, value in results.items()}
    told = {**expected, "losses": trained(built, solver, MORE)}
    (folder / "expected.json").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
