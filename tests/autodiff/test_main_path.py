"""Through how many files one gradient passes: what somebody reads who follows it, top to bottom."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F

ROOT = Path(nn.__file__).parent.parent
MORE_TO_READ = 20
"""How many files more, compilation included, reading the value of a first gradient passes through; the goal is 18."""


def files_entered(run: Callable[[], Any]) -> list[str]:
    """The files of nngrad and of the rules whose functions `run` calls, in the order in which it enters them."""
    found: dict[str, None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith((f"{ROOT}/nngrad/", f"{ROOT}/backward_registry/")):
            found.setdefault(str(Path(name).relative_to(ROOT)), None)

    outer = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(outer)
    return list(found)


def test_a_first_gradient_passes_through_few_files() -> None:
    before = nn.Variable((3,), need_grad=True)
    nn.grad(F.reciprocal(before), before)  # the rewriting rules of an op are gathered when it is first met
    x = nn.Variable((7, 11), need_grad=True)  # a shape that is new, so that nothing is known of it
    y = F.reciprocal(x)
    wrapper, *files = files_entered(lambda: nn.grad([y], [x]))
    assert wrapper == "nngrad/graph/signatures.py"  # which has something to say of what is refused alone
    assert files[:2] == ["nngrad/autodiff/grad.py", "nngrad/autodiff/request.py"]
    assert "backward_registry/elementwise.py" in files
    assert len(files) <= 12, "a gradient passes through\n" + "\n".join(files)


def test_reading_a_first_gradient_passes_through_so_many_more() -> None:
    _ = F.reciprocal(nn.Variable.from_numpy_array(np.ones(2, np.float32))).d  # imports what is said of compilations
    x = nn.Variable.from_numpy_array(np.ones((7, 13), np.float32), need_grad=True)
    gradients: list[nn.Variable] = []
    before = files_entered(lambda: gradients.extend(nn.grad([F.reciprocal(x)], [x])))
    more = sorted({*files_entered(lambda: gradients[0].d)}.difference(before))
    assert len(more) <= MORE_TO_READ, "reading it passes through\n" + "\n".join(more)


def test_recomputation_is_entered_only_where_something_asks_for_it() -> None:
    x = nn.Variable((3, 3), need_grad=True)
    plain = F.tanh(F.tanh(x) @ x)
    with nn.recompute():
        marked = F.tanh(F.tanh(x) @ x)
    (gx,) = nn.grad(plain, x)
    for run, entered in (
        (lambda: nn.grad(plain, x), False),
        (lambda: nn.grad(plain, x, recompute=False), False),
        (lambda: nn.grad(plain, x, recompute="sqrt"), True),
        (lambda: nn.grad(marked, x), True),
        (lambda: nn.grad(plain, x, grad_outputs=[marked]), True),
        (lambda: nn.grad(F.sum(gx), x), False),
    ):
        assert any("nngrad/memory/" in name for name in files_entered(run)) is entered
