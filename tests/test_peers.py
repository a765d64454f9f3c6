"""The tables of what other libraries have: their facts, and the pages that are made of them."""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.experimental.sparse
import jax.image
import jax.scipy.signal
import jax.scipy.special
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.jax
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from docs_site.peers.differentiable import PEERS, capability, peers_of
from docs_site.peers.facts import nnabla_names, resolve
from docs_site.peers.pages import pages
from nngrad.graph.messages import others, peers

DOCS = Path(__file__).parents[1] / "docs"
WRITE = "python -m docs_site.peers"


@pytest.mark.parametrize("name", sorted(pages()))
def test_pages_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], f"docs/{name} is not up to date: run `{WRITE}`"


def test_what_is_said_to_be_here_is_here() -> None:
    for place in nnabla_names():
        assert place.here or place.note, f"{place.module}.{place.name}: say in nnabla.csv where it is, or why not"
        assert not place.here or resolve(place.here), f"{place.module}.{place.name} is not at {place.here}"
    for wrong in ("nn.no_such", "F.tanh.no_such", "no.tanh"):
        assert not resolve(wrong)
    assert resolve("nn") and resolve("nngrad.training.sequences.PackedSequence") and resolve("nn.Variable.visit")


def test_names_are_listed_once() -> None:
    counts = Counter((place.module, place.name) for place in nnabla_names())
    assert max(counts.values()) == 1
    assert sum(1 for module, _ in counts if module == "nnabla.functions") == 233
    for module, name in [("nnabla", "Variable"), ("nnabla.Variable", "rewire_on"), ("nnabla.solvers", "AMSBound")]:
        assert (module, name) in counts


def test_each_function_of_nnabla_has_itstable() -> None:
    named = {place.name for place in nnabla_names() if place.module == "nnabla.functions"}
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
        for peer, entry in peers_of(function).items():
            assert re.fullmatch(r"([\w.]+(:[01])?)?", entry), f"{function}, {peer}: {entry!r}"
    assert [capability(e) for e in ("", "tanh", "roi_align:1", "sign:0")] == ["", "yes", "once", "no"]
    assert peers_of("no_such_function") == dict.fromkeys(PEERS, "")


def in_jax(entry: str) -> Any:
    """The function of JAX that an entry names."""
    return functools.reduce(getattr, entry.partition(":")[0].split("."), jax)


def test_what_jax_is_said_to_have_it_has() -> None:
    for function in peers():
        entry = peers_of(function)["jax"]
        assert not entry or in_jax(entry) is not None
