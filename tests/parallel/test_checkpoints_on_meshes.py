"""Checkpoints of runs on several devices, and of several processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.processes import Found, found_by, printed_by
from tests.saved_on_meshes import SAVED_AT

pytestmark = pytest.mark.slow  # several processes


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return found_by(8, ("tests.saved_on_meshes", tmp_path_factory.mktemp("saved")))[0]


def test_nothing_of_the_extra_is_imported_before_it_is_needed(found: Found) -> None:
    assert found["imported"] == []


def test_a_resumed_run_on_as_many_devices_ends_at_the_same_bits(found: Found) -> None:
    assert found["on 4"]["done"] == SAVED_AT
    for what in ("arrays", "state", "places"):
        assert found["on 4"][what] == found["whole"][what]


@pytest.mark.parametrize("run", ["on 1", "made"])
def test_a_run_goes_on_with_another_number_of_devices(found: Found, run: str) -> None:
    assert found[run]["done"] == SAVED_AT
    for what in ("arrays", "state"):
        for name, array in found["whole"][what].items():
            np.testing.assert_allclose(found[run][what][name], array, rtol=1e-5, atol=1e-7, err_msg=name)


def test_arrays_come_to_the_placement_of_the_present_run(found: Found) -> None:
    place = found["made"]["places"]["divided/affine/W"]
    assert "'data': 8" in place and "(None, 'data')" in place, place
    assert "SingleDevice" in found["on 1"]["places"]["divided/affine/W"]


def test_what_is_fed_is_divided_over_the_mesh(found: Found) -> None:
    assert [spec.endswith("('data',)") for spec in found["fed"]] == [True, True]


def test_at_sigterm_all_processes_save_the_same_step(tmp_path: Path) -> None:
    (lines_of_both,) = printed_by(
        1, ("-m", "tests.several_hosts.launching", 2, "tests/faults/run_of_several.py", tmp_path))
    said: dict[str, list[str]] = {"[0]": [], "[1]": []}
    for line in lines_of_both:
        if line[:3] in said and line.split()[1] in ("exit", "resumed", "whole"):
            said[line[:3]].append(line[4:])
    step = int(said["[0]"][0].split()[4])
    assert 3 <= step < 400 and (tmp_path / f"{step}.safetensors").is_file()
    for process, lines in said.items():
        assert lines[0] == f"exit code 143 after {step} index {process[1]}"
        assert lines[1].split()[0] == "resumed" and lines[2].split()[0] == "whole"
        assert lines[1].split()[1] == lines[2].split()[1] == said["[0]"][2].split()[1]
