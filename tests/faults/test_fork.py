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
