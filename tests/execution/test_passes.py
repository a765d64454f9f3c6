"""The passes that prepare a graph for the compiler: what each does is shown, and each can be left out."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.execution import passes
from nngrad.execution.lower import linearize, lower
from nngrad.execution.passes import all_passes, lowered, register_pass
from nngrad.graph import Variable
from nngrad.graph.block import Block
from tests.slow import slow_but

NAMES = [each.name for each in all_passes()]
RNG = np.random.default_rng(7)


def leaf(*shape: int) -> Variable:
    return Variable.from_numpy_array(RNG.standard_normal(shape) / 2, need_grad=True)


def convolved() -> list[Variable]:
    x, w = leaf(2, 3, 6, 6), leaf(3, 3, 3, 3)
    y = F.sum(F.tanh(F.convolution(F.tanh(F.convolution(x, w)), w)))
    return [y, *nn.grad(y, [x, w])]


def recurrent() -> list[Variable]:
    h, w = leaf(2, 3), leaf(3, 3)
    for _ in range(45):
        h = F.tanh(h @ w) * F.sigmoid(h)
    return nn.grad(F.sum(h * h), w)


def looped() -> list[Variable]:
    x = leaf(4, 3)
    _, ys = F.scan(lambda h, s: (F.tanh(h + s), F.sin(s)), leaf(3), x)
    return [F.sum(ys), *nn.grad(F.sum(ys), x), nn.checkpoint(F.sin)(x)]


def rows(text: str) -> dict[str, tuple[int, int, str]]:
    """For each pass how many functions there are before it and after, and what it has changed."""
    lines = [re.fullmatch(r"(\w+) +(\d+) +(\d+) ?(.*)", line) for line in text.splitlines()[1:]]
    return {line[1]: (int(line[2]), int(line[3]), line[4].strip()) for line in lines if line is not None}


def pooled() -> list[Variable]:
    """What has forwards of its own on CPUs, also within a body."""
    x, w = leaf(2, 3, 7, 7), leaf(600)
    y = F.sum(F.max_pooling(x, (3, 3), (2, 2))) + F.sum(F.sum(F.reshape(F.tanh(x), (2, 147)), axis=0) ** 2)
    _, ys = F.scan(lambda h, s: (F.tanh(h + s), F.sum(F.sin(w * F.reshape(s, (3, 1))), axis=0)), leaf(3), leaf(4, 3))
    y = y + F.sum(nn.checkpoint(lambda x: F.sin(F.exp(x)))(x)) + F.sum(ys)
    return [y, *nn.grad(y, [x, w])]


def waves() -> list[Variable]:
    """Sines that several loops read: in second derivatives, in a larger array, and in a body."""
    x, w = leaf(20, 8), leaf(8, 8)
    s = F.sin(x @ w)
    (g,) = nn.grad(F.sum(s), x)
    larger = F.sum(F.cos(F.reshape(w, (1, 8, 8))) * F.tanh(leaf(3, 8, 8)), axis=2)
    _, ys = F.scan(lambda h, s: ((t := F.tan(h)) + s, t * F.tanh(h @ w + t)), leaf(20, 8), leaf(5, 1, 1))
    return [F.sum(s * g), *nn.grad(F.sum(g**2), [x, w]), larger, ys]


@pytest.mark.parametrize("build", slow_but([convolved, looped], [convolved, recurrent, looped, pooled, waves]))
def test_results_without_a_pass_or_any_are_the_same(build: object) -> None:
    graph = build()  # type: ignore[operator]
    nn.forward_all(graph)
    expected = [y.d.copy() for y in graph]
    for without in [[name] for name in NAMES] + [NAMES]:
        with nn.passes(without=without):
            nn.forward_all(graph)
        for y, value in zip(graph, expected, strict=True):
            np.testing.assert_allclose(y.d, value, rtol=1e-5, atol=1e-6, err_msg=str(without))


def test_passes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    nn.show_passes(convolved(), "cpu")
    shown = rows(capsys.readouterr().out)
    assert list(shown) == NAMES
    before, after, changes = shown["channels_last"]
    assert after > before
    assert "channels_last" in changes
    assert shown["roll"][:2] == (after, after)
    nn.show_passes(recurrent(), "cpu")
    before, after, changes = rows(capsys.readouterr().out)["roll"]
    assert after < before / 10
    assert "+" in changes and "loop_of_steps" in changes
    assert re.search(r"a loop: \d+ steps of \d functions", changes)
    nn.show_passes(recurrent(), "gpu")
    assert list(rows(capsys.readouterr().out)) == ["hoist", "inline", "join_loops", "partition"]
    with nn.passes(without=["roll"]):
        nn.show_passes(recurrent(), "cpu")
    before, after, changes = rows(capsys.readouterr().out)["roll"]
    assert (after, changes) == (before, "left out")


def test_a_registered_pass_runs_on_its_platform_alone_and_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(passes, "_before_partition", [*passes._before_partition])

    def with_cosines(block: Block) -> Block:
        return block.with_steps(tuple([(F.cos if op is F.sin else op, given, ins) for op, given, ins in block.steps]))

    register_pass("cpu", "sines_to_cosines", with_cosines, what="sines", may_apply=lambda block: F.sin in block.ops)
    with pytest.raises(ValueError, match="name: there is a pass 'sines_to_cosines' already"):
        register_pass("tpu", "sines_to_cosines", with_cosines, what="sines", may_apply=lambda block: True)
    x = leaf(5)
    y = F.sin(x)
    program = linearize([y]).program
    assert [step[0] for step in lowered(program, "cpu").program.block.steps] == [F.cos]
    assert lowered(program, "tpu").program is program
    with nn.passes(without=["sines_to_cosines"]):
        assert lowered(linearize([y]).program, "cpu").program.block.steps == program.block.steps
    nn.show_passes(y, "cpu")
    assert "-1 sin, +1 cos" in capsys.readouterr().out
    np.testing.assert_allclose(lower(program)(x.d)[0], np.cos(x.d) if jax.default_backend() == "cpu" else np.sin(x.d),
                               rtol=1e-6)  # fmt: skip
