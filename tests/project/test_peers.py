"""The tables of what other libraries have: their facts, and the pages that are made of them."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.experimental.sparse
import jax.image
import jax.scipy.signal
import jax.scipy.special
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.jax
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from docs_site.peers import PEERS, capability, lines_of, nnabla_names, pages
from nngrad.nnabla.names import others, peers
from tests.resolved import resolve
from tests.samples import all_samples

DOCS = Path(__file__).parents[2] / "docs"
WRITE = "python -m docs_site.peers"


@pytest.mark.parametrize("name", sorted(pages()))
def test_pages_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], f"docs/{name} is not up to date: run `{WRITE}`"


def test_what_is_said_to_be_here_is_here() -> None:
    for place in nnabla_names():
        assert place.here or place.note, f"{place.section}.{place.name}: say in nnabla.csv where it is, or why not"
        assert not place.here or resolve(place.here), f"{place.section}.{place.name} is not at {place.here}"
    for wrong in ("nn.no_such", "F.tanh.no_such", "no.tanh"):
        assert not resolve(wrong)
    assert resolve("nn") and resolve("nngrad.training.step.TrainStep") and resolve("nn.Variable.visit")


def test_names_are_listed_once() -> None:
    counts = Counter((place.section, place.name) for place in nnabla_names())
    assert max(counts.values()) == 1
    assert sum(1 for module, _ in counts if module == "nnabla.functions") == 233
    for module, name in [("nnabla", "Variable"), ("nnabla.Variable", "rewire_on"), ("nnabla.solvers", "AMSBound")]:
        assert (module, name) in counts


def test_each_function_of_nnabla_that_is_here_has_its_line() -> None:
    named = {place.name for place in nnabla_names() if place.section == "nnabla.functions" and place.here}
    assert {line["nnabla"].partition(":")[0] for line in peers().values()} - {""} == named
    lines = list(peers())
    assert lines == sorted(set(lines)), "the lines of peers.csv are sorted, each function once"


def test_names_of_other_libraries_lead_to_what_is_here() -> None:
    assert list(others()) == list(dict.fromkeys(others())) and not others().keys() & peers().keys()
    roots = {"nn": nn, "F": F, "PF": PF, "S": S, "nngrad": nn, "x": nn.Variable(()), "solver": S.Adam(),
             "module": nn.Module()}
    for name, line in others().items():
        expressions = re.findall(r"\b(nn|F|PF|S|nngrad|x|solver|module)((?:\.[A-Za-z]\w*)+)", line["here"])
        assert expressions or name in ("outer", "hypot"), name
        for root, path in expressions:
            functools.reduce(getattr, path[1:].split("."), roots[root])


def test_entries() -> None:
    for function in peers():
        for peer in PEERS:
            entry = peers()[function][peer]
            assert re.fullmatch(r"([\w.]+(:[01])?)?", entry), f"{function}, {peer}: {entry!r}"
    assert [capability(e) for e in ("", "tanh", "roi_align:1", "sign:0")] == ["", "yes", "once", "no"]


WITH_OTHER_VALUES = list(lines_of("pytorch.csv"))
RANDOM = {"dropout", "gumbel_softmax", "rand_beta", "rand_gamma", "rrelu"}


def flat(values: Any) -> list[Any]:
    """All arrays of nested results."""
    if isinstance(values, list | tuple):
        return [each for value in values for each in flat(value)]
    return [np.asarray(values.d if isinstance(values, nn.Variable) else values)]


def are_equal(values: list[Any], others: list[Any]) -> bool:
    return len(values) == len(others) and all([
        a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True)
        for a, b in zip(values, others, strict=True)
    ])


@pytest.mark.slow
def test_other_values_than_those_of_pytorch_are_said_and_there_is_a_way_to_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(3, 4)) for name in "mnabc"}
    arrays |= {
        "p": rng.uniform(0.1, 0.9, (3, 4)), "q": rng.uniform(0.1, 0.9, (3, 4)),
        "t": rng.uniform(size=(3, 4)).round(), "i": np.array([0, 2, 1]), "i2": np.array([[0, 1], [2, 1], [3, 0]]),
        "h": np.array([-1.5, -0.5, 0.5, 1.5, 2.5]), "x": rng.normal(size=(1, 8, 4, 4)), "s": rng.normal(size=(2, 5, 4)),
        "g": rng.normal(size=(3, 3)), "r": rng.normal(size=2), "v": rng.normal(size=3),
    }
    there = {"torch": torch, "TF": torch.nn.functional} | {n: torch.tensor(x) for n, x in arrays.items()}
    here = {"F": F, "math": math} | {n: nn.Variable.from_numpy_array(x) for n, x in arrays.items()}
    for line in WITH_OTHER_VALUES:
        with warnings.catch_warnings(action="ignore"):
            expected = flat(eval(line["pytorch"], there))
        with contextlib.suppress(ValueError):  # an error is no silent difference
            assert not are_equal(flat(eval(line["here"], here)), expected), f"{line['function']} has the same values"
        assert not line["same"] or are_equal(flat(eval(line["same"], here)), expected), line["same"]


@pytest.mark.slow
def test_gradients_at_kinks_are_those_that_the_page_for_users_of_pytorch_states() -> None:
    torch = pytest.importorskip("torch")
    bound = np.array([-1.0, 1.0])
    for function, peer, at, here, there in (
        (F.abs, torch.abs, [0.0], 1, 0), (lambda x: F.absolute_error(x, 0 * x), torch.abs, [0.0], 1, 0),
        (lambda x: F.clip_by_value(x, -1, 1), lambda x: torch.clamp(x, -1, 1), bound, 0.5, 1),
        (lambda x: F.maximum_scalar(x, 1.0), lambda x: torch.clamp_min(x, 1), [1.0], 0.5, 1),
        (lambda x: F.minimum_scalar(x, 1.0), lambda x: torch.clamp_max(x, 1), [1.0], 0.5, 1),
        (F.hard_tanh, torch.nn.functional.hardtanh, bound, 1, 0),
        (lambda x: F.prelu(x, F.constant(0.25, (1,))), lambda x: torch.where(x > 0, x, x / 4), [0.0], 1, 1 / 4),
        (lambda x: F.elu(x, 0.5), lambda x: torch.nn.functional.elu(x, 0.5), [0.0], 1, 0.5),
        (F.relu, torch.relu, [0.0], 0, 0), (F.relu6, torch.nn.functional.relu6, [0.0, 6.0], 0, 0),
        (lambda x: F.leaky_relu(x, 0.1), lambda x: torch.nn.functional.leaky_relu(x, 0.1), [0.0], 0.1, 0.1),
        (F.norm, torch.linalg.vector_norm, [0.0, 0.0], 0, 0),
        (lambda x: F.norm(F.concatenate(x, F.constant(1.0, (1,)), axis=0), p=1), torch.abs, [0.0], 1, 0),
        (F.max, torch.amax, [2.0, 2.0], 0.5, 0.5),
    ):
        x, t = nn.Variable.from_numpy_array(np.array(at)), torch.tensor(at, dtype=torch.float64, requires_grad=True)
        np.testing.assert_allclose(nn.grad(F.sum(function(x)), x)[0].d, np.full(len(at), here))
        np.testing.assert_allclose(torch.autograd.grad(peer(t).sum(), t)[0], np.full(len(at), there))


@pytest.mark.slow
def test_functions_beside_pytorchs_have_equal_values_unless_it_is_said() -> None:
    torch = pytest.importorskip("torch")
    said = {line["function"] for line in WITH_OTHER_VALUES} | RANDOM
    compared, other = 0, []
    for sample in all_samples():
        entry = peers().get(sample.name, {}).get("pytorch", "").partition(":")[0]
        if not entry or sample.arguments or sample.name in said or not sample.inputs:
            continue
        arrays = [draw(np.random.default_rng(7)) for draw in sample.inputs]
        try:
            function = functools.reduce(getattr, entry.split("."), torch)
            expected = flat(function(*map(torch.tensor, arrays)))
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError, Warning):
            continue  # takes other arguments
        got = flat(getattr(F, sample.name)(*map(nn.Variable.from_numpy_array, arrays)))
        compared += 1
        if not are_equal(got, expected):
            other.append(sample.name)
    assert set(other) == {"pack_padded_sequence"}, "one that returns more than PyTorch's, and those with other values"
    assert compared > 100


def in_jax(entry: str) -> Any:
    """The function of JAX that an entry names."""
    return functools.reduce(getattr, entry.partition(":")[0].split("."), jax)


def test_what_jax_is_said_to_have_it_has() -> None:
    for function in peers():
        entry = peers()[function]["jax"]
        assert not entry or in_jax(entry) is not None
