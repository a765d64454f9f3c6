"""Files that this version and earlier ones have written are read, and say what they said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.solvers as S
from nngrad.nnabla.utils.nnp_graph import NnpLoader
from tests.written_files import DATA, MORE, PARAMETERS, STATES, STEPS, data, model, trained

FOLDERS = sorted(DATA.glob("written_by_*"))


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def written(request: pytest.FixtureRequest) -> Path:
    """The files of a version, where there are no parameters yet."""
    nn.clear_parameters()
    return request.param  # type: ignore[no-any-return]


def told(folder: Path) -> Any:
    return json.loads((folder / "expected.json").read_text())


def agree(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_this_version_has_written_its_files() -> None:
    folder = DATA / f"written_by_{nn.__version__}"
    assert folder in FOLDERS, "`python -m tests.written_files` writes the files of a new version"
    assert sum([file.stat().st_size for kept in FOLDERS for file in kept.iterdir()]) < 200_000


@pytest.mark.parametrize(("parameters", "states"), [*zip(PARAMETERS, STATES, strict=False), (PARAMETERS[0], STATES[2])])
def test_training_goes_on_from_parameters_and_states(parameters: str, states: str, written: Path) -> None:
    nn.load_parameters(written / parameters)
    built, solver = model(), S.Adam(0.01)
    solver.set_parameters(nn.get_parameters())
    solver.load_states(written / states)
    assert solver.updates == STEPS
    agree(trained(built, solver, MORE), told(written)["losses"])


def test_training_goes_on_from_a_checkpoint(written: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(written / "checkpoints.zip", tmp_path)
    built, solver = model(), S.Adam(0.01)
    solver.set_parameters(nn.get_parameters())
    assert nn.Checkpointer(tmp_path / "checkpoints", solver).restore() == STEPS == solver.updates
    agree(trained(built, solver, MORE), told(written)["losses"])


def test_a_program_runs(written: Path) -> None:
    pytest.importorskip("flatbuffers")
    x, t = data()
    for name, array in nn.load_exported(written / "program.nngrad")(x=x, t=t.astype(np.float32)).items():
        agree(array, told(written)[name])


def test_a_network_computes(written: Path) -> None:
    network = NnpLoader(str(written / "network.nnp")).get_network("net", batch_size=4)
    network.inputs["x"].d = data()[0]
    agree(network.outputs["y"].d, told(written)["y"])
