"""Trainings on eight CPU devices end where they end on one, and send what they must. See `runs_on_meshes.py`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.scaling.account import collectives
from tests.processes import Found, found_by, printed_by
from tests.sharded_samples import TOLERANCE

pytestmark = pytest.mark.slow  # whole trainings


@pytest.fixture(scope="module")
def found() -> Found:
    """What `runs_on_meshes.py` has found."""
    return found_by(8, ("tests.runs_on_meshes", "--short"))[0]


# ---------------------------------------------------------------- the same results


@pytest.mark.parametrize("run", ["gan", "pinn", "hvp"])
def test_fifty_steps_end_where_they_end_on_one_device(found: Found, run: str) -> None:
    for difference in found[run].values():
        assert difference["moved"] > 1  # it has learned something
        assert difference["losses"] < 1e-6
        assert difference["parameters"] < 1e-6
        assert difference["worst parameter"] < 1e-6


def test_random_numbers_do_not_depend_on_the_number_of_devices(found: Found) -> None:
    drawn = found["random numbers"]
    assert drawn.pop("another seed") > 1e-3
    assert set(drawn) == {"1", "2", "4", "8"} and max(drawn.values()) < 1e-6


@pytest.mark.parametrize("group", [1, 4])
def test_statistics_are_those_of_the_whole_batch_or_of_groups_on_purpose(found: Found, group: int) -> None:
    alone, divided = (found["statistics"][f"{group} groups, {count} devices"] for count in (1, 4))
    for a, b in zip(alone, divided, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)  # of a second derivative that is 1e3
    whole, groups = (found["statistics"][f"{n} groups, 1 devices"][0] for n in (1, 4))
    assert np.max(np.abs(np.subtract(whole, groups))) > 0.1


# ---------------------------------------------------------------- what is sent


def test_gradients_are_summed_at_once_and_no_batch_is_gathered(found: Found) -> None:
    sent = found["sent"]
    assert sent["pinn"]["counts"] == {"all-reduce": 1}
    assert sent["hvp"]["counts"] == {"all-reduce": 2}  # that of the product comes before that of the gradients
    shapes = [tuple(shape) for _, shape in sent["pinn"]["shapes"]]
    assert {tuple(size) for size in sent["pinn"]["sizes"]} <= set(shapes)


def test_batch_statistics_are_sent_and_those_of_groups_are_not(found: Found) -> None:
    whole, groups = (found["sent"][f"batch statistics, group={n}"]["counts"] for n in (1, 8))
    assert whole["all-reduce"] > 1 and set(whole) == {"all-reduce"}
    assert groups == {"all-reduce": 1}


def test_parameters_over_model_are_never_whole(found: Found) -> None:
    whole, divided = found["sent"]["whole"], found["sent"]["divided"]
    assert [64, 512] in [shape for _, shape in whole["shapes"]]
    sizes = [shape for _, shape in divided["shapes"]]
    assert [64, 512] not in sizes and [512, 64] not in sizes and [64, 256] in sizes
    assert set(divided["counts"]) == {"all-reduce"}
    weights = 3 * 4 * (2 * 64 * 512 + 512)  # with two moments of Adam
    assert whole["arguments"] - divided["arguments"] == weights // 2
    assert divided["temporaries"] < whole["temporaries"]


XLA_GATHERS = {"convolution, groups"}
"""XLA has no way to divide the batch of a convolution in groups, unless each channel is one."""


def test_what_is_computed_row_by_row_sends_sums_of_gradients_alone(found: Found) -> None:
    others = {name for name, sent in found["lean"].items() if any(kind != "all-reduce" for kind, _ in sent)}
    assert others <= XLA_GATHERS
    several = {name for name, sent in found["lean"].items() if len(sent) > 1}
    assert several <= XLA_GATHERS


def test_collectives_are_read_from_the_text() -> None:
    text = "%a = (f32[6]{0}, pred[], f64[6,4]{1,0}) all-reduce(%x, %y), to_apply=%add\n%b = s32[8]{0} all-gather(%z)\n"
    first, second = collectives(text)
    assert first == ("all-reduce", ((6,), (), (6, 4)), 24 + 1 + 192)
    assert second == ("all-gather", ((8,),), 32)


# ---------------------------------------------------------------- every op


OPS = "gather,scatter_nd,top_k_data,max_pooling"
"""Of those whose programs have many kinds of exchanges; `tests.sharded_samples` goes through all."""


def test_samples_give_the_same_in_parts() -> None:
    (lines,) = printed_by(2, ("-W", "error", "-m", "tests.sharded_samples", "--only", OPS, "--least"))
    results = [json.loads(line) for line in lines if line.startswith("{")]
    assert len({entry["id"].partition(",")[0] for entry in results}) == len(OPS.split(","))
    assert not [entry for entry in results if "failed" in entry]
    for entry in results:
        assert max(entry[k]["off"] for k in ("all", "first", "doubled") if k in entry) <= TOLERANCE, entry
