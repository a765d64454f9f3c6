"""How Variables, Functions, programs and tables show themselves, in a line and in notebooks."""

from __future__ import annotations

import ast
import html
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.execution.lower import linearize
from nngrad.graph import functions_of
from nngrad.inspection.shown import quoted

HOSTILE = "</pre><script>alert('&')</script>\n" + "n" * 10_000


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
    assert text_of(x._repr_html_()).count("value") >= 1


def test_a_variable_tells_its_value_where_it_is_known() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]], "x")
    y = F.exp(x)
    assert repr(x) == "<Variable 'x' float64[2, 2] (leaf, need_grad) = [[1. 2.] [3. 4.]]>"
    assert "not computed yet" in text_of(y._repr_html_()) and "computed by" in y._repr_html_()
    assert not y.is_computed  # showing computes nothing
    assert y.d is not None and "2.718" in repr(y) and "54.59" in text_of(y._repr_html_())
    assert "needs a gradient" in x._repr_html_()


OLD = "leaves have changed since"


def is_marked(y: nn.Variable) -> bool:
    marks = {OLD in repr(y), OLD in text_of(y._repr_html_())}
    assert len(marks) == 1
    return marks.pop()


@pytest.mark.parametrize("run", ["read", "forward", "together"])
def test_a_value_says_that_its_leaves_have_changed(run: str) -> None:
    a, other = leaf(1.0), leaf(7.0)
    b = a * 2
    assert not is_marked(b)
    if run == "forward":
        b.forward()
    elif run == "together":
        nn.forward_all([b, b * other])
    assert b.d == 2 and not is_marked(b)
    a.d = 5
    assert b.d == 2 and is_marked(b)  # it is what it was, and says so
    assert repr(b) == f"<Variable float64[] (MulScalar, rank 1) = 2. ({OLD})>"
    other.d = 3
    a.d = 1
    assert not is_marked(b), "it has the same number again"
    held = a.d
    assert not is_marked(b), "to read a leaf changes nothing"
    held[...] = 4
    assert is_marked(b)
    c = b * 10
    assert c.d == 80 and is_marked(b) and not is_marked(c), "b keeps its value, c has that of now"
    b.forward()
    assert b.d == 8 and not is_marked(b)
    a.data.zero()
    assert is_marked(b)


def test_what_a_forward_writes_itself_does_not_count() -> None:
    x, mean, variance = leaf(np.arange(6.0).reshape(3, 2)), leaf(np.zeros((1, 2))), leaf(np.ones((1, 2)))
    y = F.batch_normalization(x, None, None, mean, variance, batch_stat=True)
    z = F.dropout(x * y, 0.5)
    for _ in range(2):
        nn.forward_all([y, z])
        assert y.d is not None and z.d is not None
        assert mean.d.any() and not is_marked(y) and not is_marked(z)
    x.d = 0
    assert is_marked(y) and is_marked(z)


def test_a_parameter_that_a_solver_moves_marks_the_loss() -> None:
    w = leaf([1.0, 2.0])
    loss = F.sum(w**2)
    solver = S.Sgd(0.1)
    solver.set_parameters({"w": w})
    loss.forward()
    loss.backward()
    assert loss.d == 5 and not is_marked(loss)
    solver.update()
    assert is_marked(loss)
    loss.forward()
    assert loss.d == pytest.approx(3.2) and not is_marked(loss)


@pytest.mark.parametrize(("size", "shown"), [
    (0, "= []>"), (1, "= [0.]>"), (5, "= [0. 1. 2. 3. 4.]>"), (1000, "= [0. 1. 2. ... 997. 998. 999.]>"),
])
def test_a_large_array_shows_its_ends(size: int, shown: str) -> None:
    assert repr(leaf(np.arange(size))).endswith(shown)


def test_a_function_fits_a_line_whatever_it_is_given() -> None:
    many = F.add_n(*[leaf(float(i)) for i in range(500)]).parent
    assert repr(many) == f"<AddN({', '.join(['float64[]'] * 8)}, and 492 more) -> float64[]>"
    wide = F.pad(leaf(np.ones((1,) * 8)), pad_width=tuple(range(16))).parent
    for f in (many, wide):
        assert f is not None and len(repr(f)) < 400 and repr(f).isprintable()
        assert len(f._repr_html_()) < 4000
    assert "and 492 more" in text_of(many._repr_html_())


def test_a_function_tells_where_it_comes_from() -> None:
    x = leaf(0.5, "x")
    with nn.source_locations():
        (g,) = nn.grad(F.square(x), x)
    (doubled,) = [f for f in functions_of([g]) if f.order]
    shown = text_of(doubled._repr_html_())
    assert "1, part of the gradient of square" in shown and "test_reprs.py" in shown and "requested at" in shown
    assert "val" in shown and "2.0" in shown


@given(st.text(max_size=200))
def test_names_in_quotes_are_short_and_as_python_reads_them(name: str) -> None:
    shown = quoted(name, 40)
    assert shown.isprintable() and len(shown) <= 42
    if len(repr(name)) <= 42:
        assert ast.literal_eval(shown) == name
    else:
        again = ast.literal_eval(shown)
        assert again.endswith("…") and name.startswith(again[:-1])


def test_names_are_text() -> None:
    x = leaf(1.0, HOSTILE)
    for page in (x._repr_html_(), F.sin(x)._repr_html_(), F.sin(x).parent._repr_html_()):
        assert len(page) < 4000 and "<script" not in page
        text_of(page)
    assert "</pre><script>alert('&')</script>\\n" in text_of(x._repr_html_())


def test_programs_are_told_by_their_size() -> None:
    x = leaf(np.ones(2), "x")
    program = linearize([F.sum(F.sin(F.sin(x)))], device=None).program
    assert repr(program) == "<program: 1 leaves, 3 functions, 1 results>"


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
