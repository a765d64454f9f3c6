"""Graphs on meshes of eight CPU devices: what they compute, where it lies, what is refused. See `on_meshes.py`."""

from __future__ import annotations

import socket
from typing import Any

import jax
import numpy as np
import pytest

from tests.processes import Found, found_by

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> Found:
    """What the quick parts of `on_meshes.py` have found."""
    return found_by(8, ("tests.on_meshes", "compiled_step", "afterwards", "uneven", "memory", "refused", "scopes",
                        "sums_of_rows"))[0]  # fmt: skip


@pytest.fixture(scope="module")
def trained() -> Found:
    """What the others have found."""
    others = "data_parallel", "tensor_parallel", "graphs", "constraints", "exchanges", "random_numbers"
    return found_by(8, ("tests.on_meshes", *others))[0]


@pytest.fixture(scope="module")
def halves() -> list[Found]:
    """What two processes with two devices each have found, and a third by itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    module = "tests.parts_of_batches"
    return found_by(2, (module, "0", port), (module, "1", port), (module,))


def same(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    """Compare two findings, of numbers in lists and dicts: sums are added up in another order."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    np.testing.assert_allclose(jax.tree.leaves(a), jax.tree.leaves(b), rtol=5 * tolerance, atol=tolerance)


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize("count", [4, 8])
@slow
def test_a_critic_trains_as_on_one_device(trained: Found, count: int) -> None:
    """With batch statistics, masks, noise, a gradient of second order and a last batch that is not divisible."""
    of = trained["data_parallel"]
    alone = of["1"] if count == 8 else of["1, even"]
    assert len({*alone["losses"]}) == len(alone["losses"])
    same(of[str(count)], alone, 3e-6)


@slow
def test_transformations_of_optax_too(trained: Found) -> None:
    same(trained["data_parallel"]["optax, 2"], trained["data_parallel"]["optax, 1"], 3e-6)


@slow
def test_random_numbers_do_not_depend_on_the_mesh(trained: Found) -> None:
    of = trained["random_numbers"]
    assert of["8"] == of["1"]


# ---------------------------------------------------------------- what a step is


def test_a_step_is_compiled_once_and_moves_what_it_has_in_place(found: Found) -> None:
    of = found["compiled_step"]
    before, after = of["compiled"]
    assert before == after <= 2, "the first calls are given copies, which may be of another kind"
    assert of["places"] == ["P()"] or of["places"] == ["PartitionSpec()"]
    assert of["devices"] == [8] and of["statistics"] == [True, True]
    assert of["donated"]
    assert set(of["restored"]) == {8}


def test_gradients_are_summed_together_and_no_batch_is_gathered(found: Found) -> None:
    kinds = [kind for kind, _, _ in found["compiled_step"]["collectives"]]
    assert set(kinds) == {"all-reduce"}
    largest = max(arrays for _, _, arrays in found["compiled_step"]["collectives"])
    assert largest >= 5, "the gradients of all parameters are one sum"


@pytest.mark.parametrize("name", ["critic", "PINN", "shared", "convolution"])
def test_terms_of_a_gradient_are_added_before_they_are_sent(found: Found, name: str) -> None:
    of = found["sums_of_rows"]
    assert 0 <= of[name] <= 2, "the gradient once, and means"
    same(of[f"{name}, 8"], of[f"{name}, 1"], 1e-12)


def test_a_mesh_of_one_device_is_no_mesh(found: Found) -> None:
    assert found["compiled_step"]["one device"] == {"grid": "None", "mesh": "None", "same plan": True}


def test_what_a_report_says_is_of_one_device(found: Found) -> None:
    of = found["memory"]
    assert 0 < of["8"] < of["1"] / 2
    same(of["8, value"], of["1, value"])


# ---------------------------------------------------------------- parameters


@slow
def test_parameters_divided_over_an_axis(trained: Found) -> None:
    of = trained["tensor_parallel"]
    same(of["divided"]["losses"], of["whole"]["losses"])
    shards = of["divided"]["shards"]
    divided = {name for name, (whole, own) in shards.items() if own == whole // 4}
    assert divided == {name for name in shards if name not in ("down/affine/b", "second/conv/b")}
    by_name = [shards[name] for name in sorted(shards)]
    assert of["divided"]["state"] == [[1, 1], *by_name, *by_name]


@slow
def test_weights_that_are_divided_are_never_gathered(trained: Found) -> None:
    of = trained["tensor_parallel"]["attention"]
    assert "model" in of["place"]
    assert of["weight"] > max(size for _, size, _ in of["collectives"])
    for each in (of, trained["tensor_parallel"]["divided"]):
        assert {kind for kind, _, _ in each["collectives"]} == {"all-reduce"}, "of activations and gradients"


@slow
def test_fully_sharded_data_parallel(trained: Found) -> None:
    of = trained["tensor_parallel"]
    same(of["data"]["losses"], of["whole"]["losses"])
    shards = of["data"]["shards"]
    assert {name for name, (whole, own) in shards.items() if own == whole // 8} == {*shards} - {"second/conv/b"}
    by_name = [shards[name] for name in sorted(shards)]
    assert of["data"]["state"] == [[1, 1], *by_name, *by_name]


@slow
def test_values_in_the_middle_are_divided_and_so_are_their_gradients(trained: Found) -> None:
    of = trained["constraints"]
    same(of["8"], of["1"], 1e-4)
    assert "'data', 'model'" in of["place"]


@slow
def test_what_exchanges_elements_between_devices(trained: Found) -> None:
    same(trained["exchanges"]["8"], trained["exchanges"]["1"], 1e-5)


# ---------------------------------------------------------------- other ways to run


@slow
def test_forward_backward_update_compile_and_to_jax(trained: Found) -> None:
    of = trained["graphs"]
    same(of["8"], of["1"], 1e-5)
    assert "data" in of["batch"] and "data" in of["to_jax place"]
    assert set(of["parameters"]) == {8}


def test_what_lies_on_a_mesh_can_be_run_after_its_block(found: Found) -> None:
    of = found["afterwards"]
    assert np.isfinite(of["first"]) and np.isfinite(of["last"]) and of["devices"] == 8


def test_a_batch_that_is_not_divisible_is_divided_in_the_program(found: Found) -> None:
    of = found["uneven"]["sines"]
    assert of == {"step": ["2,6"], "to_jax": ["2,6"]}, "13 rows over eight devices are two on each, with padding"


def test_a_parameter_stays_where_it_was_whatever_its_gradient_is_like(found: Found) -> None:
    of = found["uneven"]
    assert set(of["places"]) <= {"P()", "PartitionSpec()"} and of["compiled"] == 1


# ---------------------------------------------------------------- the scope, and what is refused


def test_a_mesh_is_in_force_in_its_block_and_thread(found: Found) -> None:
    of = found["scopes"]
    assert of["block"] == "mesh(data=8)" and of["after"] == of["thread"] == "None"
    assert of["decorated"] == of["once more"] == "mesh(data=4, model=2)"
    assert of["fewer"] == "[CpuDevice(id=0), CpuDevice(id=1)]"


REFUSED = {
    "sizes": "ValueError: data=4 x model=3 needs 12 devices, but there are 8",
    "fewer": "ValueError: data=4 needs 4 devices, but devices has 8",
    "left": "there are 8 devices, which is not a multiple of 3",
    "kind": "TypeError: data: expected an int, the number of devices",
    "device": r"TypeError: devices\[0\]: expected a jax.Device",
    "nested": r"RuntimeError: mesh: mesh\(data=8\) is already active",
    "another mesh": r"array 0: lies on 4 devices other than those of mesh\(data=8\)",
    "context": "built for one device, .*, within nn.context_scope",
    "host": "calls a Python function on the host",
    "no such axis": "parameter 'affine/W': cannot be divided over 'model', because mesh",
    "not divisible": "parameter 'affine/b': axis 0 .* size 10, which is not divisible by the 8 devices of 'data'",
    "not divisible later": "parameter 'affine/b': axis 0 .* size 10, which is not divisible by the 8 devices of 'data'",
    "step": "parameter 'affine/b': axis 0 .* size 10, which is not divisible by the 8 devices of 'data'",
    "too long": "parameter 'affine/b': has shape",
    "no match": "no parameter matches 'b/.'; the current scope has 'affine/W', 'affine/b'",
    "spec": "TypeError: spec: ",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(found: Found, name: str) -> None:
    with pytest.raises(AssertionError, match=REFUSED[name]):
        raise AssertionError(found["refused"][name])
    assert found["refused"]["names"] == ["affine/W", "affine/b"]


# ---------------------------------------------------------------- parts from several processes


@slow
def test_parts_from_two_processes_are_one_batch(halves: list[Found]) -> None:
    first, second, alone = halves
    assert first == second
    same(first["losses"], alone["losses"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lengths",
         r"array 0: all processes must give parts of the same shape, .*\(4, 6\) in process 0, \(5, 6\) in process 1"),
        ("fixed", r"array 0: the graph was built for shape \(8, 6\), .* a part of 4 rows, got .* \(3, 6\)"),
        ("reading", r"RuntimeError: cannot read an array of shape \(8, 6\) that is divided over several processes"),
        ("values", "parameter 'other/w': the values differ between process 1 and process 0; .* the same seed"),
        ("keys", "random numbers: the keys differ between process 1 and process 0"),
    ],
)
@slow
def test_what_processes_must_agree_on(halves: list[Found], name: str, message: str) -> None:
    for each in halves[:2]:
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(each[name])
