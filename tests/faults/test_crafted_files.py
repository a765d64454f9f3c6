"""Files that were damaged or made by somebody with bad intentions, and states that no solver can have."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.solvers as S
from nngrad import Variable
from nngrad.files.storage import read_arrays, write_arrays
from nngrad.parameter import get_parameter_or_create
from tests.solver_states import state_arrays


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    nn.clear_parameters()
    yield
    nn.clear_parameters()


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


ONE = entry("F32", [1], 0, 4)
FACTS = {
    "a list": "[]", "deep": "[" * 200_000, "no JSON": "{", "need_grad nothing": '{"need_grad": null}',
    "a number of many digits": '{"need_grad": ' + "9" * 10_000 + "}",
}
CRAFTED = {
    **{f"facts: {name}": file_of({"__metadata__": {"nngrad": text}, "a": ONE}, bytes(4))
       for name, text in FACTS.items()},
    "metadata a list": file_of({"__metadata__": [1]}),
    "metadata of a list": file_of({"__metadata__": {"nngrad": []}}),
    "header a list": file_of([]),
    "header deep": file_of(b"[" * 200_000),
    "header deep objects": file_of(b'{"a":' * 200_000),
    "65 axes": file_of({"a": entry("F32", [1] * 65, 0, 4)}, bytes(4)),
    "a size of 2^63 - 1": file_of({"a": entry("F32", [2**63 - 1], 0, 4)}, bytes(4)),
    "a size of 2^64": file_of({"a": entry("F32", [2**64], 0, 4)}, bytes(4)),
    "sizes that overflow": file_of({"a": entry("U8", [2**62, 4], 0, 0)}),
    "an empty array too long": file_of({"a": entry("F32", [0, 2**63 - 1, 2**63 - 1], 0, 0)}),
    "overlapping": file_of({"a": ONE, "b": ONE}, bytes(4)),
    "a hole": file_of({"a": ONE, "b": entry("F32", [1], 8, 12)}, bytes(12)),
    "offsets backwards": file_of({"a": entry("F32", [1], 4, 0)}, bytes(4)),
    "offsets negative": file_of({"a": entry("F32", [1], -4, 0)}, bytes(4)),
    "offsets fractions": file_of({"a": entry("F32", [1], 0.0, 4.5)}, bytes(4)),
    "more data than said": file_of({"a": ONE}, bytes(5)),
    "an unknown dtype": file_of({"a": entry("X32", [1], 0, 4)}, bytes(4)),
    "complex": file_of({"a": entry("C64", [1], 0, 8)}, bytes(8)),
    "a bool of 7": file_of({"a": entry("BOOL", [1], 0, 1)}, b"\7"),
    "a header longer than memory": struct.pack("<Q", 2**63 - 1) + b"{}",
    "a header longer than the file": struct.pack("<Q", 3) + b"{}",
    "a name of nothing": file_of({"": ONE}, bytes(4)),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_files_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "p.safetensors"
    path.write_bytes(CRAFTED[name])
    w = get_parameter_or_create("w", (1,))
    with pytest.raises(ValueError, match=r"^/.*p\.safetensors: "):
        nn.load_parameters(path)
    assert list(nn.get_parameters(grad_only=False)) == ["w"] and not w.d.any()


def valid_file(folder: Path) -> bytes:
    path = folder / "valid.safetensors"
    nn.save_parameters(path, {
        "a/w": Variable.from_numpy_array(np.ones((2, 3)), need_grad=True), "a/n": Variable((2,), dtype="int32"),
        "half": Variable((3,), dtype="float16"), "flag": Variable((5,), dtype="bool"), "none": Variable((0, 2)),
    })
    return path.read_bytes()


texts = st.sampled_from(
    ["a/w", "a//w", "a", "", "/", "__metadata__", "nngrad", "need_grad", "F64", "BOOL", "BF16", "x"])
numbers = st.sampled_from([-1, 0, 1, 2, 4, 48, 65, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, 1.5, 1e400])
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: Callable[[Any], Any], valid: bytes) -> bytes:
    """A valid file with a few changes: to its bytes, or to its header's tree."""
    size = int.from_bytes(valid[:8], "little")
    if draw(st.booleans()):
        content = bytearray(valid)
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, size + 8) | st.integers(0, len(content)))
            content[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
        return bytes(content)
    header = json.loads(valid[8 : 8 + size])
    facts = json.loads(header["__metadata__"]["nngrad"])
    for _ in range(draw(st.integers(1, 3))):
        node: Any = draw(st.sampled_from([header, facts]))
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = draw(st.sampled_from(keys)) if keys else None
            if key is None or not isinstance(node[key], dict | list) or draw(st.integers(0, 3)) == 0:
                break
            node = node[key]
        if isinstance(node, dict) and (key is None or draw(st.integers(0, 3)) == 0):
            node[draw(texts)] = draw(anything)
        elif key is not None:
            node[key] = draw(anything)
    if isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["nngrad"] = json.dumps(facts)
    return file_of(header, valid[8 + size :])


def test_mutations_of_a_file_load_well_or_are_refused(tmp_path: Path) -> None:
    valid, path = valid_file(tmp_path), tmp_path / "p.safetensors"
    outcomes = {"loaded": 0, "refused": 0}

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(content=mutated(valid))
    def check(content: bytes) -> None:
        nn.clear_parameters()
        w = get_parameter_or_create("w", (2,))
        path.write_bytes(content)
        try:
            loaded = nn.load_parameters(path)
        except ValueError as error:
            assert str(error).startswith(f"{path}: ")
            assert list(nn.get_parameters(grad_only=False)) == ["w"] and not w.d.any()
            outcomes["refused"] += 1
            return
        for name, p in loaded.items():
            assert p.d.shape == p.shape and p.d.dtype == p.dtype
            assert nn.parameter.get_parameter(name) is p
            assert p.spec.differentiable or not p.need_grad
        outcomes["loaded"] += 1

    check()
    assert min(outcomes.values()) > 3, outcomes


# ---------------------------------------------------------------- states


def scaled_solver() -> S.Solver:
    solver = S.Adam()
    solver.loss_scaling(nn.DynamicLossScale(2.0**10, minimum=1.0, maximum=2.0**20))
    solver.set_parameters({"w": Variable.from_numpy_array(np.ones(2), need_grad=True)})
    return solver


@pytest.mark.parametrize(
    ("name", "value"),
    [("loss_scale.scale", np.float32(x)) for x in (np.nan, -1, 3, 2.0**21)] + [("t", np.int32(-1))]
    + [("loss_scale.scale", np.float64(1024)), ("t", np.int64(3)), ("t", np.zeros(1, np.int32)),
       ("mean:w", np.zeros(3)), ("mean:w", np.zeros(2, np.int32))],
)
def test_states_that_no_solver_can_have(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "s.safetensors"
    solver = scaled_solver()
    before = state_arrays(solver)
    solver.save_states(path)
    arrays, facts = read_arrays(path)
    solver.load_states(path)
    write_arrays(path, {**arrays, name: value}, facts)
    with pytest.raises(ValueError, match=rf"s\.safetensors: set_states: '{name}'.*got {_shown(value)}"):
        solver.load_states(path)
    for key, array in state_arrays(solver).items():
        np.testing.assert_array_equal(array, before[key])


def _shown(value: Any) -> str:
    """What the message tells of a value that has another dtype or shape, or is out of bounds."""
    if value.ndim or value.dtype.itemsize == 8:
        return rf"{value.dtype.name}\{list(value.shape)}"
    return "" if value.dtype.kind == "f" else str(value)
