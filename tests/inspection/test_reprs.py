"""How Variables, Functions, programs and tables show themselves, in a line and in notebooks."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import nngrad as nn
import nngrad.functions as F


def leaf(value: Any, name: str = "") -> nn.Variable:
    x = nn.Variable.from_numpy_array(np.asarray(value, np.float64), need_grad=True)
    x.name = name
    return x


def text_of(page: str) -> str:
    """What a page says, once its elements are well nested."""
    opened: list[str] = []
    for slash, tag in re.findall(r"<(/?)(\w+)[^<>]*>", page):
        if slash:
            assert opened.pop() == tag
        else:
            opened.append(tag)
    assert not opened
    assert "script" not in re.findall(r"<(\w+)", page)
    return html.unescape(re.sub(r"<[^<>]*>", " ", page))


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=40),
                  elements=st.sampled_from([0.0, 1.0, -1.5, 1e-300, np.nan, np.inf])),
    st.text(max_size=200),
)  # fmt: skip
def test_a_variable_fits_a_line(value: Any, name: str) -> None:
    x = leaf(value, name)
    for shown in (repr(x), repr(x * 2.0)):
        assert shown.isprintable() and len(shown) <= 200


def test_a_function_fits_a_line_whatever_it_is_given() -> None:
    many = F.add_n(*[leaf(float(i)) for i in range(500)]).parent
    assert repr(many) == f"<AddN({', '.join(['float64[]'] * 8)}, and 492 more) -> float64[]>"
    wide = F.pad(leaf(np.ones((1,) * 8)), pad_width=tuple(range(16))).parent
    for f in (many, wide):
        assert f is not None and len(repr(f)) < 400 and repr(f).isprintable()


def test_tables_say_in_notebooks_what_they_say_as_text() -> None:
    weights = [leaf(np.eye(3), f"w{i}") for i in range(9)]
    h = leaf(np.ones((16, 3)))
    for w in weights:
        h = F.tanh(h @ w)
    loss = F.sum(h)
    gradients = nn.grad(loss, weights, recompute="sqrt")
    again = nn.grad(F.sum(gradients[0]), weights[0])
    for table in (nn.count([loss, *gradients]), nn.explain(again), nn.memory_report([loss, *gradients], compile=False)):
        shown = text_of(table._repr_html_())
        words = re.findall(r"[\w./]+", str(table))
        assert len(words) > 10
        missing = [word for word in words if word not in shown and not set(word) <= set("-▁▂▃▄▅▆▇█") and word != "x"]
        assert not missing
