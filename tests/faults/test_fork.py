"""Forked processes: keys of their own, and a clear error where JAX could only wait for ever."""

from __future__ import annotations

import pytest

from .scripts import output_of

IN_CHILD = """
import os, signal, sys
import numpy as np
import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.random import next_key

def in_child(work):
    "What `work` returns in a forked process, or the error that it raises there; 'hangs' if it takes 20 seconds."
    there, here = os.pipe()
    if (pid := os.fork()) == 0:
        signal.alarm(20)
        try:
            said = str(work())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(here, said.encode())
        os._exit(0)
    os.close(here)
    said = os.read(there, 10000).decode()
    os.close(there)
    return said if os.waitpid(pid, 0)[1] == 0 else "hangs"

def three_keys():
    return [next_key().tolist() for _ in range(3)]
"""


@pytest.mark.slow
def test_children_draw_keys_of_their_own() -> None:
    script = IN_CHILD + """
before = three_keys()
for work in (three_keys, three_keys, lambda: in_child(three_keys), lambda: in_child(lambda: in_child(three_keys))):
    print(in_child(work))
print(before)
print(three_keys())
"""
    first, second = output_of(script), output_of(script)
    assert first == second
    keys = [str(key) for line in first for key in eval(line)]
    assert len(set(keys)) == len(keys) == 18
    assert output_of(IN_CHILD + "print(three_keys(), three_keys())") == [f"{first[-2]} {first[-1]}"]


@pytest.mark.slow
def test_seed_makes_the_draws_of_children_reproducible() -> None:
    lines = output_of(IN_CHILD + """
for _ in range(2):
    nn.seed(3)
    print(in_child(three_keys), in_child(three_keys))
print(in_child(lambda: (nn.seed(3), three_keys())[1]))
nn.seed(3)
print(three_keys())
""")
    assert lines[0] == lines[1]
    assert lines[2] == lines[3]


def test_a_process_forked_before_the_first_computation_computes() -> None:
    lines = output_of(IN_CHILD + """
def work():
    x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    y = F.sum(x * x)
    y.forward()
    y.backward()
    return [y.d.tolist(), x.g.tolist()]
print(in_child(work))
print(in_child(work))
print(work())
print(in_child(work))
""")
    assert lines[:3] == ["[5.0, [2.0, 4.0]]"] * 3
    assert lines[3].startswith("RuntimeError: cannot compute in this process: it was forked after JAX")


@pytest.mark.slow
def test_a_process_forked_later_says_that_it_cannot_compute() -> None:
    lines = output_of(IN_CHILD + """
def model(dtype):
    w = nn.Variable.from_numpy_array(np.ones((3, 3)), need_grad=True, dtype=dtype)
    return w, F.sum(F.tanh(w @ w))

(w, y), (v, z), (u, loss) = model("float32"), model("float64"), model("float32")
step = nn.train_step(loss, {"u": u}, S.Sgd(1e-3))
new_step = nn.train_step(z, {"v": v}, S.Adam())
compiled = nn.compile(y, [w])
step()
for x in (y, z):
    x.forward()
    x.backward()
    x.d

def forward_and_backward(x):
    x.forward()
    x.backward()
    return x.d

def one_by_one():
    with nn.auto_forward():
        return F.exp(w).d

def trained_anew():
    solver = S.Adam()
    solver.set_parameters({"w": w})
    return solver.state

for work in (lambda: forward_and_backward(y), lambda: forward_and_backward(z), lambda: F.cos(w).d, lambda: step(),
             lambda: new_step(), lambda: compiled(np.ones((3, 3), np.float32)), one_by_one, trained_anew,
             lambda: model("float32")[1].d):
    print(in_child(work))
print(in_child(lambda: [w.d.shape, float(y.d) > 0, int(np.arange(3).sum()), three_keys() != []]))
y.forward()
print(float(y.d) > 0)
""")
    assert len(lines) == 11
    assert len(lines) == 11
    for line in lines[:9]:
        assert line.startswith("RuntimeError: cannot compute in this process: it was forked after JAX")
        assert "get_context('spawn')" in line
    assert lines[9] == "[(3, 3), True, 3, True]"
    assert lines[10] == "True"
